//! Rotary frequencies against values computed from the papers' formulas (`rope_cases/reference.py`).

use pawl_models::{CheckpointInfo, Mixer, Rope, describe};
use serde_json::{Value, json};

use crate::synthetic::{Dims, text};

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("rope_cases/cases.json")).expect("JSON")
}

fn checkpoint(case: &Value) -> CheckpointInfo {
    let dims = Dims {
        head_dim: case["head_dim"].as_u64().expect("size"),
        ..Dims::default()
    };
    let mut checkpoint = dims.llama("llama");
    text(&mut checkpoint).insert(
        "max_position_embeddings".to_owned(),
        case["context"].clone(),
    );
    checkpoint
}

fn rope(checkpoint: &CheckpointInfo) -> Rope {
    let model = describe(checkpoint).expect("a description");
    let Mixer::Attention(attention) = &model.layers[0].mixer else {
        panic!("{:?}", model.layers[0].mixer);
    };
    attention.rope.clone()
}

#[test]
fn frequencies_are_those_of_the_formulas() {
    for case in cases() {
        let mut checkpoint = checkpoint(&case);
        text(&mut checkpoint).insert("rope_parameters".to_owned(), case["rope"].clone());
        let rope = rope(&checkpoint);
        let expected = case["inverse_frequencies"].as_array().expect("list");
        assert_eq!(rope.inverse_frequencies.len(), expected.len());
        for (found, expected) in rope.inverse_frequencies.iter().zip(expected) {
            let expected = expected.as_f64().expect("number");
            let error = (f64::from(*found) / expected - 1.0).abs();
            assert!(error < 1e-6, "{}: {found} for {expected}", case["rope"]);
        }
        let factor = case["attention_factor"].as_f64().expect("number");
        let error = (f64::from(rope.attention_factor) - factor).abs();
        assert!(error < 1e-6, "{}: {}", case["rope"], rope.attention_factor);
    }
}

#[test]
fn old_spellings_mean_the_same() {
    for case in cases() {
        let mut new = checkpoint(&case);
        text(&mut new).insert("rope_parameters".to_owned(), case["rope"].clone());
        let expected = rope(&new);
        for key in ["type", "rope_type"] {
            let mut old = checkpoint(&case);
            let mut section = case["rope"].clone();
            let map = section.as_object_mut().expect("an object");
            let theta = map.remove("rope_theta").expect("theta");
            let kind = map.remove("rope_type").expect("type");
            map.insert(key.to_owned(), kind);
            text(&mut old).insert("rope_theta".to_owned(), theta);
            text(&mut old).insert("rope_scaling".to_owned(), section);
            assert_eq!(rope(&old), expected, "{}", case["rope"]);
        }
    }
}

#[test]
fn one_section_per_layer_type() {
    let dims = Dims::default();
    let mut flat = dims.lfm2();
    let section = json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0});
    text(&mut flat).insert("rope_parameters".to_owned(), section.clone());
    let mut nested = dims.lfm2();
    let sections = json!({"full_attention": section, "conv": null});
    text(&mut nested).insert("rope_parameters".to_owned(), sections);
    assert_eq!(describe(&nested), describe(&flat));
}

#[test]
fn the_original_context_beside_the_section_wins() {
    let with = |outer: Option<u64>, inner: u64| {
        let mut checkpoint = Dims::default().llama("llama");
        let section =
            json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": inner});
        text(&mut checkpoint).insert("rope_scaling".to_owned(), section);
        if let Some(outer) = outer {
            let key = "original_max_position_embeddings".to_owned();
            text(&mut checkpoint).insert(key, json!(outer));
        }
        rope(&checkpoint)
    };
    assert_eq!(with(Some(64), 32), with(None, 64));
    assert_ne!(with(None, 64), with(None, 32));
}
