//! Each architecture on the settings and tensor headers of a real file.

use pawl_models::{Attention, Layer, Mixer, ModelDescription, Transform, Weight, describe};

use crate::fixture::{FIXTURES, fixture};

fn model(name: &str) -> ModelDescription {
    describe(&fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn attention(layer: &Layer) -> &Attention {
    let Mixer::Attention(attention) = &layer.mixer else {
        panic!("{:?}", layer.mixer);
    };
    attention
}

fn kinds(model: &ModelDescription) -> Vec<&str> {
    model.layers.iter().map(|layer| layer.kind).collect()
}

fn name(weight: &Weight) -> &str {
    &weight.parts[0].tensor
}

fn rows(weight: &Weight) -> Vec<(u64, u64)> {
    let parts = weight.parts.iter();
    parts.map(|part| (part.rows.start, part.rows.end)).collect()
}

#[test]
fn every_fixture_is_described_and_only_the_vision_tower_is_left_over() {
    for name in FIXTURES {
        let vision = fixture(name).tensors.into_keys();
        let vision = vision
            .filter(|name| name.starts_with("model.visual."))
            .count() as u64;
        let skipped: u64 = model(name).skipped.iter().map(|group| group.tensors).sum();
        assert_eq!(skipped, vision, "{name}");
    }
}

#[test]
fn qwen3_5_beside_a_vision_tower() {
    let model = model("qwen3_5-odd");
    assert_eq!(
        (model.model_type.as_str(), model.architecture),
        ("qwen3_5_text", "qwen3_5")
    );
    assert_eq!(
        (model.vocab_size, model.hidden_size, model.context_length),
        (331, 96, 2048)
    );
    assert_eq!(
        name(&model.embedding),
        "model.language_model.embed_tokens.weight"
    );
    assert_eq!(
        kinds(&model),
        [
            "linear_attention",
            "full_attention",
            "linear_attention",
            "linear_attention",
            "full_attention"
        ]
    );
    assert_eq!(model.output.as_ref().map(name), Some("lm_head.weight"));
    let [vision] = model.skipped.as_slice() else {
        panic!("{:?}", model.skipped);
    };
    assert_eq!(
        (vision.prefix.as_str(), vision.tensors),
        ("model.visual.", 21)
    );
}

#[test]
fn qwen3_5_gated_attention() {
    let model = model("qwen3_5-odd");
    let a = attention(&model.layers[1]);
    assert_eq!((a.heads, a.kv_heads, a.head_dim), (6, 2, 32));
    assert_eq!(a.scale, (32.0_f32).sqrt().recip());
    assert_eq!(
        (a.rope.rotary_dim, a.rope.inverse_frequencies.len()),
        (16, 8)
    );
    let gate = a.gate.as_ref().expect("gate");
    assert_eq!(rows(&a.query)[..3], [(0, 32), (64, 96), (128, 160)]);
    assert_eq!(rows(gate)[..3], [(32, 64), (96, 128), (160, 192)]);
    assert_eq!(
        (&a.query.shape[..], &gate.shape[..]),
        (&[192, 96][..], &[192, 96][..])
    );
    assert_eq!(gate.parts[5].shape, [384, 96]);
    for norm in [&a.query_norm, &a.key_norm] {
        let norm = norm.as_ref().expect("norm");
        assert_eq!(norm.weight.transform, Transform::AddOne);
        assert_eq!(norm.epsilon, 1e-6);
    }
}

#[test]
fn qwen3_5_gated_delta() {
    let model = model("qwen3_5-odd");
    let Mixer::GatedDelta(d) = &model.layers[0].mixer else {
        panic!("{:?}", model.layers[0].mixer);
    };
    assert_eq!(
        (d.key_heads, d.value_heads, d.key_dim, d.value_dim, d.kernel),
        (2, 6, 24, 40, 4)
    );
    assert_eq!(
        (&d.qkv.shape[..], &d.z.shape[..]),
        (&[336, 96][..], &[240, 96][..])
    );
    assert_eq!(
        (&d.conv.shape[..], &d.conv.parts[0].shape[..]),
        (&[336, 4][..], &[336, 1, 4][..])
    );
    assert_eq!(
        name(&d.a),
        "model.language_model.layers.0.linear_attn.in_proj_a.weight"
    );
    assert_eq!(
        name(&d.b),
        "model.language_model.layers.0.linear_attn.in_proj_b.weight"
    );
    assert_eq!(d.norm.weight.transform, Transform::None);
    assert_eq!(
        model.layers[0].mixer_norm.weight.transform,
        Transform::AddOne
    );
    assert_eq!(model.final_norm.weight.transform, Transform::AddOne);
}

#[test]
fn qwen3_5_head() {
    let model = model("qwen3_5-odd");
    let head = model.mtp.as_ref().expect("head");
    assert_eq!(
        (name(&head.fc), &head.fc.shape[..]),
        ("mtp.fc.weight", &[96, 192][..])
    );
    assert_eq!(
        name(&head.embedding_norm.weight),
        "mtp.pre_fc_norm_embedding.weight"
    );
    assert_eq!(
        name(&head.hidden_norm.weight),
        "mtp.pre_fc_norm_hidden.weight"
    );
    assert_eq!(name(&head.final_norm.weight), "mtp.norm.weight");
    assert_eq!(head.layer.kind, "full_attention");
    assert_eq!(
        name(&attention(&head.layer).query),
        "mtp.layers.0.self_attn.q_proj.weight"
    );
    let norms = [&head.embedding_norm, &head.hidden_norm, &head.final_norm];
    for norm in norms
        .into_iter()
        .chain([&head.layer.mixer_norm, &head.layer.mlp_norm])
    {
        assert_eq!(norm.weight.transform, Transform::AddOne);
    }
}

#[test]
fn qwen3_5_alone_and_tied() {
    let model = model("tiny-python");
    assert_eq!(
        (model.model_type.as_str(), model.architecture),
        ("qwen3_5_text", "qwen3_5")
    );
    assert_eq!(name(&model.embedding), "model.embed_tokens.weight");
    assert_eq!(model.output, None);
    assert!(model.mtp.is_some() && model.skipped.is_empty());
    assert_eq!((model.tokens.bos, model.tokens.pad), (None, Some(2041)));
    assert_eq!(model.tokens.eos, [2043, 2041]);
    assert_eq!(attention(&model.layers[3]).rope.rotary_dim, 16);
}

#[test]
fn lfm2() {
    let model = model("lfm2-odd");
    assert_eq!(
        kinds(&model),
        ["conv", "full_attention", "conv", "conv", "full_attention"]
    );
    assert_eq!(
        name(&model.final_norm.weight),
        "model.embedding_norm.weight"
    );
    assert_eq!((model.output.is_none(), model.mtp.is_none()), (true, true));
    let layer = &model.layers[0];
    let Mixer::ShortConv(c) = &layer.mixer else {
        panic!("{:?}", layer.mixer);
    };
    assert_eq!(
        (c.channels, c.kernel, &c.conv.shape[..]),
        (96, 3, &[96, 3][..])
    );
    assert_eq!(c.input.shape, [288, 96]);
    assert_eq!(
        name(&layer.mixer_norm.weight),
        "model.layers.0.operator_norm.weight"
    );
    assert_eq!(
        name(&layer.mlp_norm.weight),
        "model.layers.0.ffn_norm.weight"
    );
    assert_eq!(
        name(&layer.mlp.gate),
        "model.layers.0.feed_forward.w1.weight"
    );
    assert_eq!(name(&layer.mlp.up), "model.layers.0.feed_forward.w3.weight");
    assert_eq!(
        name(&layer.mlp.down),
        "model.layers.0.feed_forward.w2.weight"
    );
    assert_eq!(layer.mixer_norm.epsilon, 1e-5);
    let a = attention(&model.layers[1]);
    assert_eq!(
        (a.heads, a.kv_heads, a.head_dim, a.rope.rotary_dim),
        (6, 2, 16, 16)
    );
    assert!(a.gate.is_none());
    assert_eq!(name(&a.output), "model.layers.1.self_attn.out_proj.weight");
    let norm = a.query_norm.as_ref().expect("norm");
    assert_eq!(
        name(&norm.weight),
        "model.layers.1.self_attn.q_layernorm.weight"
    );
    assert_eq!(norm.weight.transform, Transform::None);
}

#[test]
fn llama() {
    let model = model("llama-odd");
    assert_eq!(kinds(&model), ["full_attention"; 3]);
    assert_eq!(model.output, None);
    let a = attention(&model.layers[2]);
    assert_eq!((a.heads, a.kv_heads, a.head_dim), (6, 2, 16));
    assert!(a.gate.is_none() && a.query_norm.is_none() && a.key_norm.is_none());
    assert_eq!(model.final_norm.weight.transform, Transform::None);
    assert_eq!(model.tokens.eos, [2]);
    assert_eq!((model.tokens.bos, model.tokens.pad), (Some(1), Some(0)));
}

#[test]
fn qwen3() {
    let model = model("qwen3-odd");
    assert_eq!(kinds(&model), ["full_attention"; 3]);
    assert_eq!(model.output.as_ref().map(name), Some("lm_head.weight"));
    let a = attention(&model.layers[0]);
    assert_eq!((a.head_dim, &a.output.shape[..]), (32, &[96, 192][..]));
    assert_eq!(
        name(&a.key_norm.as_ref().expect("norm").weight),
        "model.layers.0.self_attn.k_norm.weight"
    );
}

#[test]
fn scaled_positions() {
    for (name, factor) in [("linear", 1.0), ("llama3", 1.0), ("yarn", 1.138_629_4)] {
        let model = model(&format!("llama-rope-{name}"));
        let rope = &attention(&model.layers[0]).rope;
        assert_eq!(rope.rotary_dim, 32);
        assert!((rope.attention_factor - factor).abs() < 1e-6, "{name}");
        let last = 10_000_f32.powf(-30.0 / 32.0);
        let ratio = last / rope.inverse_frequencies[15];
        let expected = if name == "llama3" { 8.0 } else { 4.0 };
        assert!((ratio - expected).abs() < 1e-4, "{name}: {ratio}");
    }
}
