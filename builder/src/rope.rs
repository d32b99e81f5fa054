//! Rotary positions: cosines and sines for the attention operators.

use pawl_models::{Layer, Mixer, Rope};

use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Value};
use crate::limits::TABLE_BYTES;
use crate::ops;
use crate::plan::Plan;

/// What a target needs to make cosines and sines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RotationRequest<'a> {
    pub(crate) rope: &'a Rope,
    /// `i64 [T]`, for targets that compute per token.
    pub(crate) positions: &'a Value,
    /// Positions of a table, for targets that keep one.
    pub(crate) position_count: u64,
    /// Element type of a table.
    pub(crate) dtype: Dtype,
}

/// The cosines and sines of a graph, one pair for each kind of rotary position in its layers.
#[derive(Debug, Default)]
pub(crate) struct Rotations<'a> {
    entries: Vec<(&'a Rope, (Value, Value))>,
}

impl<'a> Rotations<'a> {
    /// Emits what the layers need.
    pub(crate) fn emit(
        g: &mut GraphBuilder,
        plan: &Plan<'_>,
        layers: impl IntoIterator<Item = &'a Layer>,
        positions: &Value,
    ) -> Result<Self, BuildError> {
        let mut rotations = Self::default();
        for layer in layers {
            let Mixer::Attention(attention) = &layer.mixer else {
                continue;
            };
            let rope = &attention.rope;
            if rope.rotary_dim == 0 || rotations.of(rope).is_some() {
                continue;
            }
            let request = RotationRequest {
                rope,
                positions,
                position_count: plan.sequence_limit,
                dtype: plan.dtype,
            };
            let scope = match rotations.entries.len() {
                0 => "rotation".to_owned(),
                kind => format!("rotation.{kind}"),
            };
            let pair = g.within(&scope, |g| (plan.target.rotation)(g, &request))?;
            rotations.entries.push((rope, pair));
        }
        Ok(rotations)
    }

    /// Cosines and sines of a kind; `None` where nothing turns.
    pub(crate) fn of(&self, rope: &Rope) -> Option<(&Value, &Value)> {
        self.entries
            .iter()
            .find(|(known, _)| *known == rope)
            .map(|(_, (cos, sin))| (cos, sin))
    }
}

/// `[T, rotary_dim / 2]` in float32, computed from the positions of the step.
pub(crate) fn per_token(
    g: &mut GraphBuilder,
    request: &RotationRequest<'_>,
) -> Result<(Value, Value), BuildError> {
    let rope = request.rope;
    let frequencies = floats(&rope.inverse_frequencies);
    let half = half_width(g, rope)?;
    let frequencies = g.constant("inverse_frequencies", Dtype::F32, &[1, half], frequencies)?;
    let positions = ops::cast(g, "positions", request.positions, Dtype::F32)?;
    let positions = ops::to_column(g, "column", &positions)?;
    let angles = ops::mul(g, "angles", &positions, &frequencies)?;
    let cos = ops::cosine(g, "cos", &angles)?;
    let sin = ops::sine(g, "sin", &angles)?;
    #[expect(
        clippy::float_cmp,
        reason = "exactly 1 is what descriptions without scaling hold"
    )]
    if rope.attention_factor == 1.0 {
        return Ok((cos, sin));
    }
    let factor = floats(&[rope.attention_factor]);
    let factor = g.constant("attention_factor", Dtype::F32, &[1, 1], factor)?;
    let cos = ops::mul(g, "scaled_cos", &cos, &factor)?;
    let sin = ops::mul(g, "scaled_sin", &sin, &factor)?;
    Ok((cos, sin))
}

/// `[positions, rotary_dim / 2]` tables.
pub(crate) fn per_position(
    g: &mut GraphBuilder,
    request: &RotationRequest<'_>,
) -> Result<(Value, Value), BuildError> {
    let half = half_width(g, request.rope)?;
    let dims = [request.position_count, half];
    let bytes = [2, request.position_count, half]
        .into_iter()
        .try_fold(request.dtype.size(), |bytes, extent| {
            bytes.checked_mul(extent)
        });
    if bytes.is_none_or(|bytes| bytes > TABLE_BYTES) {
        return Err(BuildError::Unsupported {
            part: format!(
                "max_position_embeddings: {} positions",
                request.position_count
            ),
            reason: format!(
                "their cosines and sines would take more than {TABLE_BYTES} bytes; a shorter --max-sequence takes less"
            ),
        });
    }
    let mut table = |name, turn: fn(f64) -> f64| {
        let bytes = table_bytes(request, turn);
        g.constant(name, request.dtype, &dims, bytes)
    };
    Ok((table("cos", f64::cos)?, table("sin", f64::sin)?))
}

/// Angles are rounded to float32 first, as the reference computes them.
fn table_bytes(request: &RotationRequest<'_>, turn: fn(f64) -> f64) -> Vec<u8> {
    let rope = request.rope;
    let mut bytes = Vec::new();
    for position in 0..request.position_count {
        #[expect(
            clippy::cast_precision_loss,
            reason = "positions are exact in float32 up to 2^24, as in the reference"
        )]
        let position = position as f32;
        for frequency in &rope.inverse_frequencies {
            let angle = f64::from(position * frequency);
            let value = turn(angle) * f64::from(rope.attention_factor);
            match request.dtype {
                Dtype::F16 => bytes.extend(half::f16::from_f64(value).to_le_bytes()),
                Dtype::Bf16 => bytes.extend(half::bf16::from_f64(value).to_le_bytes()),
                #[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
                Dtype::F32 => bytes.extend((value as f32).to_le_bytes()),
                Dtype::I32 | Dtype::I64 | Dtype::Bool | Dtype::U8 => {}
            }
        }
    }
    bytes
}

fn half_width(g: &GraphBuilder, rope: &Rope) -> Result<u64, BuildError> {
    let half = rope.inverse_frequencies.len() as u64;
    let check = g.check("inverse_frequencies");
    check.equal("rotary width", rope.rotary_dim, half.saturating_mul(2))?;
    Ok(half)
}

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ir::InitializerData;
    use crate::graph::{Operator, Output, Place};

    fn table(dtype: Dtype, positions: u64, rope: &Rope) -> Vec<Vec<u8>> {
        let mut g = GraphBuilder::new("model.onnx");
        let ids = g.input("ids", Dtype::I64, ["tokens".into()]).unwrap();
        let request = RotationRequest {
            rope,
            positions: &ids,
            position_count: positions,
            dtype,
        };
        let (cos, sin) = per_position(&mut g, &request).unwrap();
        let operator = Operator::onnx("Op", "op", [&ids, &cos, &sin]);
        let [y] = g.node(operator, [Output::main(dtype, cos.dims())]).unwrap();
        g.output(Place::Result, "y", &y);
        let bytes = |initializer: &crate::graph::ir::Initializer| match &initializer.data {
            InitializerData::Values(bytes) => bytes.clone(),
            InitializerData::Weight(_) | InitializerData::Quantized(..) => vec![],
        };
        g.finish().unwrap().initializers.iter().map(bytes).collect()
    }

    #[test]
    fn tables_hold_a_row_per_position_rounded_to_the_nearest() {
        let rope = Rope {
            rotary_dim: 4,
            inverse_frequencies: vec![1.0, 0.01],
            attention_factor: 1.5,
        };
        let halves = table(Dtype::F16, 300, &rope);
        let brains = table(Dtype::Bf16, 300, &rope);
        for (row, position) in (0..300_usize).map(|p| (p, p as f32)) {
            for (column, frequency) in [1.0_f32, 0.01].into_iter().enumerate() {
                let angle = f64::from(position * frequency);
                let at = 2 * (2 * row + column);
                for (which, expected) in [angle.cos() * 1.5, angle.sin() * 1.5]
                    .into_iter()
                    .enumerate()
                {
                    let half = half::f16::from_le_bytes([halves[which][at], halves[which][at + 1]]);
                    assert!((half.to_f64() - expected).abs() <= 1.5 / 2048.0);
                    let brain =
                        half::bf16::from_le_bytes([brains[which][at], brains[which][at + 1]]);
                    assert!((brain.to_f64() - expected).abs() <= 1.5 / 256.0);
                }
            }
        }
        assert_eq!(halves[0].len(), 300 * 2 * 2);
    }
}
