//! The reader against files made field by field, whole and damaged.

use super::*;
use crate::model::test_onnx::{F32, I32, I64, Message, Onnx};
use proptest::prelude::*;

fn small() -> Onnx {
    Onnx::default()
        .input("ids", I64, "num_tokens")
        .input("weight", F32, "2 3")
        .input("table", I32, "rows 4")
        .weight("weight", F32, &[2, 3], &[0; 24])
        .external("big", &[5, 7], ("model.onnx.data", 4096, 140))
        .node("Gather", "weight ids", "x", &[])
        .node("pawl:CausalConv", "x - table", "y", &[])
        .output("y", F32, "num_tokens 3")
}

fn read(bytes: &[u8]) -> io::Result<GraphIo> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    GraphIo::read(file.path(), &mut Allowance::default())
}

fn weight<'g>(graph: &'g GraphIo, name: &str) -> &'g Initializer {
    graph.weights().find(|weight| weight.name == name).unwrap()
}

#[test]
fn declarations_are_read_and_weights_are_not_inputs() {
    let graph = read(&small().into_bytes()).unwrap();
    let shown: Vec<String> = graph
        .inputs
        .iter()
        .map(|i| format!("{}: {i}", i.name))
        .collect();
    assert_eq!(shown, ["ids: int64 [num_tokens]", "table: int32 [rows, 4]"]);
    assert_eq!(
        graph.output("y").unwrap().to_string(),
        "float32 [num_tokens, 3]"
    );
    let operators: Vec<_> = graph
        .operators
        .iter()
        .map(|(d, k)| (d.as_str(), k.as_str()))
        .collect();
    assert_eq!(operators, [("", "Gather"), ("pawl", "CausalConv")]);
    assert_eq!(weight(&graph, "weight").external, None);
    let big = weight(&graph, "big");
    assert_eq!(
        (big.dims.as_slice(), big.bytes()),
        ([5, 7].as_slice(), Some(140))
    );
    let place = big.external.as_ref().unwrap();
    assert_eq!(
        (place.location.as_str(), place.offset, place.length),
        ("model.onnx.data", 4096, Some(140))
    );
}

#[test]
fn packed_extents_are_read_like_plain_ones() {
    let tensor = Message::default()
        .bytes(1, &[2, 0xac, 2])
        .number(2, 1)
        .text(8, "w");
    let file = Message::default().message(7, Message::default().message(5, tensor));
    let graph = read(&file.into_bytes()).unwrap();
    assert_eq!(graph.initializers[0].dims, [2, 300]);
}

#[test]
fn a_file_without_a_graph_is_refused() {
    for bytes in [&b""[..], b"\x08\x0a", b"not an onnx file", &[0xff; 40]] {
        assert!(read(bytes).is_err(), "{bytes:?}");
    }
    assert!(GraphIo::read(Path::new("/does/not/exist.onnx"), &mut Allowance::default()).is_err());
}

/// A tensor whose values are at `location`.
fn outside(name: &str, location: &str) -> Message {
    let entry = |key: &str, value: &str| Message::default().text(1, key).text(2, value);
    let tensor = Message::default().number(1, 2).number(2, F32).text(8, name);
    tensor
        .message(13, entry("location", location))
        .number(14, 1)
}

/// A node with one attribute.
fn holding(domain: &str, kind: &str, attribute: Message) -> Message {
    let node = Message::default().text(1, "taken").text(2, "made");
    let node = node.text(3, "the node").message(5, attribute.text(1, "a"));
    node.text(4, kind).text(7, domain)
}

fn of_nodes(nodes: impl IntoIterator<Item = Message>) -> Message {
    let add = |graph: Message, node| graph.message(1, node);
    nodes.into_iter().fold(Message::default(), add)
}

fn of_graph(graph: Message) -> Vec<u8> {
    Message::default().message(7, graph).into_bytes()
}

#[test]
fn tensors_of_attributes_and_of_branches_are_weights() {
    let branch = || {
        let constant = holding(
            "",
            "Constant",
            Message::default().message(5, outside("deep", "d")),
        );
        of_nodes([constant]).message(5, outside("branch", "b"))
    };
    let nodes = [
        holding("", "If", Message::default().message(6, branch())),
        holding("ai.onnx", "If", Message::default().message(11, branch())),
        holding(
            "",
            "Constant",
            Message::default().message(5, outside("one", "o")),
        ),
        holding(
            "",
            "Other",
            Message::default().message(10, outside("many", "m")),
        ),
    ];
    let graph = read(&of_graph(of_nodes(nodes))).unwrap();
    assert!(graph.initializers.is_empty());
    let found = graph.weights().map(|weight| {
        let place = weight.external.as_ref().unwrap();
        (weight.name.as_str(), place.location.as_str())
    });
    let branches = [("branch", "b"), ("deep", "d")];
    let expected = [branches, branches, [("one", "o"), ("many", "m")]].concat();
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert_eq!(graph.nodes[0].branches, ["taken"]);
    assert!(
        graph
            .operators
            .contains(&(String::new(), "Constant".to_owned()))
    );
    assert_eq!(graph.nodes[1].domain, "");
}

#[test]
fn what_runs_unseen_or_without_an_end_is_refused() {
    let inner = || Message::default().message(6, Message::default());
    let one = |node| of_graph(of_nodes([node]));
    let many = |depth: usize| {
        let wrap = |graph, _| of_nodes([holding("", "If", Message::default().message(6, graph))]);
        of_graph((0..depth).fold(Message::default(), wrap))
    };
    let sparse = Message::default();
    for (bytes, refusal) in [
        (one(holding("", "Loop", inner())), "`the node` (Loop)"),
        (one(holding("", "Scan", inner())), "`the node` (Scan)"),
        (one(holding("own", "If", inner())), "`the node` (If)"),
        (
            one(holding(
                "",
                "Loop",
                Message::default().message(11, Message::default()),
            )),
            "(Loop)",
        ),
        (many(9), "nested more than 8"),
        (
            of_graph(Message::default().message(15, sparse.clone())),
            "sparse",
        ),
        (
            one(holding(
                "",
                "Constant",
                Message::default().message(22, sparse),
            )),
            "sparse",
        ),
        (
            Message::default()
                .message(7, Message::default())
                .message(25, Message::default())
                .into_bytes(),
            "functions",
        ),
    ] {
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains(refusal), "{refusal}: {error}");
    }
    assert!(read(&many(8)).is_ok());
}

/// Other readers put such messages together, so that they would see what was not checked.
#[test]
fn what_readers_understand_in_different_ways_is_refused() {
    let graph = Message::default;
    let shape = || Message::default().message(1, Message::default().number(1, 2));
    let kind = |tensor: Message| Message::default().message(1, tensor);
    let input = |kind: Message| of_graph(graph().message(11, kind.text(1, "x")));
    let twice = |message: Message, field| {
        message
            .clone()
            .message(field, shape())
            .message(field, shape())
    };
    let location =
        outside("w", "a").message(13, Message::default().text(1, "location").text(2, ""));
    let long = [&[0xba, 0x80, 0x80, 0x80, 0x10][..], &[0]].concat();
    for (bytes, refusal) in [
        (
            Message::default()
                .message(7, graph())
                .message(7, graph())
                .into_bytes(),
            "second graph",
        ),
        (input(twice(graph(), 2)), "second type"),
        (
            input(Message::default().message(2, twice(graph(), 1))),
            "second kind",
        ),
        (
            input(Message::default().message(2, kind(graph()).message(4, graph()))),
            "second kind",
        ),
        (
            input(Message::default().message(2, kind(twice(graph(), 2)))),
            "second shape",
        ),
        (
            of_graph(of_nodes([holding("", "Constant", twice(graph(), 5))])),
            "second tensor",
        ),
        (
            of_graph(of_nodes([holding("", "If", twice(graph(), 6))])),
            "second graph",
        ),
        (of_graph(graph().message(5, location)), "second location"),
        (
            of_graph(graph().message(5, Message::default().number(14, 2))),
            "unknown place",
        ),
        (long, "too large a number"),
    ] {
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains(refusal), "{refusal}: {error}");
    }
    // 32 bits of a number count.
    let wide = Message::default()
        .number(2, (1 << 32) + 1)
        .number(14, (1 << 32) + 1);
    let graph = read(&of_graph(Message::default().message(5, wide))).unwrap();
    assert_eq!(graph.initializers[0].data_type, DataType::F32);
    assert!(graph.initializers[0].external.is_some());
}

/// However many graphs a model has, together they may not hold more than one.
#[test]
fn what_may_be_read_is_shared() {
    let node = || Message::default().text(4, "Add");
    let file = |count| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let graph =
            Message::default().message(7, of_nodes(std::iter::repeat_with(node).take(count)));
        std::fs::write(file.path(), graph.into_bytes()).unwrap();
        file
    };
    let (most, mut left) = (crate::limits::GRAPH_ITEMS, Allowance::default());
    assert!(GraphIo::read(file(most - 1).path(), &mut left).is_ok());
    assert!(GraphIo::read(file(1).path(), &mut left).is_ok());
    let error = GraphIo::read(file(1).path(), &mut left).unwrap_err();
    assert!(error.to_string().contains("more than 131072"), "{error}");
    let values = |count: usize| {
        let add = |graph: Message, _| graph.message(12, Message::default());
        read(&of_graph((0..count).fold(Message::default(), add)))
    };
    assert!(values(GRAPH_VALUES).is_ok());
    let error = values(GRAPH_VALUES + 1).unwrap_err();
    assert!(error.to_string().contains("more than 16384"), "{error}");
}

proptest! {
    #[test]
    fn a_cut_file_is_an_error(cut in 1usize..400) {
        let bytes = small().into_bytes();
        let cut = cut % (bytes.len() - 70);
        prop_assert!(read(&bytes[..bytes.len() - 70 - cut]).is_err());
    }

    #[test]
    fn damage_never_panics(at in 0usize..10_000, byte: u8) {
        let mut bytes = small().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = read(&bytes);
    }
}
