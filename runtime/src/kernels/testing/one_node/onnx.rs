//! Just enough of the ONNX file format for a graph of one node (ONNX Runtime's model editor knows no
//! custom operators).

use super::{Attr, Data, Feed, OneNode};

const FLOAT: u64 = 1;
const INT32: u64 = 6;

/// A protocol buffer message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn float(mut self, field: u64, value: f32) -> Self {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    fn message(self, field: u64, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }
}

/// The file of a graph with this one node. Axes of inputs are symbolic: `<input>.<axis>`.
pub(super) fn model(node: &OneNode, feeds: &[Feed]) -> Vec<u8> {
    let mut graph = Message::default()
        .message(1, &node_proto(node, feeds))
        .text(2, "graph");
    for feed in feeds.iter().filter(|f| !f.name.is_empty()) {
        graph = if feed.constant {
            graph.message(5, &initializer(feed))
        } else {
            let element = match feed.data {
                Data::Floats(_) => FLOAT,
                Data::Ints(_) => INT32,
            };
            let axes: Vec<String> = (0..feed.shape.len())
                .map(|axis| format!("{}.{axis}", feed.name))
                .collect();
            graph.message(11, &value(feed.name, element, Some(&axes)))
        };
    }
    for name in node.outputs.iter().filter(|name| !name.is_empty()) {
        graph = graph.message(12, &value(name, FLOAT, None));
    }
    let mut model = Message::default().number(1, 10).message(7, &graph);
    for (domain, version) in [("", 23), ("pawl", 1), ("com.microsoft", 1)] {
        model = model.message(8, &Message::default().text(1, domain).number(2, version));
    }
    model.0
}

fn node_proto(node: &OneNode, feeds: &[Feed]) -> Message {
    let mut message = Message::default();
    for feed in feeds {
        message = message.text(1, feed.name);
    }
    for name in &node.outputs {
        message = message.text(2, name);
    }
    message = message
        .text(3, "node")
        .text(4, node.operator)
        .text(7, node.domain);
    for (name, value) in &node.attributes {
        let attribute = Message::default().text(1, name);
        let attribute = match value {
            Attr::Float(value) => attribute.float(2, *value).number(20, 1),
            Attr::Int(value) => attribute.number(3, *value as u64).number(20, 2),
            Attr::Text(value) => attribute.text(4, value).number(20, 3),
        };
        message = message.message(5, &attribute);
    }
    message
}

fn initializer(feed: &Feed) -> Message {
    let Data::Floats(data) = &feed.data else {
        panic!("a constant of another type")
    };
    let mut tensor = Message::default();
    for &extent in &feed.shape {
        tensor = tensor.number(1, extent as u64);
    }
    let raw: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
    tensor.number(2, FLOAT).text(8, feed.name).bytes(9, &raw)
}

fn value(name: &str, element: u64, axes: Option<&[String]>) -> Message {
    let mut tensor = Message::default().number(1, element);
    if let Some(axes) = axes {
        let shape = axes.iter().fold(Message::default(), |shape, axis| {
            shape.message(1, &Message::default().text(2, axis))
        });
        tensor = tensor.message(2, &shape);
    }
    Message::default()
        .text(1, name)
        .message(2, &Message::default().message(1, &tensor))
}
