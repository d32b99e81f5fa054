//! Failures on purpose. A step has a fixed order of calls that can fail; tests let each of them fail once and compare
//! what is left with what was before. Outside tests there is nothing here to fail.

use super::error::StepError;
#[cfg(test)]
use std::ops::Range;

/// What the calls of a step ask before they do their work.
#[cfg(not(test))]
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(());

#[cfg(not(test))]
impl Faults {
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "tests fail here"
    )]
    pub(super) fn call(&self, _name: &'static str) -> Result<(), StepError> {
        Ok(())
    }
}

/// Counts the fallible calls of a step and lets some of them fail. Clones share the count.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(std::sync::Arc<std::sync::Mutex<Count>>);

#[cfg(test)]
#[derive(Debug, Default)]
struct Count {
    calls: Vec<&'static str>,
    failing: Range<usize>,
    /// Calls of this name fail whenever they come.
    always: Option<&'static str>,
}

#[cfg(test)]
impl Faults {
    /// Forgets the calls so far; of those that come, the ones with these indices fail.
    pub(crate) fn arm(&self, failing: Range<usize>) {
        *self.0.lock().unwrap() = Count {
            calls: Vec::new(),
            failing,
            always: None,
        };
    }

    /// Calls of this name fail from now on.
    pub(crate) fn always(&self, name: &'static str) {
        self.0.lock().unwrap().always = Some(name);
    }

    /// The calls since it was armed.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().calls.clone()
    }

    /// Counts a call.
    ///
    /// # Errors
    /// When it is to fail.
    pub(crate) fn call(&self, name: &'static str) -> Result<(), StepError> {
        let mut count = self.0.lock().unwrap();
        let index = count.calls.len();
        count.calls.push(name);
        if count.failing.contains(&index) || count.always == Some(name) {
            return Err(StepError::Fault(name));
        }
        Ok(())
    }
}
