//! Weights of a checkpoint: headers that lie, files that end early, indexes that name what is not there.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::case::Case;
use super::world::{checkpoint, edit, patch, sparse, tensors, write, write_tensors};

const EMBEDDING: &str = "model.embed_tokens.weight";
const NORM: &str = "model.norm.weight";
const FILE: &str = "model.safetensors";

pub(crate) fn cases() -> Vec<Case> {
    [
        files(),
        headers(),
        large_headers(),
        entries(),
        folders(),
        indexes(),
        values(),
    ]
    .concat()
}

fn weights(here: &Path) -> std::path::PathBuf {
    here.join("in").join(FILE)
}

/// The whole file replaced.
fn files() -> Vec<Case> {
    let table: [(&str, &'static [u8], &str); 9] = [
        ("an empty file", b"", "is truncated"),
        ("seven bytes", b"1234567", "is truncated"),
        (
            "a header longer than the file",
            &[200, 0, 0, 0, 0, 0, 0, 0, b'{'],
            "is truncated",
        ),
        (
            "a header of 2^64 bytes",
            &[255; 8],
            "announces a header of 18446744073709551615",
        ),
        (
            "a header of 100 MB and one",
            &[1, 225, 245, 5, 0, 0, 0, 0, b'{'],
            "announces a header of",
        ),
        (
            "a header without an object",
            &[2, 0, 0, 0, 0, 0, 0, 0, b'[', b']'],
            "not a JSON object",
        ),
        (
            "a header with a note that is not text",
            b"\x1b\0\0\0\0\0\0\0{\"__metadata__\":{\"a\":\"\xFF\"}} ",
            "invalid utf-8",
        ),
        (
            "a header that is not text",
            &[3, 0, 0, 0, 0, 0, 0, 0, b'{', 255, b'}'],
            "invalid safetensors header",
        ),
        (
            "a header without tensors",
            &[2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}'],
            "found no such tensor",
        ),
    ];
    let mut cases: Vec<Case> = table
        .into_iter()
        .map(|(name, bytes, words)| {
            let words = if words.starts_with("found") {
                vec![words]
            } else {
                vec![FILE, words]
            };
            Case::build(name, &[], &words, move |here| {
                checkpoint(here);
                write(&weights(here), bytes);
            })
        })
        .collect();
    cases.push(Case::build(
        "data cut in half",
        &[],
        &[FILE, "truncated"],
        |here| {
            checkpoint(here);
            let bytes = fs::read(weights(here)).unwrap();
            write(&weights(here), &bytes[..bytes.len() / 2]);
        },
    ));
    cases.push(Case::build(
        "bytes after the data",
        &[],
        &[FILE, "belong to no tensor"],
        |here| {
            checkpoint(here);
            let mut bytes = fs::read(weights(here)).unwrap();
            bytes.extend([0; 9]);
            write(&weights(here), bytes);
        },
    ));
    cases.push(Case::build(
        "1 TiB behind a sound header",
        &[],
        &[FILE, "belong to no tensor"],
        |here| {
            checkpoint(here);
            let bytes = fs::read(weights(here)).unwrap();
            sparse(&weights(here), 1 << 40);
            patch(&weights(here), 0, &bytes);
        },
    ));
    cases
}

/// The header as text.
fn headers() -> Vec<Case> {
    let deep = format!("{{\"a\": {}", "[".repeat(100_000));
    let table: Vec<(&str, String, &str)> = vec![
        (
            "a header that does not end",
            "{\"a\": {".to_owned(),
            "invalid safetensors header",
        ),
        ("a header of brackets", deep, "invalid safetensors header"),
        (
            "half a surrogate pair as a name",
            r#"{"\ud800": {}}"#.to_owned(),
            "hex escape",
        ),
        ("a tensor that is a number", r#"{"a": 5}"#.to_owned(), "a: "),
        (
            "text after the header",
            "{} x".to_owned(),
            "invalid safetensors header",
        ),
        ("text before the header", " {}".to_owned(), FILE),
        (
            "a tensor twice",
            format!(
                "{{{0}, {0}}}",
                r#""a": {"dtype":"F32","shape":[0],"data_offsets":[0,0]}"#
            ),
            "a appears twice",
        ),
    ];
    table
        .into_iter()
        .map(|(name, header, words)| {
            Case::build(name, &[], &[FILE, words], move |here| {
                checkpoint(here);
                write_tensors(&weights(here), &header, &[]);
            })
        })
        .collect()
}

/// One change to the entry of a tensor.
fn entries() -> Vec<Case> {
    let change =
        |name: &str, tensor: &'static str, key: &'static str, value: Value, words: &[&str]| {
            Case::build(name, &[], words, move |here| {
                checkpoint(here);
                rewrite(here, |header| {
                    let entry = header[tensor].as_object_mut().unwrap();
                    match &value {
                        Value::Null => drop(entry.remove(key)),
                        value => drop(entry.insert(key.to_owned(), value.clone())),
                    }
                });
            })
        };
    let wide: Vec<u64> = vec![1; 33];
    vec![
        change("no dtype", NORM, "dtype", Value::Null, &[FILE, "dtype"]),
        change("no shape", NORM, "shape", Value::Null, &[FILE, "shape"]),
        change(
            "no offsets",
            NORM,
            "data_offsets",
            Value::Null,
            &[FILE, "data_offsets"],
        ),
        change("an empty dtype", NORM, "dtype", json!(""), &[FILE, NORM]),
        change(
            "an empty shape",
            NORM,
            "shape",
            json!([]),
            &[FILE, NORM, "takes 4 bytes"],
        ),
        change(
            "dtype of another size",
            NORM,
            "dtype",
            json!("F16"),
            &[FILE, NORM, "takes 192 bytes"],
        ),
        change(
            "weights of integers",
            NORM,
            "dtype",
            json!("I32"),
            &[FILE, NORM, "must be F32, F16 or BF16"],
        ),
        change(
            "weights of 8 bits",
            NORM,
            "dtype",
            json!("F8_E4M3"),
            &[FILE, NORM, "takes 96 bytes"],
        ),
        change(
            "an unknown dtype",
            NORM,
            "dtype",
            json!("F31"),
            &[FILE, NORM, "F31"],
        ),
        change(
            "a dtype that is a number",
            NORM,
            "dtype",
            json!(32),
            &[FILE, NORM],
        ),
        change(
            "a larger shape",
            NORM,
            "shape",
            json!([97]),
            &[FILE, NORM, "takes 388 bytes"],
        ),
        change(
            "a transposed shape",
            EMBEDDING,
            "shape",
            json!([96, 331]),
            &[EMBEDDING, "expected [331, 96]"],
        ),
        change(
            "a shape beyond 2^64",
            NORM,
            "shape",
            json!([1u64 << 63, 4]),
            &[FILE, NORM, "overflows"],
        ),
        change(
            "a negative extent",
            NORM,
            "shape",
            json!([-96]),
            &[FILE, NORM],
        ),
        change(
            "a fractional extent",
            NORM,
            "shape",
            json!([9.6]),
            &[FILE, NORM],
        ),
        change(
            "an extent of 1e300",
            NORM,
            "shape",
            json!([1e300]),
            &[FILE, NORM],
        ),
        change(
            "33 axes",
            NORM,
            "shape",
            json!(wide),
            &[FILE, NORM, "at most 32 axes"],
        ),
        change(
            "offsets backwards",
            NORM,
            "data_offsets",
            json!([384, 0]),
            &[FILE, NORM, "backwards"],
        ),
        change(
            "offsets outside",
            NORM,
            "data_offsets",
            json!([1u64 << 40, (1u64 << 40) + 384]),
            &[FILE, NORM, "outside"],
        ),
        change(
            "negative offsets",
            NORM,
            "data_offsets",
            json!([-384, 0]),
            &[FILE, NORM],
        ),
        change(
            "fractional offsets",
            NORM,
            "data_offsets",
            json!([0.5, 384.5]),
            &[FILE, NORM],
        ),
        change(
            "three offsets",
            NORM,
            "data_offsets",
            json!([0, 1, 2]),
            &[FILE, NORM],
        ),
        change(
            "offsets of another tensor",
            NORM,
            "data_offsets",
            json!([0, 384]),
            &[FILE, "overlaps"],
        ),
        Case::build(
            "a hole between tensors",
            &[],
            &[FILE, "after the end of what precedes it"],
            |here| {
                checkpoint(here);
                let (mut header, data) = tensors(&weights(here));
                let last = header
                    .values_mut()
                    .filter(|entry| entry.get("data_offsets").is_some())
                    .max_by_key(|entry| entry["data_offsets"][1].as_u64())
                    .unwrap();
                for place in 0..2 {
                    let offset = last["data_offsets"][place].as_u64().unwrap();
                    last["data_offsets"][place] = (offset + 4).into();
                }
                let data = [data, vec![0; 4]].concat();
                write_tensors(&weights(here), &Value::Object(header).to_string(), &data);
            },
        ),
        Case::build(
            "a tensor left out",
            &[],
            &[NORM, "found no such tensor"],
            |here| {
                checkpoint(here);
                rename(here, NORM, "model.norm.weighty");
            },
        ),
    ]
}

/// Headers that are sound, and more than anybody needs.
fn large_headers() -> Vec<Case> {
    const PROBLEM: usize = 8 << 10;
    let header = |name: &str, words: &[&str], text: fn() -> String| {
        let words = [&[FILE], words].concat();
        let mut case = Case::build(name, &[], &words, move |here| {
            checkpoint(here);
            write_tensors(&weights(here), &text(), &[]);
        });
        case.longest = Some(PROBLEM);
        case
    };
    vec![
        header("a million tensors", &["more than 262144 tensors"], || {
            let tensor = |place: usize| {
                format!(r#""{place}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#)
            };
            let tensors: Vec<String> = (0..1_000_000).map(tensor).collect();
            format!("{{{}}}", tensors.join(","))
        }),
        header("a name of 90 MB", &["a name of 90000000 bytes"], || {
            format!(r#"{{"{}": 5}}"#, "n".repeat(90_000_000))
        }),
        header("an entry of 90 MB", &["w: invalid type", "...["], || {
            format!(r#"{{"w": "{}"}}"#, "n".repeat(90_000_000))
        }),
        header("a type of 1 MB", &["...["], || {
            let kind = "n".repeat(1 << 20);
            format!(
                r#"{{"{NORM}":{{"dtype":"{kind}","shape":[9,"{kind}"],"data_offsets":[0,0]}}}}"#
            )
        }),
        Case::build(
            "headers of 120 MB in two files",
            &[],
            &["two.safetensors", "60000000 bytes", "more than 100000000"],
            |here| {
                sharded(here, |map| with(map, "extra", "two.safetensors"));
                for file in ["one.safetensors", "two.safetensors"] {
                    let header = format!("{{{}}}", " ".repeat(60_000_000 - 2));
                    write_tensors(&here.join("in").join(file), &header, &[]);
                }
            },
        ),
    ]
}

/// A checkpoint whose vocabulary takes more room than disks have; its file takes none.
fn enormous(here: &Path) {
    const TOKENS: u64 = 1 << 31;
    checkpoint(here);
    edit(&here.join("in/config.json"), |config| {
        config["vocab_size"] = TOKENS.into();
        config["tie_word_embeddings"] = false.into();
    });
    let (mut header, _) = tensors(&weights(here));
    let mut tied = header[EMBEDDING].clone();
    tied["shape"][0] = TOKENS.into();
    header.insert(EMBEDDING.to_owned(), tied.clone());
    header.insert("lm_head.weight".to_owned(), tied);
    let mut end = 0;
    for entry in header.values_mut() {
        let Some(shape) = entry["shape"].as_array() else {
            continue;
        };
        let elements: u64 = shape
            .iter()
            .map(|extent| extent.as_u64().unwrap())
            .product();
        let begin = end;
        end += 4 * elements;
        entry["data_offsets"] = json!([begin, end]);
    }
    let header = Value::Object(header).to_string();
    sparse(&weights(here), 8 + header.len() as u64 + end);
    patch(&weights(here), 0, &(header.len() as u64).to_le_bytes());
    patch(&weights(here), 8, header.as_bytes());
}

fn rewrite(here: &Path, change: impl Fn(&mut Map<String, Value>)) {
    let (mut header, data) = tensors(&weights(here));
    change(&mut header);
    write_tensors(&weights(here), &Value::Object(header).to_string(), &data);
}

fn rename(here: &Path, from: &str, to: &str) {
    rewrite(here, |header| {
        let entry = header.remove(from).unwrap();
        header.insert(to.to_owned(), entry);
    });
}

/// Folders without weights that can be used.
fn folders() -> Vec<Case> {
    let only = |name: &str, file: &'static str, words: &[&str]| {
        Case::build(name, &[], words, move |here| {
            checkpoint(here);
            fs::rename(weights(here), here.join("in").join(file)).unwrap();
        })
    };
    vec![
        only(
            "only a pickle",
            "pytorch_model.bin",
            &["pytorch_model.bin", "safetensors"],
        ),
        only(
            "only an index of pickles",
            "pytorch_model.bin.index.json",
            &["holds neither model.safetensors"],
        ),
        only("only gguf", "model.gguf", &["model.gguf", "safetensors"]),
        only(
            "weights under another name",
            "weights.safetensors",
            &["weights.safetensors", "model.safetensors"],
        ),
        Case::build(
            "no weights",
            &[],
            &["in", "holds neither model.safetensors"],
            |here| {
                checkpoint(here);
                fs::remove_file(weights(here)).unwrap();
            },
        ),
        Case::build(
            "no checkpoint",
            &[],
            &["{here}/in", "cannot be read"],
            |_| {},
        ),
        Case::build(
            "a checkpoint that is a file",
            &[],
            &["{here}/in", "is not a folder"],
            |here| {
                write(&here.join("in"), "x");
            },
        ),
        Case::build(
            "a checkpoint that is a loop",
            &[],
            &["{here}/in", "symbolic links"],
            |here| {
                super::world::link(&here.join("in"), &here.join("in"));
            },
        ),
        Case::build(
            "a checkpoint that links to its parent",
            &[],
            &["{here}/in"],
            |here| {
                super::world::link(here, &here.join("in"));
            },
        ),
        Case::build(
            "a checkpoint of 2 TB",
            &[],
            &["{here}/to: ", "bytes are free"],
            enormous,
        ),
        Case::new(
            "an output inside of the input's own folder",
            "build-model",
            &["--input", "{here}/in", "--output", "{here}/in", "--force"],
            &["{here}/in"],
            checkpoint,
        ),
        Case::new(
            "an output that exists",
            "build-model",
            &["--input", "{here}/in", "--output", "{here}/there"],
            &["{here}/there", "exists already"],
            |here| {
                checkpoint(here);
                write(&here.join("there"), "mine");
            },
        ),
        Case::new(
            "an output where nothing can be made",
            "build-model",
            &["--input", "{here}/in", "--output", "/proc/pawl/out"],
            &["/proc/pawl", "cannot be written"],
            checkpoint,
        ),
        Case::new(
            "an output below a file",
            "build-model",
            &[
                "--input",
                "{here}/in",
                "--output",
                "{here}/in/config.json/out",
            ],
            &["config.json"],
            checkpoint,
        ),
    ]
}

/// Sharded checkpoints.
fn indexes() -> Vec<Case> {
    let index = |name: &str, words: &[&str], text: fn(&Map<String, Value>) -> String| {
        Case::build(name, &[], words, move |here| sharded(here, text))
    };
    const INDEX: &str = "model.safetensors.index.json";
    vec![
        index("a sound index", &["to/out"], |map| {
            json!({"weight_map": map}).to_string()
        })
        .succeeds(),
        Case::build(
            "a shard that the index does not name",
            &[],
            &["warning: ", INDEX, "other.safetensors"],
            |here| {
                sharded(here, |map| json!({"weight_map": map}).to_string());
                write(&here.join("in/other.safetensors"), "not even that");
            },
        )
        .succeeds(),
        index(
            "an index that is not JSON",
            &[INDEX, "not a valid index"],
            |_| "{".to_owned(),
        ),
        index(
            "an index that is a list",
            &[INDEX, "not a valid index"],
            |_| "[]".to_owned(),
        ),
        index("an index without a map", &[INDEX, "weight_map"], |_| {
            "{}".to_owned()
        }),
        index("an index of nothing", &[INDEX, "lists no tensors"], |_| {
            json!({"weight_map": {}}).to_string()
        }),
        index("an index of numbers", &[INDEX, "not a valid index"], |_| {
            json!({"weight_map": {"a": 1}}).to_string()
        }),
        index(
            "an index that repeats a tensor",
            &[INDEX, "appears twice"],
            |_| r#"{"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}}"#.to_owned(),
        ),
        index(
            "an index of brackets",
            &[INDEX, "not a valid index"],
            |_| "[".repeat(50_000),
        ),
        index(
            "an index with a missing shard",
            &["lacks two.safetensors"],
            |map| with(map, "extra", "two.safetensors"),
        ),
        index(
            "an index with a missing tensor",
            &[INDEX, "extra (in one.safetensors)"],
            |map| with(map, "extra", "one.safetensors"),
        ),
        index(
            "an index that leaves its folder",
            &[INDEX, "weight_map.extra", "not the name"],
            |map| with(map, "extra", "../one.safetensors"),
        ),
        index(
            "an index with an absolute path",
            &[INDEX, "not the name"],
            |map| with(map, "extra", "/etc/one.safetensors"),
        ),
        index(
            "an index with another kind of file",
            &[INDEX, "not the name"],
            |map| with(map, "extra", "config.json"),
        ),
        index(
            "an index with an empty name",
            &[INDEX, "not the name"],
            |map| with(map, "extra", ""),
        ),
        index(
            "an index that leaves a tensor out",
            &["model.norm.weight", "found no such tensor"],
            |map| {
                let mut map = map.clone();
                map.remove(NORM);
                json!({"weight_map": map}).to_string()
            },
        ),
        Case::build(
            "a tensor in two shards",
            &[],
            &[EMBEDDING, "is in"],
            |here| {
                sharded(here, |map| with(map, EMBEDDING, "two.safetensors"));
                let folder = here.join("in");
                fs::copy(
                    folder.join("one.safetensors"),
                    folder.join("two.safetensors"),
                )
                .unwrap();
                let text = fs::read_to_string(folder.join(INDEX)).unwrap();
                let mut index: Value = serde_json::from_str(&text).unwrap();
                index["weight_map"][NORM] = "one.safetensors".into();
                write(&folder.join(INDEX), index.to_string());
            },
        ),
    ]
}

fn with(map: &Map<String, Value>, tensor: &str, file: &str) -> String {
    let mut map = map.clone();
    map.insert(tensor.to_owned(), file.into());
    json!({"weight_map": map}).to_string()
}

fn sharded(here: &Path, text: fn(&Map<String, Value>) -> String) {
    checkpoint(here);
    let (header, _) = tensors(&weights(here));
    let names = header.keys().filter(|name| name.as_str() != "__metadata__");
    let map = names
        .map(|name| (name.clone(), "one.safetensors".into()))
        .collect();
    fs::rename(weights(here), here.join("in/one.safetensors")).unwrap();
    write(&here.join("in/model.safetensors.index.json"), text(&map));
}

/// Weights that are no numbers, or too large.
fn values() -> Vec<Case> {
    let spoiled = |value: f32| {
        move |here: &Path| {
            checkpoint(here);
            let (header, mut data) = tensors(&weights(here));
            let begin = header[NORM]["data_offsets"][0].as_u64().unwrap() as usize;
            data[begin + 8..begin + 12].copy_from_slice(&value.to_le_bytes());
            write_tensors(&weights(here), &Value::Object(header).to_string(), &data);
        }
    };
    let cuda = ["--target", "cuda"];
    vec![
        Case::build(
            "NaN in a weight",
            &[],
            &["warning: ", FILE, NORM, "1 NaN"],
            spoiled(f32::NAN),
        )
        .succeeds(),
        Case::build(
            "infinity in a weight",
            &[],
            &["warning: ", FILE, NORM, "1 infinite"],
            spoiled(f32::INFINITY),
        )
        .succeeds(),
        Case::build(
            "NaN refused",
            &["--refuse-nonfinite"],
            &[FILE, NORM, "NaN"],
            spoiled(f32::NAN),
        ),
        Case::build(
            "infinity refused",
            &["--refuse-nonfinite"],
            &[FILE, NORM, "infinite"],
            spoiled(f32::NEG_INFINITY),
        ),
        Case::build(
            "finite weights pass",
            &["--refuse-nonfinite"],
            &["to/out"],
            checkpoint,
        )
        .succeeds(),
        Case::build(
            "a weight beyond 16 bits",
            &cuda,
            &[FILE, NORM, "too large for f16"],
            spoiled(1e30),
        ),
    ]
}
