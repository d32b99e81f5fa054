//! Models for tests: any order of layers, any sizes, without a checkpoint behind them.

use pawl_models::{
    Attention, GatedDelta, Layer, Mixer, Mlp, ModelDescription, MtpHead, Norm, Rope, ShortConv,
    SpecialTokens, Transform, Weight,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::mtp_weights::MtpWeights;
use crate::options::{BuildOptions, CheckpointOption, Spelling, Target};

/// Sizes that all layers of a model share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) hidden: u64,
    pub(crate) kv_heads: u64,
    pub(crate) head_dim: u64,
}

/// What makes one layer differ from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerSeed {
    kind: u8,
    group: u64,
    dims: (u64, u64),
    kernel: u64,
    rotary_pairs: u64,
    flags: (bool, bool),
}

pub(crate) fn weight(name: String, shape: &[u64]) -> Weight {
    Weight::whole(name, shape)
}

fn norm(name: String, width: u64) -> Norm {
    Norm {
        weight: Weight {
            transform: Transform::AddOne,
            ..weight(name, &[width])
        },
        epsilon: 1e-6,
    }
}

fn attention(at: &str, sizes: Sizes, seed: LayerSeed) -> Attention {
    let w = |name: &str, shape: &[u64]| weight(format!("{at}.{name}"), shape);
    let Sizes {
        hidden,
        kv_heads,
        head_dim,
    } = sizes;
    let heads = kv_heads * seed.group;
    let pairs = seed.rotary_pairs.min(head_dim / 2);
    let (gated, normed) = seed.flags;
    let head_norm = |name: &str| normed.then(|| norm(format!("{at}.{name}"), head_dim));
    Attention {
        heads,
        kv_heads,
        head_dim,
        scale: 0.25,
        query: w("q", &[heads * head_dim, hidden]),
        key: w("k", &[kv_heads * head_dim, hidden]),
        value: w("v", &[kv_heads * head_dim, hidden]),
        gate: gated.then(|| w("g", &[heads * head_dim, hidden])),
        query_norm: head_norm("q_norm"),
        key_norm: head_norm("k_norm"),
        rope: Rope {
            rotary_dim: 2 * pairs,
            inverse_frequencies: (0..pairs).map(|i| 1.0 / (1 + i) as f32).collect(),
            attention_factor: if gated { 1.0 } else { 1.25 },
        },
        output: w("o", &[hidden, heads * head_dim]),
    }
}

fn gated_delta(at: &str, hidden: u64, seed: LayerSeed) -> GatedDelta {
    let w = |name: &str, shape: &[u64]| weight(format!("{at}.{name}"), shape);
    let (key_dim, value_dim) = seed.dims;
    let (key_heads, value_heads) = (seed.rotary_pairs + 1, (seed.rotary_pairs + 1) * seed.group);
    let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
    let channels = 2 * keys + values;
    GatedDelta {
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        kernel: seed.kernel,
        qkv: w("qkv", &[channels, hidden]),
        z: w("z", &[values, hidden]),
        a: w("a", &[value_heads, hidden]),
        b: w("b", &[value_heads, hidden]),
        conv: w("conv", &[channels, seed.kernel]),
        a_log: w("a_log", &[value_heads]),
        dt_bias: w("dt_bias", &[value_heads]),
        norm: Norm {
            weight: w("norm", &[value_dim]),
            epsilon: 1e-6,
        },
        output: w("o", &[hidden, values]),
    }
}

fn short_conv(at: &str, hidden: u64, seed: LayerSeed) -> ShortConv {
    let w = |name: &str, shape: &[u64]| weight(format!("{at}.{name}"), shape);
    let channels = seed.dims.0 + seed.dims.1;
    ShortConv {
        channels,
        kernel: seed.kernel,
        input: w("in", &[3 * channels, hidden]),
        conv: w("conv", &[channels, seed.kernel]),
        output: w("o", &[hidden, channels]),
    }
}

fn layer(at: &str, sizes: Sizes, seed: LayerSeed) -> Layer {
    let hidden = sizes.hidden;
    let w = |name: &str, shape: &[u64]| weight(format!("{at}.{name}"), shape);
    let (kind, mixer) = match seed.kind {
        0 => (
            "full_attention",
            Mixer::Attention(attention(at, sizes, seed)),
        ),
        1 => (
            "linear_attention",
            Mixer::GatedDelta(gated_delta(at, hidden, seed)),
        ),
        _ => ("conv", Mixer::ShortConv(short_conv(at, hidden, seed))),
    };
    Layer {
        kind,
        mixer_norm: norm(format!("{at}.n1"), hidden),
        mixer,
        mlp_norm: norm(format!("{at}.n2"), hidden),
        mlp: Mlp {
            gate: w("gate", &[seed.dims.0, hidden]),
            up: w("up", &[seed.dims.0, hidden]),
            down: w("down", &[hidden, seed.dims.0]),
        },
    }
}

/// A model of the given layers; every model has an attention layer, put at `at`.
pub(crate) fn model(
    sizes: Sizes,
    seeds: &[LayerSeed],
    at: usize,
    (tied, headed): (bool, bool),
) -> ModelDescription {
    let hidden = sizes.hidden;
    let mut seeds = seeds.to_vec();
    let at = at % seeds.len();
    seeds[at].kind = 0;
    let attention = seeds[at];
    ModelDescription {
        model_type: "random".to_owned(),
        architecture: "random",
        vocab_size: 11,
        hidden_size: hidden,
        context_length: 64,
        tokens: SpecialTokens {
            bos: Some(1),
            eos: vec![2, 3],
            pad: Some(0),
        },
        embedding: weight("embedding".to_owned(), &[11, hidden]),
        layers: (0..)
            .zip(&seeds)
            .map(|(index, seed): (usize, _)| layer(&format!("layers.{index}"), sizes, *seed))
            .collect(),
        final_norm: norm("norm".to_owned(), hidden),
        output: (!tied).then(|| weight("output".to_owned(), &[11, hidden])),
        mtp: headed.then(|| MtpHead {
            embedding_norm: norm("mtp.e".to_owned(), hidden),
            hidden_norm: norm("mtp.h".to_owned(), hidden),
            fc: weight("mtp.fc".to_owned(), &[hidden, 2 * hidden]),
            layer: layer("mtp.layer", sizes, attention),
            final_norm: norm("mtp.norm".to_owned(), hidden),
        }),
        skipped: Vec::new(),
    }
}

/// One layer of each kind, with every option of each: Gated DeltaNet, attention, short convolution; an output
/// projection of its own and a drafting head.
pub(crate) fn hybrid() -> ModelDescription {
    let sizes = Sizes {
        hidden: 8,
        kv_heads: 2,
        head_dim: 6,
    };
    let seed = |kind| LayerSeed {
        kind,
        group: 2,
        dims: (3, 5),
        kernel: 4,
        rotary_pairs: 1,
        flags: (true, true),
    };
    let mut model = model(sizes, &[seed(1), seed(0), seed(2)], 1, (false, true));
    let head = model.mtp.as_mut().map(|head| &mut head.layer);
    for layer in model.layers.iter_mut().chain(head) {
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.rope.attention_factor = 1.25;
        }
    }
    model
}

prop_compose! {
    fn layer_seed()(
        kind in 0..3_u8,
        group in 1..4_u64,
        dims in (prop_oneof![1..5_u64, Just(32_u64)], 1..5_u64),
        kernel in 2..5_u64,
        rotary_pairs in 0..3_u64,
        flags in any::<(bool, bool)>(),
    ) -> LayerSeed {
        LayerSeed { kind, group, dims, kernel, rotary_pairs, flags }
    }
}

prop_compose! {
    /// Any model.
    pub(crate) fn models()(
        hidden in prop_oneof![1..9_u64, select(vec![32_u64, 33, 64])],
        kv_heads in 1..3_u64,
        head_dim in prop_oneof![2..7_u64, Just(32_u64)],
        seeds in vec(layer_seed(), 1..6),
        at in any::<usize>(),
        flags in any::<(bool, bool)>(),
    ) -> ModelDescription {
        model(Sizes { hidden, kv_heads, head_dim }, &seeds, at, flags)
    }
}

/// Any options that can be built.
pub(crate) fn options() -> impl Strategy<Value = BuildOptions> {
    let checkpoints = prop_oneof![
        Just(CheckpointOption::None),
        (1..=8_u8).prop_map(CheckpointOption::State),
        (1..=8_u8).prop_map(CheckpointOption::Update),
    ];
    let target = select(vec![Target::Cpu, Target::Cuda]);
    let spelling = select(vec![Spelling::Pawl, Spelling::Genai018]);
    let weights = select(vec![None, Some(MtpWeights::Int8), Some(MtpWeights::Same)]);
    let head = (any::<bool>(), weights);
    let any = (target, checkpoints, head, spelling, any::<bool>());
    any.prop_map(
        |(target, checkpoints, (mtp, mtp_weights), spelling, limited)| BuildOptions {
            target,
            checkpoints,
            mtp,
            mtp_weights,
            spelling,
            max_sequence: limited.then_some(17),
            ..BuildOptions::default()
        },
    )
    .prop_filter("refused up front", |options| options.validate().is_ok())
}
