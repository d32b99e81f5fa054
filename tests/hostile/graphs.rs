//! Graphs that are no graphs, that disagree with the configuration, or that want what is not there.

use std::fs;
use std::path::Path;

use pawl::{ContractCode, ErrorCode};
use serde_json::{Value, json};

use super::case::Case;
use super::onnx::{self, GraphProto, NodeProto, extent, extents, node, tensor, value};
use super::programs::commit_graph;
use super::world::{cuda_model, edit, model, move_out, patch, set, sparse, write};

pub(crate) const FILE: &str = "model.onnx";
const F16: i32 = 10;
const I64: i32 = 7;

pub(crate) fn cases() -> Vec<Case> {
    let cases = [files(), disagreements(), crossings(), weights(), unknown()];
    cases.concat().into_iter().map(coded).collect()
}

/// With the code of the library's error: its words tell whether the graph or the configuration is at fault.
pub(crate) fn coded(case: Case) -> Case {
    let of_contract = |word: &String| ContractCode::ALL.iter().any(|code| code.as_str() == word);
    match case.words.iter().any(of_contract) {
        _ if case.code == 0 => case,
        true => case.coded(ErrorCode::ContractMismatch),
        false => case.coded(ErrorCode::GraphInvalid),
    }
}

pub(crate) fn graph(here: &Path) -> std::path::PathBuf {
    here.join("model").join(FILE)
}

pub(crate) fn changed(
    name: &str,
    words: &[&str],
    change: impl Fn(&mut GraphProto) + Send + Sync + 'static,
) -> Case {
    let words = [&[FILE], words].concat();
    Case::load(name, &words, move |here| {
        model(here);
        onnx::edit(&graph(here), &change);
    })
}

/// Files of other things.
fn files() -> Vec<Case> {
    let replaced = |name: &str, bytes: Vec<u8>, words: &[&str]| {
        let words = [&[FILE], words].concat();
        Case::load(name, &words, move |here| {
            model(here);
            write(&graph(here), &bytes);
        })
    };
    // A graph whose nodes are each two bytes.
    let nodes = [
        vec![0x3A, 0x80, 0x80, 0x80, 0x01],
        [0x0A, 0x00].repeat(1 << 20),
    ]
    .concat();
    let names = |length: u32| {
        let name = [vec![0x0A, 0xFF, 0xFF, 0x03], vec![b'n'; 0xFFFF]].concat();
        let node = [vec![0x0A, 0x83, 0x80, 0x04], name].concat();
        let all = node.repeat(length as usize);
        let bytes = prost::encoding::encoded_len_varint(all.len() as u64);
        let mut head = vec![0x3A];
        prost::encoding::encode_varint(all.len() as u64, &mut head);
        assert_eq!(head.len(), bytes + 1);
        [head, all].concat()
    };
    vec![
        replaced("an empty graph file", Vec::new(), &["holds no graph"]),
        replaced(
            "a graph file of text",
            b"not a graph at all".to_vec(),
            &["at byte"],
        ),
        replaced(
            "a graph file of zeros",
            vec![0; 4096],
            &["without a number"],
        ),
        replaced("a graph file of ones", vec![255; 4096], &["at byte"]),
        replaced(
            "a graph longer than its file",
            vec![0x3A, 0x7F, 0x0A],
            &["longer than what holds it"],
        ),
        replaced("a million nodes of nothing", nodes, &["more than 131072"]),
        replaced("100 MB of names", names(1600), &["too long"]),
        Case::load("half a graph file", &[FILE, "at byte"], |here| {
            model(here);
            let bytes = fs::read(graph(here)).unwrap();
            write(&graph(here), &bytes[..bytes.len() / 2]);
        }),
        Case::load(
            "a graph file without its last byte",
            &[FILE, "at byte"],
            |here| {
                model(here);
                let bytes = fs::read(graph(here)).unwrap();
                write(&graph(here), &bytes[..bytes.len() - 1]);
            },
        ),
        Case::load("no graph file", &[FILE, "No such file"], |here| {
            model(here);
            fs::remove_file(graph(here)).unwrap();
        })
        .coded(ErrorCode::FileUnreadable),
        Case::load(
            "2 GiB of graph",
            &[FILE, "more than the 2147483647 bytes"],
            |here| {
                model(here);
                sparse(&graph(here), 2 << 30);
            },
        ),
        Case::load("a name that is not UTF-8", &[FILE, "not UTF-8"], |here| {
            model(here);
            let bytes = fs::read(graph(here)).unwrap();
            let at = bytes
                .windows(9)
                .position(|part| part == b"input_ids")
                .unwrap();
            patch(&graph(here), at as u64, &[0xFF]);
        }),
    ]
}

/// Every way of graph and configuration to disagree, by its code.
fn disagreements() -> Vec<Case> {
    const KEY: &str = "past_key_values.1.key";
    const CONV: &str = "past_key_values.0.conv_state";
    const DELTA: &str = "past_key_values.0.recurrent_state";
    let retyped = |name: &'static str, kind: i32, code: &'static str| {
        changed(
            &format!("{name} of type {kind}"),
            &[name, code],
            move |graph| {
                tensor(value(graph, name)).elem_type = Some(kind);
            },
        )
    };
    let resized = |name: &'static str, axis: usize, size: i64, code: &'static str| {
        let title = format!("axis {axis} of {name} of {size}");
        changed(&title, &[name, code], move |graph| {
            extents(value(graph, name))[axis] = extent(size);
        })
    };
    let renamed = |name: &'static str, code: &'static str| {
        changed(
            &format!("{name} under another name"),
            &[name, code],
            move |graph| {
                rename(graph, name, "other");
            },
        )
    };
    let flattened = |name: &'static str, code: &'static str| {
        changed(
            &format!("{name} without its last axis"),
            &[name, code],
            move |graph| {
                extents(value(graph, name)).pop();
            },
        )
    };
    let checkpoints = |name: &'static str, code: &'static str| {
        changed(
            &format!("{name} of another width"),
            &[name, code],
            move |graph| {
                *extents(value(graph, name)).last_mut().unwrap() = extent(7);
            },
        )
    };
    vec![
        renamed("input_ids", "M1"),
        renamed("logits", "M1"),
        renamed(KEY, "M1"),
        renamed(CONV, "M1"),
        renamed("capture_counts", "M5"),
        retyped("present.1.key", F16, "M2"),
        resized("present.1.key", 3, 31, "M2"),
        retyped(KEY, F16, "M3"),
        resized(KEY, 0, 5, "M3"),
        resized(KEY, 2, 7, "M3"),
        flattened(KEY, "M3"),
        retyped("capture_counts", I64, "M5"),
        flattened(CONV, "M7"),
        flattened(DELTA, "M7"),
        checkpoints("checkpoints.0.conv_state", "M8"),
        retyped(DELTA, F16, "M9"),
        checkpoints("checkpoints.0.recurrent_state", "M11"),
        resized(CONV, 0, 3, "M12"),
        retyped("input_ids", 6, "P1"),
        retyped("block_table", I64, "P1"),
        resized("cumulative_sequence_lengths", 0, 2, "P1"),
        retyped("logits", F16, "P3"),
        resized("logits", 1, 330, "P3"),
        retyped(CONV, F16, "P4"),
        changed("state that nobody declares", &["mystery", "P2"], |graph| {
            let mut extra = value(graph, KEY).clone();
            extra.name = Some("mystery".to_owned());
            graph.input.push(extra);
        }),
        changed(
            "a checkpoint output left out",
            &["checkpoints.0.conv_state", "M4"],
            |graph| {
                graph
                    .output
                    .retain(|value| value.name() != "checkpoints.0.conv_state");
            },
        ),
        Case::load(
            "key heads that do not divide",
            &["row_shape", "5 key heads"],
            |here| {
                model(here);
                edit(&here.join("model/genai_config.json"), |config| {
                    let groups = state_groups(config);
                    let group = groups
                        .iter_mut()
                        .find(|group| group.get("key_head_count").is_some());
                    group.unwrap()["key_head_count"] = json!(5);
                });
            },
        )
        .coded(ErrorCode::ConfigInvalid),
        Case::load(
            "key heads that do not divide, of undeclared rows",
            &["M10"],
            |here| {
                model(here);
                edit(&here.join("model/genai_config.json"), |config| {
                    let groups = state_groups(config);
                    for group in groups {
                        let group = group.as_object_mut().unwrap();
                        group.remove("row_shape");
                        if let Some(count) = group.get_mut("key_head_count") {
                            *count = json!(5);
                        }
                    }
                });
            },
        ),
        Case::load("rows of another shape", &["conv_state", "P7"], |here| {
            model(here);
            edit(&here.join("model/genai_config.json"), |config| {
                let groups = state_groups(config);
                let group = groups.iter_mut().find(|group| {
                    group["row_shape"]
                        .as_array()
                        .is_some_and(|shape| shape.len() == 2)
                });
                group.unwrap()["row_shape"][1] = json!(9);
            });
        }),
        Case::load("a history of numbers", &["conv_state", "P13"], |here| {
            model(here);
            edit(&here.join("model/genai_config.json"), |config| {
                let groups = state_groups(config);
                let group = groups
                    .iter_mut()
                    .find(|group| group["operator"] == "causal_conv");
                let group = group.unwrap();
                group["operator"] = json!("token_history");
                group["fresh_token_id"] = json!(7);
                group["row_shape"] = json!([3]);
                group["element_type"] = json!("int64");
            });
        }),
        Case::inspect(
            "a commit graph with another input",
            &["commit.", "nothing", "P12"],
            |here| {
                cuda_model(here);
                onnx::edit(&commit_graph(here), |graph: &mut GraphProto| {
                    graph.input[0].name = Some("nothing".to_owned());
                });
            },
        ),
        Case::load(
            "a capture switch that is not there",
            &["active", "M6"],
            |here| {
                model(here);
                edit(&here.join("model/genai_config.json"), |config| {
                    set(
                        config,
                        "/model/decoder/inputs/state_update_active",
                        json!("active"),
                    );
                });
            },
        ),
    ]
}

fn rename(graph: &mut GraphProto, from: &str, to: &str) {
    value(graph, from).name = Some(to.to_owned());
    for node in &mut graph.node {
        for name in node.input.iter_mut().chain(&mut node.output) {
            if name == from {
                *name = to.to_owned();
            }
        }
    }
}

/// Names of one type and shape exchanged, in the configuration or in the graph.
fn crossings() -> Vec<Case> {
    let inputs = |one: &'static str, other: &'static str, words: &[&str]| {
        Case::load(format!("{one} and {other} exchanged"), words, move |here| {
            model(here);
            edit(&here.join("model/genai_config.json"), |config| {
                let inputs = &mut config["model"]["decoder"]["inputs"];
                let (first, second) = (inputs[one].clone(), inputs[other].clone());
                assert!(first.is_string() && second.is_string());
                inputs[one] = second;
                inputs[other] = first;
            });
        })
    };
    let bindings = |name: &str, pointers: [&'static str; 2], words: &[&str]| {
        Case::load(name, words, move |here| {
            model(here);
            edit(&here.join("model/genai_config.json"), |config| {
                let group = &mut config["model"]["decoder"]["state_groups"][0]["bindings"];
                let values = pointers.map(|pointer| group.pointer(pointer).unwrap().clone());
                set(group, pointers[0], values[1].clone());
                set(group, pointers[1], values[0].clone());
            });
        })
    };
    let nodes = |name: &str, kind: &'static str, places: [usize; 2], words: &[&str]| {
        changed(name, words, move |graph| {
            node(graph, kind).input.swap(places[0], places[1])
        })
    };
    vec![
        inputs("input_ids", "position_ids", &["P8", "token ids"]),
        inputs("read_rows", "write_rows", &["P8", "rows to read"]),
        inputs(
            "past_sequence_lengths",
            "read_rows",
            &["P8", "past lengths"],
        ),
        inputs(
            "past_sequence_lengths",
            "state_update_capture_count",
            &["P8", "capture counts"],
        ),
        inputs("logits_indices", "past_sequence_lengths", &["P8"]),
        bindings(
            "keys and values exchanged",
            ["/key", "/value"],
            &["P8", "a key cache"],
        ),
        bindings(
            "inputs of keys and values exchanged",
            ["/key/input", "/value/input"],
            &["P8", "P9"],
        ),
        bindings(
            "outputs of keys and values exchanged",
            ["/key/output", "/value/output"],
            &["P9", "present.1.key"],
        ),
        nodes(
            "an attention that reads its caches crossed",
            "PagedAttention",
            [1, 2],
            &["P8", "past_key_values.1.key"],
        ),
        nodes(
            "an attention that reads its lengths crossed",
            "PagedAttention",
            [3, 4],
            &["P8", "cumulative"],
        ),
        nodes(
            "a convolution that reads its rows crossed",
            "CausalConv",
            [5, 6],
            &["P8", "read_rows"],
        ),
        nodes(
            "a delta rule that reads its counts as rows",
            "GatedDeltaNet",
            [8, 9],
            &["P8", "capture_counts"],
        ),
        changed("logits of all tokens", &["P10", "logits"], |graph| {
            let (all, chosen) = {
                let nodes = &graph.node;
                let rows = nodes
                    .iter()
                    .find(|node| node.input.iter().any(|name| name == "logits_indices"));
                let rows = rows.unwrap();
                (rows.input[0].clone(), rows.output[0].clone())
            };
            for name in graph.node.iter_mut().flat_map(|node| &mut node.input) {
                if *name == chosen {
                    *name = all.clone();
                }
            }
        }),
        changed(
            "an operator built for fewer checkpoints",
            &["P11", "update:8"],
            |graph| {
                let node = node(graph, "CausalConv");
                let mut attributes = node.attribute.iter_mut();
                let count = attributes.find(|attribute| attribute.name() == "checkpoint_count");
                count.unwrap().i = Some(4);
            },
        ),
    ]
}

/// Where weights lie.
fn weights() -> Vec<Case> {
    let placed = |name: &str, key: &'static str, text: &'static str, words: &[&str]| {
        changed(name, words, move |graph| {
            let mut weights = graph.initializer.iter_mut();
            let weight = weights
                .find(|weight| weight.name() == "embed_tokens")
                .unwrap();
            let mut entries = weight.external_data.iter_mut();
            entries.find(|entry| entry.key() == key).unwrap().value = Some(text.to_owned());
        })
    };
    vec![
        placed(
            "a weight in a file that is not there",
            "location",
            "absent.data",
            &["P5", "absent.data"],
        ),
        placed(
            "a weight in another folder",
            "location",
            "../model/model.onnx.data",
            &["P5", "below the model folder"],
        ),
        placed(
            "a weight of the system",
            "location",
            "/etc/passwd",
            &["P5", "/etc/passwd"],
        ),
        placed("a weight without a file", "location", "", &["P5"]),
        placed(
            "a weight beyond the end",
            "offset",
            "1099511627776",
            &["P5", "1099511627776"],
        ),
        placed(
            "a weight at an offset of 2^64",
            "offset",
            "18446744073709551615",
            &["P5"],
        ),
        placed(
            "a weight at a negative offset",
            "offset",
            "-1",
            &["not a number"],
        ),
        placed(
            "a weight that is too short",
            "length",
            "16",
            &["P5", "16 bytes"],
        ),
        placed(
            "a weight at another offset than is shared",
            "offset",
            "4096",
            &["P6", "embed_tokens"],
        ),
        changed(
            "a weight of another shape",
            &["embed_tokens", "P5"],
            |graph| {
                let mut weights = graph.initializer.iter_mut();
                let weight = weights
                    .find(|weight| weight.name() == "embed_tokens")
                    .unwrap();
                weight.dims = vec![i64::MAX, 2];
            },
        ),
        Case::load("weights cut in half", &["P5", "model.onnx.data"], |here| {
            model(here);
            let path = here.join("model/model.onnx.data");
            let bytes = fs::read(&path).unwrap();
            write(&path, &bytes[..bytes.len() / 2]);
        }),
        Case::load("no data", &["P5", "model.onnx.data"], |here| {
            model(here);
            fs::remove_file(here.join("model/model.onnx.data")).unwrap();
        }),
        Case::load(
            "the head's own graph elsewhere",
            &["mtp.onnx", "leads out"],
            |here| {
                model(here);
                move_out(here, &here.join("model/mtp.onnx"));
            },
        )
        .coded(ErrorCode::FileUnreadable),
    ]
}

/// What ONNX Runtime itself refuses.
fn unknown() -> Vec<Case> {
    vec![
        changed("an operator that is not there", &["Unheard"], |graph| {
            node(graph, "Gemm").op_type = Some("Unheard".to_owned());
        }),
        changed("a domain that is not there", &["nowhere"], |graph| {
            node(graph, "Gemm").domain = Some("nowhere".to_owned());
        }),
        changed(
            "an input that nothing makes",
            &["nothing_makes_this"],
            |graph| {
                node(graph, "Gemm").input[0] = "nothing_makes_this".to_owned();
            },
        ),
        changed("a value made twice", &["Duplicate definition"], |graph| {
            let mut again = graph.node[3].clone();
            again.name = None;
            graph.node.push(again);
        }),
        changed("a circle of nodes", &["acyclic"], |graph| {
            for (from, to) in [("here", "there"), ("there", "here")] {
                graph.node.push(NodeProto {
                    op_type: Some("Neg".to_owned()),
                    input: vec![from.to_owned()],
                    output: vec![to.to_owned()],
                    ..NodeProto::default()
                });
            }
        }),
        changed(
            "a convolution of an attribute that is wrong",
            &["activation"],
            |graph| {
                let node = node(graph, "CausalConv");
                let mut attributes = node.attribute.iter_mut();
                let activation = attributes.find(|attribute| attribute.name() == "activation");
                activation.unwrap().s = Some(b"explode".to_vec());
            },
        ),
    ]
}

/// The state groups of a configuration, to be changed.
fn state_groups(config: &mut Value) -> &mut Vec<Value> {
    config["model"]["decoder"]["state_groups"]
        .as_array_mut()
        .unwrap()
}
