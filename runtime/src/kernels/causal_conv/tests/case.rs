//! A node, the data it is run on, and what it must give.

use proptest::prelude::*;

use super::super::kernel::{Activation, Step, Taps, run};
use super::super::reference;
use crate::kernels::batch::{BankRows, Batch, Captures, Checkpoints};
use crate::kernels::isa::Level;
use crate::kernels::memory::Cells;
use crate::kernels::parallel::Parallel;
use crate::kernels::testing::SERIAL;
use crate::kernels::testing::one_node::{Attr, Feed, Found, OneNode, absent, floats, ints};
use crate::kernels::testing::{Random, Rows, assert_close, assert_same, cumulative};

/// A node and the data it is run on.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) rows: Rows,
    pub(super) channels: usize,
    pub(super) width: usize,
    pub(super) silu: bool,
    pub(super) form: &'static str,
    pub(super) slots: usize,
    pub(super) x: Vec<f32>,
    pub(super) weight: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
    pub(super) bank: Vec<f32>,
}

impl Case {
    pub(super) fn random(
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

    pub(super) fn node(&self) -> OneNode {
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

    pub(super) fn feeds(&self) -> Vec<Feed> {
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

    pub(super) fn run(&self) -> Vec<Found> {
        self.node().run(&self.feeds()).unwrap()
    }

    /// Runs the kernel without ONNX Runtime: outputs, bank, slots.
    pub(super) fn run_kernel(&self, level: Level, threads: &dyn Parallel) -> [Vec<f32>; 3] {
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
    pub(super) fn head(&self, row: usize, len: usize) -> Self {
        let start = self.rows.start(row) * self.channels;
        let mut alone = self.clone();
        alone.rows = self.rows.only(row);
        alone.rows.lengths[0] = len;
        alone.rows.counts[0] = alone.rows.counts[0].min(len as i32);
        alone.x = self.x[start..start + len * self.channels].to_vec();
        alone
    }

    pub(super) fn only(&self, row: usize) -> Self {
        self.head(row, self.rows.lengths[row])
    }

    /// The state after the first `len` tokens of a row.
    pub(super) fn state_after(&self, row: usize, len: usize) -> Vec<f32> {
        let mut alone = self.head(row, len);
        alone.rows.write[0] = if alone.rows.read[0] == 0 { 1 } else { 0 };
        let [_, bank, _] = alone.run_kernel(Level::best(), &SERIAL);
        let start = alone.rows.write[0] as usize * self.state_len();
        bank[start..start + self.state_len()].to_vec()
    }

    /// The captured slot of a token.
    pub(super) fn slot<'s>(&self, slots: &'s [f32], row: usize, t: usize) -> &'s [f32] {
        &slots[(t * self.rows.lengths.len() + row) * self.slot_len()..][..self.slot_len()]
    }

    pub(super) fn state_len(&self) -> usize {
        self.channels * (self.width - 1)
    }

    /// Elements of one slot of one row.
    pub(super) fn slot_len(&self) -> usize {
        if self.form == "state" {
            self.state_len()
        } else {
            self.channels
        }
    }

    pub(super) fn reference(&self, row: usize) -> reference::Row {
        let alone = self.only(row);
        let state = self.rows.source(&self.bank, row);
        let weight = (&self.weight[..], self.width);
        reference::row(&alone.x, weight, self.bias.as_deref(), self.silu, state)
    }

    /// Compares everything a run gives with the definition.
    pub(super) fn check(&self, found: &[Found]) {
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

pub(super) fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![1..9usize, Just(15), Just(16), Just(17), Just(63), Just(65)];
    prop::collection::vec(length, 1..5)
}

pub(super) fn forms() -> impl Strategy<Value = (&'static str, usize)> {
    prop_oneof![
        Just(("none", 0)),
        (1..9usize).prop_map(|w| ("update", w)),
        (1..9usize).prop_map(|w| ("state", w))
    ]
}

pub(super) fn cases() -> impl Strategy<Value = Case> {
    let sizes = (1..300usize, 2..6usize);
    (any::<u64>(), lengths(), sizes, forms())
        .prop_map(|(seed, lengths, sizes, form)| Case::random(seed, &lengths, sizes, form))
}
