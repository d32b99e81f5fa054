//! What the operators share: attributes, shape inference, and a net under panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ort::operator::{KernelContext, ShapeInferenceContext};
use ort::value::{Shape, SymbolicDimensions, TensorElementType, ValueType};

use super::error::KernelError;

/// Runs `work`; a panic, which would end the process in ONNX Runtime's frames, becomes an error.
pub(super) fn guarded<R>(work: impl FnOnce() -> Result<R, KernelError>) -> ort::Result<R> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or(Err(KernelError::Panicked))
        .map_err(ort::Error::from)
}

/// A count of heads: a positive integer attribute.
pub(super) fn head_count(
    context: &KernelContext<'_>,
    name: &'static str,
) -> Result<usize, KernelError> {
    let found = context.get::<i64>(name);
    let count = found
        .and_then(|n| usize::try_from(n).ok())
        .filter(|&n| n > 0);
    count.ok_or_else(|| KernelError::Attribute {
        name,
        expected: "a positive integer",
        found: found.map_or_else(|| "nothing".to_owned(), |n| n.to_string()),
    })
}

/// One axis in shape inference: an extent, or -1 and perhaps a name.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    extent: i64,
    symbol: String,
}

impl Axis {
    /// The slots of a checkpoint output: `count` on a step that captures, else none. Nodes with another
    /// count get another name, for ONNX Runtime takes axes of one name to have one extent.
    pub(super) fn slots(count: Option<i64>) -> Self {
        Self {
            extent: -1,
            symbol: format!("checkpoint_slots_{}", count.unwrap_or(0)),
        }
    }

    /// An axis whose extent follows from others, unknown when they are.
    pub(super) fn computed(extent: Option<i64>) -> Self {
        Self {
            extent: extent.unwrap_or(-1),
            symbol: String::new(),
        }
    }

    /// The extent where it is known.
    pub(super) fn known(&self) -> Option<i64> {
        (self.extent >= 0).then_some(self.extent)
    }
}

/// Axes of one input, or none where its rank is not `N`.
pub(super) fn axes<const N: usize>(inputs: &[ValueType], index: usize) -> Option<[Axis; N]> {
    let ValueType::Tensor {
        shape,
        dimension_symbols,
        ..
    } = inputs.get(index)?
    else {
        return None;
    };
    let axes: Vec<Axis> = shape
        .iter()
        .zip(dimension_symbols.iter())
        .map(|(&extent, symbol)| Axis {
            extent,
            symbol: symbol.clone(),
        })
        .collect();
    axes.try_into().ok()
}

/// Declares a float32 output. An output that the node leaves out is skipped.
pub(super) fn declare(context: &mut ShapeInferenceContext, index: usize, axes: &[Axis]) {
    let declared = context.set_output(
        index,
        &ValueType::Tensor {
            ty: TensorElementType::Float32,
            shape: Shape::new(axes.iter().map(|a| a.extent)),
            dimension_symbols: SymbolicDimensions::new(axes.iter().map(|a| a.symbol.clone())),
        },
    );
    if let Err(error) = declared {
        tracing::trace!(index, %error, "an output without inferred shape");
    }
}
