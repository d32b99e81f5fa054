//! One emitter per operator: it checks its arguments, knows the shapes of its results and adds one node.

mod activation;
mod arithmetic;
mod cast;
mod concat;
mod gather;
mod gemm;
pub(crate) mod microsoft;
pub(crate) mod pawl;
mod reshape;
mod rms_norm;
mod rotation;
mod split;
mod stateful;

pub(crate) use activation::{sigmoid, silu};
pub(crate) use arithmetic::{add, mul};
pub(crate) use cast::cast;
pub(crate) use concat::concat_columns;
pub(crate) use gather::gather_rows;
pub(crate) use gemm::gemm;
pub(crate) use reshape::{columns_to_heads, heads_to_columns, to_column};
pub(crate) use rms_norm::rms_norm;
pub(crate) use rotation::{cosine, sine};
pub(crate) use split::split_columns;
pub(crate) use stateful::{
    Activation, AttentionNode, AttentionValues, Capture, ConvNode, DeltaNode, RowIndices,
    StateValues,
};
