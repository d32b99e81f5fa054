//! Teacher-forced runs: the logits of given tokens, and the state they leave behind.
//!
//! An evaluation takes the same path as generation (plan rows, reserve, run, publish), so what it shows is what
//! generation computes. It owns its pools and frees them at the end.

mod paths;
mod run;

use crate::engine::EngineError;
use crate::model::Model;

/// How an evaluation is cut into steps. Results depend on neither, up to rounding.
///
/// ```
/// let options = pawl::EvaluateOptions::default();
/// assert_eq!((options.chunk, options.states), (512, false));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EvaluateOptions {
    /// Tokens of one sequence per step; 0 runs each sequence whole.
    pub chunk: usize,
    /// Whether to copy the committed state out at the end.
    pub states: bool,
}

impl Default for EvaluateOptions {
    fn default() -> Self {
        Self {
            chunk: 512,
            states: false,
        }
    }
}

impl EvaluateOptions {
    /// Sets the tokens of one sequence per step; 0 runs each sequence whole.
    ///
    /// ```
    /// assert_eq!(pawl::EvaluateOptions::default().chunk(0).chunk, 0);
    /// ```
    #[must_use]
    pub fn chunk(mut self, tokens: usize) -> Self {
        self.chunk = tokens;
        self
    }

    /// Copies the committed state out at the end.
    ///
    /// ```
    /// assert!(pawl::EvaluateOptions::default().states(true).states);
    /// ```
    #[must_use]
    pub fn states(mut self, wanted: bool) -> Self {
        self.states = wanted;
        self
    }
}

/// What one sequence of `n` tokens gave.
///
/// ```no_run
/// /// The most likely token after token `i`.
/// fn likeliest(found: &pawl::Evaluation, i: usize) -> Option<usize> {
///     let row = found.logits.chunks(found.vocab).nth(i)?;
///     (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]))
/// }
/// # let _ = likeliest;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Evaluation {
    /// Columns of the logits.
    pub vocab: usize,
    /// `[n, vocab]`: row `i` predicts token `i + 1`.
    pub logits: Vec<f32>,
    /// `[n, hidden]`: rows after the final norm; empty for a model without a head.
    pub hidden: Vec<f32>,
    /// `[n - 1, vocab]`: row `i` is the head's prediction of token `i + 2`; `None` for a model without a head.
    pub head_logits: Option<Vec<f32>>,
    /// The committed fixed state, where asked for.
    pub states: Vec<StateTensor>,
}

/// The committed fixed state of one operator.
///
/// ```no_run
/// use pawl::{EvaluateOptions, LoadOptions, Model};
///
/// let mut model = Model::load("demo/tiny-python", &LoadOptions::default())?;
/// let found = model.evaluate(&[&[1, 2, 3]], &EvaluateOptions::default().states(true))?;
/// for state in &found[0].states {
///     assert_eq!(state.values.len(), state.shape.iter().product::<usize>());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StateTensor {
    /// The graph input that takes it.
    pub name: String,
    /// Layer.
    pub layer: u32,
    /// `[C, K - 1]` for a convolution, `[Hv, Dv, Dk]` for Gated DeltaNet, `[N - 1]` for a history of token ids.
    pub shape: Vec<usize>,
    /// Row-major; ids as numbers, exact below 2^24.
    pub values: Vec<f32>,
}

impl Model {
    /// Runs sequences teacher forced, side by side, and returns one evaluation per sequence.
    ///
    /// ```no_run
    /// use pawl::{EvaluateOptions, LoadOptions, Model};
    ///
    /// let mut model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// let found = model.evaluate(&[&[1, 2, 3]], &EvaluateOptions::default())?;
    /// assert_eq!(found[0].logits.len(), 3 * found[0].vocab);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Empty sequences, ids outside the vocabulary, sequences longer than the context, lack of memory, and failures
    /// inside ONNX Runtime.
    pub fn evaluate(
        &mut self,
        sequences: &[&[u32]],
        options: &EvaluateOptions,
    ) -> Result<Vec<Evaluation>, EngineError> {
        run::evaluate(self, sequences, options)
    }

    /// Runs several ways to go on from one prefix side by side, as speculation runs a tree: rows of one step that share
    /// what the prefix leaves. Returns logits `[n + 1, vocab]` per path of `n` tokens; row 0 predicts its first token.
    ///
    /// ```no_run
    /// use pawl::{LoadOptions, Model};
    ///
    /// let mut model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// let found = model.evaluate_paths(&[1, 2, 3], &[&[4, 5], &[6]])?;
    /// let vocab = found[1].len() / 2;
    /// assert_eq!(found[0][..vocab], found[1][..vocab]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::evaluate`]; prefixes of less than 2 tokens, empty paths, and paths longer than the model captures
    /// ([`crate::SpeculativeInfo`]).
    pub fn evaluate_paths(
        &mut self,
        prefix: &[u32],
        paths: &[&[u32]],
    ) -> Result<Vec<Vec<f32>>, EngineError> {
        paths::evaluate_paths(self, prefix, paths)
    }
}
