//! Recorded results of a reference implementation in float32.
//!
//! Names in `golden.safetensors`, for prompt `p`: `p.ids` (int64), `p.logits` (float32 `[n, vocab]`, teacher forced),
//! `p.greedy` (int64) with `p.margin` (top-1 minus top-2 at each greedy step), `p.hidden` (`[n, hidden]`, after the final norm),
//! `p.state.L.conv` (`[C, K]`, oldest first; a bank keeps the last `K - 1` columns), `p.state.L.recurrent` (`[Hv, Dk, Dv]`;
//! a bank is value-major), `p.mtp.logits` (`[n - 1, vocab]`).

use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;

/// One recorded prompt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Golden {
    /// Prompt.
    pub ids: Vec<u32>,
    /// `[n, vocab]`.
    pub logits: Vec<f32>,
    /// Greedy continuation.
    pub greedy: Vec<u32>,
    /// Top-1 minus top-2 logit at each greedy step.
    pub margin: Vec<f32>,
    /// `[n, hidden]`.
    pub hidden: Vec<f32>,
    /// `[n - 1, vocab]` where the model has a head and the prompt two tokens.
    pub head_logits: Option<Vec<f32>>,
    /// By layer: `[C, K - 1]`, the columns that a bank keeps.
    pub conv: BTreeMap<u32, Vec<f32>>,
    /// By layer: `[Hv, Dv, Dk]`, value-major as a bank keeps it.
    pub recurrent: BTreeMap<u32, Vec<f32>>,
}

/// A tensor of a golden file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Tensor {
    /// Shape.
    pub shape: Vec<usize>,
    /// Values, integers converted.
    pub values: Vec<f64>,
}

/// Reads every prompt of a fixture.
///
/// # Panics
///
/// When the fixture is missing or damaged.
#[must_use]
pub fn load(name: &str) -> Vec<Golden> {
    let tensors = read_tensors(&crate::fixture(name).join("golden.safetensors"));
    (0..).map_while(|p| prompt(&tensors, p)).collect()
}

/// Reads a safetensors file of float32 and int64 tensors.
///
/// # Panics
///
/// When the file is missing, damaged, or holds another type.
#[must_use]
pub fn read_tensors(path: &std::path::Path) -> BTreeMap<String, Tensor> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file =
        SafeTensors::deserialize(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let convert = |dtype: Dtype, data: &[u8]| -> Vec<f64> {
        match dtype {
            Dtype::F32 => data
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| f64::from(f32::from_le_bytes(*b)))
                .collect(),
            Dtype::I64 => data
                .as_chunks::<8>()
                .0
                .iter()
                .map(|b| i64::from_le_bytes(*b) as f64)
                .collect(),
            other => panic!("{}: unexpected type {other:?}", path.display()),
        }
    };
    file.tensors()
        .into_iter()
        .map(|(name, view)| {
            let values = convert(view.dtype(), view.data());
            (
                name,
                Tensor {
                    shape: view.shape().to_vec(),
                    values,
                },
            )
        })
        .collect()
}

fn prompt(tensors: &BTreeMap<String, Tensor>, p: usize) -> Option<Golden> {
    let get = |name: &str| tensors.get(&format!("{p}.{name}"));
    let floats =
        |name: &str| get(name).map(|t| t.values.iter().map(|v| *v as f32).collect::<Vec<f32>>());
    let tokens =
        |name: &str| get(name).map(|t| t.values.iter().map(|v| *v as u32).collect::<Vec<u32>>());
    let ids = tokens("ids")?;
    let mut golden = Golden {
        ids,
        logits: floats("logits")?,
        greedy: tokens("greedy")?,
        margin: floats("margin")?,
        hidden: floats("hidden")?,
        head_logits: floats("mtp.logits"),
        conv: BTreeMap::new(),
        recurrent: BTreeMap::new(),
    };
    for layer in 0..64 {
        if let Some(t) = get(&format!("state.{layer}.conv")) {
            golden.conv.insert(layer, drop_oldest_column(t));
        }
        if let Some(t) = get(&format!("state.{layer}.recurrent")) {
            golden.recurrent.insert(layer, value_major(t));
        }
    }
    Some(golden)
}

/// `[C, K]` to `[C, K - 1]`.
fn drop_oldest_column(tensor: &Tensor) -> Vec<f32> {
    let kernel = tensor.shape.last().copied().unwrap_or(1);
    tensor
        .values
        .chunks(kernel)
        .flat_map(|row| row.iter().skip(1).map(|v| *v as f32))
        .collect()
}

/// `[Hv, Dk, Dv]` to `[Hv, Dv, Dk]`.
fn value_major(tensor: &Tensor) -> Vec<f32> {
    let [heads, keys, values] = tensor.shape[..] else {
        panic!("recurrent state of rank 3")
    };
    let mut out = Vec::with_capacity(tensor.values.len());
    for h in 0..heads {
        for v in 0..values {
            out.extend((0..keys).map(|k| tensor.values[(h * keys + k) * values + v] as f32));
        }
    }
    out
}
