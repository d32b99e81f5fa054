//! Against the definition in float64, against ONNX Runtime's operator, and against itself.

#![allow(
    clippy::cast_possible_truncation,
    reason = "cases are small and references are rounded to float32 on purpose"
)]

use proptest::prelude::*;

use super::super::batch::Batch;
use super::super::isa::Level;
use super::super::memory::Cells;
use super::super::parallel::Parallel;
use super::super::testing::one_node::{
    Attr, Bound, Feed, Found, OneNode, absent, floats, ints, symbols,
};
use super::super::testing::{Random, SERIAL, Threads, assert_close, assert_same, cumulative};
use super::kernel::{Scratch, Step, run};
use super::plan::{Extents, Plan};
use super::project::{Norm, Rotation};
use super::reference::{self, Heads, Shaping};

/// A node and the data it is run on.
#[derive(Clone, Debug)]
struct Case {
    heads: Heads,
    block_size: usize,
    max_blocks: usize,
    blocks: usize,
    lengths: Vec<usize>,
    past: Vec<i32>,
    table: Vec<i32>,
    shaping: Shaping,
    qkv: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// What a random case is drawn from.
#[derive(Clone, Debug)]
struct Shape {
    rows: Vec<(usize, usize)>,
    heads: Heads,
    block_size: usize,
    half: usize,
    norms: bool,
}

impl Case {
    fn random(seed: u64, shape: &Shape) -> Self {
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
    fn poison(&mut self) {
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

    fn slot(&self, row: usize, position: usize) -> usize {
        let block = self.table[row * self.max_blocks + position / self.block_size];
        block as usize * self.block_size + position % self.block_size
    }

    fn node(&self) -> OneNode {
        OneNode::new("pawl", "PagedAttention")
            .with("num_heads", Attr::Int(self.heads.q as i64))
            .with("kv_num_heads", Attr::Int(self.heads.kv as i64))
            .with("scale", Attr::Float(self.shaping.scale as f32))
            .with("qk_norm_epsilon", Attr::Float(self.shaping.epsilon as f32))
            .giving(&["output", "keys_out", "values_out"])
    }

    fn feeds(&self) -> Vec<Feed> {
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

    fn run(&self) -> Vec<Found> {
        self.node().run(&self.feeds()).unwrap()
    }

    /// Runs the kernel without ONNX Runtime: output, key cache, value cache.
    fn run_kernel(&self, level: Level, threads: &dyn Parallel) -> [Vec<f32>; 3] {
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

    fn start(&self, row: usize) -> usize {
        self.lengths[..row].iter().sum()
    }

    fn only(&self, row: usize) -> Self {
        let (start, len) = (self.start(row), self.lengths[row]);
        let cut = |of: &[f32], width: usize| of[start * width..(start + len) * width].to_vec();
        let mut alone = self.clone();
        alone.lengths = vec![len];
        alone.past = vec![self.past[row]];
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
    fn cached(&self, row: usize) -> (Vec<f32>, Vec<f32>) {
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

    fn check(&self, found: &[Found]) {
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

fn shapes() -> impl Strategy<Value = Shape> {
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

fn cases() -> impl Strategy<Value = Case> {
    (any::<u64>(), shapes()).prop_map(|(seed, shape)| Case::random(seed, &shape))
}

impl Case {
    /// Replaces the angles of each token by those of its position in a table, which is returned.
    fn rotate_by_position(&mut self, seed: u64) -> (Vec<f32>, Vec<f32>) {
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
    fn dense(&self, row: usize, (cos, sin): (&[f32], &[f32])) -> Vec<Feed> {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equals_the_definition(case in cases()) {
        case.check(&case.run());
    }

    #[test]
    fn every_instruction_set_equals_the_definition(case in cases()) {
        for level in Level::available() {
            let found = case.run_kernel(level, &SERIAL).map(|data| (vec![], data));
            case.check(&found);
        }
    }

    #[test]
    fn equals_the_operator_of_onnx_runtime(
        seed: u64,
        shape in shapes().prop_map(|shape| {
            // The operator wants heads of a multiple of 16 where it rotates.
            let dim = shape.heads.dim.next_multiple_of(16);
            let half = if shape.half == 0 { 0 } else { dim / 2 };
            Shape { heads: Heads { dim, ..shape.heads }, half, norms: false, ..shape }
        }),
    ) {
        let mut case = Case::random(seed, &shape);
        let (cos, sin) = case.rotate_by_position(seed);
        let [output, ..] = case.run_kernel(Level::best(), &SERIAL);
        for row in 0..case.lengths.len() {
            let node = OneNode::new("com.microsoft", "GroupQueryAttention")
                .with("num_heads", Attr::Int(case.heads.q as i64))
                .with("kv_num_heads", Attr::Int(case.heads.kv as i64))
                .with("scale", Attr::Float(case.shaping.scale as f32))
                .with("do_rotary", Attr::Int(i64::from(shape.half > 0)))
                .giving(&["output", "keys", "values"]);
            let theirs = node.run(&case.dense(row, (&cos, &sin))).unwrap();
            let width = case.heads.q * case.heads.dim;
            let found = &output[case.start(row) * width..][..case.lengths[row] * width];
            assert_close("output", found, &theirs[0].1, 1e-5);
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_neighbours_or_on_threads(case in cases()) {
        let width = case.heads.q * case.heads.dim;
        let [output, keys, values] = case.run_kernel(Level::best(), &Threads(3));
        for row in 0..case.lengths.len() {
            let alone = case.only(row);
            let [own_output, own_keys, own_values] = alone.run_kernel(Level::best(), &SERIAL);
            let start = case.start(row) * width;
            assert_same("output", &output[start..start + own_output.len()], &own_output);
            for t in 0..case.lengths[row] {
                let width = case.heads.kv * case.heads.dim;
                let slot = case.slot(row, case.past[row] as usize + t) * width;
                assert_same("keys", &keys[slot..slot + width], &own_keys[slot..slot + width]);
                assert_same("values", &values[slot..slot + width], &own_values[slot..slot + width]);
            }
        }
    }

    #[test]
    fn works_in_place(case in cases()) {
        let expected = case.run();
        let mut feeds = case.feeds();
        let mut session = case.node().open(&feeds).unwrap();
        let shape = expected[0].0.clone();
        let mut outputs = [("output", shape, vec![0.0; expected[0].1.len()])];
        let in_place = [("keys", "keys_out"), ("values", "values_out")];
        Bound::new(&mut session, &mut feeds, &in_place, &mut outputs).unwrap().run().unwrap();
        assert_same("output", &outputs[0].2, &expected[0].1);
        let bits = |of: &[f32]| of.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(feeds[1].floats()), bits(&expected[1].1));
        assert_eq!(bits(feeds[2].floats()), bits(&expected[2].1));
    }
}

/// Rows that share full blocks of a common prefix, as a tree of drafts does.
#[test]
fn rows_share_blocks_that_nobody_writes() {
    let heads = Heads {
        q: 4,
        kv: 2,
        dim: 16,
    };
    let shape = Shape {
        rows: vec![(3, 8), (2, 8)],
        heads,
        block_size: 4,
        half: 8,
        norms: true,
    };
    let mut case = Case::random(5, &shape);
    let (max, shared) = (case.max_blocks, case.table[..2].to_vec());
    case.table[max..max + 2].copy_from_slice(&shared);
    case.check(&case.run());
}

/// Large scores: exponentials of differences only.
#[test]
fn large_scores_equal_the_definition() {
    let heads = Heads {
        q: 2,
        kv: 1,
        dim: 32,
    };
    let shape = Shape {
        rows: vec![(40, 50), (1, 200)],
        heads,
        block_size: 16,
        half: 0,
        norms: false,
    };
    let mut case = Case::random(5, &shape);
    case.qkv.iter_mut().for_each(|x| *x *= 30.0);
    case.shaping.scale = 0.25;
    let [output, ..] = case.run_kernel(Level::best(), &SERIAL);
    for row in 0..2 {
        let alone = case.only(row);
        let (keys, values) = case.cached(row);
        let expected = reference::row(heads, &alone.qkv, &alone.shaping, (&keys, &values)).output;
        let start = case.start(row) * 64;
        // Scores are in the thousands, so their rounding alone moves a weight by 1e-4 or so.
        assert_close(
            "output",
            &output[start..start + expected.len()],
            &expected,
            1e-2,
        );
    }
}

/// Feeds a good case with one input replaced and returns the refusal. The caches must be untouched.
fn refusal(change: impl FnOnce(&mut Vec<Feed>)) -> String {
    let heads = Heads {
        q: 4,
        kv: 2,
        dim: 8,
    };
    let shape = Shape {
        rows: vec![(2, 3), (3, 0)],
        heads,
        block_size: 4,
        half: 4,
        norms: true,
    };
    let mut case = Case::random(7, &shape);
    case.blocks = 6;
    case.max_blocks = 3;
    case.table = vec![4, 2, -1, 0, -1, -1];
    let mut random = Random::new(1);
    case.keys = random.floats(6 * 4 * 16, 1.0);
    case.values = random.floats(6 * 4 * 16, 1.0);
    let mut feeds = case.feeds();
    change(&mut feeds);
    let before = [feeds[1].floats().to_vec(), feeds[2].floats().to_vec()];
    let mut session = case.node().open(&feeds).unwrap();
    let mut outputs = [("output", vec![5, 32], vec![0.0; 160])];
    let in_place = [("keys", "keys_out"), ("values", "values_out")];
    let result = Bound::new(&mut session, &mut feeds, &in_place, &mut outputs)
        .unwrap()
        .run();
    assert_same("keys", feeds[1].floats(), &before[0]);
    assert_same("values", feeds[2].floats(), &before[1]);
    result.unwrap_err().to_string()
}

#[test]
fn bad_inputs_are_refused_before_anything_is_written() {
    type Change = fn(&mut Vec<Feed>);
    let cases: [(&str, Change); 17] = [
        ("`qkv` must have the shape [5, 64]", |f| {
            f[0] = floats("qkv", &[5, 63], &[0.0; 315])
        }),
        ("`key_cache` must have", |f| {
            f[1] = floats("keys", &[6, 4, 1, 8], &[0.0; 192])
        }),
        ("`value_cache` must have", |f| {
            f[2] = floats("values", &[6, 4, 2, 9], &[0.0; 432])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[3] = ints("cumulative", &[3], &[0, 3, 4])
        }),
        ("`past_sequence_lengths` of row 0", |f| {
            f[4] = ints("past", &[2], &[-1, 0])
        }),
        ("`past_sequence_lengths` of row 1", |f| {
            f[4] = ints("past", &[2], &[3, 10])
        }),
        ("`past_sequence_lengths` of row 1", |f| {
            f[4] = ints("past", &[2], &[3, i32::MAX])
        }),
        ("`past_sequence_lengths` must", |f| {
            f[4] = ints("past", &[1], &[3])
        }),
        ("`block_table` of row 0", |f| {
            f[5] = ints("table", &[2, 3], &[4, -1, -1, 0, -1, -1])
        }),
        ("`block_table` of row 1", |f| {
            f[5] = ints("table", &[2, 3], &[4, 2, -1, 6, -1, -1])
        }),
        ("`block_table` of row 1", |f| {
            f[5] = ints("table", &[2, 3], &[4, 2, -1, 0, -2, -1])
        }),
        ("tokens of a row against", |f| {
            f[5] = ints("table", &[2, 0], &[])
        }),
        ("block 2 is written by row 0", |f| {
            f[5] = ints("table", &[2, 3], &[2, 2, -1, 0, -1, -1])
        }),
        ("block 0 is written by row 1", |f| {
            f[5] = ints("table", &[2, 3], &[0, 2, -1, 0, -1, -1])
        }),
        ("`cos` must have the shape [5, 4]", |f| {
            f[6] = floats("cos", &[5, 5], &[0.0; 25])
        }),
        ("`sin` must have the shape [5, 4]", |f| {
            f[7] = floats("sin", &[4, 4], &[0.0; 16])
        }),
        ("`k_norm` must have the shape [8]", |f| {
            f[9] = floats("k_norm", &[16], &[0.0; 16])
        }),
    ];
    for (expected, change) in cases {
        let message = refusal(change);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

#[test]
fn a_lone_cosine_is_refused() {
    let message = refusal(|feeds| feeds[7] = absent());
    assert!(message.contains("`sin` is missing"), "{message}");
}

#[test]
fn bad_attributes_are_refused_when_the_session_opens() {
    let heads = Heads {
        q: 4,
        kv: 2,
        dim: 8,
    };
    let shape = Shape {
        rows: vec![(2, 3)],
        heads,
        block_size: 4,
        half: 4,
        norms: true,
    };
    let case = Case::random(7, &shape);
    for (name, value) in [("num_heads", 3), ("num_heads", 0), ("kv_num_heads", -2)] {
        let mut node = case.node();
        node.attributes.retain(|attribute| attribute.0 != name);
        let node = node.with(name, Attr::Int(value));
        let error = node.open(&case.feeds()).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn outputs_have_inferred_shapes() {
    let heads = Heads {
        q: 4,
        kv: 2,
        dim: 8,
    };
    let shape = Shape {
        rows: vec![(2, 3)],
        heads,
        block_size: 4,
        half: 4,
        norms: false,
    };
    let case = Case::random(7, &shape);
    let session = case.node().open(&case.feeds()).unwrap();
    let found: Vec<_> = session
        .outputs()
        .iter()
        .map(|o| symbols(o.dtype()))
        .collect();
    assert_eq!(found[0], ["qkv.0", ""]);
    assert_eq!(found[1], ["keys.0", "keys.1", "keys.2", "keys.3"]);
    assert_eq!(found[2], ["values.0", "values.1", "values.2", "values.3"]);
}

/// Large enough for ONNX Runtime's pool to be used.
#[test]
fn threads_of_onnx_runtime_do_not_change_bits() {
    let heads = Heads {
        q: 8,
        kv: 2,
        dim: 64,
    };
    let rows = vec![(70, 130), (1, 300), (8, 0)];
    let case = Case::random(
        9,
        &Shape {
            rows,
            heads,
            block_size: 32,
            half: 16,
            norms: true,
        },
    );
    let one = case.run();
    let two = case.node().threads(2).run(&case.feeds()).unwrap();
    assert_same("output", &two[0].1, &one[0].1);
}
