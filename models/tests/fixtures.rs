//! Every architecture on the settings and tensor headers of real files.

mod common;

use common::fixture;
use pawl_models::{Mixer, Transform, Weight, describe};

fn channels(weight: &Weight) -> &[u64] {
    &weight.shape
}

#[test]
fn every_fixture_is_described_and_no_language_tensor_is_left_over() {
    for name in common::FIXTURES {
        let checkpoint = fixture(name);
        let model = describe(&checkpoint).unwrap_or_else(|error| panic!("{name}: {error}"));
        let skipped: u64 = model.skipped.iter().map(|group| group.tensors).sum();
        let expected = checkpoint
            .tensors
            .keys()
            .filter(|name| name.starts_with("model.visual."))
            .count() as u64;
        assert_eq!(skipped, expected, "{name}: {:?}", model.skipped);
    }
}

#[test]
fn qwen3_5_beside_a_vision_tower() {
    let model = describe(&fixture("qwen3_5-odd")).expect("fixture");
    assert_eq!(model.model_type, "qwen3_5_text");
    let kinds: Vec<_> = model.layers.iter().map(|layer| layer.kind).collect();
    assert_eq!(
        kinds,
        [
            "linear_attention",
            "full_attention",
            "linear_attention",
            "linear_attention",
            "full_attention"
        ]
    );
    let Mixer::Attention(attention) = &model.layers[1].mixer else {
        panic!("attention");
    };
    assert_eq!(
        (attention.heads, attention.kv_heads, attention.head_dim),
        (6, 2, 32)
    );
    assert_eq!(attention.rope.rotary_dim, 16);
    let rows = |weight: &Weight| {
        weight
            .parts
            .iter()
            .map(|part| part.rows.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(rows(&attention.query)[..2], [0..32, 64..96]);
    let gate = attention.gate.as_ref().expect("gate");
    assert_eq!(rows(gate)[..2], [32..64, 96..128]);
    assert_eq!(channels(gate), [192, 96]);
    assert_eq!(
        attention
            .query_norm
            .as_ref()
            .expect("norm")
            .weight
            .transform,
        Transform::AddOne
    );
    let Mixer::GatedDelta(delta) = &model.layers[0].mixer else {
        panic!("gated delta");
    };
    assert_eq!(channels(&delta.conv), [336, 4]);
    assert_eq!(delta.conv.parts[0].shape, [336, 1, 4]);
    assert_eq!(delta.norm.weight.transform, Transform::None);
    assert!(model.output.is_some());
    assert!(model.mtp.is_some());
}
