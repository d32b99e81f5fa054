//! What a caller may ask of the sampler.

/// How the next token is chosen from the logits.
///
/// The default is greedy decoding. Filters apply in a fixed order, each to what the one before left:
/// temperature, `top_k`, `top_p`, `min_p`. All three filters keep a prefix of the tokens ranked by
/// logit; equal logits rank by token id, lower first. (`transformers` keeps all tokens that tie with the
/// last one of `top_k`.)
///
/// ```
/// use pawl::SamplingParams;
///
/// let params = SamplingParams::sampled(0.7).top_k(40).top_p(0.9).seed(7);
/// assert!(params.validate().is_ok());
/// assert!(!params.is_greedy());
///
/// let wrong = SamplingParams::sampled(0.7).top_p(1.5);
/// assert_eq!(wrong.validate().unwrap_err().field(), "top_p");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplingParams {
    /// Whether to sample at all. `None` follows the temperature: 0 is greedy, anything else samples.
    /// `Some(false)` is greedy whatever the other fields say.
    pub do_sample: Option<bool>,
    /// Logits are divided by this before anything else; at least 0, finite. 0 means greedy.
    pub temperature: f32,
    /// Keeps the `top_k` tokens with the highest logits; 0 keeps all. Exactly `top_k` survive: of
    /// equal logits at the cut, the lower token ids.
    pub top_k: u32,
    /// Keeps a token while the probability of all tokens ranked above it is less than this, in
    /// `0.0..=1.0`; 1 keeps all. The first token always survives.
    pub top_p: f32,
    /// Keeps tokens at least `min_p` times as probable as the most probable one, in `0.0..=1.0`; 0
    /// keeps all.
    pub min_p: f32,
    /// Seed of the noise. `None` takes a fresh one per request.
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams::greedy()
    }
}

impl SamplingParams {
    /// Always the token with the highest logit; of equal ones, the lowest id.
    ///
    /// ```
    /// assert!(pawl::SamplingParams::greedy().is_greedy());
    /// ```
    #[must_use]
    pub fn greedy() -> Self {
        SamplingParams {
            do_sample: None,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: None,
        }
    }

    /// Sampling at a temperature, with no filter and no fixed seed.
    ///
    /// ```
    /// let params = pawl::SamplingParams::sampled(1.0);
    /// assert_eq!((params.top_k, params.top_p, params.min_p), (0, 1.0, 0.0));
    /// ```
    #[must_use]
    pub fn sampled(temperature: f32) -> Self {
        SamplingParams::greedy().temperature(temperature)
    }

    /// Switches sampling on or off, whatever the temperature says.
    ///
    /// ```
    /// assert!(pawl::SamplingParams::sampled(0.8).do_sample(false).is_greedy());
    /// ```
    #[must_use]
    pub fn do_sample(mut self, on: bool) -> Self {
        self.do_sample = Some(on);
        self
    }

    /// Sets the temperature; 0 is greedy.
    ///
    /// ```
    /// assert_eq!(pawl::SamplingParams::greedy().temperature(0.5).temperature, 0.5);
    /// ```
    #[must_use]
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.temperature = temperature;
        self
    }

    /// Keeps the `k` highest logits; 0 keeps all.
    ///
    /// ```
    /// assert_eq!(pawl::SamplingParams::sampled(1.0).top_k(40).top_k, 40);
    /// ```
    #[must_use]
    pub fn top_k(mut self, k: u32) -> Self {
        self.top_k = k;
        self
    }

    /// Keeps the most probable tokens up to a total probability; 1 keeps all.
    ///
    /// ```
    /// assert_eq!(pawl::SamplingParams::sampled(1.0).top_p(0.9).top_p, 0.9);
    /// ```
    #[must_use]
    pub fn top_p(mut self, p: f32) -> Self {
        self.top_p = p;
        self
    }

    /// Keeps tokens at least `p` times as probable as the most probable one; 0 keeps all.
    ///
    /// ```
    /// assert_eq!(pawl::SamplingParams::sampled(1.0).min_p(0.05).min_p, 0.05);
    /// ```
    #[must_use]
    pub fn min_p(mut self, p: f32) -> Self {
        self.min_p = p;
        self
    }

    /// Fixes the seed: the same request then gives the same tokens every time.
    ///
    /// ```
    /// assert_eq!(pawl::SamplingParams::sampled(1.0).seed(7).seed, Some(7));
    /// ```
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Whether these parameters always choose the highest logit.
    ///
    /// ```
    /// assert!(pawl::SamplingParams::sampled(0.0).is_greedy());
    /// ```
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.do_sample == Some(false) || self.temperature == 0.0
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of range or contradicts another.
    ///
    /// ```
    /// use pawl::SamplingParams;
    ///
    /// let contradiction = SamplingParams::greedy().do_sample(true).validate().unwrap_err();
    /// assert_eq!(contradiction.field(), "temperature");
    /// ```
    pub fn validate(&self) -> Result<(), SamplingError> {
        let range = |field, value: f32, low: f32, high: f32| {
            if value >= low && value <= high {
                Ok(())
            } else {
                Err(SamplingError::OutOfRange {
                    field,
                    value,
                    low,
                    high,
                })
            }
        };
        range("temperature", self.temperature, 0.0, f32::MAX)?;
        range("top_p", self.top_p, 0.0, 1.0)?;
        range("min_p", self.min_p, 0.0, 1.0)?;
        if self.do_sample == Some(true) && self.temperature == 0.0 {
            return Err(SamplingError::Contradiction {
                field: "temperature",
                message: "is 0 (greedy) while do_sample is on",
            });
        }
        Ok(())
    }
}

/// Sampling parameters that cannot be used.
///
/// ```
/// let error = pawl::SamplingParams::sampled(0.7).top_p(2.0).validate().unwrap_err();
/// assert_eq!(error.to_string(), "top_p: expected a number from 0 to 1, found 2");
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// A value is outside its range or not a number.
    #[error("{field}: expected a number from {low} to {high}, found {value}")]
    #[non_exhaustive]
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// What was given.
        value: f32,
        /// Least value allowed.
        low: f32,
        /// Greatest value allowed.
        high: f32,
    },
    /// Two fields exclude each other.
    #[error("{field}: {message}")]
    #[non_exhaustive]
    Contradiction {
        /// Name of the field.
        field: &'static str,
        /// What it contradicts.
        message: &'static str,
    },
}

impl SamplingError {
    /// The field the error is about.
    ///
    /// ```
    /// let error = pawl::SamplingParams::sampled(-1.0).validate().unwrap_err();
    /// assert_eq!(error.field(), "temperature");
    /// ```
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            SamplingError::OutOfRange { field, .. }
            | SamplingError::Contradiction { field, .. } => field,
        }
    }
}
