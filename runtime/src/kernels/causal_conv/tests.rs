//! Against the definition in float64, against ONNX Runtime's operator, and against itself.

use proptest::prelude::*;

use super::super::testing::node::{
    Attr, Data, Feed, Found, OneNode, absent, floats, ints, run_bound,
};
use super::super::testing::{Random, Rows, assert_close, assert_same, cumulative};
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

    fn only(&self, row: usize) -> Self {
        let start = self.rows.start(row) * self.channels;
        let len = self.rows.lengths[row] * self.channels;
        let mut alone = self.clone();
        alone.rows = self.rows.only(row);
        alone.x = self.x[start..start + len].to_vec();
        alone
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
                let slot = &found[2].1[(t * rows + row) * self.slot_len()..][..self.slot_len()];
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn equals_the_definition(
        seed: u64, lengths in lengths(), channels in 1..300usize, width in 2..6usize, form in forms(),
    ) {
        let case = Case::random(seed, &lengths, (channels, width), form);
        case.check(&case.run());
    }
}
