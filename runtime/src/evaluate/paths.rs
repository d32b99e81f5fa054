//! Several ways to go on from one prefix, as candidate rows of one step.

use super::run::{Forced, Run, check, identity};
use crate::engine::EngineError;
use crate::engine::pack::{self, LogitsOf};
use crate::engine::pools::{self, PoolExtent};
use crate::exec::{Decoder, StepInputs, StepOutputs};
use crate::kv::blocks_for;
use crate::model::Model;
use crate::txn::{Composite, StepRow};
use std::ops::Range;

/// Tokens of the prefix per step.
const CHUNK: usize = 512;

/// Runs all but the last token of the prefix, then that token and a path per row. Nothing of the rows is kept.
pub(super) fn evaluate_paths(
    model: &mut Model,
    prefix: &[u32],
    paths: &[&[u32]],
) -> Result<Vec<Vec<f32>>, EngineError> {
    let (last, before) = check_paths(model, prefix, paths)?;
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let mut composite = allocate(model, prefix.len(), paths)?;
    let mut run = Run {
        decoder: &mut model.decoder,
        composite: &mut composite,
        chunk: CHUNK,
        hidden: false,
    };
    let tokens = |_, range: Range<usize>| before.get(range).unwrap_or_default().to_vec();
    let mut ignored = [Forced::default()];
    run.all(&[before.len()], &tokens, &|_, _| Vec::new(), &mut ignored)?;

    let mut inputs = StepInputs::default();
    pack::clear(&mut inputs);
    for path in paths {
        let ids = std::iter::once(last).chain(path.iter().copied());
        let wanted = LogitsOf::Last(path.len() + 1);
        pack::push_row(&mut inputs, before.len(), ids, wanted);
    }
    let outputs = run_rows(&mut model.decoder, &mut composite, paths, inputs)?;
    let mut logits = outputs.logits.chunks(model.decoder.vocab().max(1));
    let rows = paths.iter().map(|path| {
        let rows = logits.by_ref().take(path.len() + 1);
        rows.flatten().copied().collect()
    });
    Ok(rows.collect())
}

/// The last token of the prefix and those before it, if paths can begin there.
fn check_paths<'a>(
    model: &Model,
    prefix: &'a [u32],
    paths: &[&[u32]],
) -> Result<(u32, &'a [u32]), EngineError> {
    for (sequence, path) in paths.iter().enumerate() {
        check(model, sequence, &[prefix, path].concat())?;
        if path.is_empty() {
            let reason = "is an empty path".to_owned();
            return Err(EngineError::Input { sequence, reason });
        }
    }
    match prefix.split_last() {
        Some((last, before)) if !before.is_empty() => Ok((*last, before)),
        _ => Err(EngineError::Input {
            sequence: 0,
            reason: "paths begin after at least 2 tokens".to_owned(),
        }),
    }
}

/// One step of a row per path, which is dropped.
fn run_rows(
    decoder: &mut Decoder,
    composite: &mut Composite,
    paths: &[&[u32]],
    mut inputs: StepInputs,
) -> Result<StepOutputs, EngineError> {
    let mut lengths = paths.iter().map(|path| path.len() + 1);
    let own = lengths.next().unwrap_or(1);
    let row = StepRow {
        drafts: own - 1,
        branches: lengths.collect(),
        ..StepRow::plain(identity(0), own, false)
    };
    let reserved = composite.reserve(&[row]);
    let mut step = reserved.map_err(|e| EngineError::discarded(&e))?;
    step.fill(&mut inputs);
    let (capture, mut outputs) = (step.capture(), StepOutputs::default());
    let buffers = step.buffers();
    let (paged, fixed) = (buffers.paged, buffers.fixed);
    decoder.run(&inputs, paged, fixed, capture, &mut outputs, false)?;
    Ok(outputs)
}

/// Room for one request and a row per path.
fn allocate(model: &Model, prefix: usize, paths: &[&[u32]]) -> Result<Composite, EngineError> {
    let state = model.decoder.state();
    let block_size = state.paged.as_ref().map_or(1, |paged| paged.block_size);
    let row = |path: &&[u32]| blocks_for(prefix + path.len(), block_size);
    let extent = PoolExtent {
        slots: 1,
        rows: paths.len(),
        blocks: paths.iter().map(row).sum(),
    };
    pools::allocate(state, None, extent, (&*model.device, None))
}
