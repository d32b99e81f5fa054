//! A node, the data it is run on, and what it must give.

use proptest::prelude::*;

use super::super::kernel::{Scratch, Step, run};
use super::super::plan::{Extents, Plan};
use super::super::project::{Norm, Rotation};
use super::super::reference::{self, Heads, Shaping};
use crate::kernels::batch::Batch;
use crate::kernels::isa::Level;
use crate::kernels::memory::Cells;
use crate::kernels::parallel::Parallel;
use crate::kernels::testing::one_node::{Attr, Feed, Found, OneNode, absent, floats, ints};
use crate::kernels::testing::{Random, assert_close, assert_same, cumulative};

/// A node and the data it is run on.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) heads: Heads,
    pub(super) block_size: usize,
    pub(super) max_blocks: usize,
    pub(super) blocks: usize,
    pub(super) lengths: Vec<usize>,
    pub(super) past: Vec<i32>,
    pub(super) table: Vec<i32>,
    pub(super) shaping: Shaping,
    pub(super) qkv: Vec<f32>,
    pub(super) keys: Vec<f32>,
    pub(super) values: Vec<f32>,
}

/// What a random case is drawn from.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) rows: Vec<(usize, usize)>,
    pub(super) heads: Heads,
    pub(super) block_size: usize,
    pub(super) half: usize,
    pub(super) norms: bool,
}

impl Case {
    pub(super) fn random(seed: u64, shape: &Shape) -> Self {
        let Shape {
            heads,
            block_size,
            half,
            ..
        } = *shape;
        let mut random = Random::new(seed);
        let (lengths, past): (Vec<usize>, Vec<usize>) = shape.rows.iter().copied().unzip();
        let tokens = lengths.iter().sum::<usize>();
        let needed = |row: &(usize, usize)| (row.0 + row.1).div_ceil(block_size);
        let max_blocks = shape.rows.iter().map(needed).max().unwrap() + random.below(3);
        let blocks = shape.rows.iter().map(needed).sum::<usize>() + 2;
        let mut order = random.permutation(blocks).into_iter();
        let mut table = Vec::new();
        for row in &shape.rows {
            let used = needed(row);
            table.extend(order.by_ref().take(used).map(|block| block as i32));
            table.resize(table.len() + max_blocks - used, -1);
        }
        let norm = |random: &mut Random| shape.norms.then(|| random.floats(heads.dim, 1.5));
        let (q_norm, k_norm) = (norm(&mut random), norm(&mut random));
        let rotation = (half > 0).then(|| {
            let angles = random.floats(tokens * half, 3.0);
            (
                angles.iter().map(|a| a.cos()).collect(),
                angles.iter().map(|a| a.sin()).collect(),
            )
        });
        let width = (heads.q + 2 * heads.kv) * heads.dim;
        let cache = blocks * block_size * heads.kv * heads.dim;
        let mut case = Self {
            heads,
            block_size,
            max_blocks,
            blocks,
            past: past.iter().map(|&p| p as i32).collect(),
            lengths,
            table,
            shaping: Shaping {
                rotation,
                half,
                q_norm,
                k_norm,
                epsilon: 1e-5,
                scale: f64::from(1.3 / (heads.dim as f32).sqrt()),
            },
            qkv: random.floats(tokens * width, 2.0),
            keys: random.floats(cache, 1.0),
            values: random.floats(cache, 1.0),
        };
        case.poison();
        case
    }

    /// Makes everything in the cache that no row may read not a number.
    pub(super) fn poison(&mut self) {
        let width = self.heads.kv * self.heads.dim;
        let mut readable = vec![false; self.blocks * self.block_size];
        for row in 0..self.lengths.len() {
            (0..self.past[row] as usize).for_each(|p| readable[self.slot(row, p)] = true);
        }
        for slot in (0..readable.len()).filter(|&slot| !readable[slot]) {
            self.keys[slot * width..(slot + 1) * width].fill(f32::NAN);
            self.values[slot * width..(slot + 1) * width].fill(f32::NAN);
        }
    }

    pub(super) fn slot(&self, row: usize, position: usize) -> usize {
        let block = self.table[row * self.max_blocks + position / self.block_size];
        block as usize * self.block_size + position % self.block_size
    }

    pub(super) fn node(&self) -> OneNode {
        OneNode::new("pawl", "PagedAttention")
            .with("num_heads", Attr::Int(self.heads.q as i64))
            .with("kv_num_heads", Attr::Int(self.heads.kv as i64))
            .with("scale", Attr::Float(self.shaping.scale as f32))
            .with("qk_norm_epsilon", Attr::Float(self.shaping.epsilon as f32))
            .giving(&["output", "keys_out", "values_out"])
    }

    pub(super) fn feeds(&self) -> Vec<Feed> {
        let (rows, tokens) = (self.lengths.len(), self.lengths.iter().sum());
        let Heads { q, kv, dim } = self.heads;
        let cache = [self.blocks, self.block_size, kv, dim];
        let mut feeds = vec![
            floats("qkv", &[tokens, (q + 2 * kv) * dim], &self.qkv),
            floats("keys", &cache, &self.keys),
            floats("values", &cache, &self.values),
            ints("cumulative", &[rows + 1], &cumulative(&self.lengths)),
            ints("past", &[rows], &self.past),
            ints("table", &[rows, self.max_blocks], &self.table),
        ];
        let half = self.shaping.half;
        match &self.shaping.rotation {
            Some((cos, sin)) => {
                feeds.push(floats("cos", &[tokens, half], cos));
                feeds.push(floats("sin", &[tokens, half], sin));
            }
            None => feeds.extend([absent(), absent()]),
        }
        for (name, norm) in [
            ("q_norm", &self.shaping.q_norm),
            ("k_norm", &self.shaping.k_norm),
        ] {
            feeds.push(
                norm.as_ref()
                    .map_or_else(absent, |norm| floats(name, &[dim], norm)),
            );
        }
        feeds
    }

    pub(super) fn run(&self) -> Vec<Found> {
        self.node().run(&self.feeds()).unwrap()
    }

    /// Runs the kernel without ONNX Runtime: output, key cache, value cache.
    pub(super) fn run_kernel(&self, level: Level, threads: &dyn Parallel) -> [Vec<f32>; 3] {
        let Heads { q, kv, dim } = self.heads;
        let extents = Extents {
            heads: q,
            kv_heads: kv,
            dim,
            blocks: self.blocks,
            block_size: self.block_size,
        };
        let tokens = self.lengths.iter().sum::<usize>();
        let (mut batch, mut plan) = (Batch::default(), Plan::default());
        batch.read(&cumulative(&self.lengths), tokens).unwrap();
        plan.read(extents, &batch, &self.past, (&self.table, self.max_blocks))
            .unwrap();
        let half = self.shaping.half;
        let rotation = self.shaping.rotation.as_ref();
        let epsilon = self.shaping.epsilon as f32;
        let (q_norm, k_norm) = (&self.shaping.q_norm, &self.shaping.k_norm);
        let mut output = vec![f32::NAN; tokens * q * dim];
        let (mut keys, mut values) = (self.keys.clone(), self.values.clone());
        let step = Step {
            level,
            extents,
            qkv: &self.qkv,
            batch: &batch,
            plan: &plan,
            rotation: rotation.map(|(cos, sin)| Rotation { cos, sin, half }),
            query_norm: q_norm.as_ref().map(|weight| Norm { weight, epsilon }),
            key_norm: k_norm.as_ref().map(|weight| Norm { weight, epsilon }),
            scale: self.shaping.scale as f32,
            keys: Cells::new(&mut keys),
            values: Cells::new(&mut values),
            output: Cells::new(&mut output),
        };
        run(&step, &mut Scratch::default(), threads).unwrap();
        [output, keys, values]
    }

    pub(super) fn start(&self, row: usize) -> usize {
        self.lengths[..row].iter().sum()
    }

    pub(super) fn only(&self, row: usize) -> Self {
        self.part(row, 0..self.lengths[row])
    }

    /// Some tokens of one row; those before them are in the cache.
    pub(super) fn part(&self, row: usize, tokens: std::ops::Range<usize>) -> Self {
        let (start, len) = (self.start(row) + tokens.start, tokens.len());
        let cut = |of: &[f32], width: usize| of[start * width..(start + len) * width].to_vec();
        let mut alone = self.clone();
        alone.lengths = vec![len];
        alone.past = vec![self.past[row] + tokens.start as i32];
        alone.table = self.table[row * self.max_blocks..(row + 1) * self.max_blocks].to_vec();
        alone.qkv = cut(
            &self.qkv,
            (self.heads.q + 2 * self.heads.kv) * self.heads.dim,
        );
        alone.shaping.rotation = self
            .shaping
            .rotation
            .as_ref()
            .map(|(cos, sin)| (cut(cos, self.shaping.half), cut(sin, self.shaping.half)));
        alone
    }

    /// Cached keys and values of a row before the step.
    pub(super) fn cached(&self, row: usize) -> (Vec<f32>, Vec<f32>) {
        let width = self.heads.kv * self.heads.dim;
        let slots = (0..self.past[row] as usize).map(|position| self.slot(row, position));
        let read = |of: &[f32], slot: usize| of[slot * width..(slot + 1) * width].to_vec();
        slots
            .map(|slot| (read(&self.keys, slot), read(&self.values, slot)))
            .fold(
                (Vec::new(), Vec::new()),
                |(mut keys, mut values), (key, value)| {
                    keys.extend(key);
                    values.extend(value);
                    (keys, values)
                },
            )
    }

    pub(super) fn check(&self, found: &[Found]) {
        const TOLERANCE: f64 = 5e-6;
        let width = self.heads.kv * self.heads.dim;
        let (mut keys, mut values) = (self.keys.clone(), self.values.clone());
        for row in 0..self.lengths.len() {
            let alone = self.only(row);
            let (past_keys, past_values) = self.cached(row);
            let past = (&past_keys[..], &past_values[..]);
            let reference = reference::row(self.heads, &alone.qkv, &alone.shaping, past);
            let start = self.start(row) * self.heads.q * self.heads.dim;
            let output = &found[0].1[start..start + reference.output.len()];
            assert_close("output", output, &reference.output, TOLERANCE);
            for t in 0..self.lengths[row] {
                let slot = self.slot(row, self.past[row] as usize + t) * width;
                let narrow = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
                keys[slot..slot + width]
                    .copy_from_slice(&narrow(&reference.keys[t * width..][..width]));
                values[slot..slot + width]
                    .copy_from_slice(&narrow(&reference.values[t * width..][..width]));
            }
        }
        let known = |of: &[f32]| {
            of.iter()
                .map(|&x| if x.is_nan() { 0.0 } else { x })
                .collect::<Vec<_>>()
        };
        assert_close("keys", &known(&found[1].1), &known(&keys), TOLERANCE);
        assert_same("values", &known(&found[2].1), &known(&values));
    }
}

pub(super) fn shapes() -> impl Strategy<Value = Shape> {
    let row = (
        prop_oneof![1..9usize, 15..18usize, Just(70)],
        prop_oneof![Just(0), 1..100usize, 120..700usize],
    );
    let heads = (
        1..4usize,
        1..5usize,
        prop_oneof![1..20usize, Just(24), Just(32), Just(64)],
    );
    let heads = heads.prop_map(|(kv, group, half)| Heads {
        q: kv * group,
        kv,
        dim: 2 * half,
    });
    let block_size = prop_oneof![1..8usize, Just(16), Just(32), Just(256)];
    (
        prop::collection::vec(row, 1..4),
        heads,
        block_size,
        0..3usize,
        any::<bool>(),
    )
        .prop_map(|(rows, heads, block_size, rotated, norms)| {
            let half = [0, heads.dim / 2, heads.dim.div_ceil(4).min(heads.dim / 2)][rotated];
            Shape {
                rows,
                heads,
                block_size,
                half,
                norms,
            }
        })
}

pub(super) fn cases() -> impl Strategy<Value = Case> {
    (any::<u64>(), shapes()).prop_map(|(seed, shape)| Case::random(seed, &shape))
}

impl Case {
    /// Replaces the angles of each token by those of its position in a table, which is returned.
    pub(super) fn rotate_by_position(&mut self, seed: u64) -> (Vec<f32>, Vec<f32>) {
        let half = self.shaping.half;
        let longest =
            (0..self.lengths.len()).map(|row| self.past[row] as usize + self.lengths[row]);
        let angles = Random::new(seed).floats(longest.max().unwrap() * half, 3.0);
        let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
        let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
        let at = |table: &[f32]| {
            let rows = 0..self.lengths.len();
            rows.flat_map(|row| {
                let start = self.past[row] as usize * half;
                table[start..start + self.lengths[row] * half].to_vec()
            })
            .collect::<Vec<_>>()
        };
        self.shaping.rotation = (half > 0).then(|| (at(&cos), at(&sin)));
        (cos, sin)
    }

    /// Inputs of ONNX Runtime's dense operator for one row.
    pub(super) fn dense(&self, row: usize, (cos, sin): (&[f32], &[f32])) -> Vec<Feed> {
        let Heads { q, kv, dim } = self.heads;
        let (past, tokens) = (self.past[row] as usize, self.lengths[row]);
        let (keys, values) = self.cached(row);
        let by_head = |of: &[f32]| -> Vec<f32> {
            (0..kv)
                .flat_map(|h| {
                    of.chunks_exact(kv * dim)
                        .flat_map(move |c| c[h * dim..][..dim].to_vec())
                })
                .collect()
        };
        let total = i32::try_from(past + tokens).unwrap();
        let width = (q + 2 * kv) * dim;
        let table = [cos.len() / self.shaping.half.max(1), self.shaping.half];
        let rotary = |name, of: &[f32]| {
            if self.shaping.half > 0 {
                floats(name, &table, of)
            } else {
                absent()
            }
        };
        vec![
            floats("qkv", &[1, tokens, width], &self.only(row).qkv),
            absent(),
            absent(),
            floats("past_key", &[1, kv, past, dim], &by_head(&keys)),
            floats("past_value", &[1, kv, past, dim], &by_head(&values)),
            ints("seqlens", &[1], &[total - 1]),
            ints("total", &[1], &[total]),
            rotary("cos", cos),
            rotary("sin", sin),
        ]
    }
}
