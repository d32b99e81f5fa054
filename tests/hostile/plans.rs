//! `pawl inspect --plan`: a `genai_config.json` alone, from anywhere.

use serde_json::{Value, json};

use super::case::{Case, Output};
use super::world::{Odd, edit, model, set, write};

const FILE: &str = "{here}/model/genai_config.json";

pub(crate) fn cases() -> Vec<Case> {
    [files(), values(), options(), streams()].concat()
}

fn plan(
    name: &str,
    more: &[&str],
    words: &[&str],
    make: impl Fn(&std::path::Path) + Send + Sync + 'static,
) -> Case {
    let args = [&["inspect", "--plan", FILE], more].concat();
    Case::new(format!("a plan of {name}"), "pawl", &args, words, make)
}

fn files() -> Vec<Case> {
    let text = |name: &str, bytes: Vec<u8>, words: &[&str]| {
        plan(name, &[], &[&[FILE], words].concat(), move |here| {
            std::fs::create_dir(here.join("model")).unwrap();
            write(&here.join("model/genai_config.json"), &bytes);
        })
    };
    let mut cases = vec![
        plan("nothing", &[], &[FILE], |_| {}),
        plan("a sound file", &[], &["committed state"], model).succeeds(),
        plan(
            "a file whose graphs are gone",
            &[],
            &["committed state"],
            |here| {
                model(here);
                for file in ["model.onnx", "model.onnx.data", "mtp.onnx"] {
                    std::fs::remove_file(here.join("model").join(file)).unwrap();
                }
            },
        )
        .succeeds(),
        text("an empty file", Vec::new(), &["not_json"]),
        text("bytes", b"{\"model\": \"\xFF\"}".to_vec(), &["unreadable"]),
        text("NaN", br#"{"model": NaN}"#.to_vec(), &["not_json"]),
        text("brackets", "[".repeat(500_000).into(), &["too_deep"]),
        text("2 MiB", vec![b' '; 2 << 20], &["too_large"]),
        text(
            "another file",
            br#"{"architectures": ["LlamaForCausalLM"]}"#.to_vec(),
            &["model"],
        ),
    ];
    for odd in Odd::ALL {
        let words = match odd {
            Odd::Sparse => "too_large",
            odd => odd.words(),
        };
        cases.push(plan(
            &format!("{odd:?}"),
            &[],
            &[FILE, words],
            move |here| {
                std::fs::create_dir(here.join("model")).unwrap();
                odd.put(&here.join("model/genai_config.json"));
            },
        ));
    }
    cases
}

/// Sizes that no memory has.
fn values() -> Vec<Case> {
    let changed = |name: &str, pointer: &'static str, value: Value, words: &[&str]| {
        plan(name, &[], words, move |here| {
            model(here);
            edit(&here.join("model/genai_config.json"), |config| {
                set(config, pointer, value.clone());
            });
        })
    };
    let rows = "/model/decoder/state_groups/1/row_shape";
    let batch = "/engine/dynamic_batching/max_batch_size";
    vec![
        changed(
            "rows of 2^62",
            rows,
            json!([1u64 << 62, 4]),
            &[FILE, "state_groups[1]", "larger than 2^64"],
        ),
        changed("rows of nothing", rows, json!([]), &["row_shape"]),
        changed("rows of -1", rows, json!([-1]), &["row_shape"]),
        changed("rows of 1.5", rows, json!([1.5]), &["row_shape"]),
        changed("rows of words", rows, json!(["a"]), &["row_shape"]),
        changed(
            "requests of 2^63",
            batch,
            json!(1u64 << 63),
            &["max_batch_size"],
        ),
        changed("no requests", batch, json!(0), &["max_batch_size"]),
    ]
}

fn options() -> Vec<Case> {
    let table: &[(&[&str], &str)] = &[
        (&["--window", "0"], "window is 0"),
        (&["--window", "9"], "window is 9"),
        (&["--window", "-1"], "--window"),
        (&["--window", "4294967296"], "--window"),
        (&["--rows", "0"], "expected a whole number from 1"),
        (&["--rows", "-1"], "--rows"),
        (&["--rows", "18446744073709551616"], "--rows"),
        (
            &["--rows", "18446744073709551615"],
            "larger than 2^64 bytes",
        ),
        (&["{here}/model"], "cannot be used with"),
    ];
    table
        .iter()
        .map(|(more, word)| plan(&more.join(" "), more, &[word], model))
        .collect()
}

fn streams() -> Vec<Case> {
    let mut cases = Vec::new();
    for more in [&[][..], &["--json"]] {
        let name = |shown: &str| format!("{}output {shown}", more.concat());
        let no_space: &[&str] = &["standard output", "No space left"];
        cases.push(plan(&name("full"), more, no_space, model).output(Output::Full));
        cases.push(
            plan(&name("gone"), more, &[], model)
                .output(Output::Gone)
                .code(141),
        );
    }
    cases
}
