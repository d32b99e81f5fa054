// The phases of a step as types. This file stands alone, without a `//!`, so that the examples of `manual::state` can take it
// in and show that the compiler refuses every other order.

/// A step in phase `Phase`. Each phase can only be had from the one before, which it consumes.
#[derive(Debug)]
pub(crate) struct In<Phase>(std::marker::PhantomData<Phase>);

/// Rows and room are claimed; the graph may run.
#[derive(Debug)]
pub(crate) struct Reserved;
/// What is kept of every row is decided.
#[derive(Debug)]
pub(crate) struct Accepted;
/// Every participant agreed to commit.
#[derive(Debug)]
pub(crate) struct Validated;
/// All fallible work is done; only publishing is left.
#[derive(Debug)]
pub(crate) struct Prepared;

/// Proof that a step went through all phases, and that nobody has published it yet.
#[derive(Debug)]
pub(crate) struct Published(());

impl In<Reserved> {
    /// Where every step begins.
    pub(crate) fn start() -> Self {
        Self(std::marker::PhantomData)
    }

    pub(crate) fn accept(self) -> In<Accepted> {
        In(std::marker::PhantomData)
    }
}

impl In<Accepted> {
    pub(crate) fn validate(self) -> In<Validated> {
        In(std::marker::PhantomData)
    }
}

impl In<Validated> {
    pub(crate) fn prepare(self) -> In<Prepared> {
        In(std::marker::PhantomData)
    }
}

impl In<Prepared> {
    pub(crate) fn publish(self) -> Published {
        Published(())
    }
}
