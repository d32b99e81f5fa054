//! Weights as they go into a data file: widened to float32, transformed, rounded to the target
//! type or quantised. Everything passes through buffers of a fixed size, whatever the size of a tensor.
//!
//! Rounding is to nearest, ties to even. A finite value that would become infinite is an error:
//! a model with such a weight computes nothing but NaN. Values that are NaN or infinite in the
//! checkpoint are kept and counted, or an error where the caller asks for that; of a quantised weight the
//! whole block is then NaN.

use std::collections::{BTreeMap, BTreeSet};

use half::{bf16, f16};
use pawl_models::{Transform, Weight};

use super::{Checkpoint, Segment, WeightDtype};
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::quantized::{self, Half};

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

/// How the elements of a weight are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Each by itself, in a float type.
    Float(Dtype),
    /// Half of their 8-bit form.
    Int8(Half),
}

/// Takes converted bytes in order.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), BuildError>;

/// The buffers, and what was seen on the way.
#[derive(Debug)]
pub(crate) struct Converter {
    raw: Box<[u8]>,
    values: Box<[f32]>,
    encoded: Box<[u8]>,
    found: Found,
    /// Whether NaN and infinite values end the export.
    finite_only: bool,
}

impl Converter {
    pub(crate) fn new(finite_only: bool) -> Self {
        Self {
            raw: vec![0; BLOCK_BYTES].into(),
            values: vec![0.0; BLOCK].into(),
            encoded: vec![0; BLOCK_BYTES].into(),
            found: Found::default(),
            finite_only,
        }
    }

    /// Tensors of the checkpoint with NaN or infinite values, by name.
    pub(crate) fn non_finite(&self) -> &BTreeMap<String, NonFinite> {
        &self.found.non_finite
    }

    /// Converts a weight, block by block, into `sink`.
    pub(crate) fn convert(
        &mut self,
        checkpoint: &Checkpoint,
        weight: &Weight,
        encoding: Encoding,
        sink: Sink<'_>,
    ) -> Result<(), BuildError> {
        for segment in checkpoint.segments(weight)? {
            encoding.check(&segment)?;
            let mut first = 0;
            while first < segment.elements {
                let count = (segment.elements - first).min(BLOCK as u64);
                let block = Block {
                    segment: &segment,
                    first,
                    count: usize::try_from(count).unwrap_or(BLOCK),
                };
                self.block(checkpoint, &block, weight.transform, encoding, sink)?;
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
        encoding: Encoding,
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
        self.found.count(values, block);
        if self.finite_only && self.found.non_finite.contains_key(tensor) {
            let problem = "holds NaN or infinite values, which --refuse-nonfinite refuses";
            return Err(block.segment.problem(checkpoint, problem.to_owned()));
        }
        match transform {
            Transform::None => {}
            Transform::AddOne => values.iter_mut().for_each(|value| *value += 1.0),
        }
        let bytes = encoding.bytes(block.count).ok_or_else(short)?;
        let encoded = self.encoded.get_mut(..bytes).ok_or_else(short)?;
        match encoding.encode(values, encoded) {
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

impl Encoding {
    /// Segments are read [`BLOCK`] elements at a time, which is whole blocks of a quantised weight, except for the last.
    fn check(self, segment: &Segment) -> Result<(), BuildError> {
        let whole = segment.elements.is_multiple_of(quantized::BLOCK_EXTENT);
        match self {
            Self::Int8(_) if !whole => {
                let problem = "its rows are not whole blocks";
                Err(BuildError::defect("conversion", &segment.tensor, problem))
            }
            Self::Int8(_) | Self::Float(_) => Ok(()),
        }
    }

    fn bytes(self, elements: usize) -> Option<usize> {
        match self {
            Self::Float(dtype) => elements.checked_mul(usize::try_from(dtype.size()).ok()?),
            Self::Int8(half) => Some(half.bytes(elements)),
        }
    }

    fn encode(self, values: &[f32], encoded: &mut [u8]) -> Result<(), String> {
        match self {
            Self::Float(dtype) => narrow(values, dtype, encoded)?,
            Self::Int8(half) => half.encode(values, encoded),
        }
        Ok(())
    }
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

/// What was seen of values that are not finite.
#[derive(Debug, Default)]
struct Found {
    non_finite: BTreeMap<String, NonFinite>,
    /// Tensor and place of blocks that had some: a tensor that is stored in several forms is read as often, and its
    /// values are counted once.
    counted: BTreeSet<(String, u64)>,
}

impl Found {
    fn count(&mut self, values: &[f32], block: &Block<'_>) {
        let finite = values.iter().filter(|value| value.is_finite()).count();
        if finite == values.len() {
            return;
        }
        let Segment { tensor, begin, .. } = block.segment;
        let place = begin + block.first * block.segment.dtype.size() as u64;
        if !self.counted.insert((tensor.clone(), place)) {
            return;
        }
        let nan = values.iter().filter(|value| value.is_nan()).count();
        let counts = self.non_finite.entry(tensor.clone()).or_default();
        counts.nan += nan as u64;
        counts.infinite += (values.len() - finite - nan) as u64;
    }
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
        Dtype::I64 | Dtype::I32 | Dtype::Bool | Dtype::U8 => {
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
