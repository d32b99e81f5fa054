//! A toy model of standard operators: one key/value layer and one bank, both written by scattering into the input.
//!
//! Per step it writes bank row `read_rows`, plus one, to row `write_rows`, writes the first token to block
//! `block_table[0]` (its negative to the values), and gives logits `token * [1, 2, 3]` and hidden rows `[token, token]`.

use super::spec::{CheckpointSpec, FixedSpec, PagedNames, PagedSpec, StateSpec};
use super::test_onnx::{Attribute, F32, I32, I64, Onnx};
use crate::device::ElementType;
use crate::exec::{Signature, StepInput};
use genai_config_schema::{
    CheckpointAlignment, CheckpointForm, StateDecay, StateLayout, StateOperator,
};
use std::fs;

pub(crate) const WINDOW: usize = 2;
/// Elements of one bank row.
pub(crate) const ROW: usize = 3;

/// The graph; `scale` lies in `toy.data`.
pub(crate) fn graph() -> Onnx {
    let axis0 = [("axis", Attribute::Int(0))];
    Onnx::default()
        .input("input_ids", I64, "num_tokens")
        .input("cumulative", I32, "rows_plus_one")
        .input("past", I32, "rows")
        .input("block_table", I32, "rows max_blocks")
        .input("logits_indices", I32, "num_logits")
        .input("read_rows", I32, "rows")
        .input("write_rows", I32, "rows")
        .input("capture_counts", I32, "rows")
        .input("past.0.key", F32, "num_blocks 2 1 1")
        .input("past.0.value", F32, "num_blocks 2 1 1")
        .input("past.0.bank", F32, "bank_rows 3 1")
        .output("logits", F32, "num_logits 3")
        .output("hidden", F32, "num_tokens 2")
        .output("present.0.key", F32, "num_blocks 2 1 1")
        .output("present.0.value", F32, "num_blocks 2 1 1")
        .output("present.0.bank", F32, "bank_rows 3 1")
        .output("checkpoints.0", F32, "window rows 3 1")
        .external("scale", &[1, 3], ("toy.data", 8, 12))
        .floats("ones2", &[1, 2], &[1.0, 1.0])
        .floats("one", &[1], &[1.0])
        .floats("stair", &[2, 1, 1, 1], &[0.0, 1.0])
        .ints("minus1", &[1], &[-1])
        .ints("zero", &[1], &[0])
        .ints("window", &[1], &[WINDOW as i64])
        .ints("block", &[4], &[1, 2, 1, 1])
        // Tokens as a float column, logits and hidden rows.
        .node("Cast", "input_ids", "tokens", &[("to", Attribute::Int(1))])
        .node("Unsqueeze", "tokens minus1", "column", &[])
        .node("Gather", "column logits_indices", "wanted", &axis0)
        .node("MatMul", "wanted scale", "logits", &[])
        .node("MatMul", "column ones2", "hidden", &[])
        // The bank: rows `read_rows`, plus one, to rows `write_rows`.
        .node("Gather", "past.0.bank read_rows", "read", &axis0)
        .node("Add", "read one", "next", &[])
        .node(
            "Cast",
            "write_rows",
            "write64",
            &[("to", Attribute::Int(7))],
        )
        .node("Unsqueeze", "write64 minus1", "write", &[])
        .node("ScatterND", "past.0.bank write next", "present.0.bank", &[])
        // Blocks: the first token, twice, to block `block_table[0, 0]`.
        .node(
            "Cast",
            "block_table",
            "table64",
            &[("to", Attribute::Int(7))],
        )
        .node("Reshape", "table64 minus1", "flat", &[])
        .node("Gather", "flat zero", "first", &axis0)
        .node("Unsqueeze", "first minus1", "target", &[])
        .node("Gather", "tokens zero", "token", &axis0)
        .node("Expand", "token block", "filled", &[])
        .node(
            "ScatterND",
            "past.0.key target filled",
            "present.0.key",
            &[],
        )
        .node("Neg", "filled", "negated", &[])
        .node(
            "ScatterND",
            "past.0.value target negated",
            "present.0.value",
            &[],
        )
        // Checkpoints: slot j of row r is the state read plus j, cut to no slots where no row captures.
        .node("Unsqueeze", "read zero", "series0", &[])
        .node("Add", "series0 stair", "series", &[])
        .node(
            "ReduceMax",
            "capture_counts",
            "most",
            &[("keepdims", Attribute::Int(0))],
        )
        .node("Cast", "most", "any", &[("to", Attribute::Int(9))])
        .node("Cast", "any", "any64", &[("to", Attribute::Int(7))])
        .node("Mul", "any64 window", "slots", &[])
        .node("Slice", "series zero slots zero", "checkpoints.0", &[])
}

/// What it keeps.
pub(crate) fn state() -> StateSpec {
    StateSpec {
        paged: Some(PagedSpec {
            layers: vec![PagedNames {
                layer: 0,
                key_input: "past.0.key".into(),
                key_output: "present.0.key".into(),
                value_input: "past.0.value".into(),
                value_output: "present.0.value".into(),
            }],
            block_size: 2,
            kv_heads: 1,
            head_dim: 1,
        }),
        fixed: vec![FixedSpec {
            layer: 0,
            operator: StateOperator::CausalConv,
            layout: StateLayout::Bank,
            element: ElementType::F32,
            fresh: 0,
            input: "past.0.bank".into(),
            output: "present.0.bank".into(),
            row_shape: vec![ROW, 1],
            key_heads: None,
            decay: StateDecay::PerHead,
            checkpoints: Some(CheckpointSpec {
                output: "checkpoints.0".into(),
                count: WINDOW,
                form: CheckpointForm::State,
                alignment: CheckpointAlignment::Left,
                width: ROW,
            }),
        }],
        captures_in_mixed_steps: true,
    }
}

/// What it takes and gives.
pub(crate) fn signature() -> Signature {
    let inputs = [
        (StepInput::InputIds, "input_ids"),
        (StepInput::CumulativeLengths, "cumulative"),
        (StepInput::PastLengths, "past"),
        (StepInput::BlockTable, "block_table"),
        (StepInput::LogitsIndices, "logits_indices"),
        (StepInput::ReadRows, "read_rows"),
        (StepInput::WriteRows, "write_rows"),
        (StepInput::CaptureCounts, "capture_counts"),
    ];
    Signature {
        inputs: inputs
            .map(|(input, name)| (input, name.to_owned()))
            .to_vec(),
        logits: "logits".into(),
        vocab: 3,
        hidden: Some("hidden".into()),
        hidden_size: 2,
        others: Vec::new(),
    }
}

/// Its configuration.
pub(crate) const CONFIG: &str = r#"{
 "model": {
  "type": "toy", "vocab_size": 3, "context_length": 8, "eos_token_id": [2],
  "decoder": {
   "filename": "toy.onnx", "hidden_size": 2, "num_attention_heads": 1, "num_key_value_heads": 1,
   "num_hidden_layers": 1, "head_size": 1,
   "inputs": {"input_ids": "input_ids", "cumulative_sequence_lengths": "cumulative",
    "past_sequence_lengths": "past", "block_table": "block_table", "logits_indices": "logits_indices",
    "read_rows": "read_rows", "write_rows": "write_rows", "state_update_capture_count": "capture_counts"},
   "outputs": {"logits": "logits", "hidden_states": "hidden"},
   "captures_in_mixed_steps": true,
   "state_groups": [
    {"kind": "paged_kv", "layer_ids": [0], "bindings": {
      "key": {"input": "past.%d.key", "output": "present.%d.key"},
      "value": {"input": "past.%d.value", "output": "present.%d.value"}}},
    {"kind": "fixed", "operator": "causal_conv", "layer_ids": [0], "state_layout": "bank", "bindings": {
      "state": {"input": "past.%d.bank", "output": "present.%d.bank", "checkpoints": "checkpoints.%d"}},
     "checkpoint_count": 2, "checkpoint_alignment": "left", "checkpoint_form": "state"}],
   "shared_initializers": [
    {"name": "scale", "data_file": "toy.data", "offset": "8", "length": "12", "data_type": 1, "shape": [1, 3]}]
  }
 },
 "engine": {"dynamic_batching": {"block_size": 2, "max_batch_size": 2}}
}"#;

/// A folder with the whole model.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let scale = [f32::NAN, f32::NAN, 1.0, 2.0, 3.0];
    let bytes: Vec<u8> = scale.iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(folder.path().join("toy.data"), bytes).unwrap();
    fs::write(folder.path().join("genai_config.json"), CONFIG).unwrap();
    graph().write(folder.path(), "toy.onnx");
    folder
}
