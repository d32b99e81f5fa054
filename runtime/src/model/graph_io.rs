//! Reads what an ONNX file declares (inputs, outputs, initializers, nodes) without ONNX Runtime.
//!
//! The contract is checked and memory is planned before any session exists, and a graph for another provider has to
//! be checked where it cannot be opened at all. Only the fields needed for that are read; everything else, weights
//! included, is skipped without being loaded.
//!
//! A graph is a program. What a session would run without an end, or in ways that are not seen here, is refused: graphs
//! inside of nodes, except for the branches of an `If`, and functions.

use super::protobuf::{Reader, Value, malformed, only};
use super::tensor_spec::{DataType, Dim, TensorSpec};
use crate::limits::{GRAPH_DEPTH, GRAPH_VALUES};
use genai_config_schema::quoted;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;

pub(crate) use super::protobuf::Allowance;

/// What one graph declares, in file order.
#[derive(Clone, Debug, Default)]
pub(crate) struct GraphIo {
    /// Inputs that are not initializers.
    pub(crate) inputs: Vec<TensorSpec>,
    pub(crate) outputs: Vec<TensorSpec>,
    pub(crate) initializers: Vec<Initializer>,
    /// Tensors of attributes, and those of the branches of nodes.
    pub(crate) inner: Vec<Initializer>,
    /// Domain and type of every node, of branches too; the ONNX domain is the empty string.
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
    /// Names that the branches of the node use.
    pub(crate) branches: Vec<String>,
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
    /// Reads the declarations of `path`, within what is left of the `allowance`.
    ///
    /// # Errors
    /// The file cannot be read, or is not an ONNX model; the message says where.
    pub(crate) fn read(path: &Path, allowance: &mut Allowance) -> io::Result<Self> {
        let (mut reader, end) = Reader::open(path, allowance)?;
        let mut graph = None;
        reader.each_field(0..end, |reader, field| match field {
            (7, Value::Bytes(range)) => {
                let start = range.start;
                only(&mut graph, reader.graph(range)?, start, "graph")
            }
            // They may call each other, each twice the next.
            (25, Value::Bytes(range)) => Err(malformed(
                range.start,
                "functions of the model's own, which are not supported: export it with them inlined",
            )),
            _ => Ok(()),
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
        let bytes = self.weights().filter_map(Initializer::bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Everything that may lie in a data file.
    pub(crate) fn weights(&self) -> impl Iterator<Item = &Initializer> {
        self.initializers.iter().chain(&self.inner)
    }
}

impl Reader<'_> {
    fn graph(&mut self, range: Range<u64>) -> io::Result<GraphIo> {
        if self.depth > GRAPH_DEPTH {
            let what = format!("graphs nested more than {GRAPH_DEPTH} deep");
            return Err(malformed(range.start, &what));
        }
        self.depth += 1;
        let mut graph = GraphIo::default();
        self.each_field(range, |reader, field| match field {
            (1, Value::Bytes(node)) => {
                let node = reader.node(node, &mut graph)?;
                reader.put(&mut graph.nodes, node)
            }
            (5, Value::Bytes(tensor)) => {
                let tensor = reader.tensor(tensor)?;
                reader.put(&mut graph.initializers, tensor)
            }
            (11, Value::Bytes(info)) => reader.value_info(info, &mut graph.inputs),
            (12, Value::Bytes(info)) => reader.value_info(info, &mut graph.outputs),
            (15, Value::Bytes(range)) => Err(sparse(range.start)),
            _ => Ok(()),
        })?;
        self.depth -= 1;
        let weights: BTreeSet<&str> = graph.initializers.iter().map(|w| w.name.as_str()).collect();
        graph
            .inputs
            .retain(|input| !weights.contains(input.name.as_str()));
        Ok(graph)
    }

    /// Reads a node, and adds what it is and what lies inside of it to its `graph`.
    fn node(&mut self, range: Range<u64>, graph: &mut GraphIo) -> io::Result<Node> {
        let start = range.start;
        let (mut node, mut branches) = (Node::default(), Vec::new());
        self.each_field(range, |reader, field| {
            match field {
                (1, Value::Bytes(text)) => node.inputs.push(reader.text(text)?),
                (2, Value::Bytes(text)) => node.outputs.push(reader.text(text)?),
                (3, Value::Bytes(text)) => node.name = reader.text(text)?,
                (4, Value::Bytes(text)) => node.kind = reader.text(text)?,
                (5, Value::Bytes(attribute)) => {
                    let attribute = reader.attribute(attribute, &mut graph.inner, &mut branches)?;
                    node.attributes.push(attribute);
                }
                (7, Value::Bytes(text)) => node.domain = reader.text(text)?,
                _ => {}
            }
            Ok(())
        })?;
        if node.domain == "ai.onnx" {
            node.domain.clear();
        }
        let may_branch = node.domain.is_empty() && node.kind == "If";
        if !branches.is_empty() && !may_branch {
            let (name, kind) = (quoted(&node.name), quoted(&node.kind));
            let what = format!(
                "`{name}` ({kind}) has a graph of its own, which is not supported: only `If` runs it at most once"
            );
            return Err(malformed(start, &what));
        }
        let operator = (node.domain.clone(), node.kind.clone());
        graph.operators.insert(operator);
        for branch in branches {
            node.take_in(branch, graph);
        }
        Ok(node)
    }

    /// Reads an attribute; its tensors are added to `tensors`, its graphs to `branches`.
    fn attribute(
        &mut self,
        range: Range<u64>,
        tensors: &mut Vec<Initializer>,
        branches: &mut Vec<GraphIo>,
    ) -> io::Result<Attribute> {
        /// A longer text is the content of something, not a word.
        const WORD: u64 = 64;
        let (mut found, mut tensor, mut branch) = (Attribute::default(), None, None);
        self.each_field(range, |reader, field| {
            match field {
                (1, Value::Bytes(text)) => found.name = reader.text(text)?,
                (3, Value::Number(number)) => found.number = number.cast_signed(),
                (4, Value::Bytes(text)) if text.end - text.start <= WORD => {
                    let bytes = reader.bytes(text, WORD)?;
                    found.text = String::from_utf8_lossy(&bytes).into_owned();
                }
                (5, Value::Bytes(range)) => {
                    let start = range.start;
                    only(&mut tensor, reader.tensor(range)?, start, "tensor")?;
                }
                (6, Value::Bytes(range)) => {
                    let start = range.start;
                    only(&mut branch, reader.graph(range)?, start, "graph")?;
                }
                (10, Value::Bytes(range)) => {
                    let tensor = reader.tensor(range)?;
                    reader.put(tensors, tensor)?;
                }
                (11, Value::Bytes(range)) => branches.push(reader.graph(range)?),
                (22 | 23, Value::Bytes(range)) => return Err(sparse(range.start)),
                _ => {}
            }
            Ok(())
        })?;
        if let Some(tensor) = tensor {
            self.put(tensors, tensor)?;
        }
        branches.extend(branch);
        Ok(found)
    }

    fn value_info(&mut self, range: Range<u64>, values: &mut Vec<TensorSpec>) -> io::Result<()> {
        let start = range.start;
        let mut spec = TensorSpec {
            name: String::new(),
            data_type: DataType(0),
            dims: None,
        };
        let mut kind = None;
        self.each_field(range, |reader, field| match field {
            (1, Value::Bytes(text)) => {
                spec.name = reader.text(text)?;
                Ok(())
            }
            (2, Value::Bytes(range)) => only(&mut kind, range, start, "type"),
            _ => Ok(()),
        })?;
        let mut tensor = None;
        self.each_field(kind.unwrap_or(start..start), |_, field| match field {
            // Of a tensor, a sequence, a mapping, an optional value or a sparse tensor.
            (what @ (1 | 4 | 5 | 8 | 9), Value::Bytes(range)) => {
                only(&mut tensor, (what == 1, range), start, "kind of type")
            }
            _ => Ok(()),
        })?;
        if let Some((true, range)) = tensor {
            self.tensor_type(range, &mut spec)?;
        }
        if values.len() >= GRAPH_VALUES {
            let what = format!("more than {GRAPH_VALUES} inputs or outputs");
            return Err(malformed(start, &what));
        }
        self.put(values, spec)
    }

    fn tensor_type(&mut self, range: Range<u64>, spec: &mut TensorSpec) -> io::Result<()> {
        self.each_field(range, |reader, field| match field {
            (1, Value::Number(number)) => {
                spec.data_type = data_type(number);
                Ok(())
            }
            (2, Value::Bytes(range)) => {
                let start = range.start;
                only(&mut spec.dims, reader.shape(range)?, start, "shape")
            }
            _ => Ok(()),
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

    fn tensor(&mut self, range: Range<u64>) -> io::Result<Initializer> {
        let start = range.start;
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
                (14, Value::Number(location)) => outside = is_outside(location, start)?,
                _ => {}
            }
            Ok(())
        })?;
        found.external = outside.then_some(external);
        Ok(found)
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
            // Others pass over an empty one that comes after the first.
            "location" if !external.location.is_empty() => {
                return Err(malformed(start, "a second location of external data"));
            }
            "location" => external.location = value,
            "offset" => external.offset = number()?,
            "length" => external.length = Some(number()?),
            _ => {}
        }
        Ok(())
    }
}

impl Node {
    /// Takes over a branch: what it uses is used by the node, what it holds is held by the node's graph.
    fn take_in(&mut self, branch: GraphIo, graph: &mut GraphIo) {
        graph.operators.extend(branch.operators);
        graph.inner.extend(branch.initializers);
        graph.inner.extend(branch.inner);
        let outputs = branch.outputs.into_iter().map(|output| output.name);
        self.branches.extend(outputs);
        for node in branch.nodes {
            self.branches.extend(node.inputs);
            self.branches.extend(node.branches);
        }
    }
}

fn sparse(at: u64) -> io::Error {
    malformed(at, "a sparse tensor, which is not supported")
}

/// Element types are small; of a larger number, readers see 32 bits.
fn data_type(number: u64) -> DataType {
    DataType(low(number).cast_signed())
}

/// Whether a tensor's values are in another file.
fn is_outside(location: u64, at: u64) -> io::Result<bool> {
    match low(location) {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(malformed(at, "an unknown place of a tensor's values")),
    }
}

fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "graph_io_tests.rs"]
mod tests;
