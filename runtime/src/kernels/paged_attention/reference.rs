//! Attention in float64, straight from its definition.

/// What a row's tokens are shaped with.
#[derive(Clone, Debug, Default)]
pub(super) struct Shaping {
    /// `[tokens, half]` each.
    pub(super) rotation: Option<(Vec<f32>, Vec<f32>)>,
    pub(super) half: usize,
    /// `[dim]`.
    pub(super) q_norm: Option<Vec<f32>>,
    /// `[dim]`.
    pub(super) k_norm: Option<Vec<f32>>,
    pub(super) epsilon: f64,
    pub(super) scale: f64,
}

/// Heads of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) q: usize,
    pub(super) kv: usize,
    pub(super) dim: usize,
}

/// Outputs of a row and the keys and values it adds.
pub(super) struct Row {
    /// `[tokens, q * dim]`.
    pub(super) output: Vec<f64>,
    /// `[tokens, kv * dim]`.
    pub(super) keys: Vec<f64>,
    /// `[tokens, kv * dim]`.
    pub(super) values: Vec<f64>,
}

fn shape(x: &[f32], token: usize, norm: Option<&Vec<f32>>, shaping: &Shaping) -> Vec<f64> {
    let mut x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
    if let Some(norm) = norm {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let factor = 1.0 / (mean + shaping.epsilon).sqrt();
        x.iter_mut()
            .zip(norm)
            .for_each(|(x, &w)| *x *= factor * f64::from(w));
    }
    if let Some((cos, sin)) = &shaping.rotation {
        let before = x.clone();
        let half = shaping.half;
        for i in 0..half {
            let (c, s) = (
                f64::from(cos[token * half + i]),
                f64::from(sin[token * half + i]),
            );
            x[i] = before[i] * c - before[i + half] * s;
            x[i + half] = before[i + half] * c + before[i] * s;
        }
    }
    x
}

/// `qkv` is `[tokens, (q + 2 kv) * dim]`; `past` holds keys and values `[past, kv * dim]`.
pub(super) fn row(heads: Heads, qkv: &[f32], shaping: &Shaping, past: (&[f32], &[f32])) -> Row {
    let Heads { q, kv, dim } = heads;
    let widen = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let (mut keys, mut values) = (widen(past.0), widen(past.1));
    let (past_keys, mut output) = (keys.len(), Vec::new());
    for (t, qkv) in qkv.chunks_exact((q + 2 * kv) * dim).enumerate() {
        let (queries, rest) = qkv.split_at(q * dim);
        let (k, v) = rest.split_at(kv * dim);
        for k in k.chunks_exact(dim) {
            keys.extend(shape(k, t, shaping.k_norm.as_ref(), shaping));
        }
        values.extend(widen(v));
        for (h, query) in queries.chunks_exact(dim).enumerate() {
            let query = shape(query, t, shaping.q_norm.as_ref(), shaping);
            let at = h * kv / q * dim;
            let scores: Vec<f64> = keys
                .chunks_exact(kv * dim)
                .map(|key| {
                    query
                        .iter()
                        .zip(&key[at..])
                        .map(|(q, k)| q * k)
                        .sum::<f64>()
                })
                .collect();
            let largest = scores.iter().fold(f64::MIN, |a, &b| a.max(b));
            let weigh = |score: &f64| ((score - largest) * shaping.scale).exp();
            let total: f64 = scores.iter().map(weigh).sum();
            for d in 0..dim {
                let seen = values.chunks_exact(kv * dim).zip(&scores);
                output.push(seen.map(|(v, s)| weigh(s) * v[at + d]).sum::<f64>() / total);
            }
        }
    }
    Row {
        output,
        keys: keys.split_off(past_keys),
        values: values.split_off(past_keys),
    }
}
