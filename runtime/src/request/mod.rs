//! What callers ask for, what they get back, and how far a request has come.

mod cursor;
mod event;
mod failure;
#[expect(clippy::module_inception, reason = "the request itself")]
mod request;
#[cfg(test)]
mod tests;

pub(crate) use cursor::{Advance, Cursor};
pub use event::{Event, FinishReason, Reuse, Usage};
pub use failure::RequestError;
pub(crate) use request::{ModelLimits, Prepared};
pub use request::{Request, SubmitError};
