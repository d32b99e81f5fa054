//! Token ids with a role.

use pawl_models::{DescribeError, SpecialTokens, describe};
use serde_json::{Value, json};

use crate::synthetic::Dims;

fn tokens(config: &Value, generation: Option<Value>) -> Result<SpecialTokens, DescribeError> {
    let mut checkpoint = Dims::default().llama("llama");
    let keys = config.as_object().cloned().unwrap_or_default();
    crate::synthetic::text(&mut checkpoint).extend(keys);
    checkpoint.generation_config = generation;
    describe(&checkpoint).map(|model| model.tokens)
}

fn eos(config: Value, generation: Option<Value>) -> Vec<u32> {
    tokens(&json!({"eos_token_id": config}), generation)
        .expect("tokens")
        .eos
}

const NONE: [u32; 0] = [];

#[test]
fn one_id_or_a_list() {
    assert_eq!(eos(json!(7), None), [7]);
    assert_eq!(eos(json!([7]), None), [7]);
    assert_eq!(eos(json!([7, 3, 7]), None), [7, 3]);
    assert_eq!(eos(json!([]), None), NONE);
    assert_eq!(eos(json!(null), None), NONE);
    assert_eq!(eos(json!(-1), None), NONE);
}

#[test]
fn a_list_is_bounded() {
    let ids = |count: usize| Value::from((0..count).map(|id| id % 31).collect::<Vec<_>>());
    assert_eq!(eos(ids(256), None).len(), 31);
    let generation = Some(json!({"eos_token_id": ids(257)}));
    for (config, generation) in [(ids(257), None), (json!(2), generation)] {
        let error = tokens(&json!({"eos_token_id": config}), generation);
        let error = error.expect_err("refused").to_string();
        let part = "eos_token_id: expected at most 256 ids, found 257 entries";
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_generation_file_wins_role_by_role() {
    assert_eq!(eos(json!(7), Some(json!({"eos_token_id": [4, 5]}))), [4, 5]);
    assert_eq!(eos(json!(7), Some(json!({"eos_token_id": null}))), [7]);
    assert_eq!(eos(json!(7), Some(json!({"bos_token_id": 4}))), [7]);
    let both = tokens(
        &json!({"bos_token_id": 1, "pad_token_id": 3}),
        Some(json!({"bos_token_id": 6})),
    );
    let both = both.expect("tokens");
    assert_eq!((both.bos, both.pad), (Some(6), Some(3)));
}

#[test]
fn ids_stay_below_the_vocabulary() {
    for (key, value) in [
        ("eos_token_id", json!(31)),
        ("eos_token_id", json!([1, 31])),
        ("eos_token_id", json!("2")),
        ("eos_token_id", json!([1.5])),
        ("eos_token_id", json!(true)),
        ("bos_token_id", json!(-2)),
        ("bos_token_id", json!([1])),
        ("pad_token_id", json!(4_294_967_296_u64)),
    ] {
        let error = tokens(&json!({key: value}), None)
            .expect_err("refused")
            .to_string();
        assert!(
            error.starts_with(&format!("config.json: {key}: expected ")),
            "{error}"
        );
        let generation = Some(json!({key: value}));
        let error = tokens(&json!({}), generation)
            .expect_err("refused")
            .to_string();
        assert!(
            error.starts_with(&format!("generation_config.json: {key}: expected ")),
            "{error}"
        );
    }
    let error = tokens(&json!({}), Some(json!([])))
        .expect_err("refused")
        .to_string();
    assert_eq!(
        error,
        "generation_config.json: (top level): expected an object, found []"
    );
}
