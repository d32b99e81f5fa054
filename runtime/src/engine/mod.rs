//! Many requests on one model: an owner thread runs steps, handles submit and listen.

mod accept;
mod active;
mod core;
mod error;
mod handle;
mod head;
mod limits;
mod options;
pub(crate) mod pack;
pub(crate) mod pools;
mod stats;
mod step;
mod ticket;
mod worker;

pub use error::EngineError;
pub use handle::{Completion, Engine, GenerateError, RequestHandle};
pub use options::EngineOptions;
pub use stats::RequestStats;
