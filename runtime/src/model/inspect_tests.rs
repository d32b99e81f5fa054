//! Models that cannot be loaded can be looked at.

use super::*;
use crate::model::test_onnx::F32;
use crate::model::test_toy::{CONFIG, folder, graph};
use std::fs;

fn toy() -> (tempfile::TempDir, Inspection) {
    let folder = folder();
    let found = inspect(folder.path(), &LoadOptions::new()).unwrap();
    (folder, found)
}

#[test]
fn a_model_is_described_as_when_it_is_loaded() {
    let (folder, found) = toy();
    let model = crate::Model::load(folder.path(), &LoadOptions::new().threads(1)).unwrap();
    assert_eq!(&found.info, model.info());
    assert_eq!(&found.memory, model.memory_plan());
    assert_eq!(found.obstacle, None);

    let info = &found.info;
    assert_eq!(
        (info.hidden_size, info.attention_heads, info.head_size),
        (2, 1, 1)
    );
    assert_eq!((info.limits.requests, info.limits.kv_blocks), (2, 8));
    let [cache, bank] = info.state_groups.as_slice() else {
        panic!("{info}");
    };
    assert_eq!(
        (cache.layout, cache.element_type.as_str()),
        ("paged", "float32")
    );
    assert_eq!(
        (bank.layout, bank.row_shape.as_slice()),
        ("bank", &[3, 1][..])
    );
    assert_eq!(bank.checkpoint_alignment, Some("left"));
    assert!(
        !info.has_head
            && found
                .to_string()
                .contains("; auto: the model has no drafting head, so only lookups")
    );
}

#[test]
fn a_checkpoint_that_was_not_exported_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let message = || {
        let refused = inspect(folder.path(), &LoadOptions::new()).unwrap_err();
        assert_eq!(refused.code(), crate::ErrorCode::FileUnreadable);
        refused.to_string()
    };
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    assert!(!message().contains("build-model"), "no weights");
    fs::write(folder.path().join("model.safetensors"), "").unwrap();
    let command = format!("build-model --input {} --output", folder.path().display());
    assert!(message().contains(&command), "{}", message());
    let file = folder.path().join("genai_config.json");
    let plan = crate::StatePlan::read(&file, 8, None).unwrap_err();
    assert!(plan.to_string().contains(&command), "{plan}");
    // What is there and wrong is told as it is.
    fs::write(&file, "{").unwrap();
    let refused = inspect(folder.path(), &LoadOptions::new()).unwrap_err();
    assert!(matches!(refused, LoadError::Config(_)), "{refused}");
}

/// A graph that ONNX Runtime cannot open is described all the same.
#[test]
fn nothing_is_opened() {
    let folder = folder();
    graph()
        .node("NoSuchOperator", "logits", "nothing", &[])
        .write(folder.path(), "toy.onnx");
    assert!(crate::Model::load(folder.path(), &LoadOptions::new()).is_err());
    let found = inspect(folder.path(), &LoadOptions::new()).unwrap();
    assert_eq!(found.info.model_type, "toy");
}

#[test]
fn what_loading_would_refuse_is_the_obstacle() {
    let (folder, _) = toy();
    let large = LoadOptions::new().kv_blocks(1 << 42);
    let found = inspect(folder.path(), &large).unwrap();
    if Path::new("/proc/meminfo").exists() {
        let obstacle = found.obstacle.clone().unwrap();
        assert!(obstacle.contains("does not fit"), "{obstacle}");
        assert!(
            found
                .to_string()
                .ends_with(&format!("cannot be loaded here: {obstacle}"))
        );
    }
    assert_eq!(found.memory.kv_blocks(), 1 << 42);

    graph()
        .node("com.microsoft:PagedAttention", "logits", "nothing", &[])
        .write(folder.path(), "toy.onnx");
    let found = inspect(folder.path(), &large).unwrap();
    assert_eq!(found.info.provider, Provider::Cuda { device_id: 0 });
    let obstacle = found.obstacle.unwrap();
    assert!(obstacle.contains("--target cpu"), "{obstacle}");

    fs::remove_file(folder.path().join("toy.data")).unwrap();
    let error = inspect(folder.path(), &large).unwrap_err();
    assert!(
        error.to_string().contains("`toy.data` is missing"),
        "{error}"
    );
}

#[test]
fn groups_of_different_rows_stay_apart() {
    let folder = folder();
    let second = CONFIG
        .replace(
            "\"num_hidden_layers\": 1",
            "\"num_hidden_layers\": 2, \"layer_types\": [\"a\", \"b\"]",
        )
        .replace("\"shared_initializers\"", r#""HERE""#);
    let group = r#"{"kind": "fixed", "operator": "causal_conv", "layer_ids": [1], "state_layout": "bank", "bindings": {
      "state": {"input": "past.%d.bank", "output": "present.%d.bank", "checkpoints": "checkpoints.%d"}},
     "checkpoint_count": 2, "checkpoint_alignment": "left", "checkpoint_form": "state"}],
   "shared_initializers""#;
    let config = second.replace("],\n   \"HERE\"", &format!(",\n{group}"));
    assert_ne!(config, second);
    fs::write(folder.path().join("genai_config.json"), config).unwrap();
    graph()
        .input("past.1.bank", F32, "bank_rows 7 1")
        .output("present.1.bank", F32, "bank_rows 7 1")
        .output("checkpoints.1", F32, "window rows 7 1")
        .write(folder.path(), "toy.onnx");
    let found = inspect(folder.path(), &LoadOptions::new()).unwrap();
    let rows: Vec<_> = found
        .info
        .state_groups
        .iter()
        .map(|group| &group.row_shape[..])
        .collect();
    assert_eq!(rows, [&[1, 1][..], &[3, 1], &[7, 1]]);
    assert!(found.to_string().contains("2 layers (1 a, 1 b)"), "{found}");
}
