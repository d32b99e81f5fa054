//! States made by the host. Every row of every tensor is a piece of work of its own, since none reads what another
//! writes: which thread makes which changes no bit of the result.

use super::Partial;
use crate::kernels::{Parallel, Scoped, Serial};
use crate::model::spec::FixedBuffers;
use crate::state::StateError;
use crate::state::capture::{CaptureKind, Take};
use crate::state::layout::SeriesLayout;
use crate::state::pool::Tensor;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

/// Bytes of state that are worth a thread. Less is made in a millisecond or two, which is how long a thread may have to wait
/// for a core on a busy machine.
const PER_THREAD: usize = 16 << 20;

/// As [`super::Committer::commit`], with at most so many threads.
pub(super) fn commit(
    tensors: &[Tensor],
    (step_rows, rows): (usize, &[Vec<Partial>]),
    buffers: &mut [FixedBuffers],
    most: NonZeroUsize,
) -> Result<(), StateError> {
    let row = |buffers: &FixedBuffers| buffers.bank.row_elements() * buffers.bank.element().size();
    let bytes = rows
        .iter()
        .zip(&*buffers)
        .map(|(rows, buffers)| rows.len() * row(buffers));
    let threads = NonZeroUsize::new(bytes.sum::<usize>() / PER_THREAD);
    let threads = threads.map_or(NonZeroUsize::MIN, |threads| threads.min(most));
    commit_on(threads, tensors, (step_rows, rows), buffers)
}

/// With so many threads.
pub(in crate::state) fn commit_on(
    threads: NonZeroUsize,
    tensors: &[Tensor],
    (step_rows, rows): (usize, &[Vec<Partial>]),
    buffers: &mut [FixedBuffers],
) -> Result<(), StateError> {
    let mut pieces = Vec::with_capacity(rows.iter().map(Vec::len).sum());
    for (index, ((tensor, rows), buffers)) in tensors.iter().zip(rows).zip(buffers).enumerate() {
        let made = split(tensor, step_rows, rows, buffers);
        for (row, made) in rows.iter().zip(made) {
            let failed = || StateError::Memory {
                tensor: index,
                row: row.batch,
            };
            pieces.push(Mutex::new((made.ok_or_else(failed)?, Some(failed()))));
        }
    }
    make(&pieces, threads);
    let outcomes = pieces
        .into_iter()
        .map(|piece| piece.into_inner().unwrap_or_else(PoisonError::into_inner).1);
    outcomes.flatten().next().map_or(Ok(()), Err)
}

/// One state to be made, and the error that stays if it is not.
type Piece<'b> = Mutex<(Work<'b>, Option<StateError>)>;

/// What is done for one row of one tensor.
enum Work<'b> {
    Copy {
        from: &'b [u8],
        into: &'b mut [u8],
    },
    Replay {
        kind: CaptureKind,
        before: &'b [f32],
        slots: Vec<&'b [f32]>,
        into: &'b mut [f32],
    },
}

impl Work<'_> {
    /// `None` when memory is not what the specification says.
    fn make(&mut self) -> Option<()> {
        match self {
            Self::Copy { from, into } => {
                (into.len() == from.len()).then(|| into.copy_from_slice(from))
            }
            Self::Replay {
                kind,
                before,
                slots,
                into,
            } => kind.replay(before, slots, into),
        }
    }
}

fn make(pieces: &[Piece<'_>], threads: NonZeroUsize) {
    let one = |index: usize| {
        let piece = pieces.get(index).and_then(|piece| piece.lock().ok());
        if let Some(mut piece) = piece
            && piece.0.make().is_some()
        {
            piece.1 = None;
        }
    };
    let spread = match threads {
        NonZeroUsize::MIN => Serial.spread(pieces.len(), &one),
        threads => Scoped(threads).spread(pieces.len(), &one),
    };
    if let Err(error) = spread {
        // The error of the piece that panicked is still there.
        tracing::error!(%error, "a state was not made");
    }
}

/// The work of some rows of one tensor, an entry each: `None` where there is no such memory.
fn split<'b>(
    tensor: &Tensor,
    step_rows: usize,
    rows: &[Partial],
    buffers: &'b mut FixedBuffers,
) -> Vec<Option<Work<'b>>> {
    // What a slot holds is copied for every row of a tensor, or replayed for every one.
    let copied = rows.iter().all(|row| matches!(row.take, Take::Copy(_)));
    let work = match copied {
        true => copies(tensor, step_rows, rows, buffers),
        false => replays(tensor, step_rows, rows, buffers),
    };
    work.unwrap_or_else(|| rows.iter().map(|_| None).collect())
}

fn copies<'b>(
    tensor: &Tensor,
    step_rows: usize,
    rows: &[Partial],
    buffers: &'b mut FixedBuffers,
) -> Option<Vec<Option<Work<'b>>>> {
    let FixedBuffers { bank, checkpoints } = buffers;
    let (spec, staging) = (tensor.spec.checkpoints.as_ref()?, checkpoints.as_ref()?);
    let size = bank.element().size();
    let series = SeriesLayout::new(spec.count, step_rows, spec.width * staging.element().size());
    let (staging, row) = (staging.as_bytes()?, bank.row_elements() * size);
    let lent = lend(bank.as_bytes_mut()?, row, rows);
    let copy = |(row, lent): (&Partial, Option<Lent<'b, u8>>)| {
        let Take::Copy(slot) = row.take else {
            return None;
        };
        Some(Work::Copy {
            from: staging.get(series.elements(slot, row.batch)?)?,
            into: lent?.into,
        })
    };
    Some(rows.iter().zip(lent).map(copy).collect())
}

fn replays<'b>(
    tensor: &Tensor,
    step_rows: usize,
    rows: &[Partial],
    buffers: &'b mut FixedBuffers,
) -> Option<Vec<Option<Work<'b>>>> {
    let FixedBuffers { bank, checkpoints } = buffers;
    let (spec, staging) = (tensor.spec.checkpoints.as_ref()?, checkpoints.as_ref()?);
    let series = SeriesLayout::new(spec.count, step_rows, spec.width);
    let (staging, row) = (staging.as_f32()?, bank.row_elements());
    let lent = lend(bank.as_f32_mut()?, row, rows);
    let replay = |(row, lent): (&Partial, Option<Lent<'b, f32>>)| {
        let Take::Replay(kept) = row.take else {
            return None;
        };
        let slot = |slot| staging.get(series.elements(slot, row.batch)?);
        let Lent { before, into } = lent?;
        Some(Work::Replay {
            kind: tensor.kind?,
            before,
            slots: (0..kept).map(slot).collect::<Option<_>>()?,
            into,
        })
    };
    Some(rows.iter().zip(lent).map(replay).collect())
}

/// Two rows of a bank.
struct Lent<'b, T> {
    before: &'b [T],
    into: &'b mut [T],
}

/// The rows that each of `rows` reads and writes. Any number may read one row, but none that another writes.
fn lend<'b, T>(bank: &'b mut [T], row: usize, rows: &[Partial]) -> Vec<Option<Lent<'b, T>>> {
    let mut all: Vec<Option<&mut [T]>> = bank.chunks_exact_mut(row.max(1)).map(Some).collect();
    let mut take = |row: &Partial| all.get_mut(row.write).and_then(Option::take);
    let written: Vec<_> = rows.iter().map(&mut take).collect();
    let read: Vec<Option<&'b [T]>> = all.into_iter().map(|row| row.map(|row| &*row)).collect();
    let pair = |(row, into): (&Partial, Option<&'b mut [T]>)| {
        let before = read.get(row.read).copied().flatten()?;
        into.map(|into| Lent { before, into })
    };
    rows.iter().zip(written).map(pair).collect()
}
