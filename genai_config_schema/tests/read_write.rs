//! Reading, resolving and writing whole files.
#![allow(missing_docs, reason = "a test program has no public interface")]

use genai_config_schema::{GenaiConfig, Spelling, StateOperator};

const PAWL: &str = include_str!("fixtures/pawl.json");

#[test]
fn writing_and_reading_is_identity() {
    let config = GenaiConfig::from_json(PAWL).expect("valid");
    assert_eq!(GenaiConfig::from_json(&config.to_json()), Ok(config));
}

#[test]
fn names_are_resolved_per_layer() {
    let config = GenaiConfig::from_json(PAWL).expect("valid");
    let manifest = config.manifest().expect("declared");
    assert_eq!(manifest.spelling, Spelling::Pawl);
    let paged = manifest.paged.expect("two layers attend");
    assert_eq!(paged.layers[1].value_output, "present.4.value");
    let recurrent = &manifest.fixed[3];
    assert_eq!(recurrent.operator, StateOperator::GatedDeltaNet);
    assert_eq!(recurrent.key_heads, Some(2));
    let checkpoints = recurrent.checkpoints.as_ref().expect("declared");
    assert_eq!(checkpoints.output, "checkpoints.0.recurrent_state");
}
