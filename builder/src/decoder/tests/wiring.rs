//! Which values the nodes of one model read and make.

use std::collections::BTreeMap;

use super::{nodes, outputs};
use crate::decoder::emit;
use crate::graph::ir::{Attribute, Dtype, Graph, Node};
use crate::options::BuildOptions;
use crate::testing::hybrid;

/// Inputs of the only node of a type, with the names of initializers and of earlier nodes.
fn wiring<'a>(graph: &'a Graph, op_type: &str) -> (&'a Node, Vec<&'a str>) {
    let found = nodes(graph, op_type);
    assert_eq!(found.len(), 1, "{op_type}");
    (
        found[0],
        found[0].inputs.iter().map(String::as_str).collect(),
    )
}

fn attribute<'a>(node: &'a Node, name: &str) -> Option<&'a Attribute> {
    let found = node.attributes.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| value)
}

fn build(options: &[(&str, &str)]) -> Vec<Graph> {
    let mut built = BuildOptions::default();
    for (key, value) in options {
        match *key {
            "target" => built.target = value.parse().unwrap(),
            "checkpoints" => built.checkpoints = value.parse().unwrap(),
            "dtype" => built.dtype = Some(value.parse().unwrap()),
            _ => panic!("{key}"),
        }
    }
    emit(&hybrid(), &built).unwrap()
}

#[test]
fn cpu_operators_take_their_arguments_in_order() {
    let graphs = build(&[("checkpoints", "state:3")]);
    let (node, inputs) = wiring(&graphs[0], "GatedDeltaNet");
    assert_eq!(
        inputs,
        [
            "/layers.0/gated_delta/conv",
            "/layers.0/gated_delta/split.decay",
            "/layers.0/gated_delta/split.beta",
            "layers.0.gated_delta.a_log",
            "layers.0.gated_delta.dt_bias",
            "past_key_values.0.recurrent_state",
            "cumulative_sequence_lengths",
            "read_rows",
            "write_rows",
            "capture_counts",
        ]
    );
    assert_eq!(attribute(node, "key_heads"), Some(&Attribute::Int(2)));
    assert_eq!(
        attribute(node, "checkpoint_count"),
        Some(&Attribute::Int(3))
    );
    let state = Attribute::String("state".to_owned());
    assert_eq!(attribute(node, "checkpoint_form"), Some(&state));
    assert_eq!(
        node.outputs,
        [
            "/layers.0/gated_delta/delta_rule",
            "present.0.recurrent_state",
            "checkpoints.0.recurrent_state",
        ]
    );
    let convs = nodes(&graphs[0], "CausalConv");
    assert_eq!(
        convs[0].inputs,
        [
            "/layers.0/gated_delta/split.qkv",
            "layers.0.gated_delta.conv.weight",
            "",
            "past_key_values.0.conv_state",
            "cumulative_sequence_lengths",
            "read_rows",
            "write_rows",
            "capture_counts",
        ]
    );
    let activations = convs.iter().map(|node| attribute(node, "activation"));
    let text = |text: &str| Attribute::String(text.to_owned());
    assert!(activations.eq([Some(&text("silu")), Some(&text("none"))]));
    let (node, inputs) = wiring(&graphs[0], "PagedAttention");
    assert_eq!(
        inputs,
        [
            "/layers.1/attention/split.qkv",
            "past_key_values.1.key",
            "past_key_values.1.value",
            "cumulative_sequence_lengths",
            "past_sequence_lengths",
            "block_table",
            "/rotation/scaled_cos",
            "/rotation/scaled_sin",
            "layers.1.attention.query_norm.weight",
            "layers.1.attention.key_norm.weight",
        ]
    );
    assert_eq!(attribute(node, "num_heads"), Some(&Attribute::Int(4)));
    assert_eq!(attribute(node, "kv_num_heads"), Some(&Attribute::Int(2)));
    assert_eq!(attribute(node, "scale"), Some(&Attribute::Float(0.25)));
    assert_eq!(
        attribute(node, "qk_norm_epsilon"),
        Some(&Attribute::Float(1e-6))
    );
}

#[test]
fn cuda_operators_take_their_arguments_in_order() {
    let graphs = build(&[
        ("target", "cuda"),
        ("checkpoints", "update:5"),
        ("dtype", "bf16"),
    ]);
    let (node, inputs) = wiring(&graphs[0], "GatedDeltaNet");
    assert_eq!(
        inputs,
        [
            "/layers.0/gated_delta/conv",
            "",
            "",
            "cumulative_sequence_lengths",
            "/layers.0/gated_delta/split.decay",
            "/layers.0/gated_delta/split.beta",
            "past_key_values.0.recurrent_state",
            "layers.0.gated_delta.a_log",
            "layers.0.gated_delta.dt_bias",
            "state_update_capture_count",
            "state_update_active",
        ]
    );
    assert_eq!(
        attribute(node, "state_update_capacity"),
        Some(&Attribute::Int(5))
    );
    assert_eq!(attribute(node, "qk_l2_norm"), Some(&Attribute::Int(1)));
    let convs = nodes(&graphs[0], "VarlenCausalConvWithState");
    assert_eq!(
        convs[1].inputs,
        [
            "/layers.2/short_conv/gated",
            "layers.2.short_conv.conv.weight",
            "cumulative_sequence_lengths",
            "",
            "past_key_values.2.conv_state",
            "state_update_capture_count",
        ]
    );
    let (node, inputs) = wiring(&graphs[0], "PagedAttention");
    assert_eq!(
        inputs,
        [
            "/layers.1/attention/split.qkv",
            "",
            "",
            "past_key_values.1.key",
            "past_key_values.1.value",
            "cumulative_sequence_lengths",
            "past_sequence_lengths",
            "block_table",
            "rotation.cos",
            "rotation.sin",
            "",
            "",
            "layers.1.attention.query_norm.weight",
            "layers.1.attention.key_norm.weight",
        ]
    );
    assert_eq!(attribute(node, "do_rotary"), Some(&Attribute::Int(1)));
    let dtypes: BTreeMap<_, _> = outputs(&graphs[0])
        .into_iter()
        .map(|(name, info)| (name, info.dtype))
        .collect();
    assert_eq!(dtypes["logits"], Dtype::F32);
    assert_eq!(dtypes["hidden_states"], Dtype::Bf16);
    assert_eq!(dtypes["present.1.key"], Dtype::Bf16);
    assert_eq!(dtypes["present.2.conv_state"], Dtype::Bf16);
    assert_eq!(dtypes["state_update.0.recurrent_capsule"], Dtype::F32);
}

#[test]
fn results_come_first_then_states_then_checkpoints() {
    let graphs = build(&[]);
    let names: Vec<&str> = graphs[0].outputs.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "logits",
            "hidden_states",
            "present.0.conv_state",
            "present.0.recurrent_state",
            "present.1.key",
            "present.1.value",
            "present.2.conv_state",
            "checkpoints.0.conv_state",
            "checkpoints.0.recurrent_state",
            "checkpoints.2.conv_state",
        ]
    );
}

#[test]
fn a_layer_multiplies_once_per_group_of_projections() {
    let graphs = build(&[]);
    let gemms: Vec<&str> = nodes(&graphs[0], "Gemm")
        .iter()
        .map(|n| n.name.as_str())
        .collect();
    assert_eq!(
        gemms,
        [
            "/layers.0/gated_delta/input",
            "/layers.0/gated_delta/output",
            "/layers.0/mlp/gate_up",
            "/layers.0/mlp/down",
            "/layers.1/attention/input",
            "/layers.1/attention/output",
            "/layers.1/mlp/gate_up",
            "/layers.1/mlp/down",
            "/layers.2/short_conv/input",
            "/layers.2/short_conv/output",
            "/layers.2/mlp/gate_up",
            "/layers.2/mlp/down",
            "/lm_head/logits",
        ]
    );
}
