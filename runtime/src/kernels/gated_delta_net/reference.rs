//! The gated delta rule in float64, straight from its definition.

use super::layout::Heads;

/// Outputs of one row, its state after every token, and the transitions.
pub(super) struct Row {
    /// `[tokens, values * value_dim]`.
    pub(super) output: Vec<f64>,
    /// Per token, `[values, value_dim, key_dim]`.
    pub(super) states: Vec<Vec<f64>>,
    /// Per token, decay | key | delta.
    pub(super) transitions: Vec<Vec<f64>>,
}

/// Raw inputs of one row.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) qkv: &'a [f32],
    pub(super) decay: &'a [f32],
    pub(super) beta: &'a [f32],
    pub(super) a_log: &'a [f32],
    pub(super) dt_bias: &'a [f32],
}

pub(super) fn unit(x: &[f32]) -> Vec<f64> {
    let square: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    x.iter()
        .map(|&x| f64::from(x) / (square + 1e-6).sqrt())
        .collect()
}

pub(super) fn row(heads: Heads, inputs: Inputs<'_>, state: &[f32]) -> Row {
    let Heads {
        keys,
        values,
        key_dim,
        value_dim,
    } = heads;
    let mut state: Vec<f64> = state.iter().map(|&s| s.into()).collect();
    let mut row = Row {
        output: Vec::new(),
        states: Vec::new(),
        transitions: Vec::new(),
    };
    for (t, qkv) in inputs.qkv.chunks_exact(heads.packed()).enumerate() {
        let (q, rest) = qkv.split_at(keys * key_dim);
        let (k, v) = rest.split_at(keys * key_dim);
        let q: Vec<Vec<f64>> = q.chunks_exact(key_dim).map(unit).collect();
        let k: Vec<Vec<f64>> = k.chunks_exact(key_dim).map(unit).collect();
        let (mut decays, mut deltas) = (Vec::new(), Vec::new());
        for h in 0..values {
            let (q, k) = (&q[h * keys / values], &k[h * keys / values]);
            let gate = f64::from(inputs.decay[t * values + h]) + f64::from(inputs.dt_bias[h]);
            let decay = (-f64::from(inputs.a_log[h]).exp() * gate.exp().ln_1p()).exp();
            let beta = 1.0 / (1.0 + (-f64::from(inputs.beta[t * values + h])).exp());
            decays.push(decay);
            for (d, s) in state[h * value_dim * key_dim..][..value_dim * key_dim]
                .chunks_exact_mut(key_dim)
                .enumerate()
            {
                s.iter_mut().for_each(|s| *s *= decay);
                let seen: f64 = s.iter().zip(k).map(|(s, k)| s * k).sum();
                let delta = beta * (f64::from(v[h * value_dim + d]) - seen);
                s.iter_mut().zip(k).for_each(|(s, k)| *s += k * delta);
                let out: f64 = s.iter().zip(q).map(|(s, q)| s * q).sum();
                row.output.push(out / (key_dim as f64).sqrt());
                deltas.push(delta);
            }
        }
        row.states.push(state.clone());
        row.transitions.push([decays, k.concat(), deltas].concat());
    }
    row
}
