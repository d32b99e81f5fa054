use std::collections::BTreeSet;

use genai_config_schema::{
    CheckpointAlignment, CheckpointForm, Manifest, StateLayout, StateOperator,
};
use pawl_models::Mixer;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::graph::ir::{Dtype, Graph};
use crate::options::{CheckpointOption, Target};
use crate::testing::{hybrid, models, options};

/// Placements as the writer reports them, at made-up offsets.
fn placements(graphs: &[Graph]) -> Vec<SharedPlacement> {
    let shared = |graph: &Graph| {
        let file = &graph.file;
        let shared = graph.initializers.iter().filter(|init| init.shared);
        let place = |(index, init): (u64, &crate::graph::ir::Initializer)| SharedPlacement {
            graph: file.clone(),
            name: init.name.clone(),
            data_file: "model.onnx.data".to_owned(),
            offset: index * 4096,
            length: init.dims.iter().product::<u64>() * init.dtype.size(),
            dtype: init.dtype,
            dims: init.dims.clone(),
        };
        (0..).zip(shared).map(place).collect::<Vec<_>>()
    };
    graphs.iter().flat_map(shared).collect()
}

fn built(
    model: &ModelDescription,
    options: &BuildOptions,
    generation: Option<&Value>,
) -> (Vec<Graph>, GenaiConfig) {
    let graphs = crate::decoder::emit(model, options).unwrap();
    let config = genai_config(model, options, &placements(&graphs), generation).unwrap();
    (graphs, config)
}

fn names<'a>(names: impl IntoIterator<Item = &'a Option<String>>) -> BTreeSet<String> {
    names.into_iter().flatten().cloned().collect()
}

/// Every input the file names: those of the step and those of the states.
fn named_inputs(config: &GenaiConfig, manifest: &Manifest) -> BTreeSet<String> {
    let inputs = &config.model.decoder.inputs;
    let mut found = names([
        &inputs.input_ids,
        &inputs.position_ids,
        &inputs.cumulative_sequence_lengths,
        &inputs.past_sequence_lengths,
        &inputs.block_table,
        &inputs.logits_indices,
        &inputs.read_rows,
        &inputs.write_rows,
        &inputs.state_update_capture_count,
        &inputs.state_update_active,
    ]);
    for layer in manifest.paged.iter().flat_map(|paged| &paged.layers) {
        found.extend([layer.key_input.clone(), layer.value_input.clone()]);
    }
    found.extend(manifest.fixed.iter().map(|tensor| tensor.input.clone()));
    found
}

/// Every output the file names.
fn named_outputs(config: &GenaiConfig, manifest: &Manifest) -> BTreeSet<String> {
    let outputs = &config.model.decoder.outputs;
    let mut found = names([&outputs.logits, &outputs.hidden_states]);
    for layer in manifest.paged.iter().flat_map(|paged| &paged.layers) {
        found.extend([layer.key_output.clone(), layer.value_output.clone()]);
    }
    for tensor in &manifest.fixed {
        found.insert(tensor.output.clone());
        found.extend(tensor.checkpoints.iter().map(|kept| kept.output.clone()));
    }
    found
}

fn graph_names(values: &[crate::graph::ir::ValueInfo]) -> BTreeSet<String> {
    values.iter().map(|value| value.name.clone()).collect()
}

fn assert_states(manifest: &Manifest, model: &ModelDescription, options: &BuildOptions) {
    let layout = match options.target {
        Target::Cpu => StateLayout::Bank,
        Target::Cuda => StateLayout::Rows,
    };
    for tensor in &manifest.fixed {
        let recurrent = tensor.operator == StateOperator::GatedDeltaNet;
        assert_eq!(tensor.layout, layout);
        let form = match options.checkpoints {
            CheckpointOption::None => None,
            CheckpointOption::State(count) => Some((CheckpointForm::State, count)),
            CheckpointOption::Update(count) => Some((CheckpointForm::Update, count)),
        };
        let kept = tensor.checkpoints.as_ref();
        assert_eq!(
            kept.map(|kept| (kept.form, kept.count)),
            form.map(|(form, count)| (form, u32::from(count)))
        );
        if let Some(kept) = kept {
            let right = recurrent && kept.form == CheckpointForm::State;
            let expected = match right {
                true => CheckpointAlignment::Right,
                false => CheckpointAlignment::Left,
            };
            assert_eq!(kept.alignment, expected);
        }
        if let Mixer::GatedDelta(delta) = &model.layers[tensor.layer as usize].mixer
            && recurrent
            && tensor.key_heads.is_some()
        {
            assert_eq!(tensor.key_heads.map(u64::from), Some(delta.key_heads));
        }
    }
}

proptest! {
    #[test]
    fn any_configuration_is_valid_and_names_its_graphs((model, options) in (models(), options())) {
        let (graphs, config) = built(&model, &options, None);
        config.validate().unwrap();
        prop_assert_eq!(&GenaiConfig::from_json(&config.to_json()).unwrap(), &config);
        let manifest = config.manifest().unwrap();
        prop_assert_eq!(named_inputs(&config, &manifest), graph_names(&graphs[0].inputs));
        prop_assert_eq!(named_outputs(&config, &manifest), graph_names(&graphs[0].outputs));
        assert_states(&manifest, &model, &options);
        let mtp = config.model.mtp.as_ref();
        prop_assert_eq!(mtp.is_some(), graphs.len() == 2);
        let decoder = &config.model.decoder;
        match mtp {
            None => prop_assert!(decoder.shared_initializers.is_empty()),
            Some(mtp) => {
                prop_assert_eq!(&decoder.shared_initializers, &mtp.shared_initializers);
                prop_assert!(!mtp.shared_initializers.is_empty());
            }
        }
    }
}

#[test]
fn the_head_is_named_as_its_graph_is() {
    let (graphs, config) = built(&hybrid(), &BuildOptions::default(), None);
    let mtp = config.model.mtp.unwrap();
    let layer = |template: &Option<String>| template.as_ref().map(|name| name.replace("%d", "0"));
    let inputs = names([
        &mtp.inputs.input_ids,
        &mtp.inputs.hidden_states,
        &mtp.inputs.position_ids,
        &mtp.inputs.cumulative_sequence_lengths,
        &mtp.inputs.past_sequence_lengths,
        &mtp.inputs.block_table,
        &mtp.inputs.logits_indices,
        &layer(&mtp.inputs.past_key_names),
        &layer(&mtp.inputs.past_value_names),
    ]);
    assert_eq!(inputs, graph_names(&graphs[1].inputs));
    let outputs = names([
        &mtp.outputs.logits,
        &mtp.outputs.hidden_states,
        &layer(&mtp.outputs.present_key_names),
        &layer(&mtp.outputs.present_value_names),
    ]);
    assert_eq!(outputs, graph_names(&graphs[1].outputs));
    assert_eq!(mtp.main_hidden_states.as_deref(), Some("hidden_states"));
    assert_eq!(
        (
            mtp.num_key_value_heads,
            mtp.head_size,
            mtp.num_hidden_layers
        ),
        (2, 6, Some(1))
    );
}

#[test]
fn drafts_are_at_most_what_the_checkpoints_take_back() {
    let drafts = |checkpoints: &str, mtp| {
        let options = BuildOptions {
            checkpoints: checkpoints.parse().unwrap(),
            mtp,
            ..BuildOptions::default()
        };
        built(&hybrid(), &options, None)
            .1
            .speculative
            .max_draft_tokens
    };
    assert_eq!(drafts("update:8", true), Some(7));
    assert_eq!(drafts("state:3", true), Some(2));
    assert_eq!(drafts("update:1", true), None);
    assert_eq!(drafts("none", true), None);
    assert_eq!(drafts("update:8", false), None);
}

#[test]
fn the_batching_and_provider_are_those_of_the_target() {
    for (target, block_size, providers) in [("cpu", 32, vec![]), ("cuda", 256, vec!["cuda"])] {
        let options = BuildOptions {
            target: target.parse().unwrap(),
            max_sequence: Some(48),
            ..BuildOptions::default()
        };
        let (_, config) = built(&hybrid(), &options, None);
        let batching = config.engine.dynamic_batching.unwrap();
        assert_eq!(batching.block_size, Some(block_size));
        assert_eq!(batching.max_batch_size, Some(16));
        assert_eq!(batching.max_scheduled_tokens, Some(2048));
        assert_eq!(batching.prefix_caching, Some(true));
        let session = &config.model.decoder.session_options;
        let found: Vec<&str> = (session.provider_options.iter())
            .map(|provider| provider.name.as_str())
            .collect();
        assert_eq!(found, providers);
        assert_eq!(config.model.context_length, 48);
        assert_eq!(config.search.max_length, Some(48));
    }
}

#[test]
fn sampling_settings_come_from_the_generation_settings() {
    let settings = json!({
        "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null,
        "repetition_penalty": 1.05, "eos_token_id": [2], "transformers_version": "5.0.0",
    });
    let search = search::search(9, Some(&settings)).unwrap();
    assert_eq!(search.do_sample, Some(true));
    assert_eq!(search.temperature, Some(0.6));
    assert_eq!(search.top_k, Some(20));
    assert_eq!(search.top_p, Some(0.95));
    assert_eq!(search.min_p, None);
    assert_eq!(search.repetition_penalty, Some(1.05));
    let everything = search::search(9, Some(&json!({"top_k": -1}))).unwrap();
    assert_eq!(everything.top_k, Some(0));
    let absent = search::search(9, None).unwrap();
    assert_eq!((absent.do_sample, absent.max_length), (None, Some(9)));
}

#[test]
fn sampling_settings_that_mean_nothing_are_refused_by_name() {
    for (key, value) in [
        ("do_sample", json!("yes")),
        ("temperature", json!(-0.5)),
        ("temperature", json!("hot")),
        ("temperature", json!(1e300)),
        ("top_k", json!(-2)),
        ("top_k", json!(1.5)),
        ("top_p", json!(1.01)),
        ("min_p", json!(-0.1)),
        ("repetition_penalty", json!(0)),
    ] {
        let error = search::search(9, Some(&json!({ key: value }))).unwrap_err();
        let expected = format!("generation_config.json: {key}: expected ");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
fn sizes_beyond_the_file_are_refused() {
    let mut model = hybrid();
    model.context_length = 1 << 32;
    let error = genai_config(&model, &BuildOptions::default(), &[], None).unwrap_err();
    assert!(
        error.to_string().contains("context_length 4294967296"),
        "{error}"
    );
}

#[test]
fn shared_initializers_say_where_and_what_they_are() {
    let (_, config) = built(&hybrid(), &BuildOptions::default(), None);
    let shared = &config.model.decoder.shared_initializers;
    let found: Vec<_> = (shared.iter())
        .map(|one| (one.name.as_str(), one.offset, one.length, one.data_type))
        .collect();
    let number = Dtype::F32.onnx().unsigned_abs();
    assert_eq!(
        found,
        [
            ("embed_tokens", 0, 352, number),
            ("lm_head", 4096, 352, number)
        ]
    );
    assert_eq!(shared[0].shape, [11, 8]);
}
