//! Against the definition in float64, against ONNX Runtime's operator, and against itself.

#![allow(
    clippy::cast_possible_truncation,
    reason = "cases are small and references are rounded to float32 on purpose"
)]

use proptest::prelude::*;

use super::super::batch::{BankRows, Batch, Captures, Checkpoints};
use super::super::isa::Level;
use super::super::memory::Cells;
use super::super::parallel::Parallel;
use super::super::testing::one_node::{
    Attr, Bound, Feed, Found, OneNode, absent, floats, ints, symbols,
};
use super::super::testing::{Random, Rows, assert_close, assert_same, cumulative};
use super::super::testing::{SERIAL, Threads};
use super::kernel::{Activation, Step, Taps, replay, run};
use super::reference;

/// A node and the data it is run on.
#[derive(Clone, Debug)]
struct Case {
    rows: Rows,
    channels: usize,
    width: usize,
    silu: bool,
    form: &'static str,
    slots: usize,
    x: Vec<f32>,
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    bank: Vec<f32>,
}

impl Case {
    fn random(
        seed: u64,
        lengths: &[usize],
        (channels, width): (usize, usize),
        (form, slots): (&'static str, usize),
    ) -> Self {
        let mut random = Random::new(seed);
        let fits = |row: usize| form != "state" || lengths[row] <= slots;
        let rows = Rows::random(&mut random, lengths, |random, row| {
            if fits(row) {
                random.below(slots + 1)
            } else {
                0
            }
        });
        let silu = random.below(2) == 0;
        let biased = random.below(2) == 0;
        Self {
            x: random.floats(rows.tokens() * channels, 2.0),
            weight: random.floats(channels * width, 1.0),
            bias: biased.then(|| random.floats(channels, 0.5)),
            bank: rows.bank(&mut random, channels * (width - 1), 2.0),
            rows,
            channels,
            width,
            silu,
            form,
            slots,
        }
    }

    fn node(&self) -> OneNode {
        let activation = if self.silu { "silu" } else { "none" };
        OneNode::new("pawl", "CausalConv")
            .with("activation", Attr::Text(activation))
            .with("checkpoint_form", Attr::Text(self.form))
            .with("checkpoint_count", Attr::Int(self.slots as i64))
            .giving(if self.form == "none" {
                &["y", "state_out"]
            } else {
                &["y", "state_out", "slots"]
            })
    }

    fn feeds(&self) -> Vec<Feed> {
        let (rows, count) = (&self.rows, self.rows.lengths.len());
        let bias = self.bias.as_ref();
        vec![
            floats("x", &[rows.tokens(), self.channels], &self.x),
            floats("weight", &[self.channels, self.width], &self.weight),
            bias.map_or_else(absent, |bias| floats("bias", &[self.channels], bias)),
            floats(
                "state",
                &[rows.bank_rows, self.channels, self.width - 1],
                &self.bank,
            ),
            ints("cumulative", &[count + 1], &cumulative(&rows.lengths)),
            ints("read", &[count], &rows.read),
            ints("write", &[count], &rows.write),
            ints("counts", &[count], &rows.counts),
        ]
    }

    fn run(&self) -> Vec<Found> {
        self.node().run(&self.feeds()).unwrap()
    }

    /// Runs the kernel without ONNX Runtime: outputs, bank, slots.
    fn run_kernel(&self, level: Level, threads: &dyn Parallel) -> [Vec<f32>; 3] {
        let rows = &self.rows;
        let checkpoints = Checkpoints::parse(Some(self.form), Some(self.slots as i64)).unwrap();
        let (mut batch, mut banks, mut captures) =
            (Batch::default(), BankRows::default(), Captures::default());
        batch
            .read(&cumulative(&rows.lengths), rows.tokens())
            .unwrap();
        banks.read(&rows.read, &rows.write, rows.bank_rows).unwrap();
        captures
            .read(Some(&rows.counts), &batch, checkpoints)
            .unwrap();
        let mut taps = Taps::default();
        taps.pack(&self.weight, self.channels, self.width);
        let mut y = vec![f32::NAN; self.x.len()];
        let mut bank = self.bank.clone();
        let mut slots = vec![0.0; self.slots * rows.lengths.len() * self.slot_len()];
        let step = Step {
            x: &self.x,
            taps: &taps,
            bias: self.bias.as_deref(),
            activation: if self.silu {
                Activation::Silu
            } else {
                Activation::None
            },
            batch: &batch,
            rows: &banks,
            bank: Cells::new(&mut bank),
            y: Cells::new(&mut y),
            captures: &captures,
            checkpoints,
            slots: captures.any().then(|| Cells::new(&mut slots)),
        };
        run(&step, level, threads).unwrap();
        [y, bank, slots]
    }

    /// The first `len` tokens of a row.
    fn head(&self, row: usize, len: usize) -> Self {
        let start = self.rows.start(row) * self.channels;
        let mut alone = self.clone();
        alone.rows = self.rows.only(row);
        alone.rows.lengths[0] = len;
        alone.rows.counts[0] = alone.rows.counts[0].min(len as i32);
        alone.x = self.x[start..start + len * self.channels].to_vec();
        alone
    }

    fn only(&self, row: usize) -> Self {
        self.head(row, self.rows.lengths[row])
    }

    /// The state after the first `len` tokens of a row.
    fn state_after(&self, row: usize, len: usize) -> Vec<f32> {
        let mut alone = self.head(row, len);
        alone.rows.write[0] = if alone.rows.read[0] == 0 { 1 } else { 0 };
        let [_, bank, _] = alone.run_kernel(Level::best(), &SERIAL);
        let start = alone.rows.write[0] as usize * self.state_len();
        bank[start..start + self.state_len()].to_vec()
    }

    /// The captured slot of a token.
    fn slot<'s>(&self, slots: &'s [f32], row: usize, t: usize) -> &'s [f32] {
        &slots[(t * self.rows.lengths.len() + row) * self.slot_len()..][..self.slot_len()]
    }

    fn state_len(&self) -> usize {
        self.channels * (self.width - 1)
    }

    /// Elements of one slot of one row.
    fn slot_len(&self) -> usize {
        if self.form == "state" {
            self.state_len()
        } else {
            self.channels
        }
    }

    fn reference(&self, row: usize) -> reference::Row {
        let alone = self.only(row);
        let state = self.rows.source(&self.bank, row);
        let weight = (&self.weight[..], self.width);
        reference::row(&alone.x, weight, self.bias.as_deref(), self.silu, state)
    }

    /// Compares everything a run gives with the definition.
    fn check(&self, found: &[Found]) {
        let (y, bank) = (&found[0].1, &found[1].1);
        let mut expected_bank: Vec<f64> = self.bank.iter().map(|&s| s.into()).collect();
        let capturing = self.rows.counts.iter().any(|&count| count > 0);
        let rows = self.rows.lengths.len();
        if self.form != "none" {
            let slots = if capturing { self.slots } else { 0 };
            assert_eq!(found[2].0[..2], [slots, rows]);
        }
        for row in 0..rows {
            let reference = self.reference(row);
            let start = self.rows.start(row) * self.channels;
            let y = &y[start..start + reference.y.len()];
            assert_close("y", y, &reference.y, 2e-6);
            if let Ok(target) = usize::try_from(self.rows.write[row]) {
                let state = &reference.states[self.rows.lengths[row] - 1];
                expected_bank[target * state.len()..][..state.len()].copy_from_slice(state);
            }
            for t in 0..self.rows.counts[row] as usize {
                let slot = self.slot(&found[2].1, row, t);
                match self.form {
                    "state" => assert_close("slot", slot, &reference.states[t], 0.0),
                    _ => assert_same(
                        "slot",
                        slot,
                        &self.x[start + t * self.channels..][..self.channels],
                    ),
                }
            }
        }
        assert_close("bank", bank, &expected_bank, 0.0);
    }
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![1..9usize, Just(15), Just(16), Just(17), Just(63), Just(65)];
    prop::collection::vec(length, 1..5)
}

fn forms() -> impl Strategy<Value = (&'static str, usize)> {
    prop_oneof![
        Just(("none", 0)),
        (1..9usize).prop_map(|w| ("update", w)),
        (1..9usize).prop_map(|w| ("state", w))
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let sizes = (1..300usize, 2..6usize);
    (any::<u64>(), lengths(), sizes, forms())
        .prop_map(|(seed, lengths, sizes, form)| Case::random(seed, &lengths, sizes, form))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equals_the_definition(case in cases()) {
        case.check(&case.run());
    }

    #[test]
    fn every_instruction_set_equals_the_definition(case in cases()) {
        let shape = |slots: usize| vec![slots, case.rows.lengths.len()];
        for level in Level::available() {
            let capturing = case.rows.counts.iter().any(|&count| count > 0);
            let slots = if capturing { case.slots } else { 0 };
            let [y, bank, found] = case.run_kernel(level, &SERIAL);
            case.check(&[(vec![], y), (vec![], bank), (shape(slots), found)]);
        }
    }

    #[test]
    fn equals_the_operator_of_onnx_runtime(case in cases()) {
        let rows = &case.rows;
        let count = rows.lengths.len();
        let states: Vec<f32> =
            (0..count).flat_map(|row| rows.source(&case.bank, row).to_vec()).collect();
        let update = if case.form == "update" { case.slots } else { 0 };
        let mut feeds = case.feeds();
        let (x, bias, cumulative) = (feeds[0].clone(), feeds[2].clone(), feeds[4].clone());
        let weight = floats("weight", &[case.channels, 1, case.width], &case.weight);
        let state = floats("state", &[count, case.channels, case.width - 1], &states);
        let counts = if update > 0 { feeds.remove(7) } else { absent() };
        let node = OneNode::new("com.microsoft", "VarlenCausalConvWithState")
            .with("activation", Attr::Text(if case.silu { "silu" } else { "none" }))
            .with("state_update_capacity", Attr::Int(update as i64))
            .giving(if update > 0 { &["y", "state_out", "slots"] } else { &["y", "state_out"] });
        let theirs = node.run(&[x, weight, cumulative, bias, state, counts]).unwrap();
        let ours = case.run();
        assert_close("y", &ours[0].1, &theirs[0].1, 5e-6);
        for row in 0..count {
            if let Ok(target) = usize::try_from(rows.write[row]) {
                let len = case.state_len();
                let state = &ours[1].1[target * len..][..len];
                assert_same("state", state, &theirs[1].1[row * len..][..len]);
            }
            for t in (0..rows.counts[row] as usize).filter(|_| update > 0) {
                let theirs = &theirs[2].1[(row * update + t) * case.channels..][..case.channels];
                assert_same("slot", case.slot(&ours[2].1, row, t), theirs);
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_neighbours_or_on_threads(case in cases()) {
        let [y, bank, slots] = case.run_kernel(Level::best(), &Threads(3));
        for row in 0..case.rows.lengths.len() {
            let alone = case.only(row);
            let [own_y, own_bank, own_slots] = alone.run_kernel(Level::best(), &SERIAL);
            let start = case.rows.start(row) * case.channels;
            assert_same("y", &y[start..start + own_y.len()], &own_y);
            if let Ok(target) = usize::try_from(case.rows.write[row]) {
                let range = target * case.state_len()..(target + 1) * case.state_len();
                assert_same("state", &bank[range.clone()], &own_bank[range]);
            }
            for t in 0..case.rows.counts[row] as usize {
                assert_same("slot", case.slot(&slots, row, t), alone.slot(&own_slots, 0, t));
            }
        }
    }

    #[test]
    fn checkpoints_are_the_states_of_shorter_rows(case in cases()) {
        let [_, _, slots] = case.run_kernel(Level::best(), &SERIAL);
        for row in 0..case.rows.lengths.len() {
            for t in 0..case.rows.counts[row] as usize {
                let expected = case.state_after(row, t + 1);
                if case.form == "state" {
                    assert_same("slot", case.slot(&slots, row, t), &expected);
                    continue;
                }
                let mut replayed = vec![f32::NAN; case.state_len()];
                let source = case.rows.source(&case.bank, row);
                replay(source, case.channels, |t| case.slot(&slots, row, t), t + 1, &mut replayed);
                assert_same("replayed", &replayed, &expected);
            }
        }
    }

    #[test]
    fn works_in_place(case in cases()) {
        let expected = case.run();
        let mut feeds = case.feeds();
        feeds[1] = feeds[1].clone().constant();
        let mut session = case.node().open(&feeds).unwrap();
        let mut outputs = [("y", vec![case.rows.tokens(), case.channels], vec![0.0; case.x.len()])];
        Bound::new(&mut session, &mut feeds, &[("state", "state_out")], &mut outputs)
            .unwrap()
            .run()
            .unwrap();
        assert_same("y", &outputs[0].2, &expected[0].1);
        assert_same("bank", feeds[3].floats(), &expected[1].1);
    }
}

#[test]
fn replaying_nothing_copies() {
    let mut into = vec![0.0; 6];
    replay(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, |_| &[], 0, &mut into);
    assert_eq!(into, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

/// The vector of the convolution in `replay`'s contract: 2 channels, 3 samples, 3 transitions.
#[test]
fn replay_appends_samples() {
    let samples: [&[f32]; 3] = [&[10.0, 11.0], &[20.0, 21.0], &[30.0, 31.0]];
    for (kept, expected) in [
        (1, [4.0, 4.0, 10.0, 4.0, 4.0, 11.0]),
        (2, [4.0, 10.0, 20.0, 4.0, 11.0, 21.0]),
        (3, [10.0, 20.0, 30.0, 11.0, 21.0, 31.0]),
    ] {
        let mut into = [0.0; 6];
        replay(&[4.0; 6], 2, |t| samples[t], kept, &mut into);
        assert_eq!(into, expected, "{kept} kept");
    }
}

/// Feeds a good case with one input replaced and returns the refusal. The bank must be untouched.
fn refusal(change: impl FnOnce(&mut Vec<Feed>)) -> String {
    let mut case = Case::random(7, &[2, 3], (8, 3), ("state", 4));
    case.rows.write = vec![0, -1];
    case.rows.read = vec![1, 6];
    case.rows.counts = vec![2, 0];
    let mut feeds = case.feeds();
    change(&mut feeds);
    let before = feeds[3].floats().to_vec();
    let mut session = case.node().open(&feeds).unwrap();
    let mut outputs = [("y", vec![5, 8], vec![0.0; 40])];
    let result = Bound::new(
        &mut session,
        &mut feeds,
        &[("state", "state_out")],
        &mut outputs,
    )
    .unwrap()
    .run();
    assert_same("bank", feeds[3].floats(), &before);
    result.unwrap_err().to_string()
}

#[test]
fn bad_inputs_are_refused_before_anything_is_written() {
    type Change = fn(&mut Vec<Feed>);
    let cases: [(&str, Change); 14] = [
        ("cumulative_sequence_lengths", |f| {
            f[4] = ints("cumulative", &[3], &[0, 2, 6])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[4] = ints("cumulative", &[3], &[0, 2, 4])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[4] = ints("cumulative", &[3], &[1, 2, 5])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[4] = ints("cumulative", &[3], &[0, 5, 5])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[4] = ints("cumulative", &[3], &[0, -1, 5])
        }),
        ("`read_rows` of row 1", |f| {
            f[5] = ints("read", &[2], &[1, 7])
        }),
        ("`read_rows` of row 0", |f| {
            f[5] = ints("read", &[2], &[-1, 6])
        }),
        ("`read_rows` must have the shape", |f| {
            f[5] = ints("read", &[1], &[1])
        }),
        ("`write_rows` of row 0", |f| {
            f[6] = ints("write", &[2], &[6, -1])
        }),
        ("`write_rows` of row 1", |f| {
            f[6] = ints("write", &[2], &[0, -2])
        }),
        ("also by another row", |f| {
            f[6] = ints("write", &[2], &[0, 0])
        }),
        ("also read in this step", |f| {
            f[6] = ints("write", &[2], &[-1, 1])
        }),
        ("`capture_counts` of row 0", |f| {
            f[7] = ints("counts", &[2], &[3, 0])
        }),
        ("`capture_counts` of row 1", |f| {
            f[7] = ints("counts", &[2], &[0, -1])
        }),
    ];
    for (expected, change) in cases {
        let message = refusal(change);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
    let long = refusal(|f| {
        f[4] = ints("cumulative", &[2], &[0, 5]);
        f[5] = ints("read", &[1], &[1]);
        f[6] = ints("write", &[1], &[0]);
        f[7] = ints("counts", &[1], &[1]);
    });
    assert!(long.contains("tokens of a captured row"), "{long}");
    let shape = refusal(|f| f[3] = floats("state", &[7, 8, 3], &[0.0; 168]));
    assert!(
        shape.contains("`state` must have the shape [bank_rows, 8, 2]"),
        "{shape}"
    );
}

#[test]
fn bad_attributes_are_refused_when_the_session_opens() {
    let case = Case::random(7, &[2], (8, 3), ("none", 0));
    for (name, value) in [
        ("activation", Attr::Text("relu")),
        ("checkpoint_form", Attr::Text("delta")),
        ("checkpoint_count", Attr::Int(9)),
    ] {
        let mut node = case.node();
        node.attributes.retain(|attribute| attribute.0 != name);
        let error = node
            .with(name, value)
            .open(&case.feeds())
            .unwrap_err()
            .to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn outputs_have_inferred_shapes() {
    let case = Case::random(7, &[2], (8, 3), ("state", 4));
    let session = case.node().open(&case.feeds()).unwrap();
    let symbols: Vec<String> = session
        .outputs()
        .iter()
        .map(|o| format!("{:?}", symbols(o.dtype())))
        .collect();
    assert_eq!(
        symbols,
        [
            r#"["x.0", "x.1"]"#,
            r#"["state.0", "state.1", "state.2"]"#,
            r#"["checkpoint_slots_4", "read.0", "state.1", "state.2"]"#,
        ]
    );
}

/// Large enough for ONNX Runtime's pool to be used.
#[test]
fn threads_of_onnx_runtime_do_not_change_bits() {
    let case = Case::random(9, &[70, 1, 16, 5], (1000, 4), ("update", 8));
    let one = case.run();
    let two = case.node().threads(2).run(&case.feeds()).unwrap();
    assert_same("y", &two[0].1, &one[0].1);
    assert_same("bank", &two[1].1, &one[1].1);
}

#[test]
fn checkpoints_may_be_left_out() {
    let mut case = Case::random(7, &[2, 3], (8, 3), ("update", 4));
    case.rows.counts = vec![2, 3];
    let all = case.run();
    let some = case
        .node()
        .giving(&["y", "state_out"])
        .run(&case.feeds())
        .unwrap();
    assert_eq!(some, all[..2]);
    case.rows.counts = vec![0, 0];
    assert_eq!(case.run()[2].0, [0, 2, 8]);
    let uncounted = case.node().run(&case.feeds()[..7]).unwrap();
    assert_eq!(uncounted, case.run());
}

#[test]
fn a_step_of_no_rows_does_nothing() {
    let case = Case::random(7, &[], (8, 3), ("update", 4));
    let found = case.run();
    assert_eq!(found[0].0, [0, 8]);
    assert_eq!(found[1].1, case.bank);
}
