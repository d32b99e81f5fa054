//! Commit graphs as the builder writes them, on the CPU: what they compute, and that they touch nothing else.

use super::*;
use crate::device::{Buffer, ElementType};
use crate::exec::{SessionSettings, Wanted, load};
use crate::model::Provider;
use crate::model::test_specs::{by_rows, conv, delta, per_key, series, tensor};
use genai_config_schema::CheckpointAlignment;
use std::path::Path;
use std::time::{Duration, Instant};

/// The graphs `tests/fixtures/commit/<name>.onnx`, one per tensor; the builder's tests hold them to what it writes.
pub(crate) fn commit_graphs(specs: &[FixedSpec], names: &[&str]) -> CommitGraphs {
    let mut graphs = CommitGraphs::new(specs.len());
    for (tensor, (spec, name)) in specs.iter().zip(names).enumerate() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/commit");
        let file = Path::new(folder).join(format!("{name}.onnx"));
        let settings = SessionSettings {
            provider: Provider::Cpu,
            threads: Some(std::num::NonZeroUsize::MIN),
            operators: None,
            optimize: genai_config_schema::GraphOptimizationLevel::All,
            arena: true,
            entries: Vec::new(),
        };
        let loaded = load(Wanted::default()).unwrap();
        let session = Session::open(loaded, &file, settings, None).unwrap();
        graphs
            .add(session, CommitTask::of(spec).unwrap(), &[tensor])
            .unwrap();
    }
    graphs
}

/// One tensor with its graph and memory.
struct Case {
    spec: FixedSpec,
    graphs: CommitGraphs,
    buffers: FixedBuffers,
    step_rows: usize,
}

impl Case {
    /// Every byte of bank and checkpoints is garbage.
    fn new(name: &str, spec: FixedSpec, bank_rows: usize, step_rows: usize) -> Self {
        let graphs = commit_graphs(std::slice::from_ref(&spec), &[name]);
        let bank = [&[bank_rows], spec.row_shape.as_slice()].concat();
        let shape = spec.checkpoint_shape(step_rows).unwrap();
        let garbage = |shape: &[usize], seed: u8| {
            let mut buffer = Buffer::host(spec.element, shape).unwrap();
            for (index, byte) in (0u8..=250).cycle().zip(buffer.as_bytes_mut().unwrap()) {
                *byte = index.wrapping_mul(37).wrapping_add(seed) | 0x40;
            }
            buffer
        };
        let buffers = FixedBuffers::new(garbage(&bank, 1), Some(garbage(&shape, 2)));
        Self {
            spec,
            graphs,
            buffers,
            step_rows,
        }
    }

    fn run(&mut self, rows: &CommitRows) -> Result<(), RunError> {
        self.graphs
            .run((0, &self.spec), self.step_rows, rows, &mut self.buffers)
    }

    fn staging(&mut self) -> &mut Buffer {
        self.buffers.checkpoints.as_mut().unwrap()
    }

    fn bank(&self) -> Vec<u8> {
        self.buffers.bank.as_bytes().unwrap().to_vec()
    }
}

fn floats(buffer: &mut Buffer, values: impl IntoIterator<Item = f32>) {
    let target = buffer.as_f32_mut().unwrap();
    for (target, value) in target.iter_mut().zip(values) {
        *target = value;
    }
}

/// Reproducible numbers in (-1, 1).
fn noise(seed: u32) -> impl FnMut() -> f32 {
    let mut state = u64::from(seed) + 1;
    move || {
        state = state
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    }
}

/// One row in the step, bank rows 0 (before) and 1 (after).
fn one(taken: i64) -> CommitRows {
    CommitRows {
        batch_rows: vec![0],
        read_rows: vec![0],
        write_rows: vec![1],
        taken: vec![taken],
    }
}

#[test]
fn known_recurrent_states() {
    let mut case = Case::new("delta-vector", by_rows(delta(1, [2, 2, 2], 3)), 2, 1);
    floats(&mut case.buffers.bank, [4.0; 8]);
    let decays = [0.5, 0.25, 1.0, 0.5, 1.0, 1.0];
    let keys = [2.0, 3.0, 4.0, 5.0, 1.0, 1.0];
    let deltas = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0];
    let all = [&decays[..], &keys, &deltas].concat();
    let two = [24.0, 30.0, 30.0, 38.0, 31.5, 40.0, 36.5, 46.5];
    let expected = [[4.0, 5.0, 6.0, 8.0, 7.0, 10.0, 9.0, 13.0], two, two];
    for (kept, expected) in (1..).zip(expected) {
        floats(case.staging(), all.iter().copied());
        case.run(&one(kept)).unwrap();
        assert_eq!(
            case.buffers.bank.row_f32(1).unwrap(),
            expected,
            "{kept} kept"
        );
        assert_eq!(case.buffers.bank.row_f32(0).unwrap(), [4.0; 8]);
    }
}

#[test]
fn known_convolution_states() {
    let mut case = Case::new("conv-vector", by_rows(conv([2, 3], 3)), 2, 1);
    floats(&mut case.buffers.bank, [4.0; 6]);
    floats(case.staging(), [10.0, 11.0, 20.0, 21.0, 30.0, 31.0]);
    let expected = [
        [4.0, 4.0, 10.0, 4.0, 4.0, 11.0],
        [4.0, 10.0, 20.0, 4.0, 11.0, 21.0],
        [10.0, 20.0, 30.0, 11.0, 21.0, 31.0],
    ];
    for (kept, expected) in (1..).zip(expected) {
        case.run(&one(kept)).unwrap();
        assert_eq!(
            case.buffers.bank.row_f32(1).unwrap(),
            expected,
            "{kept} kept"
        );
    }
}

#[test]
fn heads_share_keys_and_have_extents_of_their_own() {
    use crate::state::test_vectors as known;
    let by_head = by_rows(delta(2, [4, 2, 3], 2));
    let by_key = per_key(by_head.clone());
    let transitions = |decays: [&[f32]; 2]| {
        [
            decays.concat(),
            known::KEYS.concat(),
            known::DELTAS.concat(),
        ]
        .concat()
    };
    let cases = [
        (
            "delta-known",
            by_head,
            transitions(known::DECAYS.each_ref().map(|d| &d[..])),
            known::AFTER,
        ),
        (
            "delta-known-per-key",
            by_key,
            transitions(known::KEY_DECAYS.each_ref().map(|d| &d[..])),
            known::AFTER_PER_KEY,
        ),
    ];
    for (name, spec, transitions, expected) in cases {
        let mut case = Case::new(name, spec, 2, 1);
        floats(&mut case.buffers.bank, known::BEFORE);
        floats(case.staging(), transitions);
        for (kept, expected) in (1..).zip(expected) {
            case.run(&one(kept)).unwrap();
            assert_eq!(
                case.buffers.bank.row_f32(1).unwrap(),
                expected,
                "{name}: {kept} kept"
            );
        }
    }
}

/// Rows that keep 0 to `most` transitions, all in one run and in no order; the bank has a row between any two of them.
fn every_length(most: usize) -> CommitRows {
    let rows = most + 1;
    let shuffled: Vec<usize> = (0..rows).map(|row| (row * 5 + 2) % rows).collect();
    let list = |of: &dyn Fn(usize) -> usize| {
        let of = |row: &usize| i64::try_from(of(*row)).unwrap();
        shuffled.iter().map(of).collect()
    };
    assert!(!rows.is_multiple_of(5));
    CommitRows {
        batch_rows: list(&|row| row),
        read_rows: list(&|row| 2 * row),
        write_rows: list(&|row| 2 * (rows + row)),
        taken: list(&|row| row),
    }
}

/// Fills the bank and the kept transitions of every row; what is not kept is NaN. Returns the transitions of each row.
fn fill(case: &mut Case, kept_of: &dyn Fn(usize) -> usize) -> Vec<Vec<Vec<f32>>> {
    let mut random = noise(u32::try_from(case.step_rows).unwrap());
    let bank: Vec<f32> = std::iter::repeat_with(&mut random).take(4096).collect();
    floats(&mut case.buffers.bank, bank);
    case.staging().as_f32_mut().unwrap().fill(f32::NAN);
    let checkpoints = case.spec.checkpoints.clone().unwrap();
    let (count, width, rows) = (checkpoints.count, checkpoints.width, case.step_rows);
    let sections = sections(&case.spec);
    let mut all = Vec::new();
    for row in 0..rows {
        let mut transitions = Vec::new();
        for t in 0..kept_of(row) {
            let mut transition = Vec::new();
            let mut start = row * count * width;
            for (section, extent) in sections.iter().enumerate() {
                let decay = sections.len() > 1 && section == 0;
                let value = || if decay { random().abs() } else { random() };
                let part: Vec<f32> = std::iter::repeat_with(value).take(*extent).collect();
                let at = start + t * extent;
                case.buffers
                    .checkpoints
                    .as_mut()
                    .unwrap()
                    .as_f32_mut()
                    .unwrap()[at..at + extent]
                    .copy_from_slice(&part);
                transition.extend(part);
                start += count * extent;
            }
            transitions.push(transition);
        }
        all.push(transitions);
    }
    all
}

/// Elements of the parts of a transition: all of a convolution's, or decays, keys and deltas.
fn sections(spec: &FixedSpec) -> Vec<usize> {
    let width = spec.checkpoints.as_ref().unwrap().width;
    match *spec.row_shape.as_slice() {
        [values, value_dim, key_dim] => {
            let (keys, deltas) = (spec.key_heads.unwrap() * key_dim, values * value_dim);
            vec![width - keys - deltas, keys, deltas]
        }
        _ => vec![width],
    }
}

/// The recurrence in double precision.
fn recurrent(spec: &FixedSpec, before: &[f32], transitions: &[Vec<f32>]) -> Vec<f64> {
    let &[values, value_dim, key_dim] = spec.row_shape.as_slice() else {
        panic!("three axes")
    };
    let keys = spec.key_heads.unwrap();
    let [decays, key_section, _] = sections(spec)[..] else {
        panic!("three parts")
    };
    let mut state: Vec<f64> = before.iter().copied().map(f64::from).collect();
    for transition in transitions {
        for (at, s) in state.iter_mut().enumerate() {
            let (h, v, i) = (
                at / key_dim / value_dim,
                at / key_dim % value_dim,
                at % key_dim,
            );
            let decay = if decays == values { h } else { h * key_dim + i };
            let key = decays + h * keys / values * key_dim + i;
            let delta = decays + key_section + h * value_dim + v;
            let of = |at: usize| f64::from(transition[at]);
            *s = *s * of(decay) + of(key) * of(delta);
        }
    }
    state
}

#[test]
fn every_kept_length_is_committed_in_one_run() {
    let mut worst = 0.0f64;
    for (name, spec) in [
        ("delta-1", delta(2, [4, 3, 2], 1)),
        ("delta-3", delta(2, [4, 3, 2], 3)),
        ("delta-8", delta(2, [4, 3, 2], 8)),
        ("delta-3-per-key", per_key(delta(2, [4, 3, 2], 3))),
        ("delta-8-per-key", per_key(delta(2, [4, 3, 2], 8))),
    ] {
        let count = spec.checkpoints.as_ref().unwrap().count;
        let rows = every_length(count);
        let mut case = Case::new(name, by_rows(spec), 4 * (count + 1) + 1, count + 1);
        let transitions = fill(&mut case, &|row| row);
        let before = case.bank();
        case.run(&rows).unwrap();
        let row_bytes = before.len() / (4 * (count + 1) + 1);
        let row = |bank: &[u8], row: usize| bank[row * row_bytes..(row + 1) * row_bytes].to_vec();
        let after = case.bank();
        for index in 0..4 * (count + 1) + 1 {
            let written = index % 2 == 0 && index >= 2 * (count + 1) && index < 4 * (count + 1);
            if !written {
                assert_eq!(
                    row(&after, index),
                    row(&before, index),
                    "{name}: row {index}"
                );
                continue;
            }
            let batch = index / 2 - (count + 1);
            let source = case.buffers.bank.row_f32(2 * batch).unwrap();
            let expected = recurrent(&case.spec, source, &transitions[batch]);
            let found = case.buffers.bank.row_f32(index).unwrap();
            for (found, expected) in found.iter().zip(expected) {
                worst = worst.max((f64::from(*found) - expected).abs());
                assert!(!found.is_nan(), "{name}: {batch} kept");
            }
        }
    }
    println!("largest difference {worst:e}");
    assert!(worst <= 1e-6, "{worst:e}");
}

/// Elements of `size` bytes: the last `history` of those before and `kept` of those that follow.
fn appended(
    before: &[u8],
    values: &[u8],
    (channels, kept): (usize, usize),
    size: usize,
) -> Vec<u8> {
    let history = before.len() / channels / size;
    let mut after = Vec::new();
    for channel in 0..channels {
        let past = &before[channel * history * size..(channel + 1) * history * size];
        let new = (0..kept).map(|t| &values[(t * channels + channel) * size..][..size]);
        let all: Vec<u8> = [past.to_vec(), new.flatten().copied().collect()].concat();
        after.extend(&all[all.len() - history * size..]);
    }
    after
}

#[test]
fn samples_are_moved_bit_for_bit_whatever_their_type() {
    for (name, element, history) in [
        ("conv-8", ElementType::F32, 3),
        ("conv-8-kernel-2", ElementType::F32, 1),
        ("conv-8-float16", ElementType::F16, 3),
        ("conv-8-bfloat16", ElementType::Bf16, 3),
    ] {
        let mut spec = by_rows(conv([3, history], 8));
        spec.element = element;
        let mut case = Case::new(name, spec, 37, 9);
        let rows = every_length(8);
        let before = case.bank();
        let values = case.staging().as_bytes().unwrap().to_vec();
        case.run(&rows).unwrap();
        let mut expected = before.clone();
        let size = element.size();
        let (row, captured) = (3 * history * size, 8 * 3 * size);
        for batch in 0..9 {
            let (read, write) = (2 * batch, 2 * (9 + batch));
            let values = &values[batch * captured..(batch + 1) * captured];
            let after = appended(
                &before[read * row..(read + 1) * row],
                values,
                (3, batch),
                size,
            );
            expected[write * row..(write + 1) * row].copy_from_slice(&after);
        }
        assert!(case.bank() == expected, "{name}");
    }
}

#[test]
fn slots_are_copied_bit_for_bit() {
    let left = CheckpointAlignment::Left;
    let mut history = by_rows(tensor(StateOperator::TokenHistory, &[3], 8));
    history.element = ElementType::I64;
    for (name, spec, slot_leads) in [
        ("series-conv-8", series(conv([3, 3], 8), left), true),
        ("series-delta-8", series(delta(2, [4, 3, 2], 8), left), true),
        ("history-8", history, false),
    ] {
        let mut case = Case::new(name, spec, 37, 9);
        let mut rows = every_length(8);
        rows.taken
            .iter_mut()
            .for_each(|slot| *slot = (*slot * 3) % 8);
        let before = case.bank();
        let slots = case.staging().as_bytes().unwrap().to_vec();
        case.run(&rows).unwrap();
        let row = before.len() / 37;
        let mut expected = before;
        for batch in 0..9 {
            let (slot, write) = (batch * 3 % 8, 2 * (9 + batch));
            let at = if slot_leads {
                slot * 9 + batch
            } else {
                batch * 8 + slot
            };
            expected[write * row..(write + 1) * row]
                .copy_from_slice(&slots[at * row..(at + 1) * row]);
        }
        assert!(case.bank() == expected, "{name}");
    }
}

#[test]
fn the_bank_is_not_copied() {
    let rows = (64 << 20) / (24 * 4);
    let mut case = Case::new("delta-8", by_rows(delta(2, [4, 3, 2], 8)), rows, 1);
    let mut other = vec![0u8; case.bank().len()];
    let (mut commit, mut copy) = (Duration::MAX, Duration::MAX);
    for kept in 0..9 {
        let start = Instant::now();
        case.run(&one(kept)).unwrap();
        commit = commit.min(start.elapsed());
        let start = Instant::now();
        other.copy_from_slice(case.buffers.bank.as_bytes().unwrap());
        copy = copy.min(start.elapsed());
    }
    println!("commit of one row {commit:?}, copy of the bank {copy:?}");
    assert!(commit * 4 < copy, "{commit:?} beside {copy:?}");
}

#[test]
fn what_cannot_be_committed_is_refused_and_the_next_run_works() {
    let spec = by_rows(conv([3, 3], 8));
    let mut case = Case::new("conv-8", spec.clone(), 4, 1);
    for (rows, word) in [
        (
            CommitRows {
                read_rows: vec![99],
                ..one(1)
            },
            "99",
        ),
        (
            CommitRows {
                batch_rows: vec![1],
                ..one(1)
            },
            "1",
        ),
        (one(99), "99"),
    ] {
        let before = case.bank();
        let error = case.run(&rows).unwrap_err();
        assert!(matches!(error, RunError::Failed { .. }));
        let message = error.to_string();
        assert!(
            message.starts_with("conv-8.onnx: ") && message.contains(word),
            "{message}"
        );
        assert!(case.bank() == before);
    }
    case.run(&one(1)).unwrap();

    case.step_rows = 2;
    let error = case.run(&one(1)).unwrap_err().to_string();
    assert!(error.contains("smaller than"), "{error}");
    let mut none = CommitGraphs::new(1);
    assert!(!none.has(0) && !none.has(1) && case.graphs.has(0));
    let error = none
        .run((0, &spec), 1, &one(1), &mut case.buffers)
        .unwrap_err();
    assert_eq!(error.to_string(), "past: no graph commits this state");
}
