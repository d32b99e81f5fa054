//! What happens when the checkpoint is not as the settings say.

use pawl_models::{DescribeError, describe};

use crate::synthetic::Dims;

#[test]
fn all_mismatches_are_in_one_error() {
    let mut checkpoint = Dims::default().qwen3_5();
    checkpoint
        .tensors
        .remove("model.layers.1.self_attn.q_proj.weight");
    checkpoint.tensors.remove("model.norm.weight");
    let conv = "model.layers.0.linear_attn.conv1d.weight";
    checkpoint.tensors.insert(conv.to_owned(), vec![64, 4]);
    let error = describe(&checkpoint).expect_err("mismatches");
    assert_eq!(error.code(), "tensors");
    let text = error.to_string();
    for part in [
        "3 tensor(s)",
        "model.layers.1.self_attn.q_proj.weight: expected [64, 24], found no such tensor",
        "model.norm.weight: expected [24], found no such tensor",
        "model.layers.0.linear_attn.conv1d.weight: expected [64, 1, 4], found [64, 4]",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_message_stays_readable() {
    let mut checkpoint = Dims {
        attends: vec![true; 40],
        ..Dims::default()
    }
    .llama("llama");
    checkpoint.tensors.clear();
    let error = describe(&checkpoint).expect_err("mismatches");
    let text = error.to_string();
    assert!(text.len() < 10_000 && text.ends_with("more"), "{text}");
    let DescribeError::Tensors { problems } = error else {
        panic!("{error}");
    };
    assert_eq!(problems.len(), 3 + 40 * 9);
}

#[test]
fn leftovers_are_grouped_by_reason() {
    let mut checkpoint = Dims::default().llama("llama");
    for name in [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.1.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.3.self_attn.q_proj.bias",
        "score.weight",
    ] {
        checkpoint.tensors.insert(name.to_owned(), vec![4]);
    }
    let model = describe(&checkpoint).expect("a description");
    let mut groups: Vec<_> = model
        .skipped
        .iter()
        .map(|group| (group.prefix.as_str(), group.tensors))
        .collect();
    groups.sort_unstable();
    assert_eq!(
        groups,
        [
            ("model.layers.", 2),
            ("model.layers.", 2),
            ("score.weight", 1)
        ]
    );
    let reasons = model
        .skipped
        .iter()
        .filter(|group| group.reason.starts_with("rotary"));
    assert_eq!(reasons.count(), 1);
}
