//! Weights as they go into a data file: widened to float32, transformed, rounded to the target
//! type. Everything passes through buffers of a fixed size, whatever the size of a tensor.
//!
//! Rounding is to nearest, ties to even. A finite value that would become infinite is an error:
//! a model with such a weight computes nothing but NaN. Values that are NaN or infinite in the
//! checkpoint are kept and counted, or an error where the caller asks for that.

use std::collections::BTreeMap;

use half::{bf16, f16};
use pawl_models::{Transform, Weight};

use super::{Checkpoint, Segment, WeightDtype};
use crate::error::BuildError;
use crate::graph::ir::Dtype;

/// Elements per block.
const BLOCK: usize = 1 << 20;
/// Bytes per block and buffer: 4 MiB.
const BLOCK_BYTES: usize = BLOCK * 4;

/// NaN and infinite values of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NonFinite {
    pub(crate) nan: u64,
    pub(crate) infinite: u64,
}

/// Takes converted bytes in order.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), BuildError>;

/// The buffers, and what was seen on the way.
#[derive(Debug)]
pub(crate) struct Converter {
    raw: Box<[u8]>,
    values: Box<[f32]>,
    encoded: Box<[u8]>,
    non_finite: BTreeMap<String, NonFinite>,
    /// Whether NaN and infinite values end the export.
    finite_only: bool,
}

impl Converter {
    pub(crate) fn new(finite_only: bool) -> Self {
        Self {
            raw: vec![0; BLOCK_BYTES].into(),
            values: vec![0.0; BLOCK].into(),
            encoded: vec![0; BLOCK_BYTES].into(),
            non_finite: BTreeMap::new(),
            finite_only,
        }
    }

    /// Tensors of the checkpoint with NaN or infinite values, by name.
    pub(crate) fn non_finite(&self) -> &BTreeMap<String, NonFinite> {
        &self.non_finite
    }

    /// Converts a weight, block by block, into `sink`.
    pub(crate) fn convert(
        &mut self,
        checkpoint: &Checkpoint,
        weight: &Weight,
        dtype: Dtype,
        sink: Sink<'_>,
    ) -> Result<(), BuildError> {
        for segment in checkpoint.segments(weight)? {
            let mut first = 0;
            while first < segment.elements {
                let count = (segment.elements - first).min(BLOCK as u64);
                let block = Block {
                    segment: &segment,
                    first,
                    count: usize::try_from(count).unwrap_or(BLOCK),
                };
                self.block(checkpoint, &block, weight.transform, dtype, sink)?;
                first += count;
            }
        }
        Ok(())
    }

    fn block(
        &mut self,
        checkpoint: &Checkpoint,
        block: &Block<'_>,
        transform: Transform,
        dtype: Dtype,
        sink: Sink<'_>,
    ) -> Result<(), BuildError> {
        let tensor = block.segment.tensor.as_str();
        let source = block.segment.dtype;
        let short = || BuildError::defect("conversion", tensor, "a block exceeds its buffer");
        let raw = self
            .raw
            .get_mut(..block.count * source.size())
            .ok_or_else(short)?;
        let values = self.values.get_mut(..block.count).ok_or_else(short)?;
        checkpoint.read(block.segment, block.first, raw)?;
        widen(source, raw, values);
        count_non_finite(values, tensor, &mut self.non_finite);
        if self.finite_only && self.non_finite.contains_key(tensor) {
            let problem = "holds NaN or infinite values, which --refuse-nonfinite refuses";
            return Err(block.segment.problem(checkpoint, problem.to_owned()));
        }
        match transform {
            Transform::None => {}
            Transform::AddOne => values.iter_mut().for_each(|value| *value += 1.0),
        }
        let size = usize::try_from(dtype.size()).map_err(|_| short())?;
        let encoded = self
            .encoded
            .get_mut(..block.count * size)
            .ok_or_else(short)?;
        match narrow(values, dtype, encoded) {
            Ok(()) => sink(encoded),
            Err(problem) => Err(block.segment.problem(checkpoint, problem)),
        }
    }
}

/// Elements of a segment that fit the buffers.
struct Block<'a> {
    segment: &'a Segment,
    first: u64,
    count: usize,
}

impl Segment {
    fn problem(&self, checkpoint: &Checkpoint, problem: String) -> BuildError {
        match checkpoint.shard(self.shard) {
            Ok(path) => BuildError::input(path, &*self.tensor, problem),
            Err(error) => error,
        }
    }
}

/// Little-endian elements to float32, exactly. `raw` holds as many elements as `values`.
fn widen(dtype: WeightDtype, raw: &[u8], values: &mut [f32]) {
    match dtype {
        WeightDtype::F32 => {
            let elements = raw.as_chunks::<4>().0;
            for (value, bytes) in values.iter_mut().zip(elements) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        WeightDtype::F16 => {
            for (value, bytes) in values.iter_mut().zip(raw.as_chunks::<2>().0) {
                *value = f16::from_le_bytes(*bytes).to_f32();
            }
        }
        WeightDtype::Bf16 => {
            for (value, bytes) in values.iter_mut().zip(raw.as_chunks::<2>().0) {
                *value = bf16::from_le_bytes(*bytes).to_f32();
            }
        }
    }
}

fn count_non_finite(values: &[f32], tensor: &str, found: &mut BTreeMap<String, NonFinite>) {
    let finite = values.iter().filter(|value| value.is_finite()).count();
    if finite == values.len() {
        return;
    }
    let nan = values.iter().filter(|value| value.is_nan()).count();
    let counts = found.entry(tensor.to_owned()).or_default();
    counts.nan += nan as u64;
    counts.infinite += (values.len() - finite - nan) as u64;
}

/// The smallest values that round to infinity: half a unit above the largest finite ones.
const OVERFLOW_F16: f32 = 65520.0;
const OVERFLOW_BF16: f32 = f32::from_bits(0x7F7F_8000);

/// Float32 to little-endian elements of `dtype`, which must be a float type. `encoded` holds as
/// many elements as `values`.
fn narrow(values: &[f32], dtype: Dtype, encoded: &mut [u8]) -> Result<(), String> {
    let (overflow, advice) = match dtype {
        Dtype::F32 => {
            for (bytes, value) in encoded.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *bytes = value.to_le_bytes();
            }
            return Ok(());
        }
        Dtype::F16 => {
            for (bytes, value) in encoded.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                *bytes = f16::from_f32(*value).to_le_bytes();
            }
            (OVERFLOW_F16, "f16; --dtype bf16 can hold it")
        }
        Dtype::Bf16 => {
            for (bytes, value) in encoded.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                *bytes = bf16::from_f32(*value).to_le_bytes();
            }
            (OVERFLOW_BF16, "bf16")
        }
        Dtype::I64 | Dtype::I32 | Dtype::Bool => {
            return Err(format!("cannot be stored as {dtype:?}"));
        }
    };
    let too_large = |value: &&f32| value.is_finite() && value.abs() >= overflow;
    match values.iter().find(too_large) {
        None => Ok(()),
        Some(value) => Err(format!("holds {value}, too large for {advice}")),
    }
}

#[cfg(test)]
mod tests;
