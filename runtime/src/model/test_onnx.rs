//! Writes small ONNX files for tests, field by field, so that the reader and ONNX Runtime see the same bytes.

use std::fs;
use std::path::{Path, PathBuf};

/// A protobuf message under construction.
#[derive(Clone, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    pub(crate) fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    pub(crate) fn message(self, field: u64, value: Message) -> Self {
        self.bytes(field, &value.0)
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

/// An attribute of a node.
pub(crate) enum Attribute {
    Int(i64),
    Ints(&'static [i64]),
}

/// A graph under construction. Dims are words: a number is fixed, anything else is a symbol.
#[derive(Clone, Default)]
pub(crate) struct Onnx {
    graph: Message,
    nodes: usize,
}

pub(crate) const F32: u64 = 1;
pub(crate) const I32: u64 = 6;
pub(crate) const I64: u64 = 7;

impl Onnx {
    pub(crate) fn input(self, name: &str, kind: u64, dims: &str) -> Self {
        self.value(11, name, kind, dims)
    }

    pub(crate) fn output(self, name: &str, kind: u64, dims: &str) -> Self {
        self.value(12, name, kind, dims)
    }

    fn value(mut self, field: u64, name: &str, kind: u64, dims: &str) -> Self {
        let shape = dims
            .split_whitespace()
            .fold(Message::default(), |shape, dim| {
                let one = match dim.parse::<u64>() {
                    Ok(extent) => Message::default().number(1, extent),
                    Err(_) => Message::default().text(2, dim),
                };
                shape.message(1, one)
            });
        let tensor = Message::default().number(1, kind).message(2, shape);
        let info = Message::default()
            .text(1, name)
            .message(2, Message::default().message(1, tensor));
        self.graph = self.graph.message(field, info);
        self
    }

    /// Adds a node; `op` is `Type` or `domain:Type`, names are words, `-` an omitted one.
    pub(crate) fn node(
        mut self,
        op: &str,
        inputs: &str,
        outputs: &str,
        attributes: &[(&str, Attribute)],
    ) -> Self {
        let (domain, kind) = op.split_once(':').unwrap_or(("", op));
        let mut node = Message::default();
        for input in inputs.split_whitespace() {
            node = node.text(1, if input == "-" { "" } else { input });
        }
        for output in outputs.split_whitespace() {
            node = node.text(2, if output == "-" { "" } else { output });
        }
        node = node.text(3, &format!("node{}", self.nodes)).text(4, kind);
        for (name, attribute) in attributes {
            let message = Message::default().text(1, name);
            let message = match attribute {
                Attribute::Int(value) => message.number(3, value.cast_unsigned()).number(20, 2),
                Attribute::Ints(values) => values
                    .iter()
                    .fold(message, |message, value| {
                        message.number(8, value.cast_unsigned())
                    })
                    .number(20, 7),
            };
            node = node.message(5, message);
        }
        self.graph = self.graph.message(1, node.text(7, domain));
        self.nodes += 1;
        self
    }

    /// Adds a weight with its values in the file.
    pub(crate) fn weight(mut self, name: &str, kind: u64, dims: &[u64], values: &[u8]) -> Self {
        let tensor = tensor(name, kind, dims).bytes(9, values);
        self.graph = self.graph.message(5, tensor);
        self
    }

    pub(crate) fn floats(self, name: &str, dims: &[u64], values: &[f32]) -> Self {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.weight(name, F32, dims, &bytes)
    }

    pub(crate) fn ints(self, name: &str, dims: &[u64], values: &[i64]) -> Self {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.weight(name, I64, dims, &bytes)
    }

    /// Adds a weight whose values are in another file.
    pub(crate) fn external(mut self, name: &str, dims: &[u64], place: (&str, u64, u64)) -> Self {
        let (location, offset, length) = place;
        let entry = |key: &str, value: &str| Message::default().text(1, key).text(2, value);
        let tensor = tensor(name, F32, dims)
            .message(13, entry("location", location))
            .message(13, entry("offset", &offset.to_string()))
            .message(13, entry("length", &length.to_string()))
            .number(14, 1);
        self.graph = self.graph.message(5, tensor);
        self
    }

    /// The file.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let opset = |domain: &str, version| Message::default().text(1, domain).number(2, version);
        Message::default()
            .number(1, 10)
            .text(2, "test")
            .message(7, self.graph.text(2, "graph"))
            .message(8, opset("", 23))
            .message(8, opset("pawl", 1))
            .message(8, opset("com.microsoft", 1))
            .into_bytes()
    }

    /// Writes the file and returns its path.
    pub(crate) fn write(self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, self.into_bytes()).unwrap();
        path
    }
}

fn tensor(name: &str, kind: u64, dims: &[u64]) -> Message {
    dims.iter()
        .fold(Message::default(), |tensor, dim| tensor.number(1, *dim))
        .number(2, kind)
        .text(8, name)
}
