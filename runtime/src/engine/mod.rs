//! Many requests on one model: an owner thread runs steps, handles submit and listen.

mod accept;
mod active;
mod admit;
mod audit;
mod client;
mod completion;
mod copies;
mod core;
mod draft;
mod error;
mod handle;
mod kept;
mod limits;
mod observe;
mod options;
pub(crate) mod pack;
mod pool_usage;
pub(crate) mod pools;
mod running;
mod stats;
mod step;
mod takeover;
#[cfg(test)]
mod tests;
mod ticket;
mod worker;

pub use completion::{Completion, GenerateError};
pub use error::EngineError;
pub use handle::Engine;
pub(crate) use kept::EngineId;
pub use kept::{Kept, KeptError, KeptStats};
pub(crate) use observe::state_tensors;
pub use observe::{
    CacheTensor, Draw, ObservedRow, ObservedStep, Observer, StepObserver, StepTimes,
};
pub use options::EngineOptions;
pub use pool_usage::PoolUsage;
pub use running::{Canceller, RequestHandle};
pub use stats::RequestStats;
