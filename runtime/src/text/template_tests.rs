use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::*;

fn render(source: &str, extra: Value) -> Result<String, TemplateError> {
    let extra = extra.as_object().cloned().unwrap_or_default();
    ChatTemplate::from_source(source)?.render(&[Message::new("user", "Hi")], None, true, &extra)
}

fn folder(files: &[(&str, Value)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let text = content
            .as_str()
            .map_or_else(|| content.to_string(), str::to_owned);
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn load_and_render(path: &Path, tools: Option<&[Value]>) -> String {
    let template = ChatTemplate::load(path).unwrap();
    template
        .render(&[Message::new("user", "Hi")], tools, false, &Map::new())
        .unwrap()
}

#[test]
fn the_shipped_template_renders() {
    let shipped =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/checkpoints/tiny-python");
    let template = ChatTemplate::load(shipped).unwrap();
    let messages = [
        Message::new("user", "Write it."),
        Message::new("assistant", "pass"),
    ];
    let render = |prompt| {
        template
            .render(&messages, None, prompt, &Map::new())
            .unwrap()
    };
    let chat = "<|im_start|>user\nWrite it.<|im_end|>\n<|im_start|>assistant\npass<|im_end|>\n";
    assert_eq!(render(false), chat);
    assert_eq!(render(true), format!("{chat}<|im_start|>assistant\n"));
}

#[test]
fn files_are_tried_in_order() {
    let config = json!({"chat_template": "config {{ bos_token }}{{ eos_token }}{{ pad_token }}",
        "bos_token": {"content": "<s>", "special": true}, "eos_token": "</s>", "pad_token": null});
    let all = folder(&[
        ("chat_template.jinja", json!("jinja {{ bos_token }}")),
        ("chat_template.json", json!({"chat_template": "json"})),
        ("tokenizer_config.json", config),
        (
            "special_tokens_map.json",
            json!({"bos_token": "no", "pad_token": "<pad>"}),
        ),
    ]);
    assert_eq!(load_and_render(all.path(), None), "jinja <s>");
    std::fs::remove_file(all.path().join("chat_template.jinja")).unwrap();
    assert_eq!(load_and_render(all.path(), None), "json");
    std::fs::remove_file(all.path().join("chat_template.json")).unwrap();
    assert_eq!(load_and_render(all.path(), None), "config <s></s><pad>");
    std::fs::remove_file(all.path().join("tokenizer_config.json")).unwrap();
    let error = ChatTemplate::load(all.path()).unwrap_err();
    assert!(matches!(error, TemplateError::Absent { .. }), "{error}");
}

#[test]
fn named_templates_are_chosen_by_use() {
    let list = json!([{"name": "rag", "template": "rag"}, {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools | length }} tools"}]);
    let named = folder(&[("tokenizer_config.json", json!({"chat_template": list}))]);
    assert_eq!(load_and_render(named.path(), None), "plain");
    assert_eq!(load_and_render(named.path(), Some(&[json!({})])), "1 tools");
}

#[test]
fn wrong_files_are_named() {
    for (name, content) in [
        ("tokenizer_config.json", json!("{")),
        ("tokenizer_config.json", json!([1])),
        ("tokenizer_config.json", json!({"chat_template": 3})),
        (
            "tokenizer_config.json",
            json!({"chat_template": [{"name": "default"}]}),
        ),
        ("chat_template.json", json!({"chat_template": []})),
    ] {
        let wrong = folder(&[(name, content.clone())]);
        let error = ChatTemplate::load(wrong.path()).unwrap_err().to_string();
        assert!(error.contains(name), "{content}: {error}");
    }
    let wrong = folder(&[("chat_template.jinja", json!("a\n{% if %}"))]);
    let error = ChatTemplate::load(wrong.path()).unwrap_err();
    assert!(matches!(error, TemplateError::Syntax { .. }));
    assert!(error.to_string().contains(":2"), "{error}");
}

/// Expected texts are what jinja2 gives with the settings of `transformers`.
#[test]
fn templates_behave_as_in_python() {
    let cases = [
        (
            "{%- for c in 'a b'.split(' ') %}\n    {{ c.upper() }}\n{% endfor %}",
            "    A\n    B\n",
        ),
        ("{{ 'x ' + messages[0]['content'].strip() }}", "x Hi"),
        ("{{ none }} {{ true }} {{ undefined_name }}|", "None True |"),
        (
            "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "01",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "1",
        ),
        (
            "{% macro f(a, b='!') %}{{ a }}{{ b }}{% endmacro %}{{ f('hi') }}",
            "hi!",
        ),
        (
            "{{ messages[-1].role }}{{ messages[0].get('missing', 'x') }}",
            "userx",
        ),
        (
            "{% generation %}\nA{% endgeneration %}{%- generation -%} B {%- endgeneration -%} C",
            "ABC",
        ),
        (
            "{{ {'b': [1, 2.0, 1e16, true, none], 'a': '<é\"\\n>'} | tojson }}",
            "{\"b\": [1, 2.0, 1e+16, true, null], \"a\": \"<é\\\"\\n>\"}",
        ),
        (
            "{{ {'b': [], 'a': [1]} | tojson(indent=2, sort_keys=true) }}",
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}",
        ),
        (
            "{{ ['é😀', 1] | tojson(ensure_ascii=true, separators=[',', ':']) }}",
            "[\"\\u00e9\\ud83d\\ude00\",1]",
        ),
        (
            "{{ none is iterable }} {{ nothing is iterable }} {{ 'a' is iterable }}",
            "False True True",
        ),
        (
            "{{ 'a' is sequence }} {{ {} is sequence }} {{ 3 is sequence }}",
            "True True False",
        ),
        (
            "{% if tools is iterable and tools | length > 0 %}tools{% endif %}a\r\nb\rc",
            "a\nb\nc",
        ),
        ("{{ key }}", "value"),
        (
            "{% if enable_thinking is defined and enable_thinking is false %}off{% endif %}",
            "off",
        ),
        (
            "{{ 'a' in 'abc' }}{{ messages is iterable }}{{ messages[0] is mapping }}",
            "TrueTrueTrue",
        ),
        ("{{ '%s-%d' | format('a', 3) }}", "a-3"),
        ("{{ messages | map(attribute='role') | join(',') }}", "user"),
        (
            "{{ '  x'.lstrip() ~ 'yy'.rstrip('y') }}{{ 'abc'.startswith('ab') }}{{ 'abc'[::-1] }}",
            "xTruecba",
        ),
    ];
    for (source, expected) in cases {
        let extra = json!({"key": "value", "enable_thinking": false});
        let rendered = render(source, extra).unwrap_or_else(|error| error.to_string());
        assert_eq!(rendered, expected, "{source}");
    }
}

#[test]
fn floats_are_written_as_in_python() {
    for (value, text) in [
        (0.0, "0.0"),
        (-1.5, "-1.5"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e+16"),
        (1.25e-7, "1.25e-07"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (123456.789, "123456.789"),
    ] {
        assert_eq!(python_json::float_repr(value), text);
    }
}

#[test]
fn failures_are_told_apart() {
    let raised = render("{{ raise_exception('no ' ~ messages[0].role) }}", json!({})).unwrap_err();
    assert!(matches!(&raised, TemplateError::Raised { message } if message == "no user"));
    for source in [
        "{{ messages.nothing.further }}",
        "{{ missing() }}",
        "{{ nothing | tojson }}",
        "{% include 'tokenizer.json' %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{{ strftime_now('%') }}",
    ] {
        let error = render(source, json!({})).unwrap_err();
        assert!(
            matches!(error, TemplateError::Render { .. }),
            "{source}: {error:?}"
        );
    }
}

#[test]
fn the_date_is_formatted() {
    let year = render("{{ strftime_now('%Y') }}", json!({})).unwrap();
    assert!(year.parse::<u32>().is_ok_and(|year| year >= 2025), "{year}");
    let date = render("{{ strftime_now('%d %b %Y') }}", json!({})).unwrap();
    assert_eq!(date.split(' ').count(), 3);
}
