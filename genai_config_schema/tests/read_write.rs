//! Reading, resolving and writing whole files.
#![allow(missing_docs, reason = "a test program has no public interface")]
#![allow(clippy::indexing_slicing, reason = "a wrong index fails the test")]

use genai_config_schema::{
    CheckpointAlignment, CheckpointForm, ConfigCode, ElementType, GenaiConfig, Manifest, Spelling,
    StateDecay, StateLayout, StateOperator,
};
use serde_json::{Value, json};

const PAWL: &str = include_str!("fixtures/pawl.json");
const GENAI: &str = include_str!("fixtures/genai-0.18.json");

fn config(text: &str) -> GenaiConfig {
    GenaiConfig::from_json(text).expect("valid")
}

fn manifest(text: &str) -> Manifest {
    config(text).manifest().expect("declared")
}

#[test]
fn what_is_written_is_what_was_read() {
    let written = |text| -> Value { serde_json::from_str(&config(text).to_json()).expect("JSON") };
    let original = |text| -> Value { serde_json::from_str(text).expect("JSON") };
    let mut pawl = original(PAWL);
    let decoder = pawl["model"]["decoder"].as_object_mut().expect("an object");
    decoder
        .remove("session_options")
        .expect("it holds an empty list only");
    assert_eq!(written(PAWL), pawl);
    let mut genai = original(GENAI);
    genai["model"]["eos_token_id"] = json!([2]);
    assert_eq!(written(GENAI), genai);
}

#[test]
fn a_whole_number_may_be_spelt_as_a_float() {
    let config = config(&PAWL.replace("\"vocab_size\": 331", "\"vocab_size\": 331.0"));
    assert_eq!(config.model.vocab_size, 331);
}

#[test]
fn bound_names_are_resolved_per_layer() {
    let manifest = manifest(PAWL);
    assert_eq!(manifest.spelling, Spelling::Pawl);
    assert!(manifest.captures_in_mixed_steps);
    let paged = manifest.paged.expect("two layers attend");
    assert_eq!(
        paged
            .layers
            .iter()
            .map(|layer| layer.layer)
            .collect::<Vec<_>>(),
        [1, 4]
    );
    assert_eq!(paged.layers[1].value_output, "present.4.value");
    assert_eq!(paged.element_type, Some(ElementType::Float32));
    assert_eq!(manifest.fixed.len(), 6);
    assert_eq!(manifest.fixed[2].row_shape, [112, 3]);
    let recurrent = &manifest.fixed[4];
    assert_eq!((recurrent.layer, recurrent.layout), (2, StateLayout::Bank));
    assert_eq!(recurrent.operator, StateOperator::GatedDeltaNet);
    assert_eq!(recurrent.key_heads, Some(2));
    assert_eq!(recurrent.row_shape, [4, 12, 16]);
    assert_eq!(recurrent.element_type, Some(ElementType::Float32));
    let checkpoints = recurrent.checkpoints.as_ref().expect("declared");
    assert_eq!(checkpoints.output, "checkpoints.2.recurrent_state");
    assert_eq!(
        (checkpoints.count, checkpoints.form),
        (8, CheckpointForm::Update)
    );
}

#[test]
fn commit_graphs_and_decays_belong_to_every_layer_of_a_group() {
    let mut config = config(PAWL);
    let group = &mut config.model.decoder.state_groups[2];
    group.commit_filename = Some("commit.onnx".to_owned());
    group.decay = Some(StateDecay::PerKey);
    let manifest = config.manifest().expect("valid");
    for tensor in &manifest.fixed {
        let recurrent = tensor.operator == StateOperator::GatedDeltaNet;
        assert_eq!(
            tensor.commit_filename.as_deref(),
            recurrent.then_some("commit.onnx")
        );
        assert_eq!(tensor.decay == StateDecay::PerKey, recurrent);
    }
}

#[test]
fn both_spellings_resolve_alike() {
    let (pawl, genai) = (manifest(PAWL), manifest(GENAI));
    assert_eq!(genai.spelling, Spelling::Genai018);
    let layers = |manifest: &Manifest| manifest.paged.as_ref().map(|paged| paged.layers.clone());
    assert_eq!(layers(&genai), layers(&pawl));
    assert_eq!(genai.fixed.len(), pawl.fixed.len());
    for (genai, pawl) in genai.fixed.iter().zip(&pawl.fixed) {
        assert_eq!((genai.layer, genai.operator), (pawl.layer, pawl.operator));
        assert_eq!((&genai.input, &genai.output), (&pawl.input, &pawl.output));
        assert_eq!(
            (genai.layout, genai.key_heads),
            (StateLayout::Rows, pawl.key_heads)
        );
        let checkpoints = genai.checkpoints.as_ref().expect("declared");
        assert_eq!(
            (checkpoints.count, checkpoints.form),
            (8, CheckpointForm::Update)
        );
        assert_eq!(checkpoints.alignment, CheckpointAlignment::Left);
    }
    let capsule = genai.fixed[5].checkpoints.as_ref().expect("declared");
    assert_eq!(capsule.output, "state_update.3.recurrent_capsule");
}

#[test]
fn absent_templates_of_genai_take_their_defaults() {
    let mut config = config(GENAI);
    let named = config.manifest();
    let decoder = &mut config.model.decoder;
    decoder.inputs.past_key_names = None;
    decoder.inputs.past_conv_names = None;
    decoder.inputs.past_recurrent_names = None;
    decoder.outputs.present_value_names = None;
    decoder.outputs.state_update_recurrent_capsule_names = None;
    assert_eq!(config.manifest(), named);
}

#[test]
fn updates_that_are_off_are_no_checkpoints() {
    let manifest =
        manifest(&GENAI.replace("\"capacity\": 8", "\"capacity\": 8, \"enabled\": false"));
    assert!(
        manifest
            .fixed
            .iter()
            .all(|tensor| tensor.checkpoints.is_none())
    );
}

#[test]
fn a_file_without_groups_is_read_but_declares_no_state() {
    let mut config = config(GENAI);
    config.model.decoder.state_groups.clear();
    assert_eq!(config.validate(), Ok(()));
    let errors = config.manifest().expect_err("no state");
    assert_eq!(errors.codes().collect::<Vec<_>>(), [ConfigCode::MissingKey]);
}

#[test]
fn a_value_that_is_not_a_number_is_refused() {
    let mut config = config(PAWL);
    config.search.temperature = Some(f32::NAN);
    let errors = config.validate().expect_err("NaN");
    assert_eq!(errors.codes().collect::<Vec<_>>(), [ConfigCode::NotFinite]);
    assert_eq!(errors.errors[0].path, "search.temperature");
}
