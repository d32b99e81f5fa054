//! Files of both generations of transformers, and files that leave things out, give the same description.

use pawl_models::{CheckpointInfo, DescribeError, describe};
use serde_json::{Map, Value, json};

use crate::fixture::{FIXTURES, fixture};
use crate::synthetic::{Dims, text};

/// Writes the settings as transformers 4 did.
fn old(mut checkpoint: CheckpointInfo) -> CheckpointInfo {
    let text = text(&mut checkpoint);
    if let Some(dtype) = text.remove("dtype") {
        text.insert("torch_dtype".to_owned(), dtype);
    }
    let section = text.remove("rope_parameters").expect("rotary section");
    let Value::Object(mut section) = section else {
        panic!("{section}");
    };
    for key in ["rope_theta", "partial_rotary_factor"] {
        if let Some(value) = section.remove(key) {
            text.insert(key.to_owned(), value);
        }
    }
    let kind = section.remove("rope_type").expect("type");
    if kind != "default" {
        section.insert("type".to_owned(), kind);
    }
    let scaling = if section.is_empty() {
        Value::Null
    } else {
        Value::Object(section)
    };
    text.insert("rope_scaling".to_owned(), scaling);
    checkpoint
}

fn without(checkpoint: &CheckpointInfo, keys: &[&str]) -> CheckpointInfo {
    let mut changed = checkpoint.clone();
    for key in keys {
        text(&mut changed).remove(*key);
    }
    changed
}

fn with(checkpoint: &CheckpointInfo, key: &str, value: Value) -> CheckpointInfo {
    let mut changed = checkpoint.clone();
    text(&mut changed).insert(key.to_owned(), value);
    changed
}

#[test]
fn both_generations_mean_the_same() {
    for name in FIXTURES {
        let new = fixture(name);
        let described = describe(&new).expect("a description");
        assert_eq!(describe(&old(new)).as_ref(), Ok(&described), "{name}");
    }
}

#[test]
fn null_means_absent() {
    for (name, checkpoint) in Dims::default().all() {
        let described = describe(&checkpoint).expect("a description");
        for key in [
            "rope_scaling",
            "sliding_window",
            "quantization_config",
            "full_attn_idxs",
            "pad_token_id",
        ] {
            let changed = with(&checkpoint, key, Value::Null);
            assert_eq!(describe(&changed).as_ref(), Ok(&described), "{name}: {key}");
        }
    }
}

#[test]
fn unknown_keys_are_tolerated() {
    for (name, checkpoint) in Dims::default().all() {
        let described = describe(&checkpoint).expect("a description");
        let changed = with(&checkpoint, "a_key_of_tomorrow", json!({"x": [1, 2]}));
        assert_eq!(describe(&changed), Ok(described), "{name}");
    }
}

#[test]
fn an_absent_head_size_is_found() {
    let even = Dims {
        hidden: 32,
        ..Dims::default()
    };
    for (name, checkpoint) in even.all() {
        let described = describe(&checkpoint).expect("a description");
        assert_eq!(
            describe(&without(&checkpoint, &["head_dim"])),
            Ok(described),
            "{name}"
        );
    }
    for (head_dim, checkpoint) in [(128, "qwen3"), (256, "qwen3_5")] {
        let dims = Dims {
            head_dim,
            ..Dims::default()
        };
        let mut all = dims.all().into_iter();
        let (_, checkpoint) = all.find(|(name, _)| *name == checkpoint).expect("family");
        let described = describe(&checkpoint).expect("a description");
        assert_eq!(
            describe(&without(&checkpoint, &["head_dim"])),
            Ok(described)
        );
    }
}

#[test]
fn absent_key_value_heads_are_as_many_as_heads() {
    let dims = Dims {
        kv_heads: 4,
        ..Dims::default()
    };
    for (name, checkpoint) in dims.all() {
        let described = describe(&checkpoint).expect("a description");
        let changed = without(&checkpoint, &["num_key_value_heads"]);
        assert_eq!(describe(&changed), Ok(described), "{name}");
    }
}

#[test]
fn qwen3_5_layer_types_follow_the_interval() {
    for interval in 1..=6_u64 {
        let dims = Dims {
            attends: (1..=9_u64)
                .map(|layer| layer.is_multiple_of(interval))
                .collect(),
            ..Dims::default()
        };
        let listed = dims.qwen3_5();
        let described = describe(&listed).expect("a description");
        let changed = without(&listed, &["layer_types"]);
        let changed = with(&changed, "full_attention_interval", json!(interval));
        assert_eq!(describe(&changed).as_ref(), Ok(&described));
        if interval == 4 {
            let changed = without(&changed, &["full_attention_interval"]);
            assert_eq!(describe(&changed), Ok(described));
        }
    }
}

#[test]
fn qwen3_5_turns_a_quarter_of_each_head_unless_told_otherwise() {
    let checkpoint = Dims::default().qwen3_5();
    let quarter = with(
        &checkpoint,
        "rope_parameters",
        json!({"partial_rotary_factor": 0.25}),
    );
    let silent = without(&checkpoint, &["rope_parameters"]);
    assert_eq!(describe(&silent), describe(&quarter));
    assert_ne!(describe(&silent), describe(&checkpoint));
}

#[test]
fn lfm2_attention_layers_by_index() {
    let listed = Dims::default().lfm2();
    let described = describe(&listed).expect("a description");
    let indexed = with(
        &without(&listed, &["layer_types"]),
        "full_attn_idxs",
        json!([2, 1]),
    );
    assert_eq!(describe(&indexed), Ok(described));
    let everywhere = Dims {
        attends: vec![true; 3],
        ..Dims::default()
    };
    let listed = everywhere.lfm2();
    let described = describe(&listed).expect("a description");
    assert_eq!(describe(&without(&listed, &["layer_types"])), Ok(described));
}

/// The width that stands in published files, and the one their tensors have.
#[test]
fn lfm2_adjusted_width() {
    for (declared, factor, multiple, held) in [
        (6656, 1.0, 256, 4608),
        (100, 1.0, 64, 128),
        (100, 2.5, 10, 170),
    ] {
        let dims = Dims {
            intermediate: held,
            ..Dims::default()
        };
        let plain = dims.lfm2();
        let described = describe(&plain).expect("a description");
        let mut adjusted = without(&plain, &["block_auto_adjust_ff_dim", "intermediate_size"]);
        let keys = json!({
            "block_ff_dim": declared,
            "intermediate_size": 1,
            "block_ffn_dim_multiplier": factor,
            "block_multiple_of": multiple,
        });
        text(&mut adjusted).extend(keys.as_object().cloned().unwrap_or_else(Map::new));
        assert_eq!(describe(&adjusted).as_ref(), Ok(&described));
        let told_twice = with(&plain, "block_auto_adjust_ff_dim", json!(true));
        assert_eq!(
            describe(&told_twice),
            Ok(described),
            "the checkpoint decides"
        );
    }
}

#[test]
fn lfm2_old_epsilon() {
    let checkpoint = Dims::default().lfm2();
    let epsilon = |checkpoint: &CheckpointInfo| {
        describe(checkpoint)
            .map(|model| model.final_norm.epsilon)
            .expect("a description")
    };
    let both = with(&checkpoint, "block_norm_eps", json!(1e-3));
    assert_eq!(epsilon(&both), 1e-5);
    assert_eq!(epsilon(&without(&both, &["norm_eps"])), 1e-3);
    assert_eq!(epsilon(&without(&checkpoint, &["norm_eps"])), 1e-5);
}

#[test]
fn the_checkpoint_decides_tying() {
    for (name, untied) in Dims::default().all() {
        let described = describe(&untied).expect("a description");
        assert!(described.output.is_some(), "{name}");
        let flagged = with(&untied, "tie_word_embeddings", json!(true));
        assert_eq!(describe(&flagged).as_ref(), Ok(&described), "{name}");

        let mut bare = untied.clone();
        bare.tensors.remove("lm_head.weight");
        let error = describe(&bare)
            .expect_err("no output projection")
            .to_string();
        assert!(
            error.contains("lm_head.weight") && error.contains("tie_word_embeddings"),
            "{error}"
        );
        let tied = describe(&with(&bare, "tie_word_embeddings", json!(true)));
        assert_eq!(tied.map(|model| model.output), Ok(None), "{name}");

        let silent = describe(&without(&bare, &["tie_word_embeddings"]));
        let ties_when_silent = name == "lfm2";
        assert_eq!(silent.is_ok(), ties_when_silent, "{name}");
    }
}

#[test]
fn either_level_may_tie() {
    let dims = Dims {
        vision: true,
        tied: true,
        ..Dims::default()
    };
    let tied = dims.qwen3_5();
    let described = describe(&tied).expect("a description");
    let mut outer = without(&tied, &["tie_word_embeddings"]);
    assert_eq!(describe(&outer).as_ref(), Ok(&described));
    outer.config["tie_word_embeddings"] = json!(false);
    assert!(describe(&outer).is_err());
    let inner = with(&outer, "tie_word_embeddings", json!(true));
    assert_eq!(describe(&inner), Ok(described));
}

#[test]
fn a_head_is_described_if_declared() {
    let with_head = Dims::default().qwen3_5();
    for undeclared in [
        without(&with_head, &["mtp_num_hidden_layers"]),
        with(&with_head, "mtp_num_hidden_layers", json!(0)),
    ] {
        let model = describe(&undeclared).expect("a description");
        assert_eq!(model.mtp, None);
        let [skipped] = model.skipped.as_slice() else {
            panic!("{:?}", model.skipped);
        };
        assert_eq!((skipped.prefix.as_str(), skipped.tensors), ("mtp.", 15));
        assert!(skipped.reason.contains("mtp_num_hidden_layers"));
    }
    let mut headless = with_head.clone();
    headless.tensors.retain(|name, _| !name.starts_with("mtp."));
    let Err(DescribeError::Tensors { problems }) = describe(&headless) else {
        panic!("a head without tensors");
    };
    assert_eq!(problems.len(), 15);
    assert!(
        problems
            .iter()
            .all(|problem| problem.tensor.starts_with("mtp.") && problem.found.is_none())
    );
}

#[test]
fn qwen3_5_names_follow_the_checkpoint_whatever_the_settings() {
    let beside = Dims {
        vision: true,
        ..Dims::default()
    };
    let (beside, alone) = (beside.qwen3_5(), Dims::default().qwen3_5());
    let mixed = CheckpointInfo {
        config: beside.config.clone(),
        ..alone.clone()
    };
    assert_eq!(describe(&mixed), describe(&alone));
    let mixed = CheckpointInfo {
        config: alone.config,
        ..beside.clone()
    };
    assert_eq!(describe(&mixed), describe(&beside));
}
