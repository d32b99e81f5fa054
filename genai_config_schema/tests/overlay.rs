//! Overlays.
#![allow(missing_docs, reason = "a test program has no public interface")]

use genai_config_schema::{ConfigCode, GenaiConfig};

fn genai() -> GenaiConfig {
    GenaiConfig::from_json(include_str!("fixtures/genai-0.18.json")).expect("valid")
}

#[test]
fn objects_merge_and_scalars_are_replaced() {
    let base = genai();
    let overlay =
        r#"{"search": {"top_k": 1}, "engine": {"dynamic_batching": {"max_batch_size": 4}}}"#;
    let config = base.with_overlay(overlay).expect("valid");
    let mut expected = base;
    expected.search.top_k = Some(1);
    expected
        .engine
        .dynamic_batching
        .as_mut()
        .expect("declared")
        .max_batch_size = Some(4);
    assert_eq!(config, expected);
}

#[test]
fn providers_merge_by_name_and_other_lists_append() {
    let base = genai();
    let overlay = r#"{"model": {"eos_token_id": [3], "decoder": {"session_options": {
        "provider_options": [{"cuda": {"enable_cuda_graph": "1"}}, {"cpu": {}}]}}}}"#;
    let config = base.with_overlay(overlay).expect("valid");
    assert_eq!(config.model.eos_token_id, [2, 3]);
    let mut expected = base.model.decoder.session_options.provider_options;
    expected[0]
        .options
        .insert("enable_cuda_graph".to_owned(), "1".to_owned());
    let providers = config.model.decoder.session_options.provider_options;
    assert_eq!(providers[0], expected[0]);
    assert_eq!(providers[1].name, "cpu");
    assert_eq!(providers.len(), 2);
}

#[test]
fn a_number_replaces_the_end_tokens() {
    let config = genai()
        .with_overlay(r#"{"model": {"eos_token_id": 5}}"#)
        .expect("valid");
    assert_eq!(config.model.eos_token_id, [5]);
}

#[test]
fn an_overlay_that_is_wrong_by_itself_names_its_own_places() {
    let overlay = r#"{"model": {"decoder": {"state_groups": [{"kind": "fixed", "layers": [0]}]}}}"#;
    let errors = genai().with_overlay(overlay).expect_err("an unknown key");
    assert_eq!(errors.errors[0].code, ConfigCode::UnknownKey);
    assert_eq!(
        errors.errors[0].path,
        "model.decoder.state_groups[0].layers"
    );
    for (overlay, code) in [
        ("{", ConfigCode::NotJson),
        ("7", ConfigCode::WrongType),
        (
            r#"{"model": {"mtp": {"filename": "../x"}}}"#,
            ConfigCode::UnsafePath,
        ),
        (r#"{"model": {"decoder": null}}"#, ConfigCode::WrongType),
    ] {
        let errors = genai().with_overlay(overlay).expect_err(overlay);
        assert_eq!(errors.errors[0].code, code, "{overlay}");
    }
}

#[test]
fn an_overlay_whose_result_is_wrong_changes_nothing() {
    let base = genai();
    let errors = base
        .with_overlay(r#"{"model": {"decoder": {"num_hidden_layers": 4}}}"#)
        .expect_err("layer 4 is beyond");
    assert!(
        errors
            .codes()
            .all(|code| code == ConfigCode::C7 || code == ConfigCode::OutOfRange)
    );
    assert_eq!(base, genai());
}
