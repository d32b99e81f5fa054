//! States made by the host: where they are, over the state before the step. Memory that is written need not be fetched
//! from elsewhere, and what the operator wrote beside it is left behind.
//!
//! Everything that can be wrong is found by [`check`], while nothing has changed; [`make`] has no way to fail then. Every
//! row of every tensor is a piece of work of its own, since none reads what another writes: which thread makes which
//! changes no bit of the result.

use super::Partial;
use crate::kernels::{Parallel, Scoped};
use crate::model::spec::FixedBuffers;
use crate::state::StateError;
use crate::state::capture::{CaptureKind, Take, Transitions};
use crate::state::layout::SeriesLayout;
use crate::state::pool::Tensor;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

/// Bytes of state that are worth a thread: what one makes in several times as long as it takes to start another.
const PER_THREAD: usize = 3 << 20;

/// Whether the states of some rows of a step of `step_rows` rows can be made: of each tensor those that `rows` lists for it.
///
/// # Errors
/// Memory that is not what the specification says.
pub(in crate::state) fn check(
    tensors: &[Tensor],
    (step_rows, rows): (usize, &[Vec<Partial>]),
    buffers: &mut [FixedBuffers],
) -> Result<(), StateError> {
    for (index, ((tensor, rows), buffers)) in tensors.iter().zip(rows).zip(buffers).enumerate() {
        let mut fits = vec![false; rows.len()];
        for (at, work) in works(tensor, step_rows, rows, buffers) {
            if let Some(fits) = fits.get_mut(at) {
                *fits = work.fits();
            }
        }
        if let Some((row, _)) = rows.iter().zip(fits).find(|(_, fits)| !fits) {
            return Err(StateError::Memory {
                tensor: index,
                row: row.batch,
            });
        }
    }
    Ok(())
}

/// Makes the states that [`check`] found possible, with at most so many threads.
pub(super) fn make(
    tensors: &[Tensor],
    (step_rows, rows): (usize, &[Vec<Partial>]),
    buffers: &mut [FixedBuffers],
    most: NonZeroUsize,
) {
    let row = |buffers: &FixedBuffers| buffers.bank.row_elements() * buffers.bank.element().size();
    let bytes = rows
        .iter()
        .zip(&*buffers)
        .map(|(rows, buffers)| rows.len() * row(buffers));
    let threads = NonZeroUsize::new(bytes.sum::<usize>() / PER_THREAD);
    let threads = threads.map_or(NonZeroUsize::MIN, |threads| threads.min(most));
    make_on(threads, tensors, (step_rows, rows), buffers);
}

/// With so many threads.
pub(in crate::state) fn make_on(
    threads: NonZeroUsize,
    tensors: &[Tensor],
    (step_rows, rows): (usize, &[Vec<Partial>]),
    buffers: &mut [FixedBuffers],
) {
    let each = tensors.iter().zip(rows).zip(buffers);
    let all = each.flat_map(|((tensor, rows), buffers)| works(tensor, step_rows, rows, buffers));
    let works = all.map(|(_, work)| work);
    match threads {
        NonZeroUsize::MIN => works.for_each(Work::make),
        threads => share(threads, works.map(|work| || work.make())),
    }
}

/// Does all work on so many threads. A panic of one goes on here: states may be half made, and publishing has no other way to
/// say so.
fn share(threads: NonZeroUsize, works: impl Iterator<Item = impl FnOnce() + Send>) {
    let pieces: Vec<_> = works.map(|work| Mutex::new(Some(work))).collect();
    let one = |index: usize| {
        let piece = pieces.get(index).map(Mutex::lock);
        let work = piece.and_then(|piece| piece.unwrap_or_else(PoisonError::into_inner).take());
        work.into_iter().for_each(|work| work());
    };
    if let Err(error) = Scoped(threads).spread(pieces.len(), &one) {
        std::panic::resume_unwind(Box::new(error.to_string()));
    }
}

/// What is done for one row of one tensor.
enum Work<'b> {
    Copy {
        from: &'b [u8],
        state: &'b mut [u8],
    },
    Replay {
        kind: CaptureKind,
        transitions: Transitions<'b>,
        state: &'b mut [f32],
    },
}

impl Work<'_> {
    /// Whether memory is what the specification says.
    fn fits(&self) -> bool {
        match self {
            Self::Copy { from, state } => from.len() == state.len(),
            Self::Replay {
                kind,
                transitions,
                state,
            } => kind.fits(transitions, state),
        }
    }

    /// Work that does not fit is not done.
    fn make(self) {
        match self {
            Self::Copy { from, state } if from.len() == state.len() => state.copy_from_slice(from),
            Self::Copy { .. } => {}
            Self::Replay {
                kind,
                transitions,
                state,
            } => kind.replay(&transitions, state),
        }
    }
}

/// The work of some rows of one tensor, with their place among `rows`. A row that has no memory is missing.
fn works<'b>(
    tensor: &'b Tensor,
    step_rows: usize,
    rows: &'b [Partial],
    buffers: &'b mut FixedBuffers,
) -> impl Iterator<Item = (usize, Work<'b>)> {
    // What a slot holds is copied for every row of a tensor, or replayed for every one.
    let copied = rows.iter().all(|row| matches!(row.take, Take::Copy(_)));
    let (copies, replays) = match copied {
        true => (copies(tensor, step_rows, rows, buffers), None),
        false => (None, replays(tensor, step_rows, rows, buffers)),
    };
    let copies = copies.into_iter().flatten();
    copies.chain(replays.into_iter().flatten())
}

fn copies<'b>(
    tensor: &Tensor,
    step_rows: usize,
    rows: &'b [Partial],
    buffers: &'b mut FixedBuffers,
) -> Option<impl Iterator<Item = (usize, Work<'b>)>> {
    let FixedBuffers { bank, checkpoints } = buffers;
    let (spec, staging) = (tensor.spec.checkpoints.as_ref()?, checkpoints.as_ref()?);
    let size = bank.element().size();
    let series = SeriesLayout::new(spec.count, step_rows, spec.width * staging.element().size());
    let (staging, row) = (staging.as_bytes()?, bank.row_elements() * size);
    let copy = move |(at, row, state): (usize, &Partial, &'b mut [u8])| {
        let Take::Copy(slot) = row.take else {
            return None;
        };
        let from = staging.get(series.elements(slot, row.batch)?)?;
        Some((at, Work::Copy { from, state }))
    };
    Some(lend(bank.as_bytes_mut()?, row, rows).filter_map(copy))
}

fn replays<'b>(
    tensor: &Tensor,
    step_rows: usize,
    rows: &'b [Partial],
    buffers: &'b mut FixedBuffers,
) -> Option<impl Iterator<Item = (usize, Work<'b>)>> {
    let FixedBuffers { bank, checkpoints } = buffers;
    let (spec, staging) = (tensor.spec.checkpoints.as_ref()?, checkpoints.as_ref()?);
    let series = SeriesLayout::new(spec.count, step_rows, spec.width);
    let (kind, staging, row) = (tensor.kind?, staging.as_f32()?, bank.row_elements());
    let replay = move |(at, row, state): (usize, &Partial, &'b mut [f32])| {
        let Take::Replay(kept) = row.take else {
            return None;
        };
        let transitions = Transitions::new(staging, series, row.batch, kept);
        let work = Work::Replay {
            kind,
            transitions,
            state,
        };
        Some((at, work))
    };
    Some(lend(bank.as_f32_mut()?, row, rows).filter_map(replay))
}

/// The bank rows that `rows` write, with their place among them. Of several that write one row, only one gets it.
fn lend<'b, T>(
    bank: &'b mut [T],
    row: usize,
    rows: &'b [Partial],
) -> impl Iterator<Item = (usize, &'b Partial, &'b mut [T])> {
    let mut ordered: Vec<_> = rows.iter().enumerate().collect();
    ordered.sort_by_key(|(_, row)| row.write);
    let (mut all, mut next) = (bank.chunks_exact_mut(row.max(1)), 0);
    ordered.into_iter().filter_map(move |(at, row)| {
        let state = all.nth(row.write.checked_sub(next)?)?;
        next = row.write + 1;
        Some((at, row, state))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn work_that_panics_on_any_thread_is_not_passed_over() {
        let threads = NonZeroUsize::new(3).unwrap();
        let done = AtomicUsize::new(0);
        let work = |panics: bool| {
            let done = &done;
            move || {
                assert!(!panics, "as asked");
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        share(threads, (0..9).map(|_| work(false)));
        assert_eq!(done.load(Ordering::Relaxed), 9);
        let panicked = std::panic::catch_unwind(|| share(threads, (0..9).map(|at| work(at == 7))));
        assert!(panicked.is_err());
    }
}
