//! A graph under construction.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::HashSet;

use pawl_models::Weight;

use super::check::Check;
use super::ir::{Attribute, Dim, Dtype, Initializer, InitializerData, Node, ValueInfo};
use super::scope::Scope;
use super::value::{Output, Value, shape_text};
use crate::error::BuildError;
use crate::quantized::{self, BLOCK_EXTENT, Half};

/// Collects nodes, inputs, outputs and initializers of one ONNX file.
///
/// A node can only use values that exist already, so the nodes are in topological order and no name dangles;
/// every name is defined once. [`finish`](Self::finish) refuses what nothing reads.
#[derive(Debug)]
pub(crate) struct GraphBuilder {
    pub(super) file: Cow<'static, str>,
    pub(super) opset: i64,
    scope: Scope,
    pub(super) nodes: Vec<Node>,
    pub(super) inputs: Vec<ValueInfo>,
    pub(super) offered: HashSet<String>,
    pub(super) outputs: Vec<Published>,
    pub(super) initializers: Vec<Initializer>,
    values: HashMap<String, (Dtype, Vec<Dim>)>,
    node_names: HashSet<String>,
}

/// Version of the ONNX operators, unless a graph asks for another.
const OPSET: i64 = 23;

/// Which part of the output list a graph output belongs to; the list is in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Logits and hidden rows.
    Result,
    /// Caches and states after the step.
    State,
    /// Checkpoints of fixed state.
    Checkpoint,
}

/// A value that becomes a graph output under a name of its own.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) place: Place,
    pub(super) name: String,
    pub(super) value: Value,
}

/// One operator about to be emitted.
#[derive(Clone, Debug)]
pub(crate) struct Operator<'a> {
    pub(crate) domain: &'static str,
    pub(crate) op_type: &'static str,
    pub(crate) name: &'a str,
    pub(crate) inputs: Vec<Option<&'a Value>>,
    pub(crate) attributes: Vec<(&'static str, Attribute)>,
}

impl<'a> Operator<'a> {
    /// An ONNX operator without attributes whose inputs are all present.
    pub(crate) fn onnx<const N: usize>(
        op_type: &'static str,
        name: &'a str,
        inputs: [&'a Value; N],
    ) -> Self {
        Self {
            domain: "",
            op_type,
            name,
            inputs: inputs.into_iter().map(Some).collect(),
            attributes: Vec::new(),
        }
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, name: &'static str, value: Attribute) -> Self {
        self.attributes.push((name, value));
        self
    }
}

impl GraphBuilder {
    pub(crate) fn new(file: impl Into<Cow<'static, str>>) -> Self {
        Self {
            file: file.into(),
            opset: OPSET,
            scope: Scope::default(),
            nodes: Vec::new(),
            inputs: Vec::new(),
            offered: HashSet::new(),
            outputs: Vec::new(),
            initializers: Vec::new(),
            values: HashMap::new(),
            node_names: HashSet::new(),
        }
    }

    /// Uses another version of the ONNX operators.
    pub(crate) fn with_opset(mut self, opset: i64) -> Self {
        self.opset = opset;
        self
    }

    /// Builds a part whose nodes and initializers are named below `scope`.
    pub(crate) fn within<T>(
        &mut self,
        scope: &str,
        body: impl FnOnce(&mut Self) -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        self.scope.push(scope);
        let result = body(self);
        self.scope.pop();
        result
    }

    /// Checks for a node about to be emitted.
    pub(crate) fn check(&self, name: &str) -> Check {
        Check {
            file: self.file.clone(),
            node: self.scope.node(name),
        }
    }

    /// Declares a graph input that a node must read.
    pub(crate) fn input(
        &mut self,
        name: impl Into<String>,
        dtype: Dtype,
        dims: impl Into<Vec<Dim>>,
    ) -> Result<Value, BuildError> {
        let (name, dims) = (name.into(), dims.into());
        let value = self.define(name.clone(), dtype, dims.clone())?;
        self.inputs.push(ValueInfo { name, dtype, dims });
        Ok(value)
    }

    /// Declares a graph input that every graph of the contract has, read or not.
    pub(crate) fn offered_input(
        &mut self,
        name: &str,
        dtype: Dtype,
        dims: impl Into<Vec<Dim>>,
    ) -> Result<Value, BuildError> {
        self.offered.insert(name.to_owned());
        self.input(name, dtype, dims)
    }

    /// Makes a value a graph output called `name`, whatever its name was.
    pub(crate) fn output(&mut self, place: Place, name: impl Into<String>, value: &Value) {
        self.outputs.push(Published {
            place,
            name: name.into(),
            value: value.clone(),
        });
    }

    /// A weight of the checkpoint under the open scope, in its own shape.
    pub(crate) fn weight(
        &mut self,
        name: &str,
        dtype: Dtype,
        weight: &Weight,
    ) -> Result<Value, BuildError> {
        self.weight_as(name, dtype, weight, weight.shape.clone())
    }

    /// A weight of the checkpoint under the open scope, in another shape of as many elements.
    pub(crate) fn weight_as(
        &mut self,
        name: &str,
        dtype: Dtype,
        weight: &Weight,
        dims: Vec<u64>,
    ) -> Result<Value, BuildError> {
        let name = self.scope.initializer(name);
        if element_count(&dims) != Some(weight.elements()) {
            let problem = format!(
                "expected the elements of {dims:?}, found {:?}",
                weight.shape
            );
            return Err(self.defect(&name, problem));
        }
        self.initializer(Initializer {
            name,
            dtype,
            dims,
            data: InitializerData::Weight(weight.clone()),
            shared: false,
        })
    }

    /// A weight of the checkpoint that other graphs of the model hold under the same name.
    pub(crate) fn shared_weight(
        &mut self,
        name: &str,
        dtype: Dtype,
        weight: &Weight,
        shared: bool,
    ) -> Result<Value, BuildError> {
        self.initializer(Initializer {
            name: name.to_owned(),
            dtype,
            dims: weight.shape.clone(),
            data: InitializerData::Weight(weight.clone()),
            shared,
        })
    }

    /// A matrix of the checkpoint in 8 bits under the open scope: its values, `[rows, blocks, 32]`, and their scales,
    /// `[rows, blocks]`.
    pub(crate) fn quantized_weight(
        &mut self,
        name: &str,
        weight: &Weight,
    ) -> Result<(Value, Value), BuildError> {
        let name = self.scope.initializer(name);
        let Some([rows, blocks]) = quantized::shape(weight) else {
            let problem = format!(
                "expected rows of a multiple of {BLOCK_EXTENT}, found {:?}",
                weight.shape
            );
            return Err(self.defect(&name, problem));
        };
        let mut half = |suffix: &str, dtype, dims, half| {
            self.initializer(Initializer {
                name: format!("{name}.{suffix}"),
                dtype,
                dims,
                data: InitializerData::Quantized(weight.clone(), half),
                shared: false,
            })
        };
        let values = vec![rows, blocks, BLOCK_EXTENT];
        let values = half("int8", Dtype::U8, values, Half::Values)?;
        let scales = half("scale", Dtype::F32, vec![rows, blocks], Half::Scales)?;
        Ok((values, scales))
    }

    /// A constant tensor under the open scope, from little-endian elements.
    pub(crate) fn constant(
        &mut self,
        name: &str,
        dtype: Dtype,
        dims: &[u64],
        bytes: Vec<u8>,
    ) -> Result<Value, BuildError> {
        let name = self.scope.initializer(name);
        self.initializer(Initializer {
            name,
            dtype,
            dims: dims.to_vec(),
            data: InitializerData::Values(bytes),
            shared: false,
        })
    }

    /// A list of integers, as operators take shapes and lengths. Equal lists are one initializer.
    pub(crate) fn integers(&mut self, values: &[i64]) -> Result<Value, BuildError> {
        let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
        let name = format!("integers.{}", texts.join("_"));
        if let Some((dtype, dims)) = self.values.get(&name) {
            return Ok(Value {
                dtype: *dtype,
                dims: dims.clone(),
                name,
            });
        }
        self.initializer(Initializer {
            name,
            dtype: Dtype::I64,
            dims: vec![values.len() as u64],
            data: InitializerData::Values(values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            shared: false,
        })
    }

    /// Emits a node. Its outputs are named after it; absent inputs at the end are left out.
    pub(crate) fn node<const N: usize>(
        &mut self,
        operator: Operator<'_>,
        outputs: [Output<'_>; N],
    ) -> Result<[Value; N], BuildError> {
        let name = self.scope.node(operator.name);
        let mut inputs = Vec::with_capacity(operator.inputs.len());
        for input in operator.inputs {
            inputs.push(match input {
                Some(value) => self.known(value)?.to_owned(),
                None => String::new(),
            });
        }
        if !self.node_names.insert(name.clone()) {
            return Err(self.defect(&name, "two nodes have this name"));
        }
        while inputs.last().is_some_and(String::is_empty) {
            inputs.pop();
        }
        let mut values = Vec::with_capacity(N);
        for output in outputs {
            let value = match output.suffix {
                "" => name.clone(),
                suffix => format!("{name}.{suffix}"),
            };
            values.push(self.define(value, output.dtype, output.dims)?);
        }
        self.nodes.push(Node {
            inputs,
            outputs: values.iter().map(|value| value.name.clone()).collect(),
            domain: operator.domain,
            op_type: operator.op_type,
            attributes: operator.attributes,
            name: name.clone(),
        });
        <[Value; N]>::try_from(values)
            .map_err(|_| self.defect(&name, "the number of outputs is wrong"))
    }

    pub(super) fn defect(&self, name: &str, problem: impl Into<String>) -> BuildError {
        BuildError::defect(&self.file, name, problem)
    }

    fn initializer(&mut self, initializer: Initializer) -> Result<Value, BuildError> {
        if let InitializerData::Values(bytes) = &initializer.data {
            let length = element_count(&initializer.dims)
                .and_then(|count| count.checked_mul(initializer.dtype.size()));
            if length != Some(bytes.len() as u64) {
                let problem = format!(
                    "expected the bytes of {:?} {:?}, found {}",
                    initializer.dtype,
                    initializer.dims,
                    bytes.len()
                );
                return Err(self.defect(&initializer.name, problem));
            }
        }
        let dims = initializer.dims.iter().copied().map(Dim::Static).collect();
        let value = self.define(initializer.name.clone(), initializer.dtype, dims)?;
        self.initializers.push(initializer);
        Ok(value)
    }

    fn define(&mut self, name: String, dtype: Dtype, dims: Vec<Dim>) -> Result<Value, BuildError> {
        if self.values.contains_key(&name) {
            return Err(self.defect(&name, "two values have this name"));
        }
        self.values.insert(name.clone(), (dtype, dims.clone()));
        Ok(Value { name, dtype, dims })
    }

    /// The value's name, if this graph defines the value.
    fn known<'v>(&self, value: &'v Value) -> Result<&'v str, BuildError> {
        match self.values.get(&value.name) {
            Some((dtype, dims)) if *dtype == value.dtype && *dims == value.dims => Ok(&value.name),
            _ => {
                let problem = format!(
                    "this graph has no {:?} value {} of this name",
                    value.dtype,
                    shape_text(&value.dims)
                );
                Err(self.defect(&value.name, problem))
            }
        }
    }
}

fn element_count(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1_u64, |n, &d| n.checked_mul(d))
}
