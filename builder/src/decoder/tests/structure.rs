//! What holds for every model and every option.

use std::collections::{BTreeMap, BTreeSet};

use genai_config_schema::CheckpointForm;
use pawl_models::{Mixer, ModelDescription, Weight};
use proptest::prelude::*;

use super::{inputs, nodes, outputs};
use crate::checkpoints::Checkpoints;
use crate::contract::names::expand;
use crate::decoder::{self, emit};
use crate::graph::ir::{Dim, Dtype, Graph, InitializerData, Node, ValueInfo};
use crate::mtp_weights::MtpWeights;
use crate::options::{BuildOptions, CheckpointOption, Spelling, Target};
use crate::testing::{models, options};

/// Graph inputs that a graph may leave unread: they are the same for every model.
const STEP_INPUTS: [&str; 6] = [
    "input_ids",
    "position_ids",
    "cumulative_sequence_lengths",
    "past_sequence_lengths",
    "block_table",
    "logits_indices",
];

/// Names are made once, before they are used; everything is used; sizes fit.
fn assert_sound(graph: &Graph) {
    let mut made: BTreeSet<&str> = BTreeSet::new();
    let mut read: BTreeSet<&str> = BTreeSet::new();
    for input in &graph.inputs {
        assert!(made.insert(&input.name), "{}", input.name);
    }
    for initializer in &graph.initializers {
        assert!(made.insert(&initializer.name), "{}", initializer.name);
        let count: u64 = initializer.dims.iter().product();
        match &initializer.data {
            InitializerData::Values(bytes) => {
                assert_eq!(bytes.len() as u64, count * initializer.dtype.size());
            }
            InitializerData::Weight(weight) => assert_eq!(weight.elements(), count),
            InitializerData::Quantized(weight, half) => {
                assert_eq!(half.elements(weight.elements()), count);
            }
        }
    }
    let mut names = BTreeSet::new();
    for node in &graph.nodes {
        assert!(names.insert(&node.name), "{}", node.name);
        assert!(node.inputs.last().is_some_and(|name| !name.is_empty()));
        for input in node.inputs.iter().filter(|name| !name.is_empty()) {
            assert!(made.contains(input.as_str()), "{} reads {input}", node.name);
            read.insert(input);
        }
        for output in &node.outputs {
            assert!(made.insert(output), "{} makes {output} again", node.name);
        }
    }
    let produced: BTreeSet<&str> = (graph.nodes.iter())
        .flat_map(|node| node.outputs.iter().map(String::as_str))
        .collect();
    for output in &graph.outputs {
        assert!(produced.contains(output.name.as_str()), "{}", output.name);
        read.insert(&output.name);
    }
    for name in made {
        assert!(
            read.contains(name) || STEP_INPUTS.contains(&name),
            "nothing reads {name}"
        );
    }
}

/// What a fixed state's checkpoints must look like, straight from the layouts.
fn expected_checkpoints(
    checkpoints: Checkpoints,
    target: Target,
    state: &ValueInfo,
    update_width: u64,
) -> (Dtype, Vec<Dim>) {
    let rows = Dim::Symbol("rows");
    let slots = Dim::Symbol("checkpoint_slots");
    let count = u64::from(checkpoints.count);
    let recurrent = state.dims.len() == 4;
    let dims = match (target, checkpoints.form) {
        (Target::Cpu, CheckpointForm::State) => [&[slots, rows], &state.dims[1..]].concat(),
        (Target::Cpu, CheckpointForm::Update) => vec![slots, rows, update_width.into()],
        (Target::Cuda, _) if recurrent => vec![rows, (count * update_width).into()],
        (Target::Cuda, _) => vec![rows, count.into(), update_width.into()],
    };
    (state.dtype, dims)
}

/// Row shape of a layer's states, and elements of their transitions.
fn fixed_states(mixer: &Mixer) -> Vec<(&'static str, Vec<u64>, u64)> {
    match mixer {
        Mixer::Attention(_) => vec![],
        Mixer::ShortConv(conv) => vec![(
            "conv_state",
            vec![conv.channels, conv.kernel - 1],
            conv.channels,
        )],
        Mixer::GatedDelta(delta) => {
            let (keys, values) = (
                delta.key_heads * delta.key_dim,
                delta.value_heads * delta.value_dim,
            );
            let channels = 2 * keys + values;
            let row = vec![delta.value_heads, delta.value_dim, delta.key_dim];
            vec![
                ("conv_state", vec![channels, delta.kernel - 1], channels),
                ("recurrent_state", row, delta.value_heads + keys + values),
            ]
        }
    }
}

/// Name of a state's checkpoints.
fn checkpoint_name(target: Target, state: &str, layer: u32) -> String {
    let template = match (target, state) {
        (Target::Cpu, "conv_state") => "checkpoints.%d.conv_state",
        (Target::Cpu, _) => "checkpoints.%d.recurrent_state",
        (Target::Cuda, "conv_state") => "state_update.%d.conv_value",
        (Target::Cuda, _) => "state_update.%d.recurrent_capsule",
    };
    expand(template, layer)
}

fn assert_states(graph: &Graph, model: &ModelDescription, options: &BuildOptions) {
    let (inputs, outputs) = (inputs(graph), outputs(graph));
    let checkpoints = Checkpoints::from_option(options.checkpoints);
    let mut expected_outputs = BTreeSet::from(["logits".to_owned()]);
    if outputs.contains_key("hidden_states") {
        expected_outputs.insert("hidden_states".to_owned());
    }
    for (index, layer) in (0..).zip(&model.layers) {
        if let Mixer::Attention(attention) = &layer.mixer {
            for half in ["key", "value"] {
                let past = inputs[format!("past_key_values.{index}.{half}").as_str()];
                let present = format!("present.{index}.{half}");
                assert_eq!(
                    past.dims[2..],
                    [attention.kv_heads.into(), attention.head_dim.into()]
                );
                assert_eq!(past.dims, outputs[present.as_str()].dims);
                expected_outputs.insert(present);
            }
        }
        for (state, row, update_width) in fixed_states(&layer.mixer) {
            let past = inputs[format!("past_key_values.{index}.{state}").as_str()];
            let rows = match options.target {
                Target::Cpu => Dim::Symbol("bank_rows"),
                Target::Cuda => Dim::Symbol("rows"),
            };
            let row: Vec<Dim> = row.iter().copied().map(Dim::Static).collect();
            assert_eq!(past.dims, [&[rows], row.as_slice()].concat());
            let recurrent = state == "recurrent_state";
            assert!(!recurrent || past.dtype == Dtype::F32);
            let present = format!("present.{index}.{state}");
            let after = outputs[present.as_str()];
            assert_eq!((&past.dims, past.dtype), (&after.dims, after.dtype));
            expected_outputs.insert(present);
            if let Some(checkpoints) = checkpoints {
                let name = checkpoint_name(options.target, state, index);
                let kept = outputs[name.as_str()];
                let expected =
                    expected_checkpoints(checkpoints, options.target, past, update_width);
                assert_eq!((kept.dtype, kept.dims.clone()), expected, "{name}");
                expected_outputs.insert(name);
            }
        }
    }
    let found: BTreeSet<String> = outputs.keys().map(|&name| name.to_owned()).collect();
    assert_eq!(found, expected_outputs);
}

/// The head holds the model's embedding and output projection under the same names, but for a projection in 8 bits.
fn assert_shared(model: &Graph, head: &Graph, own_projection: bool) {
    let shared = |graph: &Graph| -> BTreeMap<String, String> {
        let shared = graph.initializers.iter().filter(|init| init.shared);
        shared
            .map(|init| (init.name.clone(), format!("{init:?}")))
            .collect()
    };
    assert_eq!(shared(model), shared(head));
    let names: Vec<String> = shared(head).into_keys().collect();
    match own_projection {
        true => assert_eq!(names, ["embed_tokens"]),
        false => assert_eq!(names, ["embed_tokens", "lm_head"]),
    }
}

/// The weights of the head's projections, in the order of its nodes.
fn projections(model: &ModelDescription) -> Vec<Vec<u64>> {
    let head = model.mtp.as_ref().unwrap();
    let Mixer::Attention(attention) = &head.layer.mixer else {
        panic!("a head attends");
    };
    let mlp = &head.layer.mlp;
    let gate = attention.gate.as_ref();
    let input = [&attention.query, &attention.key, &attention.value];
    let stacked = |weights: &[&Weight]| Weight::concat(weights).unwrap().shape;
    vec![
        head.fc.shape.clone(),
        stacked(&input.into_iter().chain(gate).collect::<Vec<_>>()),
        attention.output.shape.clone(),
        stacked(&[&mlp.gate, &mlp.up]),
        mlp.down.shape.clone(),
        model
            .output
            .as_ref()
            .unwrap_or(&model.embedding)
            .shape
            .clone(),
    ]
}

/// Every projection of the head is in 8 bits where that was chosen and its width allows it.
fn assert_projections(head: &Graph, model: &ModelDescription, int8: bool) -> usize {
    let kinds = ["Gemm", "MatMulNBits"];
    let nodes = head.nodes.iter();
    let nodes: Vec<&Node> = nodes.filter(|node| kinds.contains(&node.op_type)).collect();
    let shapes = projections(model);
    assert_eq!(nodes.len(), shapes.len());
    let mut quantized = 0;
    for (node, shape) in nodes.into_iter().zip(shapes) {
        let &[rows, width] = shape.as_slice() else {
            panic!("{shape:?}");
        };
        let dims = |input: usize| {
            let mut all = head.initializers.iter();
            let found = all.find(|init| init.name == node.inputs[input]).unwrap();
            (found.dtype, found.dims.clone())
        };
        if int8 && width % 32 == 0 {
            quantized += 1;
            assert_eq!(
                (node.domain, node.op_type),
                ("com.microsoft", "MatMulNBits")
            );
            assert_eq!(dims(1), (Dtype::U8, vec![rows, width / 32, 32]));
            assert_eq!(dims(2), (Dtype::F32, vec![rows, width / 32]));
        } else {
            assert_eq!(node.op_type, "Gemm");
            assert_eq!(dims(1).1, shape);
        }
    }
    quantized
}

/// A node without what checkpoints add to it.
fn without_capture(node: &Node, counts: &[&str]) -> Node {
    let mut node = node.clone();
    node.inputs.retain(|name| !counts.contains(&name.as_str()));
    node.outputs
        .retain(|name| !name.starts_with("checkpoints.") && !name.starts_with("state_update."));
    node.attributes
        .retain(|(name, _)| !name.starts_with("checkpoint_") && *name != "state_update_capacity");
    node
}

proptest! {
    #[test]
    fn any_model_becomes_sound_graphs((model, options) in (models(), options())) {
        let graphs = emit(&model, &options).unwrap();
        for graph in &graphs {
            assert_sound(graph);
        }
        assert_states(&graphs[0], &model, &options);
        let headed = model.mtp.is_some() && options.mtp && options.spelling == Spelling::Pawl;
        prop_assert_eq!(graphs.len(), 1 + usize::from(headed));
        prop_assert_eq!(outputs(&graphs[0]).contains_key("hidden_states"), headed);
        if let [decoder, head] = graphs.as_slice() {
            let int8 = options.effective_mtp_weights() == MtpWeights::Int8;
            let quantized = assert_projections(head, &model, int8);
            let own = int8 && model.hidden_size % 32 == 0;
            assert_shared(decoder, head, own || model.output.is_none());
            let warned = decoder::warnings(&model, &options, &graphs).unwrap();
            let warned = warned.iter().any(|warning| warning.contains("multiples of 32"));
            prop_assert_eq!(warned, int8 && quantized < 6);
            let names: Vec<&str> = outputs(head).into_keys().collect();
            prop_assert_eq!(names, ["hidden_states_out", "logits", "present.0.key", "present.0.value"]);
            let others = head.nodes.iter().filter(|node| !node.domain.is_empty()).count();
            prop_assert_eq!(others, 1 + quantized);
        }
    }

    #[test]
    fn the_weights_of_a_head_are_its_own_affair((model, options) in (models(), options())) {
        let with = |weights| {
            let options = BuildOptions { mtp_weights: weights, ..options.clone() };
            emit(&model, &options).unwrap().remove(0)
        };
        let (default, same) = (with(None), with(Some(MtpWeights::Same)));
        let mut unshared = default.initializers.clone();
        for (own, same) in unshared.iter_mut().zip(&same.initializers) {
            own.shared = same.shared;
        }
        prop_assert_eq!(format!("{unshared:?}"), format!("{:?}", same.initializers));
        prop_assert_eq!(default.nodes, same.nodes);
    }

    #[test]
    fn checkpoints_only_add_to_the_graph((model, options) in (models(), options())) {
        let mut none = options.clone();
        none.checkpoints = CheckpointOption::None;
        let with = emit(&model, &options).unwrap();
        let without = emit(&model, &none).unwrap();
        let counts = ["capture_counts", "state_update_capture_count", "state_update_active"];
        let stripped: Vec<Node> = with[0].nodes.iter().map(|n| without_capture(n, &counts)).collect();
        prop_assert_eq!(&stripped, &without[0].nodes);
        let kept = with[0].inputs.iter().filter(|input| !counts.contains(&input.name.as_str()));
        prop_assert!(kept.eq(&without[0].inputs));
        prop_assert!(!outputs(&without[0]).keys().any(|name| name.starts_with("checkpoints.")
            || name.starts_with("state_update.")));
    }

    #[test]
    fn the_layer_plan_chooses_the_operators((model, options) in (models(), options())) {
        let graph = &emit(&model, &options).unwrap()[0];
        let count = |wanted: fn(&Mixer) -> bool| {
            model.layers.iter().filter(|layer| wanted(&layer.mixer)).count()
        };
        let attentions = count(|mixer| matches!(mixer, Mixer::Attention(_)));
        let deltas = count(|mixer| matches!(mixer, Mixer::GatedDelta(_)));
        let convolution = match options.target {
            Target::Cpu => "CausalConv",
            Target::Cuda => "VarlenCausalConvWithState",
        };
        let domain = match options.target {
            Target::Cpu => "pawl",
            Target::Cuda => "com.microsoft",
        };
        prop_assert_eq!(nodes(graph, "PagedAttention").len(), attentions);
        prop_assert_eq!(nodes(graph, "GatedDeltaNet").len(), deltas);
        prop_assert_eq!(nodes(graph, convolution).len(), model.layers.len() - attentions);
        let stateful = ["PagedAttention", "GatedDeltaNet", convolution];
        for node in &graph.nodes {
            let expected = if stateful.contains(&node.op_type) { domain } else { "" };
            prop_assert_eq!(node.domain, expected);
        }
    }
}
