//! The engine over a stand-in for the graph: state after every step, and steps that fail in every place.

mod ends;
mod failures;
mod grammar;
mod kept;
mod ngram;
mod policies;
mod room;
mod sources;
mod stand_in;
mod state;
mod stops;
mod trees;
