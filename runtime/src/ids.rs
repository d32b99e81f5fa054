//! Identities that must not be confused with plain numbers.

/// One request, unique within an engine for its whole life.
///
/// ```no_run
/// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
/// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
/// # let engine = Engine::new(model, &EngineOptions::default())?;
/// let (first, second) = (engine.submit(Request::from_ids([1]))?, engine.submit(Request::from_ids([1]))?);
/// assert_ne!(first.id(), second.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

impl RequestId {
    /// The number behind the identity, for logs and foreign callers.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let handle = engine.submit(Request::from_ids([1]))?;
    /// let number: u64 = handle.id().value();
    /// # let _ = number;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "request {}", self.0)
    }
}
