//! Against the definition in float64, against ONNX Runtime's operators, and against itself.

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
use super::super::testing::{Random, Rows, SERIAL, Threads, assert_close, assert_same, cumulative};
use super::kernel::{Step, run};
use super::layout::Heads;
use super::prepare::{Inputs, Prepared};
use super::reference;
use super::replay::replay;

/// A node and the data it is run on.
#[derive(Clone, Debug)]
struct Case {
    rows: Rows,
    heads: Heads,
    form: &'static str,
    slots: usize,
    qkv: Vec<f32>,
    decay: Vec<f32>,
    beta: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
    bank: Vec<f32>,
}

impl Case {
    fn random(
        seed: u64,
        lengths: &[usize],
        heads: Heads,
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
        let tokens = rows.tokens();
        Self {
            qkv: random.floats(tokens * heads.packed(), 1.0),
            decay: random.floats(tokens * heads.values, 3.0),
            beta: random.floats(tokens * heads.values, 3.0),
            a_log: random.floats(heads.values, 2.0),
            dt_bias: random.floats(heads.values, 1.0),
            bank: rows.bank(&mut random, heads.state(), 1.0),
            rows,
            heads,
            form,
            slots,
        }
    }

    fn node(&self) -> OneNode {
        OneNode::new("pawl", "GatedDeltaNet")
            .with("key_heads", Attr::Int(self.heads.keys as i64))
            .with("checkpoint_form", Attr::Text(self.form))
            .with("checkpoint_count", Attr::Int(self.slots as i64))
            .giving(if self.form == "none" {
                &["output", "state_out"]
            } else {
                &["output", "state_out", "slots"]
            })
    }

    fn feeds(&self) -> Vec<Feed> {
        let (rows, count) = (&self.rows, self.rows.lengths.len());
        let Heads {
            values,
            value_dim,
            key_dim,
            ..
        } = self.heads;
        let per_token = [rows.tokens(), values];
        vec![
            floats("qkv", &[rows.tokens(), self.heads.packed()], &self.qkv),
            floats("decay", &per_token, &self.decay),
            floats("beta", &per_token, &self.beta),
            floats("a_log", &[values], &self.a_log),
            floats("dt_bias", &[values], &self.dt_bias),
            floats(
                "state",
                &[rows.bank_rows, values, value_dim, key_dim],
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
        let mut output = vec![f32::NAN; rows.tokens() * self.heads.values * self.heads.value_dim];
        let mut bank = self.bank.clone();
        let mut slots = vec![f32::NAN; self.slots * rows.lengths.len() * self.slot_len()];
        let step = Step {
            level,
            heads: self.heads,
            inputs: Inputs {
                qkv: &self.qkv,
                decay: &self.decay,
                beta: &self.beta,
                a_log: &self.a_log,
                dt_bias: &self.dt_bias,
            },
            batch: &batch,
            rows: &banks,
            bank: Cells::new(&mut bank),
            output: Cells::new(&mut output),
            captures: &captures,
            checkpoints,
            slots: captures.any().then(|| Cells::new(&mut slots)),
        };
        run(&step, &mut Prepared::default(), threads).unwrap();
        [output, bank, slots]
    }

    /// As [`Case::run_kernel`], with the shapes that [`Case::check`] looks at.
    fn run_level(&self, level: Level, threads: &dyn Parallel) -> Vec<Found> {
        let capturing = self.rows.counts.iter().any(|&count| count > 0);
        let slots = if capturing { self.slots } else { 0 };
        let [output, bank, found] = self.run_kernel(level, threads);
        vec![
            (vec![], output),
            (vec![], bank),
            (vec![slots, self.rows.lengths.len()], found),
        ]
    }

    /// The first `len` tokens of a row.
    fn head(&self, row: usize, len: usize) -> Self {
        let start = self.rows.start(row);
        let cut = |of: &[f32], width: usize| of[start * width..(start + len) * width].to_vec();
        let mut alone = self.clone();
        alone.rows = self.rows.only(row);
        alone.rows.lengths[0] = len;
        alone.rows.counts[0] = alone.rows.counts[0].min(len as i32);
        alone.qkv = cut(&self.qkv, self.heads.packed());
        alone.decay = cut(&self.decay, self.heads.values);
        alone.beta = cut(&self.beta, self.heads.values);
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
        let start = alone.rows.write[0] as usize * self.heads.state();
        bank[start..start + self.heads.state()].to_vec()
    }

    /// Elements of one slot of one row.
    fn slot_len(&self) -> usize {
        if self.form == "state" {
            self.heads.state()
        } else {
            self.heads.transition().width()
        }
    }

    /// The slot of a captured token.
    fn slot<'s>(&self, slots: &'s [f32], row: usize, t: usize) -> &'s [f32] {
        let right = self.form == "state";
        let slot = if right {
            self.slots + t - self.rows.lengths[row]
        } else {
            t
        };
        &slots[(slot * self.rows.lengths.len() + row) * self.slot_len()..][..self.slot_len()]
    }

    fn reference(&self, row: usize) -> reference::Row {
        let alone = self.only(row);
        let inputs = reference::Inputs {
            qkv: &alone.qkv,
            decay: &alone.decay,
            beta: &alone.beta,
            a_log: &alone.a_log,
            dt_bias: &alone.dt_bias,
        };
        reference::row(self.heads, inputs, self.rows.source(&self.bank, row))
    }

    /// Compares everything a run gives with the definition.
    fn check(&self, found: &[Found]) {
        const TOLERANCE: f64 = 5e-6;
        let (output, bank) = (&found[0].1, &found[1].1);
        let mut expected_bank: Vec<f64> = self.bank.iter().map(|&s| s.into()).collect();
        let capturing = self.rows.counts.iter().any(|&count| count > 0);
        let rows = self.rows.lengths.len();
        if self.form != "none" {
            let slots = if capturing { self.slots } else { 0 };
            assert_eq!(found[2].0[..2], [slots, rows]);
        }
        for row in 0..rows {
            let reference = self.reference(row);
            let start = self.rows.start(row) * self.heads.values * self.heads.value_dim;
            let output = &output[start..start + reference.output.len()];
            assert_close("output", output, &reference.output, TOLERANCE);
            if let Ok(target) = usize::try_from(self.rows.write[row]) {
                let state = &reference.states[self.rows.lengths[row] - 1];
                expected_bank[target * state.len()..][..state.len()].copy_from_slice(state);
            }
            for t in 0..self.rows.counts[row] as usize {
                let slot = self.slot(&found[2].1, row, t);
                match self.form {
                    "state" => assert_close("slot", slot, &reference.states[t], TOLERANCE),
                    _ => assert_close("slot", slot, &reference.transitions[t], TOLERANCE),
                }
            }
        }
        assert_close("bank", bank, &expected_bank, TOLERANCE);
    }
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    const EDGES: [usize; 12] = [15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129];
    let length = prop_oneof![1..9usize, prop::sample::select(&EDGES[..])];
    prop::collection::vec(length, 1..4)
}

fn forms() -> impl Strategy<Value = (&'static str, usize)> {
    prop_oneof![
        Just(("none", 0)),
        (1..9usize).prop_map(|w| ("update", w)),
        (1..9usize).prop_map(|w| ("state", w))
    ]
}

fn heads() -> impl Strategy<Value = Heads> {
    let dim = || prop_oneof![1..40usize, Just(64)];
    (1..4usize, 1..4usize, dim(), dim()).prop_map(|(keys, group, key_dim, value_dim)| Heads {
        keys,
        values: keys * group,
        key_dim,
        value_dim,
    })
}

fn cases() -> impl Strategy<Value = Case> {
    (any::<u64>(), lengths(), heads(), forms())
        .prop_map(|(seed, lengths, heads, form)| Case::random(seed, &lengths, heads, form))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equals_the_definition(case in cases()) {
        case.check(&case.run());
    }

    #[test]
    fn every_instruction_set_equals_the_definition(case in cases()) {
        for level in Level::available() {
            case.check(&case.run_level(level, &SERIAL));
        }
    }

    #[test]
    fn equals_the_packed_operator_of_onnx_runtime(case in cases()) {
        let rows = &case.rows;
        let count = rows.lengths.len();
        let Heads { keys, values, key_dim, value_dim } = case.heads;
        let states: Vec<f32> =
            (0..count).flat_map(|row| rows.source(&case.bank, row).to_vec()).collect();
        let update = if case.form == "update" { case.slots } else { 0 };
        let ours = case.feeds();
        let unit = floats("qkv", &ours[0].shape, &case.unit_keys());
        let node = OneNode::new("com.microsoft", "GatedDeltaNet")
            .with("gate_activation", Attr::Text("softplus"))
            .with("beta_activation", Attr::Text("sigmoid"))
            .with("qk_l2_norm", Attr::Int(0))
            .with("update_rule", Attr::Text("gated_delta"))
            .with("state_update_capacity", Attr::Int(update as i64))
            .giving(if update > 0 { &["output", "state_out", "slots"] } else { &["output", "state_out"] });
        let theirs = node
            .run(&[
                unit,
                absent(),
                absent(),
                ours[6].clone(),
                ours[1].clone(),
                ours[2].clone(),
                floats("state", &[count, values, value_dim, key_dim], &states),
                ours[3].clone(),
                ours[4].clone(),
                if update > 0 { ours[9].clone() } else { absent() },
            ])
            .unwrap();
        let ours = case.run();
        assert_close("output", &ours[0].1, &theirs[0].1, 1e-5);
        let state = case.heads.state();
        let sections = [values, keys * key_dim, values * value_dim];
        for row in 0..count {
            if let Ok(target) = usize::try_from(rows.write[row]) {
                let found = &ours[1].1[target * state..][..state];
                assert_close("state", found, &theirs[1].1[row * state..][..state], 1e-5);
            }
            for t in (0..rows.counts[row] as usize).filter(|_| update > 0) {
                let capsule = &theirs[2].1[row * update * case.slot_len()..];
                let mut expected: Vec<f32> = Vec::new();
                let mut start = 0;
                for width in sections {
                    expected.extend(&capsule[start + t * width..start + (t + 1) * width]);
                    start += update * width;
                }
                assert_close("slot", case.slot(&ours[2].1, row, t), &expected, 1e-5);
            }
        }
    }

    #[test]
    fn equals_the_dense_operator_of_onnx_runtime(case in cases()) {
        let Heads { values, key_dim, value_dim, .. } = case.heads;
        let ours = case.run_kernel(Level::best(), &SERIAL);
        for row in 0..case.rows.lengths.len() {
            let tokens = case.rows.lengths[row];
            let dense = case.only(row).dense(case.rows.source(&case.bank, row));
            let node = OneNode::new("com.microsoft", "LinearAttention")
                .with("q_num_heads", Attr::Int(values as i64))
                .with("kv_num_heads", Attr::Int(values as i64))
                .giving(&["output", "state_out"]);
            let theirs = node.run(&dense).unwrap();
            let width = values * value_dim;
            let found = &ours[0][case.rows.start(row) * width..][..tokens * width];
            assert_close("output", found, &theirs[0].1, 1e-5);
            if let Ok(target) = usize::try_from(case.rows.write[row]) {
                let found = &ours[1][target * case.heads.state()..][..case.heads.state()];
                let theirs = transpose_heads(&theirs[1].1, key_dim, value_dim);
                assert_close("state", found, &theirs, 1e-5);
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_neighbours_or_on_threads(case in cases()) {
        let width = case.heads.values * case.heads.value_dim;
        let [output, bank, slots] = case.run_kernel(Level::best(), &Threads(3));
        for row in 0..case.rows.lengths.len() {
            let alone = case.only(row);
            let [own_output, own_bank, own_slots] = alone.run_kernel(Level::best(), &SERIAL);
            let start = case.rows.start(row) * width;
            assert_same("output", &output[start..start + own_output.len()], &own_output);
            if let Ok(target) = usize::try_from(case.rows.write[row]) {
                let range = target * case.heads.state()..(target + 1) * case.heads.state();
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
                let mut replayed = vec![f32::NAN; case.heads.state()];
                let source = case.rows.source(&case.bank, row);
                let transitions = |t| case.slot(&slots, row, t);
                replay(case.heads, source, transitions, t + 1, &mut replayed);
                if case.rows.lengths[row] <= 16 {
                    assert_same("replayed", &replayed, &expected);
                } else {
                    assert_close("replayed", &replayed, &expected, 1e-6);
                }
            }
        }
    }

    #[test]
    fn works_in_place(case in cases()) {
        let expected = case.run();
        let mut feeds = case.feeds();
        let mut session = case.node().open(&feeds).unwrap();
        let width = case.heads.values * case.heads.value_dim;
        let tokens = case.rows.tokens();
        let mut outputs = [("output", vec![tokens, width], vec![0.0; tokens * width])];
        Bound::new(&mut session, &mut feeds, &[("state", "state_out")], &mut outputs)
            .unwrap()
            .run()
            .unwrap();
        assert_same("output", &outputs[0].2, &expected[0].1);
        assert_same("bank", feeds[5].floats(), &expected[1].1);
    }
}

impl Case {
    /// The packed inputs with keys and queries of length one. ONNX Runtime's operator can normalise
    /// them itself, but adds 1e-12 to the squared length where models (and Pawl) add 1e-6.
    fn unit_keys(&self) -> Vec<f32> {
        let Heads { keys, key_dim, .. } = self.heads;
        let mut qkv = self.qkv.clone();
        for packed in qkv.chunks_exact_mut(self.heads.packed()) {
            for vector in packed[..2 * keys * key_dim].chunks_exact_mut(key_dim) {
                let unit = reference::unit(vector);
                vector
                    .iter_mut()
                    .zip(unit)
                    .for_each(|(x, unit)| *x = unit as f32);
            }
        }
        qkv
    }

    /// Inputs of the dense operator for a case of one row: keys and queries per value head, gates
    /// applied, state transposed.
    fn dense(&self, state: &[f32]) -> Vec<Feed> {
        let Heads {
            keys,
            values,
            key_dim,
            value_dim,
        } = self.heads;
        let tokens = self.rows.tokens();
        let (mut q, mut k, mut v) = (Vec::new(), Vec::new(), Vec::new());
        let (mut decay, mut beta) = (Vec::new(), Vec::new());
        for (t, packed) in self.qkv.chunks_exact(self.heads.packed()).enumerate() {
            for h in 0..values {
                let key_head = h * keys / values;
                let at = key_head * key_dim;
                q.extend(reference::unit(&packed[at..at + key_dim]));
                let at = (keys + key_head) * key_dim;
                k.extend(reference::unit(&packed[at..at + key_dim]));
                let at = t * values + h;
                let gate = f64::from(self.decay[at]) + f64::from(self.dt_bias[h]);
                decay.push(-f64::from(self.a_log[h]).exp() * gate.exp().ln_1p());
                beta.push(1.0 / (1.0 + (-f64::from(self.beta[at])).exp()));
            }
            v.extend(&packed[2 * keys * key_dim..]);
        }
        let narrow = |x: Vec<f64>| x.into_iter().map(|x| x as f32).collect::<Vec<_>>();
        let wide = [1, tokens, values * key_dim];
        let state = transpose_heads(state, value_dim, key_dim);
        vec![
            floats("q", &wide, &narrow(q)),
            floats("k", &wide, &narrow(k)),
            floats("v", &[1, tokens, values * value_dim], &v),
            floats("past", &[1, values, key_dim, value_dim], &state),
            floats("decay", &[1, tokens, values], &narrow(decay)),
            floats("beta", &[1, tokens, values], &narrow(beta)),
        ]
    }
}

/// Transposes each `[rows, columns]` matrix.
fn transpose_heads(of: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    of.chunks_exact(rows * columns)
        .flat_map(|head| {
            (0..rows * columns)
                .map(|i| head[i % rows * columns + i / rows])
                .collect::<Vec<_>>()
        })
        .collect()
}

/// A published vector (2 value heads on 1 key head, 2 x 2 states): an offset computed from the kept
/// count instead of the slot fails it.
#[test]
fn replay_applies_transitions_in_order() {
    let heads = Heads {
        keys: 1,
        values: 2,
        key_dim: 2,
        value_dim: 2,
    };
    let transitions: [&[f32]; 3] = [
        &[0.5, 0.25, 2.0, 3.0, 1.0, 2.0, 3.0, 4.0],
        &[1.0, 0.5, 4.0, 5.0, 5.0, 6.0, 7.0, 8.0],
        &[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    ];
    for (kept, expected) in [
        (0, [4.0; 8]),
        (1, [4.0, 5.0, 6.0, 8.0, 7.0, 10.0, 9.0, 13.0]),
        (2, [24.0, 30.0, 30.0, 38.0, 31.5, 40.0, 36.5, 46.5]),
    ] {
        let mut into = [0.0; 8];
        replay(heads, &[4.0; 8], |t| transitions[t], kept, &mut into);
        assert_eq!(into, expected, "{kept} kept");
    }
}

/// Strong and weak decays: products over a chunk underflow or stay near one.
#[test]
fn extreme_gates_equal_the_definition() {
    let heads = Heads {
        keys: 2,
        values: 4,
        key_dim: 32,
        value_dim: 48,
    };
    for (a_log, size) in [(4.0, 20.0), (-8.0, 5.0), (1.0, 60.0)] {
        let mut case = Case::random(11, &[130, 40], heads, ("none", 0));
        let mut random = Random::new(3);
        case.a_log.fill(a_log);
        case.decay = random.floats(case.decay.len(), size);
        case.beta = random.floats(case.beta.len(), size);
        case.check(&case.run_level(Level::best(), &SERIAL));
    }
}

/// Vanishing keys and queries, where the constant under the root decides.
#[test]
fn tiny_keys_equal_the_definition() {
    let heads = Heads {
        keys: 1,
        values: 1,
        key_dim: 16,
        value_dim: 8,
    };
    let mut case = Case::random(5, &[3, 20], heads, ("none", 0));
    case.qkv.iter_mut().for_each(|x| *x *= 3e-4);
    case.check(&case.run_level(Level::best(), &SERIAL));
}

/// Feeds a good case with one input replaced and returns the refusal. The bank must be untouched.
fn refusal(change: impl FnOnce(&mut Vec<Feed>)) -> String {
    let heads = Heads {
        keys: 2,
        values: 4,
        key_dim: 8,
        value_dim: 4,
    };
    let mut case = Case::random(7, &[2, 3], heads, ("update", 4));
    case.rows.write = vec![0, -1];
    case.rows.read = vec![1, 6];
    case.rows.counts = vec![2, 0];
    let mut feeds = case.feeds();
    change(&mut feeds);
    let before = feeds[5].floats().to_vec();
    let mut session = case.node().open(&feeds).unwrap();
    let mut outputs = [("output", vec![5, 16], vec![0.0; 80])];
    let result = Bound::new(
        &mut session,
        &mut feeds,
        &[("state", "state_out")],
        &mut outputs,
    )
    .unwrap()
    .run();
    assert_same("bank", feeds[5].floats(), &before);
    result.unwrap_err().to_string()
}

#[test]
fn bad_inputs_are_refused_before_anything_is_written() {
    type Change = fn(&mut Vec<Feed>);
    let cases: [(&str, Change); 12] = [
        ("`qkv` must have the shape [5, 48]", |f| {
            f[0] = floats("qkv", &[5, 47], &[0.0; 235])
        }),
        ("`decay` must have the shape [5, 4]", |f| {
            f[1] = floats("decay", &[4, 4], &[0.0; 16])
        }),
        ("`beta` must have the shape [5, 4]", |f| {
            f[2] = floats("beta", &[5, 5], &[0.0; 25])
        }),
        ("`a_log` must have the shape [4]", |f| {
            f[3] = floats("a_log", &[2], &[0.0; 2])
        }),
        ("`dt_bias` must have the shape [4]", |f| {
            f[4] = floats("dt_bias", &[5], &[0.0; 5])
        }),
        ("multiple of 2 value heads", |f| {
            f[5] = floats("state", &[7, 3, 4, 8], &[0.0; 672])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[6] = ints("cumulative", &[3], &[0, 0, 5])
        }),
        ("`read_rows` of row 1", |f| {
            f[7] = ints("read", &[2], &[1, 7])
        }),
        ("`write_rows` of row 0", |f| {
            f[8] = ints("write", &[2], &[6, -1])
        }),
        ("also by another row", |f| {
            f[8] = ints("write", &[2], &[3, 3])
        }),
        ("also read in this step", |f| {
            f[8] = ints("write", &[2], &[-1, 1])
        }),
        ("`capture_counts` of row 1", |f| {
            f[9] = ints("counts", &[2], &[0, 4])
        }),
    ];
    for (expected, change) in cases {
        let message = refusal(change);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

#[test]
fn bad_attributes_are_refused_when_the_session_opens() {
    let heads = Heads {
        keys: 1,
        values: 1,
        key_dim: 8,
        value_dim: 4,
    };
    let case = Case::random(7, &[2], heads, ("none", 0));
    for (name, value) in [
        ("key_heads", Attr::Int(0)),
        ("checkpoint_form", Attr::Text("delta")),
        ("checkpoint_count", Attr::Int(-1)),
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
    let heads = Heads {
        keys: 2,
        values: 4,
        key_dim: 8,
        value_dim: 4,
    };
    for (form, slots) in [
        ("update", vec!["checkpoint_slots_4", "read.0", ""]),
        (
            "state",
            vec![
                "checkpoint_slots_4",
                "read.0",
                "state.1",
                "state.2",
                "state.3",
            ],
        ),
    ] {
        let case = Case::random(7, &[2], heads, (form, 4));
        let session = case.node().open(&case.feeds()).unwrap();
        let found: Vec<_> = session
            .outputs()
            .iter()
            .map(|o| symbols(o.dtype()))
            .collect();
        assert_eq!(found[0], ["qkv.0", ""]);
        assert_eq!(found[1], ["state.0", "state.1", "state.2", "state.3"]);
        assert_eq!(found[2], slots);
    }
}

/// Large enough for ONNX Runtime's pool to be used.
#[test]
fn threads_of_onnx_runtime_do_not_change_bits() {
    let heads = Heads {
        keys: 4,
        values: 8,
        key_dim: 64,
        value_dim: 64,
    };
    let case = Case::random(9, &[70, 1, 16, 5], heads, ("update", 8));
    let one = case.run();
    let two = case.node().threads(2).run(&case.feeds()).unwrap();
    assert_same("output", &two[0].1, &one[0].1);
    assert_same("bank", &two[1].1, &one[1].1);
    for row in 0..4 {
        for t in 0..case.rows.counts[row] as usize {
            assert_same(
                "slot",
                case.slot(&two[2].1, row, t),
                case.slot(&one[2].1, row, t),
            );
        }
    }
}

#[test]
fn checkpoints_may_be_left_out() {
    let heads = Heads {
        keys: 2,
        values: 4,
        key_dim: 8,
        value_dim: 4,
    };
    let mut case = Case::random(7, &[2, 3], heads, ("state", 4));
    case.rows.counts = vec![2, 3];
    let all = case.run();
    let node = case.node().giving(&["output", "state_out"]);
    assert_eq!(node.run(&case.feeds()).unwrap(), all[..2]);
    case.rows.counts = vec![0, 0];
    assert_eq!(case.run()[2].0, [0, 2, 4, 4, 8]);
    let uncounted = case.node().run(&case.feeds()[..9]).unwrap();
    assert_eq!(uncounted, case.run());
}
