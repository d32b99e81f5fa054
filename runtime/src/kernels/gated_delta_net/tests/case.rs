//! A node, the data it is run on, and what it must give.

#![allow(unsafe_code)]

use proptest::prelude::*;

use super::super::kernel::{Step, run};
use super::super::layout::Heads;
use super::super::prepare::{Inputs, Prepared};
use super::super::reference;
use crate::kernels::batch::{BankRows, Batch, Captures, Checkpoints};
use crate::kernels::isa::Level;
use crate::kernels::memory::Cells;
use crate::kernels::owed::{Collected, Deferred, Ledger, OwedState};
use crate::kernels::parallel::Parallel;
use crate::kernels::testing::one_node::{Attr, Feed, Found, OneNode, floats, ints};
use crate::kernels::testing::{Random, Rows, SERIAL, assert_close, cumulative};

/// A node and the data it is run on.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) rows: Rows,
    pub(super) heads: Heads,
    pub(super) form: &'static str,
    pub(super) slots: usize,
    pub(super) qkv: Vec<f32>,
    pub(super) decay: Vec<f32>,
    pub(super) beta: Vec<f32>,
    pub(super) a_log: Vec<f32>,
    pub(super) dt_bias: Vec<f32>,
    pub(super) bank: Vec<f32>,
}

impl Case {
    pub(super) fn random(
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

    pub(super) fn node(&self) -> OneNode {
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

    pub(super) fn feeds(&self) -> Vec<Feed> {
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

    pub(super) fn run(&self) -> Vec<Found> {
        self.node().run(&self.feeds()).unwrap()
    }

    /// Runs the kernel without ONNX Runtime: outputs, bank, slots.
    pub(super) fn run_kernel(&self, level: Level, threads: &dyn Parallel) -> [Vec<f32>; 3] {
        let slots = vec![f32::NAN; self.slots * self.rows.lengths.len() * self.slot_len()];
        self.run_owing((&[], slots), level, threads)
    }

    /// As [`Case::run_kernel`], where states of the bank are owed that are made of what the memory of the slots holds.
    pub(super) fn run_owing(
        &self,
        (owed, mut slots): (&[OwedState], Vec<f32>),
        level: Level,
        threads: &dyn Parallel,
    ) -> [Vec<f32>; 3] {
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
        let (cells, ledger) = (Cells::new(&mut bank), Ledger::default());
        let memory = (slots.as_mut_ptr(), slots.len());
        if !owed.is_empty() {
            // SAFETY: the slots outlive the run, and are reached through this pointer alone.
            unsafe {
                let checkpoints = std::ptr::slice_from_raw_parts(memory.0, memory.1);
                ledger.owe(
                    (cells.as_ptr(), self.heads.state()),
                    checkpoints,
                    owed.to_vec(),
                );
            }
        }
        let mut deferred = Deferred::default();
        let debt = ledger.settle_but(cells, &banks, &mut deferred, threads);
        let debt = debt.unwrap();
        let step = Step {
            deferred: &deferred,
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
            bank: cells,
            output: Cells::new(&mut output),
            captures: &captures,
            checkpoints,
            // SAFETY: as above.
            slots: captures
                .any()
                .then(|| unsafe { Cells::from_raw(memory.0, memory.1) }),
        };
        run(&step, &mut Prepared::default(), threads).unwrap();
        assert_eq!(debt.is_some(), !owed.is_empty());
        if let Some(debt) = debt {
            ledger.close(cells, debt);
        }
        let Collected::Made(mut made) = ledger.collect(cells.as_ptr()) else {
            panic!("not made");
        };
        made.sort_by_key(|state| state.row);
        assert_eq!(made, owed);
        [output, bank, slots]
    }

    /// As [`Case::run_kernel`], with the shapes that [`Case::check`] looks at.
    pub(super) fn run_level(&self, level: Level, threads: &dyn Parallel) -> Vec<Found> {
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
    pub(super) fn head(&self, row: usize, len: usize) -> Self {
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

    pub(super) fn only(&self, row: usize) -> Self {
        self.head(row, self.rows.lengths[row])
    }

    /// The state after the first `len` tokens of a row.
    pub(super) fn state_after(&self, row: usize, len: usize) -> Vec<f32> {
        let mut alone = self.head(row, len);
        alone.rows.write[0] = if alone.rows.read[0] == 0 { 1 } else { 0 };
        let [_, bank, _] = alone.run_kernel(Level::best(), &SERIAL);
        let start = alone.rows.write[0] as usize * self.heads.state();
        bank[start..start + self.heads.state()].to_vec()
    }

    /// Elements of one slot of one row.
    pub(super) fn slot_len(&self) -> usize {
        if self.form == "state" {
            self.heads.state()
        } else {
            self.heads.transition().width()
        }
    }

    /// The slot of a captured token.
    pub(super) fn slot<'s>(&self, slots: &'s [f32], row: usize, t: usize) -> &'s [f32] {
        let right = self.form == "state";
        let slot = if right {
            self.slots + t - self.rows.lengths[row]
        } else {
            t
        };
        &slots[(slot * self.rows.lengths.len() + row) * self.slot_len()..][..self.slot_len()]
    }

    pub(super) fn reference(&self, row: usize) -> reference::Row {
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
    pub(super) fn check(&self, found: &[Found]) {
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

pub(super) fn lengths() -> impl Strategy<Value = Vec<usize>> {
    const EDGES: [usize; 12] = [15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129];
    let length = prop_oneof![1..9usize, prop::sample::select(&EDGES[..])];
    prop::collection::vec(length, 1..4)
}

pub(super) fn forms() -> impl Strategy<Value = (&'static str, usize)> {
    prop_oneof![
        Just(("none", 0)),
        (1..9usize).prop_map(|w| ("update", w)),
        (1..9usize).prop_map(|w| ("state", w))
    ]
}

pub(super) fn heads() -> impl Strategy<Value = Heads> {
    let dim = || prop_oneof![1..40usize, Just(64)];
    (1..4usize, 1..4usize, dim(), dim()).prop_map(|(keys, group, key_dim, value_dim)| Heads {
        keys,
        values: keys * group,
        key_dim,
        value_dim,
    })
}

pub(super) fn cases() -> impl Strategy<Value = Case> {
    (any::<u64>(), lengths(), heads(), forms())
        .prop_map(|(seed, lengths, heads, form)| Case::random(seed, &lengths, heads, form))
}

impl Case {
    /// The packed inputs with keys and queries of length one. ONNX Runtime's operator can normalise
    /// them itself, but adds 1e-12 to the squared length where models (and Pawl) add 1e-6.
    pub(super) fn unit_keys(&self) -> Vec<f32> {
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
    pub(super) fn dense(&self, state: &[f32]) -> Vec<Feed> {
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
pub(super) fn transpose_heads(of: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    of.chunks_exact(rows * columns)
        .flat_map(|head| {
            (0..rows * columns)
                .map(|i| head[i % rows * columns + i / rows])
                .collect::<Vec<_>>()
        })
        .collect()
}
