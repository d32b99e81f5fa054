//! Reads what an ONNX file declares (inputs, outputs, initializers, nodes) without ONNX Runtime.
//!
//! The contract is checked and memory is planned before any session exists, and a graph for another provider has to
//! be checked where it cannot be opened at all. Only the fields needed for that are read; everything else, weights
//! included, is skipped without being loaded.

use super::tensor_spec::{DataType, Dim, TensorSpec};
use crate::limits::{
    GRAPH_BYTES, GRAPH_FIELDS, GRAPH_ITEMS, GRAPH_NAME_BYTES, GRAPH_SHAPE_BYTES, GRAPH_TEXT_BYTES,
};
use genai_config_schema::open_regular;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::Path;

/// What one graph declares, in file order.
#[derive(Clone, Debug, Default)]
pub(crate) struct GraphIo {
    /// Inputs that are not initializers.
    pub(crate) inputs: Vec<TensorSpec>,
    pub(crate) outputs: Vec<TensorSpec>,
    pub(crate) initializers: Vec<Initializer>,
    /// Domain and type of every node of the graph; the ONNX domain is the empty string.
    pub(crate) operators: BTreeSet<(String, String)>,
    pub(crate) nodes: Vec<Node>,
}

/// One node of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) kind: String,
    /// Empty where an input is left out.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) attributes: Vec<Attribute>,
}

/// An attribute that is a number or a text; others are read as the number 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) number: i64,
    pub(crate) text: String,
}

impl Node {
    /// The attribute of this name.
    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|found| found.name == name)
    }
}

/// One weight of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Initializer {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) dims: Vec<u64>,
    /// `None` when the values are in the graph file itself.
    pub(crate) external: Option<ExternalData>,
}

/// Where the values of an initializer lie outside of the graph file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExternalData {
    pub(crate) location: String,
    pub(crate) offset: u64,
    /// `None`: as long as type and shape say.
    pub(crate) length: Option<u64>,
}

impl Initializer {
    /// Bytes of the values; `None` for a type without a size and for a shape larger than the address space.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let count = self.dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d))?;
        self.data_type.bytes(count)
    }
}

impl GraphIo {
    /// Reads the declarations of `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is not an ONNX model; the message says where.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let (file, end) = open_regular(path)?;
        if end > GRAPH_BYTES {
            let what = format!("more than the {GRAPH_BYTES} bytes that an ONNX file can have");
            return Err(malformed(GRAPH_BYTES, &what));
        }
        let mut reader = Reader {
            file: BufReader::new(file),
            position: 0,
            fields: GRAPH_FIELDS,
            text: GRAPH_TEXT_BYTES,
        };
        let mut graph = None;
        reader.each_field(0..end, |reader, field| {
            if let (7, Value::Bytes(range)) = field {
                graph = Some(reader.graph(range)?);
            }
            Ok(())
        })?;
        graph.ok_or_else(|| malformed(end, "the file holds no graph"))
    }

    /// The input of this name.
    pub(crate) fn input(&self, name: &str) -> Option<&TensorSpec> {
        self.inputs.iter().find(|spec| spec.name == name)
    }

    /// The output of this name.
    pub(crate) fn output(&self, name: &str) -> Option<&TensorSpec> {
        self.outputs.iter().find(|spec| spec.name == name)
    }

    /// Bytes of all weights that the graph uses, wherever they lie.
    pub(crate) fn weight_bytes(&self) -> u64 {
        let bytes = self.initializers.iter().filter_map(Initializer::bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// The initializer of this name.
    pub(crate) fn initializer(&self, name: &str) -> Option<&Initializer> {
        self.initializers.iter().find(|found| found.name == name)
    }
}

/// The value of one protobuf field.
#[derive(Clone, Debug)]
enum Value {
    Number(u64),
    /// Where a string, message or packed list lies in the file.
    Bytes(Range<u64>),
    /// A fixed-size value, skipped: nothing that is read here has one.
    Fixed,
}

type Field = (u64, Value);

/// A protobuf reader over a file: every length is checked against the message that holds it.
struct Reader {
    file: BufReader<File>,
    position: u64,
    /// Fields that may still be read.
    fields: usize,
    /// Bytes of names that may still be read.
    text: u64,
}

fn malformed(at: u64, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} (at byte {at})"))
}

impl Reader {
    /// Calls `visit` for each field of the message at `range`, in order.
    fn each_field(
        &mut self,
        range: Range<u64>,
        mut visit: impl FnMut(&mut Self, Field) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            self.go_to(at)?;
            let field = self.field(range.end)?;
            at = match &field.1 {
                Value::Bytes(bytes) => bytes.end,
                Value::Number(_) | Value::Fixed => self.position,
            };
            visit(self, field)?;
        }
        Ok(())
    }

    fn field(&mut self, end: u64) -> io::Result<Field> {
        self.fields = self
            .fields
            .checked_sub(1)
            .ok_or_else(|| malformed(self.position, "too many fields"))?;
        let tag = self.varint(end)?;
        if tag >> 3 == 0 {
            return Err(malformed(
                self.position,
                "not an ONNX file: a field without a number",
            ));
        }
        let value = match tag & 7 {
            0 => Value::Number(self.varint(end)?),
            1 => self.fixed(8, end)?,
            2 => {
                let length = self.varint(end)?;
                Value::Bytes(self.position..self.bounded(length, end)?)
            }
            5 => self.fixed(4, end)?,
            _ => {
                return Err(malformed(
                    self.position,
                    "not an ONNX file: unknown field type",
                ));
            }
        };
        Ok((tag >> 3, value))
    }

    fn fixed(&mut self, length: u64, end: u64) -> io::Result<Value> {
        let next = self.bounded(length, end)?;
        self.go_to(next)?;
        Ok(Value::Fixed)
    }

    fn bounded(&self, length: u64, end: u64) -> io::Result<u64> {
        self.position
            .checked_add(length)
            .filter(|next| *next <= end)
            .ok_or_else(|| malformed(self.position, "a field is longer than what holds it"))
    }

    fn varint(&mut self, end: u64) -> io::Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let next = self.bounded(1, end)?;
            let mut byte = [0u8];
            self.file.read_exact(&mut byte)?;
            self.position = next;
            let [byte] = byte;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed(self.position, "a number of more than 64 bits"))
    }

    fn go_to(&mut self, position: u64) -> io::Result<()> {
        let distance = i64::try_from(i128::from(position) - i128::from(self.position))
            .map_err(|_| malformed(position, "a position outside of the file"))?;
        self.file.seek_relative(distance)?;
        self.position = position;
        Ok(())
    }

    fn text(&mut self, range: Range<u64>) -> io::Result<String> {
        let start = range.start;
        let bytes = self.bytes(range, GRAPH_NAME_BYTES)?;
        String::from_utf8(bytes).map_err(|_| malformed(start, "a name that is not UTF-8"))
    }

    fn bytes(&mut self, range: Range<u64>, longest: u64) -> io::Result<Vec<u8>> {
        let length = range.end.saturating_sub(range.start);
        self.text = self.text.saturating_sub(length);
        if length > longest || self.text == 0 {
            return Err(malformed(range.start, "names or shapes that are too long"));
        }
        self.go_to(range.start)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.file.read_exact(&mut bytes)?;
        self.position = range.end;
        Ok(bytes)
    }

    fn graph(&mut self, range: Range<u64>) -> io::Result<GraphIo> {
        let mut graph = GraphIo::default();
        self.each_field(range, |reader, field| {
            match field {
                (1, Value::Bytes(node)) => {
                    let node = reader.node(node)?;
                    graph
                        .operators
                        .insert((node.domain.clone(), node.kind.clone()));
                    put(&mut graph.nodes, node, reader.position)?;
                }
                (5, Value::Bytes(tensor)) => {
                    let tensor = reader.initializer(tensor)?;
                    put(&mut graph.initializers, tensor, reader.position)?;
                }
                (11, Value::Bytes(info)) => {
                    let info = reader.value_info(info)?;
                    put(&mut graph.inputs, info, reader.position)?;
                }
                (12, Value::Bytes(info)) => {
                    let info = reader.value_info(info)?;
                    put(&mut graph.outputs, info, reader.position)?;
                }
                _ => {}
            }
            Ok(())
        })?;
        let weights: BTreeSet<&str> = graph.initializers.iter().map(|w| w.name.as_str()).collect();
        graph
            .inputs
            .retain(|input| !weights.contains(input.name.as_str()));
        Ok(graph)
    }

    fn node(&mut self, range: Range<u64>) -> io::Result<Node> {
        let mut node = Node::default();
        self.each_field(range, |reader, field| {
            match field {
                (1, Value::Bytes(text)) => node.inputs.push(reader.text(text)?),
                (2, Value::Bytes(text)) => node.outputs.push(reader.text(text)?),
                (3, Value::Bytes(text)) => node.name = reader.text(text)?,
                (4, Value::Bytes(text)) => node.kind = reader.text(text)?,
                (5, Value::Bytes(attribute)) => {
                    node.attributes.push(reader.attribute(attribute)?);
                }
                (7, Value::Bytes(text)) => node.domain = reader.text(text)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(node)
    }

    fn attribute(&mut self, range: Range<u64>) -> io::Result<Attribute> {
        /// A longer text is the content of something, not a word.
        const WORD: u64 = 64;
        let mut found = Attribute::default();
        self.each_field(range, |reader, field| {
            match field {
                (1, Value::Bytes(text)) => found.name = reader.text(text)?,
                (3, Value::Number(number)) => found.number = number.cast_signed(),
                (4, Value::Bytes(text)) if text.end - text.start <= WORD => {
                    let bytes = reader.bytes(text, WORD)?;
                    found.text = String::from_utf8_lossy(&bytes).into_owned();
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn value_info(&mut self, range: Range<u64>) -> io::Result<TensorSpec> {
        let mut spec = TensorSpec {
            name: String::new(),
            data_type: DataType(0),
            dims: None,
        };
        self.each_field(range, |reader, field| {
            match field {
                (1, Value::Bytes(text)) => spec.name = reader.text(text)?,
                (2, Value::Bytes(kind)) => {
                    reader.each_field(kind, |reader, field| match field {
                        (1, Value::Bytes(tensor)) => reader.tensor_type(tensor, &mut spec),
                        _ => Ok(()),
                    })?
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(spec)
    }

    fn tensor_type(&mut self, range: Range<u64>, spec: &mut TensorSpec) -> io::Result<()> {
        self.each_field(range, |reader, field| {
            match field {
                (1, Value::Number(number)) => spec.data_type = data_type(number),
                (2, Value::Bytes(shape)) => spec.dims = Some(reader.shape(shape)?),
                _ => {}
            }
            Ok(())
        })
    }

    fn shape(&mut self, range: Range<u64>) -> io::Result<Vec<Dim>> {
        let mut dims = Vec::new();
        self.each_field(range, |reader, field| {
            if let (1, Value::Bytes(dim)) = field {
                dims.push(reader.dim(dim)?);
            }
            Ok(())
        })?;
        Ok(dims)
    }

    fn dim(&mut self, range: Range<u64>) -> io::Result<Dim> {
        let mut dim = Dim::Symbol(String::new());
        self.each_field(range, |reader, field| {
            match field {
                (1, Value::Number(extent)) => dim = Dim::Fixed(extent),
                (2, Value::Bytes(text)) => dim = Dim::Symbol(reader.text(text)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(dim)
    }

    fn initializer(&mut self, range: Range<u64>) -> io::Result<Initializer> {
        let mut found = Initializer {
            name: String::new(),
            data_type: DataType(0),
            dims: Vec::new(),
            external: None,
        };
        let (mut external, mut outside) = (ExternalData::default(), false);
        self.each_field(range, |reader, field| {
            match field {
                (1, Value::Number(extent)) => found.dims.push(extent),
                (1, Value::Bytes(packed)) => reader.packed(packed, &mut found.dims)?,
                (2, Value::Number(number)) => found.data_type = data_type(number),
                (8, Value::Bytes(text)) => found.name = reader.text(text)?,
                (13, Value::Bytes(entry)) => reader.external(entry, &mut external)?,
                (14, Value::Number(location)) => outside = location == 1,
                _ => {}
            }
            Ok(())
        })?;
        found.external = outside.then_some(external);
        Ok(found)
    }

    fn packed(&mut self, range: Range<u64>, dims: &mut Vec<u64>) -> io::Result<()> {
        if range.end.saturating_sub(range.start) > GRAPH_SHAPE_BYTES {
            return Err(malformed(range.start, "a name or shape that is too long"));
        }
        self.go_to(range.start)?;
        while self.position < range.end {
            let extent = self.varint(range.end)?;
            dims.push(extent);
        }
        Ok(())
    }

    fn external(&mut self, range: Range<u64>, external: &mut ExternalData) -> io::Result<()> {
        let start = range.start;
        let (mut key, mut value) = (String::new(), String::new());
        self.each_field(range, |reader, field| {
            match field {
                (1, Value::Bytes(text)) => key = reader.text(text)?,
                (2, Value::Bytes(text)) => value = reader.text(text)?,
                _ => {}
            }
            Ok(())
        })?;
        let number = || {
            value
                .parse()
                .map_err(|_| malformed(start, "an external data position that is not a number"))
        };
        match key.as_str() {
            "location" => external.location = value,
            "offset" => external.offset = number()?,
            "length" => external.length = Some(number()?),
            _ => {}
        }
        Ok(())
    }
}

/// Adds one more, within the bound.
fn put<T>(items: &mut Vec<T>, item: T, at: u64) -> io::Result<()> {
    if items.len() >= GRAPH_ITEMS {
        return Err(malformed(
            at,
            &format!("more than {GRAPH_ITEMS} nodes, tensors, inputs or outputs"),
        ));
    }
    items.push(item);
    Ok(())
}

/// Element types are small; anything else is shown as it is.
fn data_type(number: u64) -> DataType {
    DataType(i32::try_from(number).unwrap_or(i32::MAX))
}

#[cfg(test)]
#[path = "graph_io_tests.rs"]
mod tests;
