//! Several ways to go on from one prefix, as candidate rows of one step.

use super::run::{Forced, Run, check, identity};
use crate::engine::EngineError;
use crate::engine::pack::{self, LogitsOf};
use crate::engine::pools::{self, PoolExtent};
use crate::exec::{StepInputs, StepOutputs};
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
    for (index, path) in paths.iter().enumerate() {
        check(model, index, &[prefix, path].concat())?;
    }
    let Some((last, before)) = prefix.split_last().filter(|(_, before)| !before.is_empty()) else {
        return Err(EngineError::Input {
            sequence: 0,
            reason: "paths begin after at least 2 tokens".to_owned(),
        });
    };
    if let Some(sequence) = paths.iter().position(|path| path.is_empty()) {
        let reason = "is an empty path".to_owned();
        return Err(EngineError::Input { sequence, reason });
    }
    let [own, branches @ ..] = paths else {
        return Ok(Vec::new());
    };
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

    let row = StepRow {
        drafts: own.len(),
        branches: branches.iter().map(|path| path.len() + 1).collect(),
        ..StepRow::plain(identity(0), own.len() + 1, false)
    };
    let (mut inputs, mut outputs) = (StepInputs::default(), StepOutputs::default());
    pack::clear(&mut inputs);
    for path in paths {
        let ids = std::iter::once(*last).chain(path.iter().copied());
        let wanted = LogitsOf::Last(path.len() + 1);
        pack::push_row(&mut inputs, before.len(), ids, wanted);
    }
    let mut step = composite
        .reserve(&[row])
        .map_err(|e| EngineError::discarded(&e))?;
    step.fill(&mut inputs);
    let capture = step.capture();
    let buffers = step.buffers();
    let decoder = &mut model.decoder;
    let (paged, fixed) = (buffers.paged, buffers.fixed);
    decoder.run(&inputs, paged, fixed, capture, &mut outputs, false)?;
    let mut logits = outputs.logits.chunks(decoder.vocab().max(1));
    let rows = paths.iter().map(|path| {
        let rows = logits.by_ref().take(path.len() + 1);
        rows.flatten().copied().collect()
    });
    Ok(rows.collect())
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
