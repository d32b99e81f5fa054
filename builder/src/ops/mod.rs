//! One emitter per operator: it checks its arguments, knows the shapes of its results and adds one node.

mod activation;
mod arithmetic;
mod cast;
mod concat;
mod gather;
mod gemm;
mod matmul;
pub(crate) mod microsoft;
pub(crate) mod pawl;
mod reshape;
mod rms_norm;
mod rotation;
mod scatter;
mod select;
mod split;
mod stateful;
mod transpose;

pub(crate) use activation::{sigmoid, silu};
pub(crate) use arithmetic::{add, add_repeated, mul};
pub(crate) use cast::cast;
pub(crate) use concat::concat_columns;
pub(crate) use gather::{gather_columns, gather_columns_of_rows, gather_entries, gather_rows};
pub(crate) use gemm::gemm;
pub(crate) use matmul::matmul;
pub(crate) use reshape::{columns_to_heads, heads_to_columns, reshape_rows, to_column};
pub(crate) use rms_norm::rms_norm;
pub(crate) use rotation::{cosine, sine};
pub(crate) use scatter::scatter_rows;
pub(crate) use select::{choose, less};
pub(crate) use split::split_columns;
pub(crate) use stateful::{
    Activation, AttentionNode, AttentionValues, Capture, ConvNode, DeltaNode, RowIndices,
    StateValues,
};
pub(crate) use transpose::transpose;
