//! Traces: files that are none, ask for too much, or cannot be written.

use std::path::Path;

use serde_json::{Value, json};

use super::case::Case;
use super::world::{Odd, link, model, write};

pub(crate) fn cases() -> Vec<Case> {
    [places(), contents(), large(), pages(), recorded()].concat()
}

const TRACE: [&str; 2] = ["trace", "{here}/t.json"];

fn trace(steps: &Value) -> Value {
    json!({"version": 1, "model": "m", "settings": {"speculation": "", "draft_policy": ""}, "steps": steps})
}

fn step(rows: &Value) -> Value {
    json!({"index": 0, "seconds": {"run": 0.5, "commit": 0}, "rows": rows})
}

fn row() -> Value {
    json!({"request": 0, "past": 0, "accepted": 0, "drawn": [{"id": 1, "text": "a"}]})
}

fn sound(here: &Path) {
    write(
        &here.join("t.json"),
        trace(&json!([step(&json!([row()]))])).to_string(),
    );
}

fn drawn(name: &str, words: &[&str], text: impl Into<Vec<u8>>) -> Case {
    let text = text.into();
    Case::new(name, "pawl", &TRACE, words, move |here| {
        write(&here.join("t.json"), &text);
    })
}

/// What is no file where a trace should be.
fn places() -> Vec<Case> {
    let mut cases: Vec<Case> = Odd::ALL
        .into_iter()
        .map(|odd| {
            let words = match odd {
                Odd::Sparse => "is larger than 67108864 bytes",
                _ => odd.words(),
            };
            let name = format!("a trace that is {odd:?}").to_lowercase();
            Case::new(
                name,
                "pawl",
                &TRACE,
                &["{here}/t.json", words],
                move |here| {
                    odd.put(&here.join("t.json"));
                },
            )
        })
        .collect();
    cases.push(Case::new(
        "a trace that is not there",
        "pawl",
        &TRACE,
        &["{here}/t.json"],
        |_| {},
    ));
    cases
}

/// Traces that are wrong.
fn contents() -> Vec<Case> {
    let with = |pointer: &str, value: Value| {
        let mut trace = trace(&json!([step(&json!([row()]))]));
        super::world::set(&mut trace, pointer, value);
        trace.to_string()
    };
    let row = |key: &str| format!("/steps/0/rows/0/{key}");
    let brackets = ["[".repeat(100_000), "]".repeat(100_000)].concat();
    let nested = format!("{{\"version\": 1, \"model\": {brackets}}}");
    let sound = with("/model", json!("m"));
    let text = |name: &str, words: &str, text: &[u8]| drawn(name, &["t.json", words], text);
    vec![
        text("a trace of nothing", "line 1, column 0: the file ends", b""),
        text(
            "half a trace",
            "the file ends before the trace does",
            &sound.as_bytes()[..sound.len() / 2],
        ),
        text(
            "a trace that is not UTF-8",
            "not valid JSON: invalid unicode code point",
            b"{\"version\": 1, \"model\": \"\xFF\"}",
        ),
        text(
            "a trace of brackets",
            "expected a text, found a list",
            nested.as_bytes(),
        ),
        text(
            "a trace of another version",
            "expected 1, found 2",
            with("/version", json!(2)).as_bytes(),
        ),
        text(
            "a trace of version 2^40",
            "1099511627776",
            with("/version", json!(1u64 << 40)).as_bytes(),
        ),
        text(
            "a trace with a negative time",
            "seconds.run",
            with("/steps/0/seconds/run", json!(-1)).as_bytes(),
        ),
        text(
            "a trace of 10^300 seconds",
            "seconds.run",
            with("/steps/0/seconds/run", json!(1e300)).as_bytes(),
        ),
        text(
            "a trace with a token of -1",
            "expected a whole number from 0 to 4294967295, found -1",
            with(&row("drawn/0/id"), json!(-1)).as_bytes(),
        ),
        text(
            "a trace with a token that is a word",
            "expected a whole number from 0 to 4294967295, found \"a\"",
            with(&row("drawn/0/id"), json!("a")).as_bytes(),
        ),
        text(
            "a trace that accepts what was not drafted",
            "accepted",
            with(&row("accepted"), json!(1)).as_bytes(),
        ),
        text(
            "a trace with a draft below itself",
            "drafted[0].parent",
            with(&row("drafted"), json!([{"parent": 0, "token": {"id": 1}}])).as_bytes(),
        ),
        drawn(
            "a trace of 2^64 rows",
            &[],
            with(&row("branches"), json!(u64::MAX)),
        )
        .leaves("t.html"),
        drawn("a trace without steps", &[], trace(&json!([])).to_string()).leaves("t.html"),
    ]
}

/// Traces that take work: each must end soon, whether it is drawn or not.
fn large() -> Vec<Case> {
    const START: &str = r#"{"version": 1, "model": "m", "settings": {"speculation": "", "draft_policy": ""}, "steps": ["#;
    const STEP: &str = r#"{"index": 0, "seconds": {"run": 1, "commit": 0}, "rows": ["#;
    let case = |name: &str, words: &[&str], steps: fn() -> String| {
        Case::new(name, "pawl", &TRACE, words, move |here| {
            write(&here.join("t.json"), [START, &steps(), "]}"].concat());
        })
    };
    fn row(request: usize, accepted: usize, rest: &str) -> String {
        format!(r#"{{"request": {request}, "past": 0, "accepted": {accepted}, {rest}}}"#)
    }
    fn step(rows: &str) -> String {
        [STEP, rows, "]}"].concat()
    }
    fn tokens(count: usize) -> String {
        let tokens = vec![r#"{"id":1}"#; count].join(",");
        format!(r#""drawn": [{tokens}]"#)
    }
    let refused: &[&str] = &["{here}/t.json", "at most 524288 are drawn"];
    vec![
        case("a trace of 200,000 requests", &[], || {
            let rows: Vec<String> = (0..200_000).map(|at| row(at, 0, &tokens(1))).collect();
            step(&rows.join(","))
        })
        .leaves("t.html"),
        case("a trace of a long chain of accepted drafts", &[], || {
            let node = |at: usize| match at {
                0 => r#"{"token": {"id": 1}}"#.to_owned(),
                at => format!(r#"{{"parent": {}, "token": {{"id": 1}}}}"#, at - 1),
            };
            let chain: Vec<String> = (0..120_000).map(node).collect();
            let drafted = format!(r#""drafted": [{}], {}"#, chain.join(","), tokens(120_000));
            step(&row(0, 120_000, &drafted))
        })
        .leaves("t.html"),
        case("a trace of a deep tree of rejected drafts", &[], || {
            let node = |at: usize| {
                let parent = at.saturating_sub(1) / 2 * 2;
                format!(r#"{{"parent": {parent}, "token": {{"id": {at}}}}}"#)
            };
            let tree: Vec<String> = (1..120_000).map(node).collect();
            let root = r#"{"token": {"id": 0}}"#;
            let drafted = format!(r#""drafted": [{root}, {}], {}"#, tree.join(","), tokens(1));
            step(&row(0, 0, &drafted))
        })
        .leaves("t.html"),
        case("a trace with a megabyte said of each token", &[], || {
            let said = "x".repeat(1 << 20);
            let rest = format!(r#"{}, "why": "{said}", "source": "{said}""#, tokens(20_000));
            step(&row(0, 0, &rest))
        })
        .leaves("t.html"),
        case("a trace of six million tokens", refused, || {
            step(&row(0, 0, &tokens(6_000_000)))
        }),
        case("a trace of a million steps", refused, || {
            vec![step(""); 1_000_000].join(",")
        }),
    ]
}

/// Pages that cannot be written; an older one stays.
fn pages() -> Vec<Case> {
    let out = |name: &str, out: &str, words: &[&str]| {
        Case::new(
            name,
            "pawl",
            &[&TRACE[..], &["--out", out]].concat(),
            words,
            |here| {
                sound(here);
                write(&here.join("page"), "older");
                link(&here.join("t.json"), &here.join("link"));
                link(&here.join("page"), &here.join("to-page"));
                for (odd, name) in [
                    (Odd::Pipe, "pipe"),
                    (Odd::Socket, "socket"),
                    (Odd::Folder, "folder"),
                    (Odd::Zeros, "zeros"),
                    (Odd::Loop, "loop"),
                ] {
                    odd.put(&here.join(name));
                }
            },
        )
    };
    let itself: &[&str] = &["--out is the trace itself"];
    let mut cases: Vec<Case> = ["pipe", "socket", "folder", "zeros"]
        .into_iter()
        .map(|place| {
            let path = format!("{{here}}/{place}");
            out(
                &format!("a page to a {place}"),
                &path,
                &[path.as_str(), "is not a regular file"],
            )
        })
        .collect();
    cases.extend([
        out(
            "a page to a loop",
            "{here}/loop",
            &["{here}/loop", "symbolic links"],
        ),
        out(
            "a page to a full device",
            "/dev/full",
            &["/dev/full", "is not a regular file"],
        ),
        out(
            "a page where nothing can be made",
            "/proc/x/page",
            &["/proc/x/page"],
        ),
        out(
            "a page below a file",
            "{here}/page/x",
            &["{here}/page/x", "`{here}/page` is not a folder"],
        ),
        out("a page over its trace", "{here}/t.json", itself),
        out(
            "a page over its trace by another name",
            "{here}/folder/../t.json",
            itself,
        ),
        out(
            "a page over its trace through a link",
            "{here}/link",
            itself,
        ),
        out(
            "a page on a disk of a page",
            "{here}/page",
            &["{here}/page"],
        )
        .disk(512),
        out("a page over an older one", "{here}/page", &[]).leaves("page"),
        out("a page through a link", "{here}/to-page", &[]).leaves("page"),
    ]);
    cases
}

/// Traces that cannot be written. Where that can be known, nothing is generated before.
fn recorded() -> Vec<Case> {
    let to = |name: &str, path: &str, words: &[&str]| {
        let args = [
            "generate",
            "--model",
            "{here}/model",
            "--ids",
            "5",
            "--ignore-eos",
            "--max-new-tokens",
            "64",
            "--trace",
            path,
        ];
        Case::new(name, "pawl", &args, words, |here| {
            model(here);
            write(&here.join("t.json"), "older");
            Odd::Pipe.put(&here.join("pipe"));
        })
    };
    vec![
        to(
            "a trace to a pipe",
            "{here}/pipe",
            &["{here}/pipe", "is not a regular file"],
        ),
        to(
            "a trace to a folder",
            "{here}/model",
            &["{here}/model", "is not a regular file"],
        ),
        to(
            "a trace to a full device",
            "/dev/full",
            &["/dev/full", "is not a regular file"],
        ),
        to(
            "a trace where nothing can be made",
            "/proc/x/t",
            &["/proc/x/t"],
        ),
        to(
            "a trace below a file",
            "{here}/t.json/x",
            &["{here}/t.json/x", "`{here}/t.json` is not a folder"],
        ),
        to(
            "a trace to a folder that is not there",
            "{here}/missing/t.json",
            &["`{here}/missing/t.json`: the folder `{here}/missing` does not exist"],
        ),
        to(
            "a trace on a full disk",
            "{here}/t.json",
            &["{here}/t.json"],
        )
        .disk(8192)
        .late(),
        to("a trace over an older one", "{here}/t.json", &[]).leaves("t.json"),
    ]
}
