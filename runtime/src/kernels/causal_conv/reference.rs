//! The convolution in float64, straight from its definition.

/// Outputs of one row and its state after every token.
pub(super) struct Row {
    /// `[tokens, channels]`.
    pub(super) y: Vec<f64>,
    /// Per token, `[channels, width - 1]`.
    pub(super) states: Vec<Vec<f64>>,
}

/// `x` is `[tokens, channels]`, `weight` `[channels, width]`, `state` `[channels, width - 1]`.
pub(super) fn row(
    x: &[f32],
    (weight, width): (&[f32], usize),
    bias: Option<&[f32]>,
    silu: bool,
    state: &[f32],
) -> Row {
    let channels = weight.len() / width;
    let before = width - 1;
    let mut history: Vec<Vec<f64>> = (0..channels)
        .map(|c| {
            state[c * before..(c + 1) * before]
                .iter()
                .map(|&s| s.into())
                .collect()
        })
        .collect();
    let (mut y, mut states) = (Vec::new(), Vec::new());
    for token in x.chunks_exact(channels) {
        for (c, history) in history.iter_mut().enumerate() {
            history.push(token[c].into());
            let taps = weight[c * width..(c + 1) * width].iter();
            let sum: f64 = taps.zip(&*history).map(|(&w, &x)| f64::from(w) * x).sum();
            let sum = sum + bias.map_or(0.0, |b| b[c].into());
            y.push(if silu {
                sum / (1.0 + (-sum).exp())
            } else {
                sum
            });
            history.remove(0);
        }
        states.push(history.concat());
    }
    Row { y, states }
}
