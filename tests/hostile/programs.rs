//! Graphs that hold more than nodes and weights, and graphs that take long to follow.

use std::fs;
use std::path::Path;

use prost::Message;

use super::case::Case;
use super::graphs::{FILE, changed, coded, graph};
use super::onnx::proto::{
    AttributeProto, FunctionProto, SparseTensorProto, StringStringEntryProto, TensorProto,
};
use super::onnx::{self, GraphProto, ModelProto, NodeProto, node};
use super::world::{cuda_model, model, write};

pub(crate) fn cases() -> Vec<Case> {
    let cases = [programs(), walks()].concat().into_iter();
    cases.map(coded).collect()
}

/// Graphs that hold more than nodes and weights.
fn programs() -> Vec<Case> {
    let holding =
        |name: &str, kind: &'static str, inner: fn() -> AttributeProto, words: &[&str]| {
            changed(name, words, move |graph| {
                graph.node.push(NodeProto {
                    name: Some("the_culprit".to_owned()),
                    op_type: Some(kind.to_owned()),
                    output: vec!["unused".to_owned()],
                    attribute: vec![inner()],
                    ..NodeProto::default()
                });
            })
        };
    let body = || AttributeProto {
        name: Some("body".to_owned()),
        g: Some(GraphProto::default()),
        ..AttributeProto::default()
    };
    let not_supported = ["the_culprit", "graph of its own"];
    let nested = |depth: usize| {
        let mut graph = GraphProto::default();
        for _ in 0..depth {
            let branch = AttributeProto {
                g: Some(graph),
                ..AttributeProto::default()
            };
            let node = NodeProto {
                op_type: Some("If".to_owned()),
                attribute: vec![branch],
                ..NodeProto::default()
            };
            graph = GraphProto {
                node: vec![node],
                ..GraphProto::default()
            };
        }
        ModelProto {
            graph: Some(graph),
            ..ModelProto::default()
        }
    };
    let model_of = |name: &str, words: &[&str], change: fn(&mut ModelProto)| {
        let words = [&[FILE], words].concat();
        Case::load(name, &words, move |here| {
            model(here);
            let mut file = ModelProto::decode(fs::read(graph(here)).unwrap().as_slice()).unwrap();
            change(&mut file);
            write(&graph(here), file.encode_to_vec());
        })
    };
    vec![
        holding("a loop", "Loop", body, &not_supported),
        holding("a scan", "Scan", body, &not_supported),
        holding("a search", "BeamSearch", body, &not_supported),
        Case::load(
            "200 branches inside each other",
            &[FILE, "nested more than 8"],
            move |here| {
                model(here);
                write(&graph(here), nested(200).encode_to_vec());
            },
        ),
        holding(
            "a weight of a branch elsewhere",
            "If",
            || AttributeProto {
                name: Some("then_branch".to_owned()),
                g: Some(GraphProto {
                    initializer: vec![elsewhere("branched")],
                    ..GraphProto::default()
                }),
                ..AttributeProto::default()
            },
            &["branched", "P5", "../outside"],
        ),
        holding(
            "a constant elsewhere",
            "Constant",
            || AttributeProto {
                name: Some("value".to_owned()),
                t: Some(elsewhere("constant")),
                ..AttributeProto::default()
            },
            &["constant", "P5", "../outside"],
        ),
        model_of("functions of the model's own", &["functions"], |file| {
            file.functions.push(FunctionProto::default());
        }),
        changed("a sparse weight", &["sparse tensor"], |graph| {
            graph.sparse_initializer.push(SparseTensorProto::default());
        }),
        Case::load("two graphs in one file", &[FILE, "second graph"], |here| {
            model(here);
            let extra = GraphProto {
                initializer: vec![elsewhere("extra")],
                ..GraphProto::default()
            };
            let extra = ModelProto {
                graph: Some(extra),
                ..ModelProto::default()
            };
            let sound = fs::read(graph(here)).unwrap();
            write(&graph(here), [extra.encode_to_vec(), sound].concat());
        }),
        Case::inspect(
            "a weight of a commit graph elsewhere",
            &["commit.", "committing", "P5", "../outside"],
            |here| {
                cuda_model(here);
                onnx::edit(&commit_graph(here), |graph: &mut GraphProto| {
                    graph.initializer.push(elsewhere("committing"));
                });
            },
        ),
    ]
}

/// A weight in a file outside of the model folder.
fn elsewhere(name: &str) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(1),
        dims: vec![2],
        data_location: Some(1),
        external_data: vec![StringStringEntryProto {
            key: Some("location".to_owned()),
            value: Some("../outside".to_owned()),
        }],
        ..TensorProto::default()
    }
}

/// Graphs that take long to follow where each node is looked at for each other one.
fn walks() -> Vec<Case> {
    const MANY: usize = 60_000;
    let passed = |graph: &mut GraphProto, by: &str| {
        for place in 0..MANY {
            let from = match place.checked_sub(1) {
                None => "read_rows".to_owned(),
                Some(before) => format!("p{before}"),
            };
            graph.node.push(NodeProto {
                op_type: Some(by.to_owned()),
                input: vec![from],
                output: vec![format!("p{place}")],
                ..NodeProto::default()
            });
        }
    };
    let inspected = |name: &str, words: &[&str], change: fn(&mut GraphProto)| {
        Case::inspect(name, words, move |here| {
            model(here);
            onnx::edit(&graph(here), change);
        })
    };
    let chain = Case::inspect(
        "60,000 operators at the end of 60,000 nodes",
        &[FILE, "P8", "and 936 more"],
        move |here| {
            model(here);
            onnx::edit(&graph(here), |graph| {
                passed(graph, "Identity");
                let operator = NodeProto {
                    input: vec![format!("p{}", MANY - 1); 8],
                    output: Vec::new(),
                    attribute: Vec::new(),
                    ..node(graph, "CausalConv").clone()
                };
                graph.node.extend(vec![operator; MANY]);
            });
        },
    );
    let circles = inspected(
        "60,000 circles of one node",
        &["key/value cache"],
        |graph| {
            for place in 0..MANY {
                graph.node.push(NodeProto {
                    op_type: Some("Identity".to_owned()),
                    input: vec![format!("p{place}")],
                    output: vec![format!("p{place}")],
                    ..NodeProto::default()
                });
            }
        },
    );
    let tables = inspected(
        "60,000 tables that are read once",
        &["key/value cache"],
        |graph| {
            for place in 0..MANY {
                graph.initializer.push(TensorProto {
                    name: Some(format!("the_table_of_this_number_{place}")),
                    data_type: Some(1),
                    dims: vec![1],
                    ..TensorProto::default()
                });
                graph.node.push(NodeProto {
                    op_type: Some("Gather".to_owned()),
                    input: vec![
                        format!("the_table_of_this_number_{place}"),
                        "input_ids".to_owned(),
                    ],
                    ..NodeProto::default()
                });
            }
        },
    );
    let unnamed = inspected(
        "20,000 inputs",
        &[FILE, "more than 16384 inputs"],
        |graph| {
            let input = graph.input[0].clone();
            graph.input.extend(vec![input; 20_000]);
        },
    );
    vec![chain, circles.succeeds(), tables.succeeds(), unnamed]
}

/// The first commit graph of a model.
pub(crate) fn commit_graph(here: &Path) -> std::path::PathBuf {
    let entries = fs::read_dir(here.join("model")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut files = files.into_iter();
    let commit = files.find(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("commit.") && name.ends_with(".onnx")
    });
    commit.unwrap()
}
