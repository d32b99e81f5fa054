//! The graph contract: what every graph takes and gives, by name and shape, whatever the model.

mod inputs;
pub(crate) mod names;
pub(crate) mod symbols;

pub(crate) use inputs::StepInputs;
