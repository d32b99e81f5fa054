//! Drafts never change the text: greedy and sampled, whatever is drafted, whatever the model keeps.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail, and prints what excuses it"
)]

mod committed;
mod edges;
mod equality;
mod far;
mod gain;
mod grammar;
mod kept;
mod plain;
mod refusals;
mod rows;
mod trees;
mod wiring;

use pawl::{DraftPolicy, Engine, EngineOptions, LoadOptions, Request, SamplingParams, Speculation};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;

/// Most drafts of a row, and the checkpoints that allow them.
const MOST: usize = 7;
const BOTH: [CheckpointOption; 2] = [CheckpointOption::Update(8), CheckpointOption::State(8)];
/// A decision margin below which two runs may part.
const TIE: f32 = 1e-4;

/// An engine with so many rows per step. Small models gain nothing from more than one thread.
fn engine_of(export: &Export, batch: usize, options: &EngineOptions) -> Engine {
    let load = LoadOptions::default().threads(1).max_batch_size(batch);
    Engine::new(export.load(&load), options).unwrap()
}

fn engine(export: &Export, options: &EngineOptions) -> Engine {
    engine_of(export, 8, options)
}

fn off() -> EngineOptions {
    EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(Speculation::Off)
}

fn request(ids: &[u32], params: &SamplingParams, tokens: u64) -> Request {
    Request::from_ids(ids)
        .sampling(params.clone())
        .max_new_tokens(tokens)
        .ignore_eos(true)
}

/// Spreads a count over all bits.
fn mix(count: usize) -> usize {
    let mixed = (count as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33) as usize
}

/// Drafts that know the text: after `done` generated tokens as many as `plan` says, of which so many are right.
fn planned<P: Fn(usize) -> (usize, usize) + Send + Sync>(
    prompt: usize,
    text: &[u32],
    plan: P,
) -> impl Fn(&[u32], usize) -> Vec<u32> + Send + Sync + use<P> {
    let text = text.to_vec();
    move |tokens, most| {
        let done = tokens.len() - prompt;
        let (count, right) = plan(done);
        let known = text.iter().skip(done).take(count.min(most)).enumerate();
        known
            .map(|(index, token)| if index == right { token ^ 1 } else { *token })
            .collect()
    }
}
