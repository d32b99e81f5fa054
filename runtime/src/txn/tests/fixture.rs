//! Small composites of odd geometry, and a stand-in for the graph that computes state token by token.

#[cfg(test)]
use crate::device::Distant;
use crate::device::{ElementType, HostDevice};
use crate::exec::StepInputs;
#[cfg(test)]
use crate::exec::commit::tests::commit_graphs;
use crate::ids::RequestId;
use crate::kv::KvPool;
use crate::model::FixedBuffers;
use crate::model::spec::{
    CheckpointSpec, FixedSpec, PagedBuffers, PagedNames, PagedSpec, StateSpec,
};
use crate::state::{RowBytes, StatePool, audit::audit};
use crate::txn::{Composite, Keep, Reserved, Step};
use genai_config_schema::{
    CheckpointAlignment, CheckpointForm, StateDecay, StateLayout, StateOperator,
};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// Geometry: Dk != Dv, Hv = 2 Hk, kernel 4.
pub(crate) const CHANNELS: usize = 3;
pub(crate) const HISTORY: usize = 3;
pub(crate) const VALUE_HEADS: usize = 4;
pub(crate) const KEY_HEADS: usize = 2;
pub(crate) const VALUE_DIM: usize = 3;
pub(crate) const KEY_DIM: usize = 2;
pub(crate) const BLOCK: usize = 4;
/// Rows of a step beyond the slots, for branches.
pub(crate) const SPARE_ROWS: usize = 5;

pub(crate) fn id(number: u64) -> RequestId {
    RequestId(number)
}

/// How the checkpoints of the test model look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Absent,
    State(usize),
    Update(usize),
    /// As `Update`, on a device that the host cannot touch: operators meet state by rows, and graphs commit. There are
    /// some for 1, 3 and 8 slots.
    Distant(usize),
}

fn checkpoints(form: Form, width: usize, row: usize, right: bool) -> Option<CheckpointSpec> {
    let alignment = if right {
        CheckpointAlignment::Right
    } else {
        CheckpointAlignment::Left
    };
    let output = "checkpoints".to_owned();
    match form {
        Form::Absent => None,
        Form::State(count) => Some(CheckpointSpec {
            output,
            count,
            form: CheckpointForm::State,
            alignment,
            width: row,
        }),
        Form::Update(count) | Form::Distant(count) => Some(CheckpointSpec {
            output,
            count,
            form: CheckpointForm::Update,
            alignment: CheckpointAlignment::Left,
            width,
        }),
    }
}

pub(crate) fn state_spec(form: Form) -> StateSpec {
    let tensor = |operator, name: &str, row_shape: Vec<usize>, key_heads, checkpoints| FixedSpec {
        layer: 0,
        operator,
        layout: match form {
            Form::Distant(_) => StateLayout::Rows,
            Form::Absent | Form::State(_) | Form::Update(_) => StateLayout::Bank,
        },
        element: ElementType::F32,
        fresh: 0,
        input: name.to_owned(),
        output: format!("present.{name}"),
        row_shape,
        key_heads,
        decay: StateDecay::PerHead,
        checkpoints,
    };
    let conv_row = CHANNELS * HISTORY;
    let delta_row = VALUE_HEADS * VALUE_DIM * KEY_DIM;
    let delta_width = VALUE_HEADS + KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM;
    StateSpec {
        paged: None,
        fixed: vec![
            tensor(
                StateOperator::CausalConv,
                "conv",
                vec![CHANNELS, HISTORY],
                None,
                checkpoints(form, CHANNELS, conv_row, false),
            ),
            tensor(
                StateOperator::GatedDeltaNet,
                "delta",
                vec![VALUE_HEADS, VALUE_DIM, KEY_DIM],
                Some(KEY_HEADS),
                checkpoints(form, delta_width, delta_row, true),
            ),
        ],
        captures_in_mixed_steps: true,
    }
}

pub(crate) fn paged_spec() -> PagedSpec {
    let names = PagedNames {
        layer: 1,
        key_input: "key".to_owned(),
        key_output: "present.key".to_owned(),
        value_input: "value".to_owned(),
        value_output: "present.value".to_owned(),
    };
    PagedSpec {
        layers: vec![names],
        block_size: BLOCK,
        kv_heads: 1,
        head_dim: 1,
    }
}

pub(crate) fn composite(form: Form, slots: usize, blocks: usize, head: bool) -> Composite {
    let device = HostDevice;
    let spec = state_spec(form);
    let state = match form {
        #[cfg(not(test))]
        Form::Distant(_) => panic!("its graphs are made for tests only"),
        #[cfg(test)]
        Form::Distant(count) => {
            let names = ["conv", "delta"].map(|name| format!("{name}-{count}"));
            let graphs = commit_graphs(&spec.fixed, &names.each_ref().map(String::as_str));
            StatePool::with_commit(&spec, slots, slots + SPARE_ROWS, (&Distant, Some(graphs)))
        }
        Form::Absent | Form::State(_) | Form::Update(_) => {
            StatePool::new(&spec, slots, slots + SPARE_ROWS, &device)
        }
    };
    let state = state.unwrap();
    let kv = KvPool::new(&paged_spec(), blocks, &device).unwrap();
    let head = head.then(|| KvPool::new(&paged_spec(), blocks, &device).unwrap());
    Composite::new(slots, Some(state), Some(kv), head)
}

pub(crate) fn assert_sound(composite: &Composite) {
    assert_eq!(audit(&composite.snapshot()), Vec::new());
}

/// What the naive model keeps of a request: every token, in full.
pub(crate) type History = Vec<u32>;

/// The fixed state after `tokens`, computed token by token: convolution row, recurrent row.
pub(crate) fn sequential(tokens: &[u32]) -> (Vec<f32>, Vec<f32>) {
    let mut conv = vec![0.0; CHANNELS * HISTORY];
    let mut delta = vec![0.0; VALUE_HEADS * VALUE_DIM * KEY_DIM];
    for token in tokens {
        advance(&mut conv, &mut delta, *token);
    }
    (conv, delta)
}

/// One token of the test model's operators. Returns its two transitions.
pub(crate) fn advance(conv: &mut [f32], delta: &mut [f32], token: u32) -> (Vec<f32>, Vec<f32>) {
    let values: Vec<f32> = (0..CHANNELS).map(|c| noise(token, c)).collect();
    for c in 0..CHANNELS {
        for p in 0..HISTORY {
            conv[c * HISTORY + p] = if p + 1 < HISTORY {
                conv[c * HISTORY + p + 1]
            } else {
                values[c]
            };
        }
    }
    let decay: Vec<f32> = (0..VALUE_HEADS)
        .map(|h| 0.5 + 0.4 * noise(token, 10 + h).abs())
        .collect();
    let key: Vec<f32> = (0..KEY_HEADS * KEY_DIM)
        .map(|i| noise(token, 20 + i))
        .collect();
    // Deltas depend on the state, as those of the real operator do.
    let mut deltas = Vec::new();
    for h in 0..VALUE_HEADS {
        for v in 0..VALUE_DIM {
            let read = delta[(h * VALUE_DIM + v) * KEY_DIM] * decay[h];
            deltas.push(noise(token, 40 + h * VALUE_DIM + v) - 0.1 * read);
        }
    }
    for h in 0..VALUE_HEADS {
        for v in 0..VALUE_DIM {
            for i in 0..KEY_DIM {
                let s = &mut delta[(h * VALUE_DIM + v) * KEY_DIM + i];
                *s *= decay[h];
                *s += key[(h * KEY_HEADS / VALUE_HEADS) * KEY_DIM + i] * deltas[h * VALUE_DIM + v];
            }
        }
    }
    let transition = [decay, key, deltas].concat();
    (values, transition)
}

/// A value in (-1, 1) that depends on token and index only.
pub(crate) fn noise(token: u32, index: usize) -> f32 {
    let mixed =
        (u64::from(token) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (index as u64 + 7) << 17;
    let mixed = mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 40;
    mixed as f32 / 8_388_608.0 - 1.0
}

/// Runs the test model over a reserved step: reads `read_rows`, writes `write_rows`, checkpoints and cache positions.
/// Returns every row's history as read back from the cache, the new tokens included.
pub(crate) fn run(step: &mut Step<'_, Reserved>, form: Form, tokens: &[Vec<u32>]) -> Vec<History> {
    let mut inputs = StepInputs::default();
    step.fill(&mut inputs);
    let mut histories = Vec::new();
    // As operators do before they read.
    for buffers in step.buffers().fixed {
        buffers.settle();
    }
    for (row, tokens) in tokens.iter().enumerate() {
        let buffers = step.buffers();
        if !buffers.fixed.is_empty() {
            run_fixed(buffers.fixed, form, &inputs, row, tokens);
        }
        histories.push(run_paged(buffers.paged, &inputs, row, tokens));
    }
    histories
}

/// The fixed-state operators over one row. Returns the two state rows after each token.
pub(crate) fn run_fixed(
    fixed: &mut [FixedBuffers],
    form: Form,
    inputs: &StepInputs,
    row: usize,
    tokens: &[u32],
) -> Vec<[Vec<f32>; 2]> {
    let rows = inputs.past.len();
    let captured = usize::try_from(inputs.capture_counts[row]).unwrap();
    let read = usize::try_from(inputs.read_rows[row]).unwrap();
    let write = usize::try_from(inputs.write_rows[row]).ok();
    assert_ne!(
        Some(read),
        write,
        "a row is written elsewhere than it is read"
    );
    let [conv, delta] = fixed else {
        panic!("two tensors")
    };
    let mut conv_row = conv.bank.row_f32(read).unwrap().to_vec();
    let mut delta_row = delta.bank.row_f32(read).unwrap().to_vec();
    let mut states = Vec::with_capacity(tokens.len());
    for (t, token) in tokens.iter().enumerate() {
        let (value, transition) = advance(&mut conv_row, &mut delta_row, *token);
        states.push([conv_row.clone(), delta_row.clone()]);
        if t >= captured {
            continue;
        }
        let n = tokens.len();
        let (left, right, parts) = match form {
            Form::Absent => panic!("nothing to capture into"),
            Form::State(w) => (t, w - n + t, [conv_row.clone(), delta_row.clone()]),
            Form::Update(_) => (t, t, [value, transition]),
            Form::Distant(count) => {
                capture_by_rows(
                    [&mut *conv, &mut *delta],
                    (count, row, t),
                    &value,
                    &transition,
                );
                continue;
            }
        };
        for ((buffers, part), slot) in [&mut *conv, &mut *delta]
            .into_iter()
            .zip(parts)
            .zip([left, right])
        {
            let start = (slot * rows + row) * part.len();
            let staging = buffers.checkpoints.as_mut().unwrap().as_f32_mut().unwrap();
            staging[start..start + part.len()].copy_from_slice(&part);
        }
    }
    // A branch writes no final state.
    if let Some(write) = write {
        conv.bank.write_row_f32(write, &conv_row).unwrap();
        delta.bank.write_row_f32(write, &delta_row).unwrap();
    }
    states
}

/// Captures token `t` of a row as operators do that meet state by rows: values one after the other, of recurrent
/// transitions all decays, all keys, all deltas.
fn capture_by_rows(
    [conv, delta]: [&mut FixedBuffers; 2],
    (count, row, t): (usize, usize, usize),
    value: &[f32],
    transition: &[f32],
) {
    let staging = |buffers: &mut FixedBuffers, start: usize, part: &[f32]| {
        let staging = buffers.checkpoints.as_mut().unwrap().as_f32_mut().unwrap();
        staging[start..start + part.len()].copy_from_slice(part);
    };
    staging(conv, (row * count + t) * CHANNELS, value);
    let mut section = row * count * transition.len();
    let (decay, rest) = transition.split_at(VALUE_HEADS);
    let (key, deltas) = rest.split_at(KEY_HEADS * KEY_DIM);
    for part in [decay, key, deltas] {
        staging(delta, section + t * part.len(), part);
        section += count * part.len();
    }
}

/// A paged layer over one row: keys are tokens. Returns the history that the row reads, its own tokens included.
pub(crate) fn run_paged(
    paged: &mut [PagedBuffers],
    inputs: &StepInputs,
    row: usize,
    tokens: &[u32],
) -> History {
    let past = usize::try_from(inputs.past[row]).unwrap();
    let table = &inputs.block_table[row * inputs.max_blocks..][..inputs.max_blocks];
    let slot = |position: usize| {
        let block = usize::try_from(table[position / BLOCK]).expect("a mapped block");
        block * BLOCK + position % BLOCK
    };
    let [paged] = paged else { panic!("one layer") };
    let key = paged.key.as_f32_mut().unwrap();
    for (t, token) in tokens.iter().enumerate() {
        key[slot(past + t)] = *token as f32;
    }
    (0..past + tokens.len())
        .map(|position| number(key[slot(position)]))
        .collect()
}

pub(crate) fn keep(tokens: usize) -> Keep {
    Keep {
        row: 0,
        tokens: NonZeroUsize::new(tokens).unwrap(),
        head_tokens: 0,
    }
}

pub(crate) fn bits_of(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A token as it was stored: whole and small enough to be exact.
#[expect(
    clippy::cast_possible_truncation,
    reason = "tokens are small whole numbers"
)]
fn number(value: f32) -> u32 {
    assert_eq!(value.fract(), 0.0);
    value as u32
}

/// Every byte of committed fixed state, by request.
pub(crate) fn bits(composite: &Composite) -> BTreeMap<RequestId, Vec<Vec<u32>>> {
    let rows = |request| {
        composite
            .committed_rows(request)
            .unwrap()
            .into_iter()
            .map(|row| bits_of(&row.numbers()))
            .collect()
    };
    composite
        .residents()
        .map(|request| (request, rows(request)))
        .collect()
}

/// Compares committed fixed state with the naive model: convolution bit for bit, recurrence to 1e-6, because replay may
/// fuse products and sums where the model rounds twice.
pub(crate) fn assert_rows(rows: &[RowBytes<'_>], tokens: &[u32]) {
    let (conv, delta) = sequential(tokens);
    let [found_conv, found_delta] = rows else {
        panic!("two tensors")
    };
    let (found_conv, found_delta) = (found_conv.numbers(), found_delta.numbers());
    assert_eq!(
        bits_of(&found_conv),
        bits_of(&conv),
        "convolution after {tokens:?}"
    );
    assert_eq!(found_delta.len(), delta.len());
    for (found, expected) in found_delta.iter().zip(&delta) {
        let near = (found - expected).abs() <= 1e-6;
        assert!(
            near,
            "recurrence after {tokens:?}: {found} is not {expected}"
        );
    }
}
