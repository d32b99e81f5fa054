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
    GraphIo::read(file.path())
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
    assert_eq!(graph.initializer("weight").unwrap().external, None);
    let big = graph.initializer("big").unwrap();
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
    assert!(GraphIo::read(Path::new("/does/not/exist.onnx")).is_err());
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
