//! Chat templates that loop, recurse, grow, raise or nest.

use serde_json::{Value, json};

use super::case::Case;
use super::world::{model, write};

const CHAT: [&str; 3] = ["--chat", "--prompt", "hello"];

pub(crate) fn cases() -> Vec<Case> {
    [work(), growth(), nesting(), wrong(), files()].concat()
}

fn template(name: &str, source: &str, words: &[&str]) -> Case {
    let source = source.to_owned();
    Case::generate(name, &CHAT, words, move |here| {
        model(here);
        write(&here.join("model/chat_template.jinja"), &source);
    })
}

const LOOP: &str = "{% for a in range(100000) %}{% for b in range(100000) %}";
const ENDS: &str = "{% endfor %}{% endfor %}";

/// Work without end.
fn work() -> Vec<Case> {
    let fuel: &[&str] = &["chat template", "fuel"];
    vec![
        template("loops in loops", &format!("{LOOP}x{ENDS}"), fuel),
        template("loops that print nothing", &format!("{LOOP}{ENDS}"), fuel),
        template(
            "a macro that calls itself",
            "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
            &["chat template", "recursion"],
        ),
        template(
            "two macros that call each other",
            "{% macro f(n) %}{{ g(n) }}{% endmacro %}{% macro g(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
            &["chat template", "recursion"],
        ),
        template(
            "a loop that calls itself",
            "{% for m in [1] recursive %}{{ loop([1]) }}{% endfor %}",
            &["chat template", "recursion"],
        ),
        template(
            "a template that includes itself",
            "{% include 'default' %}",
            &["chat template", "non-existing template 'default'"],
        ),
        template(
            "a template that extends itself",
            "{% extends 'default' %}",
            &["chat template", "does not exist"],
        ),
        template(
            "a range of a billion",
            "{{ range(1000000000) | length }}",
            &["chat template", "range has too many elements"],
        ),
        template(
            "sorting again and again",
            "{% for i in range(100000) %}{% set x = range(1000)|list|sort %}{% endfor %}",
            fuel,
        ),
        template(
            "many splits",
            "{% set s = 'a'*100000 %}{% for i in range(1000) %}{% set x = s.split('a') %}{% endfor %}",
            fuel,
        ),
    ]
}

/// Texts and lists that grow.
fn growth() -> Vec<Case> {
    let double = "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
    let fuel: &[&str] = &["chat template", "fuel"];
    let parts: &[&str] = &["chat template", "more than 1048576 parts"];
    let columns: &[&str] = &["chat template", "more than 9999 columns or digits"];
    let json: &[&str] = &[
        "chat template",
        "the JSON text would have more than 67108864 bytes",
    ];
    let fields: &[&str] = &[
        "chat template",
        "the text could have more than 67108864 bytes",
    ];
    vec![
        template(
            "a text that doubles",
            &format!("{double}{{{{ ns.s }}}}"),
            fuel,
        ),
        template(
            "a text that doubles by addition",
            &double.replace('~', "+"),
            fuel,
        ),
        template("a text times a billion", "{{ 'a' * 1000000000 }}", fuel),
        template(
            "a list times a billion",
            "{{ [1] * 1000000000 }}",
            &["chat template", "a list is multiplied"],
        ),
        template(
            "a list times a hundred million",
            "{% set x = [1] %}{{ (x * 100000000) ~ '' }}",
            parts,
        ),
        template(
            "a list times a hundred million compared",
            "{% set x = [1] %}{{ x * 100000000 == x * 100000000 }}",
            parts,
        ),
        template(
            "a constant list times a billion",
            "{{ ([[1]*100000000]*100000000) ~ '' }}",
            &["chat template", "multiplied"],
        ),
        template(
            "a text indented by a billion",
            "{{ 'a\nb' | indent(1000000000) }}",
            fuel,
        ),
        template(
            "a text replaced by larger ones",
            "{{ ('a'*1000000) | replace('a', 'b'*1000000) }}",
            fuel,
        ),
        template(
            "a method that replaces by larger ones",
            "{{ ('a'*100000).replace('a', 'b'*100000) }}",
            fuel,
        ),
        template(
            "a text joined by larger ones",
            "{{ range(100000) | join('b'*1000000) }}",
            fuel,
        ),
        template(
            "a number of a billion digits",
            "{{ '%1000000000d' | format(3) }}",
            columns,
        ),
        template(
            "a method with a width of a billion",
            "{{ '{:1000000000}'.format(1) }}",
            columns,
        ),
        template(
            "a width of a billion filled with braces",
            "{{ '{:}<1000000000}'.format(1) }}",
            columns,
        ),
        template(
            "a width of a billion after a key with a brace",
            "{{ '{0[}]:1000000000}'.format({'}': 1}) }}",
            columns,
        ),
        template(
            "a method with 100,000 fields of a megabyte",
            "{{ ('{0}' * 100000).format('a' * 1000000) }}",
            fields,
        ),
        template(
            "a method with 100,000 fields of 9,999 columns",
            "{{ ('{0:9999}' * 100000).format(1) }}",
            fields,
        ),
        template(
            "a method with 100,000 named fields",
            "{{ ('{a[b]}' * 100000).format(a={'b': 'a' * 1000000}) }}",
            fields,
        ),
        template(
            "a format of 100,000 fields of a megabyte",
            "{{ ('%(a)s' * 100000) | format({'a': 'x' * 1000000}) }}",
            fields,
        ),
        template(
            "a format of 100,000 named fields",
            "{{ ('%(a)s' * 100000) | format(a='x' * 1000000) }}",
            fields,
        ),
        template(
            "a format of 100,000 fields of 9,999 columns",
            "{{ ('%9999d' * 100000) | format(1) }}",
            fields,
        ),
        template(
            "a format of usual size",
            "{{ '%s-%05d'|format('a', 7) }}{{ '{} {b:>9}'.format('c', b='d') }}",
            &["generated tokens"],
        )
        .succeeds(),
        template(
            "a date of a million columns",
            "{{ strftime_now('%255Y' * 4000) }}",
            &["chat template", "20000 bytes"],
        ),
        template(
            "every variable printed",
            "{{ debug() }}",
            &["chat template", "debug is unknown"],
        ),
        template(
            "batches filled up to a billion",
            "{{ [1] | batch(1000000000, 'x') }}",
            fuel,
        ),
        template("a billion slices", "{{ [1] | slice(1000000000) }}", fuel),
        template(
            "a text joined of itself",
            "{% set x = 'a' * 30000000 %}{{ ', '.join([x, x, x, x]) }}",
            fuel,
        ),
        Case::generate(
            "a text that doubles for a chat of a megabyte",
            &["--chat", "--prompt-file", "{here}/chat"],
            &["chat template", "fuel"],
            |here| {
                model(here);
                write(&here.join("chat"), "a".repeat(1 << 20));
                let source = "{% set ns = namespace(s=messages[0].content) %}\
                    {% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
                write(&here.join("model/chat_template.jinja"), source);
            },
        ),
        template(
            "a method with a precision of a billion",
            "{{ '{:.1000000000f}'.format(1.5) }}",
            columns,
        ),
        template(
            "a power of a million",
            "{{ 10 ** 1000000 }}",
            &["chat template", "unable to calculate 10 ** 1000000"],
        ),
        template(
            "JSON with an indent of a megabyte",
            "{{ range(10000) | list | tojson(indent='x'*1000000) }}",
            json,
        ),
        template(
            "JSON with separators of a megabyte",
            "{{ range(10000) | list | tojson(separators=['x'*1000000, ':']) }}",
            json,
        ),
        template(
            "a date of a billion columns",
            "{{ strftime_now('%1000000000Y') }}",
            &["chat template", "width is too big"],
        ),
        template(
            "a prompt of megabytes",
            "{% for i in range(300) %}{{ 'a'*10000 }}{% endfor %}",
            &["prompt 0", "tokens"],
        ),
    ]
}

/// Values in values.
fn nesting() -> Vec<Case> {
    let deep = "{% set ns = namespace(x=[]) %}{% for a in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    let maps = deep.replace("[ns.x]", "{'a': ns.x}");
    let round = "{% set ns = namespace(x=1) %}{% set ns.x = ns %}";
    let wide: String = (0..60)
        .map(|_| "{% set x = [x, x] %}{% set y = [y, y] %}")
        .collect();
    let wide = format!("{{% set x = 1 %}}{{% set y = 1 %}}{wide}");
    let brackets = format!("{{{{ {}1{} }}}}", "[".repeat(100_000), "]".repeat(100_000));
    let minus = format!("{{{{ {}1 }}}}", "-".repeat(250_000));
    let blocks = "{% if true %}".repeat(20_000);
    let long: String = (0..12_000).map(|_| "{% set x = [x] %}").collect();
    let parts: &[&str] = &["chat template", "more than 1048576 parts"];
    let depth: &[&str] = &["chat template", "nested deeper than 128"];
    let holds: &[&str] = &["chat template", "a namespace inside of a namespace"];
    let recursion: &[&str] = &["chat template", "syntax error", "recursion limits"];
    let mut cases: Vec<Case> = [
        "{{ x }}",
        "{{ x ~ '' }}",
        "{{ x | tojson }}",
        "{{ x | string }}",
        "{{ x | pprint }}",
        "{{ x == y }}",
        "{{ {x: 1} }}",
        "{{ [x, y] | sort }}",
        "{{ [x, y] | unique }}",
        "{{ '%s' | format(x) }}",
        "{{ x in [y] }}",
        "{{ [x] | join }}",
    ]
    .into_iter()
    .map(|end| {
        template(
            &format!("a value of 2^60 parts in {end}"),
            &format!("{wide}{end}"),
            parts,
        )
    })
    .collect();
    for (name, source, words) in [
        ("lists in lists", deep.to_owned(), depth),
        ("lists in lists, printed", format!("{deep}{{{{ ns.x }}}}"), depth),
        ("lists in lists, as JSON", format!("{deep}{{{{ ns.x | tojson }}}}"), depth),
        ("mappings in mappings", maps, depth),
        ("a namespace that holds itself", round.to_owned(), holds),
        ("a namespace in a list that it holds", "{% set ns = namespace(x=1) %}{% set ns.x = [{'a': ns}] %}{{ ns }}".to_owned(), holds),
        ("a template of brackets", brackets, recursion),
        ("a template of blocks in blocks", blocks, recursion),
        ("a template that nests by its length", format!("{{% set x = 1 %}}{long}{{{{ x }}}}"), depth),
        ("batches of batches", "{% set ns = namespace(x=[1]) %}{% for a in range(1000) %}{% set ns.x = (ns.x * 2) | batch(2) %}{% endfor %}".to_owned(), parts),
        ("macros that double", "{% macro f(x, n) %}{% if n %}{{ f([x, x], n - 1) }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ f(1, 60) }}".to_owned(), parts),
    ] {
        cases.push(template(name, &source, words));
    }
    let items = "{% set ns = namespace(x=1) %}{% set ns.x = ns | items %}{% set ns.x = ns | items %}{{ ns.x }}";
    let once = template(
        "a namespace that holds its own items",
        items,
        &["generated tokens"],
    );
    cases.push(once.succeeds());
    let chain = |name: &str, part: &str, count: usize| {
        let source = format!("{{{{ 1{} }}}}", part.repeat(count));
        template(name, &source, &["generated tokens"]).succeeds()
    };
    cases.push(template("a template of 250,000 signs", &minus, &["generated tokens"]).succeeds());
    cases.extend([
        chain("a sum of 100,000 terms", "+1", 100_000),
        chain("100,000 filters", "|int", 60_000),
        chain("a choice of 20,000", " if 1 else 1", 20_000),
    ]);
    cases
}

/// Templates that are wrong, or say no.
fn wrong() -> Vec<Case> {
    let undefined: &[&str] = &["chat template", "undefined value"];
    vec![
        template(
            "a template that raises",
            "{{ raise_exception('never') }}",
            &["refuses these messages", "never"],
        ),
        template(
            "a template that raises a megabyte",
            "{{ raise_exception('never' * 200000) }}",
            &["never"],
        ),
        template(
            "an unclosed block",
            "{% if %}",
            &["chat template", "syntax error", "end of block"],
        ),
        template(
            "an unclosed variable",
            "{{ 'a",
            &["chat template", "syntax error", "end of string"],
        ),
        template("an unknown filter", "{{ 1 | mystery }}", &["mystery"]),
        template("an unknown function", "{{ mystery() }}", &["mystery"]),
        template("an unknown method", "{{ 'a'.mystery() }}", &["mystery"]),
        template(
            "an undefined value",
            "{{ messages.nothing.further }}",
            undefined,
        ),
        template(
            "a division by zero",
            "{{ 1 // 0 }}",
            &["chat template", "unable to calculate 1 // 0"],
        ),
        template(
            "a date that is no date",
            "{{ strftime_now('%') }}",
            &["chat template", "strftime_now", "invalid format string"],
        ),
        template(
            "a file of the system",
            "{% include '/etc/passwd' %}",
            &["chat template", "non-existing template '/etc/passwd'"],
        ),
        template(
            "Python's way out",
            "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            undefined,
        ),
        template("a template that says nothing", "", &["prompt 0", "empty"]),
        template(
            "a sound template",
            "<{{ messages[0].content }}>",
            &["generated tokens"],
        )
        .succeeds(),
    ]
}

/// The files that templates come from.
fn files() -> Vec<Case> {
    let config = |name: &str, value: Value, words: &[&str]| {
        Case::generate(name, &CHAT, words, move |here| {
            model(here);
            std::fs::remove_file(here.join("model/chat_template.jinja")).unwrap();
            write(&here.join("model/tokenizer_config.json"), value.to_string());
        })
    };
    let text = |name: &str, bytes: &'static [u8], words: &[&str]| {
        Case::generate(name, &CHAT, words, move |here| {
            model(here);
            write(&here.join("model/tokenizer_config.json"), bytes);
        })
    };
    const FILE: &str = "tokenizer_config.json";
    vec![
        config("no template", json!({}), &["no chat template"]),
        config(
            "a template that is a number",
            json!({"chat_template": 3}),
            &[FILE, "chat_template"],
        ),
        config(
            "no templates",
            json!({"chat_template": []}),
            &[FILE, "chat_template"],
        ),
        config(
            "a template without a name",
            json!({"chat_template": [{"template": "x"}]}),
            &[FILE, "chat_template"],
        ),
        config(
            "a template in the settings that is too long",
            json!({"chat_template": "x".repeat(2 << 20)}),
            &["chat template", "bytes"],
        ),
        text("settings that are not JSON", b"{", &[FILE, "JSON"]),
        text("settings that are a list", b"[]", &[FILE, "JSON object"]),
        text(
            "settings of bytes that are not UTF-8",
            b"{\"a\": \"\xFF\"}",
            &[FILE, "not UTF-8"],
        ),
        text(
            "settings with half a surrogate pair",
            br#"{"bos_token": "\ud800"}"#,
            &[FILE, "hex escape"],
        ),
    ]
}
