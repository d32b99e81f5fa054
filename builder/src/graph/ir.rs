//! The plain data between graph emission and encoding.
//!
//! Emission fills these structs and knows nothing of protobuf or files; encoding reads them and
//! knows nothing of models.

use std::borrow::Cow;

use pawl_models::Weight;

use crate::quantized::Half;

/// Element type of a tensor in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dtype {
    F32,
    F16,
    Bf16,
    I64,
    I32,
    /// Of conditions within a graph; no weight and no state has it.
    Bool,
    /// Of quantised weights.
    U8,
}

impl From<crate::options::Dtype> for Dtype {
    fn from(dtype: crate::options::Dtype) -> Self {
        match dtype {
            crate::options::Dtype::F32 => Self::F32,
            crate::options::Dtype::F16 => Self::F16,
            crate::options::Dtype::Bf16 => Self::Bf16,
        }
    }
}

impl Dtype {
    /// Bytes per element.
    pub(crate) const fn size(self) -> u64 {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I64 => 8,
            Self::Bool | Self::U8 => 1,
        }
    }

    /// The number of `onnx.TensorProto.DataType`.
    pub(crate) const fn onnx(self) -> i32 {
        match self {
            Self::F32 => 1,
            Self::U8 => 2,
            Self::I32 => 6,
            Self::I64 => 7,
            Self::Bool => 9,
            Self::F16 => 10,
            Self::Bf16 => 16,
        }
    }
}

/// One dimension of a graph input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dim {
    Static(u64),
    Symbol(&'static str),
}

/// A graph input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueInfo {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) dims: Vec<Dim>,
}

/// An operator attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    String(String),
}

/// One operator. An empty input or output name is an absent optional one; the domain of the ONNX
/// operators is the empty string.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) domain: &'static str,
    pub(crate) op_type: &'static str,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) attributes: Vec<(&'static str, Attribute)>,
}

/// Where the elements of an initializer come from.
#[derive(Clone, Debug)]
pub(crate) enum InitializerData {
    /// Tensors of the checkpoint, widened to float32, transformed, and rounded to the initializer's
    /// type. Equal weights of equal type are stored once, also across graphs.
    Weight(Weight),
    /// Half of what such a weight becomes in 8 bits. Equal halves of equal weights are stored once.
    Quantized(Weight, Half),
    /// Little-endian elements made by the builder.
    Values(Vec<u8>),
}

impl InitializerData {
    /// What is read of the checkpoint.
    pub(crate) fn weight(&self) -> Option<&Weight> {
        match self {
            Self::Weight(weight) | Self::Quantized(weight, _) => Some(weight),
            Self::Values(_) => None,
        }
    }
}

/// A constant tensor of a graph. `dims` and `dtype` must agree with the length of the data.
#[derive(Clone, Debug)]
pub(crate) struct Initializer {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) dims: Vec<u64>,
    pub(crate) data: InitializerData,
    /// Listed among the `shared_initializers` of the configuration.
    pub(crate) shared: bool,
}

/// One ONNX file.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub(crate) name: String,
    /// File name in the model folder, such as `model.onnx`; own data goes to `<file>.data`.
    pub(crate) file: Cow<'static, str>,
    /// Version of the ONNX operators.
    pub(crate) opset: i64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) inputs: Vec<ValueInfo>,
    pub(crate) outputs: Vec<ValueInfo>,
    pub(crate) initializers: Vec<Initializer>,
}

/// Where an initializer marked `shared` was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedPlacement {
    /// The graph's file, such as `mtp.onnx`.
    pub(crate) graph: Cow<'static, str>,
    pub(crate) name: String,
    pub(crate) data_file: String,
    /// Bytes.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u64,
    pub(crate) dtype: Dtype,
    pub(crate) dims: Vec<u64>,
}
