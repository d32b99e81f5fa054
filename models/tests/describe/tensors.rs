//! What happens when the checkpoint is not as the settings say.

use pawl_models::{CheckpointInfo, DescribeError, describe};

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

/// Tensors that nothing uses, and whose absence changes nothing.
#[test]
fn harmless_leftovers_are_grouped_by_reason() {
    let mut checkpoint = Dims::default().llama("llama");
    for name in [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.1.self_attn.rotary_emb.inv_freq",
        "model.layers.9.self_attn.rotary_emb.cos_cached",
        "score.weight",
        "extra.bias",
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
        [("extra.bias", 1), ("model.layers.", 3), ("score.weight", 1)]
    );
    let reasons = model
        .skipped
        .iter()
        .filter(|group| group.reason.starts_with("rotary"));
    assert_eq!(reasons.count(), 1);
}

/// A file may have as many groups of tensors without a use as it has tensors.
#[test]
fn many_groups_are_told_of_together() {
    let mut checkpoint = Dims::default().llama("llama");
    for place in 0..500 {
        let name = format!("g{place:03}.extra.weight");
        checkpoint.tensors.insert(name, vec![4]);
    }
    let name = "zz.rotary_emb.inv_freq".to_owned();
    checkpoint.tensors.insert(name, vec![4]);
    let skipped = describe(&checkpoint).expect("a description").skipped;
    assert_eq!(skipped.len(), 65);
    let tensors = skipped.iter().map(|group| group.tensors).sum::<u64>();
    assert_eq!((tensors, skipped[64].tensors), (501, 437));
    assert!(
        skipped
            .iter()
            .any(|group| group.reason.starts_with("rotary"))
    );
}

/// The names of a description that is refused for what it would not use.
fn refused(mut checkpoint: CheckpointInfo, names: &[&str]) -> Vec<String> {
    for name in names {
        checkpoint.tensors.insert((*name).to_owned(), vec![4]);
    }
    let error = describe(&checkpoint).expect_err("tensors that nothing uses");
    assert_eq!(error.code(), "unused_tensors", "{error}");
    let text = error.to_string();
    let DescribeError::Unused { tensors } = error else {
        panic!("{error}");
    };
    assert!(
        text.contains(&format!("{} tensor(s)", tensors.len())),
        "{text}"
    );
    assert!(
        tensors.iter().all(|name| text.contains(name.as_str())),
        "{text}"
    );
    tensors
}

#[test]
fn tensors_of_the_model_that_nothing_uses_are_refused_by_name() {
    for (family, checkpoint) in Dims::default().all() {
        let inside = [
            "model.layers.0.adapter.weight",
            "model.layers.2.self_attn.q_proj.bias",
            "model.layers.4.input_layernorm.weight",
            "model.layers.99.self_attn.q_proj.weight",
        ];
        let beside = [
            "model.layers.0.self_attn.rotary_emb.inv_freq",
            "other.weight",
        ];
        let found = refused(checkpoint, &[&inside[..], &beside].concat());
        assert_eq!(found, inside, "{family}");
    }
}

#[test]
fn what_belongs_to_a_used_module_is_refused_outside_of_the_layers_too() {
    let names = [
        "lm_head.bias",
        "model.embed_tokens.scales",
        "model.norm.bias",
    ];
    assert_eq!(refused(Dims::default().llama("qwen3"), &names), names);
    let tied = [
        "lm_head.bias",
        "lm_head.weight_scale",
        "model.embed_positions.weight",
    ];
    let dims = Dims {
        tied: true,
        ..Dims::default()
    };
    assert_eq!(refused(dims.llama("llama"), &tied), tied);
}

#[test]
fn a_drafting_head_is_part_of_the_model_where_it_is_declared() {
    let names = [
        "mtp.fc.bias",
        "mtp.layers.0.self_attn.k_proj.bias",
        "mtp.layers.1.mlp.up_proj.weight",
    ];
    assert_eq!(refused(Dims::default().qwen3_5(), &names), names);
    let mut without = Dims {
        mtp: false,
        ..Dims::default()
    }
    .qwen3_5();
    without.tensors.insert(names[0].to_owned(), vec![4]);
    let model = describe(&without).expect("a description");
    assert!(model.skipped[0].reason.contains("mtp_num_hidden_layers"));
}

#[test]
fn the_layers_beside_a_vision_tower_are_guarded_and_the_tower_is_left_out() {
    let dims = Dims {
        vision: true,
        ..Dims::default()
    };
    let stray = "model.language_model.layers.0.linear_attn.conv1d.bias";
    let tower = "model.visual.blocks.0.attn.qkv.bias";
    assert_eq!(refused(dims.qwen3_5(), &[stray, tower]), [stray]);
}
