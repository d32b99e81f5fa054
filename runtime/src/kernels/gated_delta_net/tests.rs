//! Against the definition in float64, against ONNX Runtime's operators, and against itself.

use proptest::prelude::*;

use super::super::testing::node::{Attr, Feed, Found, OneNode, floats, ints};
use super::super::testing::{Random, Rows, assert_close, assert_same, cumulative};
use super::layout::Heads;
use super::reference;

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

    fn tokens(&self, row: usize, first: usize, len: usize) -> Self {
        let start = self.rows.start(row) + first;
        let cut = |of: &[f32], width: usize| of[start * width..(start + len) * width].to_vec();
        let mut alone = self.clone();
        alone.rows = self.rows.only(row);
        alone.rows.lengths[0] = len;
        alone.qkv = cut(&self.qkv, self.heads.packed());
        alone.decay = cut(&self.decay, self.heads.values);
        alone.beta = cut(&self.beta, self.heads.values);
        alone
    }

    fn only(&self, row: usize) -> Self {
        self.tokens(row, 0, self.rows.lengths[row])
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equals_the_definition(seed: u64, lengths in lengths(), heads in heads(), form in forms()) {
        let case = Case::random(seed, &lengths, heads, form);
        case.check(&case.run());
    }
}
