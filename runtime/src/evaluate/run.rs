//! The steps of an evaluation.

use super::{EvaluateOptions, Evaluation};
use crate::device::Device;
use crate::engine::pack::{self, LogitsOf};
use crate::engine::pools::{self, PoolExtent};
use crate::engine::{EngineError, state_tensors};
use crate::exec::{Decoder, StepInputs, StepOutputs};
use crate::ids::RequestId;
use crate::kv::blocks_for;
use crate::model::Model;
use crate::model::spec::StateSpec;
use crate::txn::{Composite, StepRow};
use std::ops::Range;

/// Runs every sequence through the decoder, then through the head.
pub(super) fn evaluate(
    model: &mut Model,
    sequences: &[&[u32]],
    options: &EvaluateOptions,
) -> Result<Vec<Evaluation>, EngineError> {
    for (index, sequence) in sequences.iter().enumerate() {
        check(model, index, sequence)?;
    }
    let (has_head, device) = (model.head.is_some(), std::sync::Arc::clone(&model.device));
    let decoder = &mut model.decoder;
    let mut found = vec![Forced::default(); sequences.len()];
    let mut composite = allocate(decoder.state(), sequences, &*device)?;
    let tokens = |row: usize, range: Range<usize>| slice(sequences, row, range);
    let lengths: Vec<usize> = sequences.iter().map(|s| s.len()).collect();
    let mut run = Run {
        decoder,
        composite: &mut composite,
        chunk: options.chunk,
        hidden: has_head,
    };
    run.all(&lengths, &tokens, &|_, _| Vec::new(), &mut found)?;
    let mut evaluations = Vec::with_capacity(sequences.len());
    for (row, forced) in found.into_iter().enumerate() {
        let states = if options.states {
            state_tensors(decoder.state(), &composite, identity(row))?
        } else {
            Vec::new()
        };
        let Forced { logits, hidden } = forced;
        let vocab = decoder.vocab();
        evaluations.push(Evaluation {
            vocab,
            logits,
            hidden,
            head_logits: None,
            states,
        });
    }
    if let Some(head) = &mut model.head {
        evaluate_head(head, sequences, options, &mut evaluations, &*device)?;
    }
    Ok(evaluations)
}

/// Runs the head over the pairs (token `i + 1`, hidden row `i`).
fn evaluate_head(
    head: &mut Decoder,
    sequences: &[&[u32]],
    options: &EvaluateOptions,
    evaluations: &mut [Evaluation],
    device: &dyn Device,
) -> Result<(), EngineError> {
    let width = head.hidden_size();
    let pairs: Vec<&[u32]> = sequences
        .iter()
        .map(|s| s.get(1..).unwrap_or_default())
        .collect();
    let lengths: Vec<usize> = pairs.iter().map(|s| s.len()).collect();
    let mut found = vec![Forced::default(); sequences.len()];
    let mut composite = allocate(head.state(), &pairs, device)?;
    let hidden = |row: usize, range: Range<usize>| {
        let rows = evaluations
            .get(row)
            .map_or(&[][..], |e| e.hidden.as_slice());
        rows.get(range.start * width..range.end * width)
            .unwrap_or_default()
            .to_vec()
    };
    let tokens = |row: usize, range: Range<usize>| slice(&pairs, row, range);
    let mut run = Run {
        decoder: head,
        composite: &mut composite,
        chunk: options.chunk,
        hidden: false,
    };
    run.all(&lengths, &tokens, &hidden, &mut found)?;
    for (evaluation, forced) in evaluations.iter_mut().zip(found) {
        evaluation.head_logits = Some(forced.logits);
    }
    Ok(())
}

/// What has been computed of one sequence.
#[derive(Clone, Debug, Default)]
pub(super) struct Forced {
    logits: Vec<f32>,
    hidden: Vec<f32>,
}

/// One graph, its pools, and how sequences are cut.
pub(super) struct Run<'a> {
    pub(super) decoder: &'a mut Decoder,
    pub(super) composite: &'a mut Composite,
    pub(super) chunk: usize,
    pub(super) hidden: bool,
}

impl Run<'_> {
    /// Runs all sequences to their ends, every unfinished one in every step.
    pub(super) fn all(
        &mut self,
        lengths: &[usize],
        tokens: &dyn Fn(usize, Range<usize>) -> Vec<u32>,
        hidden: &dyn Fn(usize, Range<usize>) -> Vec<f32>,
        found: &mut [Forced],
    ) -> Result<(), EngineError> {
        let mut done = vec![0usize; lengths.len()];
        let (mut inputs, mut outputs) = (StepInputs::default(), StepOutputs::default());
        loop {
            let parts = self.next_parts(lengths, &done);
            if parts.is_empty() {
                return Ok(());
            }
            pack::clear(&mut inputs);
            for (row, range) in &parts {
                let ids = tokens(*row, range.clone());
                pack::push_row(&mut inputs, range.start, ids, LogitsOf::Last(range.len()));
                inputs.hidden_states.extend(hidden(*row, range.clone()));
            }
            self.step(&parts, &mut inputs, &mut outputs)?;
            self.collect(&parts, &outputs, found);
            for (row, range) in parts {
                if let Some(done) = done.get_mut(row) {
                    *done = range.end;
                }
            }
        }
    }

    fn next_parts(&self, lengths: &[usize], done: &[usize]) -> Vec<(usize, Range<usize>)> {
        let chunk = if self.chunk == 0 {
            usize::MAX
        } else {
            self.chunk
        };
        let rows = lengths.iter().zip(done).enumerate();
        rows.filter(|(_, (length, done))| done < length)
            .map(|(row, (length, done))| (row, *done..done.saturating_add(chunk).min(*length)))
            .collect()
    }

    fn step(
        &mut self,
        parts: &[(usize, Range<usize>)],
        inputs: &mut StepInputs,
        outputs: &mut StepOutputs,
    ) -> Result<(), EngineError> {
        let rows: Vec<StepRow> = parts
            .iter()
            .map(|(row, range)| StepRow::plain(identity(*row), range.len(), range.start == 0))
            .collect();
        let mut step = self
            .composite
            .reserve(&rows)
            .map_err(|e| EngineError::discarded(&e))?;
        step.fill(inputs);
        let capture = step.capture();
        let buffers = step.buffers();
        self.decoder.run(
            inputs,
            buffers.paged,
            buffers.fixed,
            capture,
            outputs,
            self.hidden,
        )?;
        let step = step.accept_all().validate().and_then(|step| step.prepare());
        step.map_err(|e| EngineError::discarded(&e))?.publish();
        Ok(())
    }

    fn collect(
        &self,
        parts: &[(usize, Range<usize>)],
        outputs: &StepOutputs,
        found: &mut [Forced],
    ) {
        let mut logits = outputs.logits.chunks(self.decoder.vocab().max(1));
        let mut hidden = outputs.hidden.chunks(self.decoder.hidden_size().max(1));
        for (row, range) in parts {
            let Some(forced) = found.get_mut(*row) else {
                continue;
            };
            forced
                .logits
                .extend(logits.by_ref().take(range.len()).flatten());
            forced
                .hidden
                .extend(hidden.by_ref().take(range.len()).flatten());
        }
    }
}

pub(super) fn check(model: &Model, sequence: usize, ids: &[u32]) -> Result<(), EngineError> {
    let wrong = |reason: String| Err(EngineError::Input { sequence, reason });
    let (vocab, context) = (model.decoder.vocab(), model.limits.sequence);
    if ids.is_empty() {
        return wrong("is empty".to_owned());
    }
    if ids.len() > context {
        return wrong(format!(
            "has {} tokens, the context is {context}",
            ids.len()
        ));
    }
    let outside = ids
        .iter()
        .find(|id| usize::try_from(**id).map_or(true, |id| id >= vocab));
    match outside {
        Some(id) => wrong(format!("token {id} is outside the vocabulary of {vocab}")),
        None => Ok(()),
    }
}

fn allocate(
    spec: &StateSpec,
    sequences: &[&[u32]],
    device: &dyn Device,
) -> Result<Composite, EngineError> {
    let block_size = spec.paged.as_ref().map_or(1, |paged| paged.block_size);
    let blocks = sequences
        .iter()
        .map(|s| blocks_for(s.len(), block_size))
        .sum::<usize>();
    let extent = PoolExtent {
        slots: sequences.len().max(1),
        rows: 1,
        blocks: blocks.max(1),
    };
    // Everything that runs is kept, so nothing is ever captured.
    let mut spec = spec.clone();
    for fixed in &mut spec.fixed {
        fixed.checkpoints = None;
    }
    pools::allocate(&spec, None, extent, (device, None))
}

pub(super) fn identity(row: usize) -> RequestId {
    RequestId(row as u64)
}

fn slice(sequences: &[&[u32]], row: usize, range: Range<usize>) -> Vec<u32> {
    sequences
        .get(row)
        .and_then(|s| s.get(range))
        .unwrap_or_default()
        .to_vec()
}
