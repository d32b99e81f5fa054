//! A commit graph tried out: the states that it makes of made-up transitions, beside those that the host makes.

use super::{Committer, Partial, listed};
use crate::device::{Buffer, DeviceError, ElementType};
use crate::exec::{CommitGraphs, CommitTask};
use crate::model::FixedBuffers;
use crate::model::spec::FixedSpec;
use crate::state::capture::{CaptureKind, Take};
use crate::state::pool::Tensor;
use genai_config_schema::{StateLayout, StateOperator};

/// How far an element may be off where the order of sums is another one.
const ROUNDING: f32 = 1e-5;

/// Commits every kept length of one tensor in one run of its graph, which is the first of `graphs`, and by the host. What
/// is not kept is NaN, and the bank has rows that nothing may touch. Returns how many lengths agree; 0 for a graph that
/// replays nothing.
///
/// # Errors
/// What is different, or why it could not be found out.
pub(crate) fn trial(graphs: &mut CommitGraphs, spec: &FixedSpec) -> Result<usize, String> {
    let replays = CommitTask::of(spec) == Some(CommitTask::Replay);
    let Some(checkpoints) = spec.checkpoints.as_ref().filter(|_| replays) else {
        return Ok(0);
    };
    let count = checkpoints.count;
    let rows: Vec<Partial> = (0..count).map(|row| partial(row, count)).collect();
    let numbers = Numbers::of(spec, &rows);
    let mut found = numbers.memory(spec).map_err(|e| e.to_string())?;
    let expected = numbers.replayed(spec, &rows)?;
    graphs
        .run((0, spec), count, &listed(&rows), &mut found)
        .map_err(|error| error.to_string())?;
    let found = load(&found.bank).ok_or("the host cannot read the bank")?;
    let elements = found.len() / bank_rows(count);
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let (row, at) = (index / elements, index % elements);
        let written = rows.iter().find(|partial| partial.write == row);
        let rounded = written.is_some() && spec.operator == StateOperator::GatedDeltaNet;
        let near = rounded && (found - expected).abs() <= ROUNDING;
        if !near && found.to_bits() != expected.to_bits() {
            let what = match written.map(|partial| partial.take) {
                Some(Take::Replay(kept)) => format!("the state after {kept} kept tokens"),
                _ => format!("row {row} of the bank, which is not committed,"),
            };
            return Err(format!(
                "{what} differs from that of the host: element {at} is {found}, expected {expected}"
            ));
        }
    }
    Ok(count)
}

/// Each row of the step keeps another length; rows are listed in another order than they have in the step and the bank.
fn partial(row: usize, count: usize) -> Partial {
    Partial {
        batch: count - 1 - row,
        read: row,
        write: 2 * count - row,
        take: Take::Replay(row + 1),
    }
}

/// Those that are read, one that nobody names, those that are written.
fn bank_rows(count: usize) -> usize {
    2 * count + 1
}

/// What a trial begins with. Elements of 16 bits, which are only moved, are numbers that stand for their bits.
struct Numbers {
    bank: Vec<f32>,
    /// Transitions, token by token of row by row of the step.
    transitions: Vec<f32>,
}

impl Numbers {
    fn of(spec: &FixedSpec, rows: &[Partial]) -> Self {
        let row: usize = spec.row_shape.iter().product();
        let (count, width) = (rows.len(), width(spec));
        let decays = match sections(spec)[..] {
            [decays, _, _] => decays,
            _ => 0,
        };
        let number = |seed: u32, at: usize| {
            let bits = mixed(seed, at);
            if spec.element == ElementType::F32 {
                f32::from(bits) / 32_768.0 - 1.0
            } else {
                stand_in(bits)
            }
        };
        let transition = |at: usize| {
            let (row, token) = (at / width / count, at / width % count);
            let kept = rows.iter().find(|partial| partial.batch == row);
            match kept.map(|partial| partial.take) {
                Some(Take::Replay(kept)) if token < kept => match number(2, at) {
                    decay if at % width < decays => decay.abs(),
                    other => other,
                },
                _ => f32::NAN,
            }
        };
        Self {
            bank: (0..bank_rows(count) * row)
                .map(|at| number(1, at))
                .collect(),
            transitions: (0..count * count * width).map(transition).collect(),
        }
    }

    /// As the graph takes it.
    fn memory(&self, spec: &FixedSpec) -> Result<FixedBuffers, DeviceError> {
        let (count, width) = (count(spec), width(spec));
        let mut staging = vec![0.0; self.transitions.len()];
        for (index, transition) in self.transitions.chunks_exact(width).enumerate() {
            let (row, token) = (index / count, index % count);
            let mut start = row * count * width;
            let mut rest = transition;
            for extent in sections(spec) {
                let (part, others) = rest.split_at(extent);
                let at = start + token * extent;
                if let Some(place) = staging.get_mut(at..at + extent) {
                    place.copy_from_slice(part);
                }
                (start, rest) = (start + count * extent, others);
            }
        }
        let bank = store(spec.element, &self.bank, &spec.row_shape)?;
        let checkpoints = store(spec.element, &staging, &[count * width])?;
        Ok(FixedBuffers::new(bank, Some(checkpoints)))
    }

    /// The bank with the states before the step where those after it are made.
    fn before(&self, rows: &[Partial]) -> Vec<f32> {
        let mut bank = self.bank.clone();
        let row = bank.len() / bank_rows(rows.len());
        for Partial { read, write, .. } in rows {
            bank.copy_within(read * row..(read + 1) * row, write * row);
        }
        bank
    }

    /// The bank after the host has committed.
    fn replayed(&self, spec: &FixedSpec, rows: &[Partial]) -> Result<Vec<f32>, String> {
        let spec = FixedSpec {
            layout: StateLayout::Bank,
            element: ElementType::F32,
            ..spec.clone()
        };
        let checkpoints = spec.checkpoints.as_ref().ok_or("nothing is captured")?;
        let kind = CaptureKind::of(&spec, checkpoints).map_err(|error| error.to_string())?;
        let (count, width) = (count(&spec), width(&spec));
        let by_token = (0..count).flat_map(|token| (0..count).map(move |row| row * count + token));
        let staging = by_token.filter_map(|at| self.transitions.get(at * width..(at + 1) * width));
        let staging: Vec<f32> = staging.flatten().copied().collect();
        let store = |values: &[f32], row: &[usize]| {
            store(spec.element, values, row).map_err(|error| error.to_string())
        };
        let bank = store(&self.before(rows), &spec.row_shape)?;
        let mut buffers = [FixedBuffers::new(bank, Some(store(&staging, &[width])?))];
        let tensors = [Tensor {
            spec,
            kind: Some(kind),
        }];
        let (mut host, rows) = (Committer::Host, [rows.to_vec()]);
        let owed = host
            .prepare(&tensors, (count, &rows), &mut buffers)
            .map_err(|error| error.to_string())?;
        let [buffers] = &mut buffers;
        buffers.owed.extend(owed.into_iter().flatten());
        buffers.settle();
        Ok(buffers.bank.as_f32().unwrap_or_default().to_vec())
    }
}

fn count(spec: &FixedSpec) -> usize {
    spec.checkpoints.as_ref().map_or(0, |c| c.count)
}

fn width(spec: &FixedSpec) -> usize {
    spec.checkpoints.as_ref().map_or(1, |c| c.width).max(1)
}

/// Elements of the parts of a transition, each of which the operators that meet state by rows keep together: decays, keys
/// and deltas; all of any other.
fn sections(spec: &FixedSpec) -> Vec<usize> {
    let width = width(spec);
    match (spec.row_shape.as_slice(), spec.key_heads) {
        (&[values, value_dim, key_dim], Some(keys)) => {
            let (keys, deltas) = (keys * key_dim, values * value_dim);
            vec![width.saturating_sub(keys + deltas), keys, deltas]
        }
        _ => vec![width],
    }
}

/// Rows of `row` elements, as memory of the host.
fn store(element: ElementType, values: &[f32], row: &[usize]) -> Result<Buffer, DeviceError> {
    let elements: usize = row.iter().product();
    let shape = [&[values.len() / elements.max(1)], row].concat();
    let mut buffer = Buffer::host(element, &shape)?;
    if let Some(all) = buffer.as_f32_mut() {
        all.copy_from_slice(values);
    } else if let Some(bytes) = buffer.as_bytes_mut() {
        let (pairs, _) = bytes.as_chunks_mut::<2>();
        let each = pairs.iter_mut().zip(values);
        each.for_each(|(pair, value)| *pair = stood_for(*value).to_ne_bytes());
    }
    Ok(buffer)
}

/// The other way round.
fn load(buffer: &Buffer) -> Option<Vec<f32>> {
    if let Some(all) = buffer.as_f32() {
        return Some(all.to_vec());
    }
    let (pairs, _) = buffer.as_bytes()?.as_chunks::<2>();
    let numbers = pairs.iter().map(|bits| stand_in(u16::from_ne_bytes(*bits)));
    Some(numbers.collect())
}

/// A number that stands for bits.
fn stand_in(bits: u16) -> f32 {
    f32::from_bits(1.0f32.to_bits() | u32::from(bits))
}

/// The bits that a number stands for; some for NaN.
fn stood_for(number: f32) -> u16 {
    let [low, high, ..] = number.to_bits().to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// Well spread bits.
fn mixed(seed: u32, at: usize) -> u16 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = mixed
        .rotate_left(seed * 7)
        .wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let [high, low, ..] = mixed.to_be_bytes();
    u16::from_be_bytes([high, low])
}
