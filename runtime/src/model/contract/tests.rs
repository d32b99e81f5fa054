//! One agreeing model per layout, and every way a graph can disagree with it.

mod commits;
mod weights;

use super::*;
use crate::model::tensor_spec::{DataType, Dim, TensorSpec};
use genai_config_schema::StateOperator;
use std::fs;

/// Two layers: attention with two key/value heads of 4, and Gated DeltaNet with Hv 4, Hk 2, Dv 3, Dk 5 behind a
/// convolution of 32 channels and kernel 4.
const CONFIG: &str = r#"{
 "model": {
  "type": "anything", "vocab_size": 50, "context_length": 64, "eos_token_id": [2],
  "decoder": {
   "filename": "model.onnx", "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
   "num_hidden_layers": 2, "head_size": 4,
   "inputs": {"input_ids": "input_ids", "cumulative_sequence_lengths": "cumulative_sequence_lengths",
    "past_sequence_lengths": "past_sequence_lengths", "block_table": "block_table",
    "logits_indices": "logits_indices", "read_rows": "read_rows", "write_rows": "write_rows",
    "state_update_capture_count": "capture_counts"},
   "outputs": {"logits": "logits", "hidden_states": "hidden_states"},
   "captures_in_mixed_steps": true,
   "state_groups": [
    {"kind": "paged_kv", "layer_ids": [1], "bindings": {
      "key": {"input": "past_key_values.%d.key", "output": "present.%d.key"},
      "value": {"input": "past_key_values.%d.value", "output": "present.%d.value"}}},
    {"kind": "fixed", "operator": "causal_conv", "layer_ids": [0], "state_layout": "bank", "bindings": {
      "state": {"input": "past.%d.conv", "output": "present.%d.conv", "checkpoints": "checkpoints.%d.conv"}},
     "checkpoint_count": 4, "checkpoint_alignment": "left", "checkpoint_form": "update"},
    {"kind": "fixed", "operator": "gated_delta_net", "key_head_count": 2, "layer_ids": [0], "state_layout": "bank",
     "bindings": {
      "state": {"input": "past.%d.delta", "output": "present.%d.delta", "checkpoints": "checkpoints.%d.delta"}},
     "checkpoint_count": 4, "checkpoint_alignment": "left", "checkpoint_form": "update"}]
  },
  "mtp": {"filename": "mtp.onnx", "num_hidden_layers": 1, "num_key_value_heads": 2, "head_size": 4,
   "main_hidden_states": "hidden_states",
   "inputs": {"input_ids": "input_ids", "hidden_states": "hidden_states",
    "cumulative_sequence_lengths": "cumulative_sequence_lengths",
    "past_sequence_lengths": "past_sequence_lengths", "block_table": "block_table",
    "logits_indices": "logits_indices",
    "past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
   "outputs": {"logits": "logits", "hidden_states": "hidden_states_out",
    "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}}
 },
 "engine": {"dynamic_batching": {"block_size": 16, "max_batch_size": 4}}
}"#;

pub(super) const F32: i32 = 1;
const I32: i32 = 6;
const I64: i32 = 7;
const F16: i32 = 10;

type Line = (&'static str, i32, &'static str);

const STEP: [Line; 5] = [
    ("input_ids", I64, "num_tokens"),
    ("cumulative_sequence_lengths", I32, "rows_plus_one"),
    ("past_sequence_lengths", I32, "rows"),
    ("block_table", I32, "rows max_blocks"),
    ("logits_indices", I32, "num_logits"),
];
const DECODER_INPUTS: [Line; 7] = [
    ("read_rows", I32, "rows"),
    ("write_rows", I32, "rows"),
    ("capture_counts", I32, "rows"),
    ("past_key_values.1.key", F32, "num_blocks 16 2 4"),
    ("past_key_values.1.value", F32, "num_blocks 16 2 4"),
    ("past.0.conv", F32, "bank_rows 32 3"),
    ("past.0.delta", F32, "bank_rows 4 3 5"),
];
const DECODER_OUTPUTS: [Line; 8] = [
    ("logits", F32, "num_logits 50"),
    ("hidden_states", F32, "num_tokens 8"),
    ("present.1.key", F32, "num_blocks 16 2 4"),
    ("present.1.value", F32, "num_blocks 16 2 4"),
    ("present.0.conv", F32, "bank_rows 32 3"),
    ("present.0.delta", F32, "bank_rows 4 3 5"),
    ("checkpoints.0.conv", F32, "slots rows 32"),
    ("checkpoints.0.delta", F32, "slots rows 26"),
];
const HEAD_INPUTS: [Line; 3] = [
    ("hidden_states", F32, "num_tokens 8"),
    ("past_key_values.0.key", F32, "num_blocks 16 2 4"),
    ("past_key_values.0.value", F32, "num_blocks 16 2 4"),
];
const HEAD_OUTPUTS: [Line; 4] = [
    ("logits", F32, "num_logits 50"),
    ("hidden_states_out", F32, "num_tokens 8"),
    ("present.0.key", F32, "num_blocks 16 2 4"),
    ("present.0.value", F32, "num_blocks 16 2 4"),
];

fn spec((name, kind, dims): Line) -> TensorSpec {
    let dims = dims.split_whitespace().map(|word| match word.parse() {
        Ok(extent) => Dim::Fixed(extent),
        Err(_) => Dim::Symbol(word.to_owned()),
    });
    TensorSpec {
        name: name.to_owned(),
        data_type: DataType(kind),
        dims: Some(dims.collect()),
    }
}

fn graph(name: &str, inputs: &[Line], outputs: &[Line]) -> GraphFile {
    GraphFile {
        name: name.to_owned(),
        io: GraphIo {
            inputs: STEP.iter().chain(inputs).copied().map(spec).collect(),
            outputs: outputs.iter().copied().map(spec).collect(),
            ..GraphIo::default()
        },
    }
}

/// A model that can be changed before it is checked.
pub(super) struct Case {
    folder: tempfile::TempDir,
    pub(super) config: String,
    pub(super) decoder: GraphFile,
    head: GraphFile,
    commits: Vec<GraphFile>,
}

impl Case {
    pub(super) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            config: CONFIG.to_owned(),
            decoder: graph("model.onnx", &DECODER_INPUTS, &DECODER_OUTPUTS),
            head: graph("mtp.onnx", &HEAD_INPUTS, &HEAD_OUTPUTS),
            commits: Vec::new(),
        }
    }

    /// Replaces every tensor of this name on either side of the decoder.
    pub(super) fn set(&mut self, line: Line) {
        set(&mut self.decoder.io, line);
    }

    fn remove(&mut self, name: &str) {
        self.decoder.io.inputs.retain(|spec| spec.name != name);
        self.decoder.io.outputs.retain(|spec| spec.name != name);
    }

    pub(super) fn check(&self) -> Result<Contract, ContractErrors> {
        let config = GenaiConfig::from_json(&self.config).unwrap();
        let manifest = config.manifest().unwrap();
        check(&Subject {
            folder: self.folder.path(),
            config: &config,
            manifest: &manifest,
            decoder: &self.decoder,
            head: config.model.mtp.as_ref().map(|mtp| (mtp, &self.head)),
            commits: &self.commits,
        })
    }

    /// (graph, tensor, code) of every mismatch.
    pub(super) fn mismatches(&self) -> Vec<(String, String, &'static str)> {
        let errors = self.check().err();
        let mismatches = errors.into_iter().flat_map(|errors| errors.mismatches);
        mismatches
            .map(|m| (m.graph, m.tensor, m.code.as_str()))
            .collect()
    }
}

fn set(graph: &mut GraphIo, line: Line) {
    let mut found = false;
    for spec in graph
        .inputs
        .iter_mut()
        .chain(&mut graph.outputs)
        .filter(|spec| spec.name == line.0)
    {
        *spec = self::spec(line);
        found = true;
    }
    assert!(found, "{}", line.0);
}

#[test]
fn an_agreeing_model_is_described() {
    let contract = Case::new().check().unwrap();
    let state = &contract.decoder.state;
    let paged = state.paged.as_ref().unwrap();
    assert_eq!(
        (paged.block_size, paged.kv_heads, paged.head_dim),
        (16, 2, 4)
    );
    let [conv, delta] = state.fixed.as_slice() else {
        panic!("{:?}", state.fixed)
    };
    assert_eq!(
        (conv.operator, conv.row_shape.as_slice()),
        (StateOperator::CausalConv, [32, 3].as_slice())
    );
    assert_eq!(delta.row_shape, [4, 3, 5]);
    let widths = [conv, delta].map(|fixed| fixed.checkpoints.as_ref().unwrap().width);
    assert_eq!(widths, [32, 4 + 2 * 5 + 4 * 3]);
    assert_eq!(contract.decoder.signature.vocab, 50);
    assert_eq!(contract.decoder.signature.inputs.len(), 8);
    let head = contract.head.unwrap();
    assert_eq!(
        head.state.paged.unwrap().layers[0].key_input,
        "past_key_values.0.key"
    );
    assert_eq!(head.signature.hidden.as_deref(), Some("hidden_states_out"));
    assert!(head.host && contract.decoder.host);
}

#[test]
fn names_that_the_file_leaves_out_are_the_usual_ones() {
    let mut case = Case::new();
    case.config = CONFIG.replace(r#""logits_indices": "logits_indices", "read"#, r#""read"#);
    assert_ne!(case.config, CONFIG);
    assert_eq!(case.mismatches(), []);
}

#[test]
fn every_disagreement_has_its_code() {
    const M: &str = "model.onnx";
    let table: &[(Line, &[&str])] = &[
        // Types and shapes: input and output disagree, and the wrong side has its own code where it matters.
        (("present.1.key", F16, "num_blocks 16 2 4"), &["M2"]),
        (("present.0.conv", F32, "bank_rows 32 4"), &["M2"]),
        (("present.0.delta", F32, "bank_rows 4 5 3"), &["M2"]),
        (
            ("past_key_values.1.value", F32, "num_blocks 16 8"),
            &["M2", "M3"],
        ),
        (
            ("past_key_values.1.value", F32, "num_blocks 16 4 2"),
            &["M2", "M3"],
        ),
        (
            ("past_key_values.1.key", F32, "num_blocks 32 2 4"),
            &["M2", "M3"],
        ),
        (("past_key_values.1.key", F32, "9 16 2 4"), &["M3"]),
        (
            ("past_key_values.1.key", F16, "num_blocks 16 2 4"),
            &["M2", "M3"],
        ),
        (("checkpoints.0.conv", F32, "4 rows 32"), &["M8"]),
        (("checkpoints.0.conv", F32, "slots rows 31"), &["M8"]),
        (("checkpoints.0.conv", F16, "slots rows 32"), &["M8"]),
        (("checkpoints.0.delta", F32, "slots rows 27"), &["M11"]),
        (("checkpoints.0.delta", F32, "rows 104"), &["M11"]),
        (("checkpoints.0.delta", F16, "slots rows 26"), &["M9"]),
        (("capture_counts", I64, "rows"), &["M5"]),
        (("capture_counts", I32, "rows 1"), &["M5"]),
        (("past.0.conv", F32, "bank_rows 32"), &["M2", "M7"]),
        (("past.0.conv", F32, "bank_rows channels 3"), &["M7"]),
        (("past.0.conv", F32, "9 32 3"), &["M12"]),
        (("past.0.conv", F16, "bank_rows 32 3"), &["M2", "P4", "M8"]),
        (("past.0.delta", F16, "bank_rows 4 3 5"), &["M2", "M9"]),
        (("past.0.delta", F32, "bank_rows 4 3"), &["M2", "M7"]),
        (("past.0.delta", F32, "bank_rows 3 3 5"), &["M2", "M10"]),
        (("input_ids", I32, "num_tokens"), &["P1"]),
        (("input_ids", I64, "7"), &["P1"]),
        (("block_table", I32, "rows"), &["P1"]),
        (("read_rows", I64, "rows"), &["P1"]),
        (("logits", F32, "num_logits 49"), &["P3"]),
        (("logits", F16, "num_logits 50"), &["P3"]),
        (("hidden_states", F32, "num_tokens 9"), &["P3"]),
    ];
    for (line, expected) in table {
        let mut case = Case::new();
        case.set(*line);
        let found = case.mismatches();
        let codes: Vec<&str> = found.iter().map(|(_, _, code)| *code).collect();
        assert_eq!(codes, *expected, "{line:?}: {found:?}");
        assert!(found.iter().all(|(graph, ..)| graph == M), "{found:?}");
    }
}

#[test]
fn everything_that_is_missing_is_named() {
    let names = STEP
        .iter()
        .chain(&DECODER_INPUTS)
        .chain(&DECODER_OUTPUTS)
        .map(|line| line.0);
    for name in names {
        let mut case = Case::new();
        case.remove(name);
        let found = case.mismatches();
        let code = match name {
            "capture_counts" => "M5",
            "checkpoints.0.conv" | "checkpoints.0.delta" => "M4",
            _ => "M1",
        };
        assert!(
            found.contains(&("model.onnx".into(), name.into(), code)),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn state_that_nobody_declares_is_refused_whatever_the_model_is_called() {
    let mut case = Case::new();
    case.decoder
        .io
        .inputs
        .push(spec(("past_key_values.7.key", F32, "num_blocks 16 2 4")));
    assert_eq!(
        case.mismatches(),
        [("model.onnx".into(), "past_key_values.7.key".into(), "P2")]
    );
}

#[test]
fn the_head_is_checked_too_and_all_is_reported_at_once() {
    let mut case = Case::new();
    set(&mut case.head.io, ("hidden_states", F32, "num_tokens 9"));
    set(
        &mut case.head.io,
        ("past_key_values.0.key", F32, "num_blocks 16 2 5"),
    );
    case.remove("hidden_states");
    let errors = case.check().unwrap_err();
    let codes: Vec<_> = errors
        .mismatches
        .iter()
        .map(|m| (m.graph.as_str(), m.code.as_str()))
        .collect();
    assert_eq!(
        codes,
        [
            ("model.onnx", "M1"),
            ("model.onnx", "M1"),
            ("mtp.onnx", "M2"),
            ("mtp.onnx", "M3"),
            ("mtp.onnx", "P1")
        ]
    );
    let message = errors.to_string();
    for part in [
        "in 5 places",
        "mtp.onnx: `past_key_values.0.key`",
        "expected float32 [num_blocks",
        "2, 5]",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn checkpoints_in_state_form_have_the_shape_of_their_state() {
    let mut case = Case::new();
    case.config = CONFIG.replace(
        r#""checkpoint_form": "update""#,
        r#""checkpoint_form": "state""#,
    );
    assert_eq!(
        case.mismatches().iter().map(|m| m.2).collect::<Vec<_>>(),
        ["M4", "M4"]
    );
    case.set(("checkpoints.0.conv", F32, "slots rows 32 3"));
    case.set(("checkpoints.0.delta", F32, "slots rows 4 3 5"));
    let contract = case.check().unwrap();
    let widths: Vec<_> = contract
        .decoder
        .state
        .fixed
        .iter()
        .map(|fixed| fixed.checkpoints.as_ref().unwrap().width)
        .collect();
    assert_eq!(widths, [96, 60]);
    case.set(("checkpoints.0.delta", F32, "slots rows 4 5 3"));
    assert_eq!(
        case.mismatches().iter().map(|m| m.2).collect::<Vec<_>>(),
        ["M4"]
    );
}

/// The same model with a history of three ids in the place of the convolution.
fn ids() -> Case {
    let mut case = Case::new();
    case.config = CONFIG.replace("causal_conv", "token_history").replace(
        r#""layer_ids": [0], "state_layout""#,
        r#""fresh_token_id": 7, "layer_ids": [0], "state_layout""#,
    );
    // Gated DeltaNet has no ids.
    let fresh = r#""key_head_count": 2, "fresh_token_id": 7,"#;
    case.config = case.config.replace(fresh, r#""key_head_count": 2,"#);
    case.set(("past.0.conv", I64, "bank_rows 3"));
    case.set(("present.0.conv", I64, "bank_rows 3"));
    case.set(("checkpoints.0.conv", I64, "slots rows 3"));
    case
}

#[test]
fn a_history_holds_ids() {
    let contract = ids().check().unwrap();
    let history = &contract.decoder.state.fixed[0];
    assert_eq!((history.fresh, history.row_shape.as_slice()), (7, &[3][..]));
    assert_eq!(history.checkpoints.as_ref().unwrap().width, 3);
    let table: &[(&[Line], &[&str])] = &[
        (
            &[
                ("past.0.conv", F32, "bank_rows 3"),
                ("present.0.conv", F32, "bank_rows 3"),
            ],
            &["P13", "M8"],
        ),
        (&[("past.0.conv", I64, "bank_rows 3 1")], &["M2", "M7"]),
        (&[("checkpoints.0.conv", I64, "slots rows 2")], &["M8"]),
        (&[("checkpoints.0.conv", I32, "slots rows 3")], &["M8"]),
    ];
    for (lines, expected) in table {
        let mut case = ids();
        lines.iter().for_each(|line| case.set(*line));
        let found = case.mismatches();
        let codes: Vec<&str> = found.iter().map(|m| m.2).collect();
        assert_eq!(codes, *expected, "{lines:?}: {found:?}");
    }
    let mut short = ids();
    for name in ["past.0.conv", "present.0.conv"] {
        short.set((name, I32, "bank_rows 3"));
    }
    short.set(("checkpoints.0.conv", I32, "slots rows 3"));
    assert_eq!(short.mismatches(), []);
}

/// The same model with state by rows, in the layouts of the `com.microsoft` operators.
fn rows() -> Case {
    let mut case = Case::new();
    case.config = CONFIG
        .replace(r#""state_layout": "bank""#, r#""state_layout": "rows""#)
        .replace(
            r#""read_rows": "read_rows", "write_rows": "write_rows","#,
            r#""state_update_active": "active","#,
        );
    case.remove("read_rows");
    case.remove("write_rows");
    case.decoder.io.inputs.push(spec(("active", I32, "1")));
    case.decoder
        .io
        .operators
        .insert(("com.microsoft".into(), "PagedAttention".into()));
    case.head
        .io
        .operators
        .insert(("com.microsoft".into(), "PagedAttention".into()));
    case.set(("checkpoints.0.conv", F32, "rows 4 32"));
    case.set(("checkpoints.0.delta", F32, "rows 104"));
    case
}

#[test]
fn state_by_rows_is_checked_in_its_own_layout() {
    let case = rows();
    let contract = case.check().unwrap();
    assert!(!contract.decoder.host);
    let table: &[(Line, &[&str])] = &[
        (("active", I32, "2"), &["M6"]),
        (("active", I64, "1"), &["M6"]),
        (("checkpoints.0.conv", F32, "rows 3 32"), &["M8"]),
        (("checkpoints.0.conv", F32, "rows 128"), &["M8"]),
        (("checkpoints.0.delta", F32, "rows 26"), &["M11"]),
        (("checkpoints.0.delta", F16, "rows 104"), &["M9"]),
        (("past.0.conv", F32, "3 32 3"), &["M12"]),
    ];
    for (line, expected) in table {
        let mut case = rows();
        case.set(*line);
        let found = case.mismatches();
        assert_eq!(
            found.iter().map(|m| m.2).collect::<Vec<_>>(),
            *expected,
            "{line:?}: {found:?}"
        );
    }
    // Sixteen-bit values are fine there, as long as all agree; a recurrent state stays float32.
    let mut half = rows();
    let lines = [
        ("past_key_values.1.key", F16, "num_blocks 16 2 4"),
        ("present.1.key", F16, "num_blocks 16 2 4"),
        ("past_key_values.1.value", F16, "num_blocks 16 2 4"),
        ("present.1.value", F16, "num_blocks 16 2 4"),
        ("past.0.conv", F16, "rows 32 3"),
        ("present.0.conv", F16, "rows 32 3"),
        ("checkpoints.0.conv", F16, "rows 4 32"),
        ("logits", F16, "num_logits 50"),
        ("hidden_states", F16, "num_tokens 8"),
    ];
    lines.into_iter().for_each(|line| half.set(line));
    assert_eq!(half.mismatches(), []);
    half.set(("past_key_values.1.value", F32, "num_blocks 16 2 4"));
    assert_eq!(
        half.mismatches().iter().map(|m| m.2).collect::<Vec<_>>(),
        ["M2", "M3"]
    );
}

/// The tests here, of weights and of the wiring name every code.
#[test]
fn every_code_is_tested() {
    let tests = [
        include_str!("tests.rs"),
        include_str!("tests/commits.rs"),
        include_str!("tests/weights.rs"),
        include_str!("wiring_tests.rs"),
    ]
    .concat();
    for code in ContractCode::ALL {
        assert!(tests.contains(&format!("\"{code}\"")), "{code}");
    }
}

#[test]
fn codes_have_distinct_words_and_meanings() {
    for (i, code) in ContractCode::ALL.iter().enumerate() {
        assert!(code.meaning().ends_with('.'));
        assert!(
            ContractCode::ALL
                .iter()
                .skip(i + 1)
                .all(|other| other.as_str() != code.as_str())
        );
    }
}

#[test]
fn states_are_as_large_as_their_groups_declare() {
    let declared = |kind: &str, keys: &str| {
        let mut case = Case::new();
        case.config = CONFIG.replace(kind, &format!("{keys}, {kind}"));
        assert_ne!(case.config, CONFIG);
        case.mismatches()
    };
    let (cache, conv, delta) = (
        r#""layer_ids": [1]"#,
        r#""layer_ids": [0], "state_layout": "bank", "bindings""#,
        r#""layer_ids": [0], "state_layout": "bank",
     "bindings""#,
    );
    let right = [
        (cache, r#""element_type": "float32""#),
        (conv, r#""row_shape": [32, 3], "element_type": "float32""#),
        (delta, r#""row_shape": [4, 3, 5]"#),
    ];
    for (kind, keys) in right {
        assert_eq!(declared(kind, keys), [], "{keys}");
    }
    let wrong = [
        (
            cache,
            r#""element_type": "int8""#,
            &["past_key_values.1.key", "past_key_values.1.value"][..],
        ),
        (conv, r#""row_shape": [3, 32]"#, &["past.0.conv"]),
        (
            conv,
            r#""row_shape": [32, 3], "element_type": "float16""#,
            &["past.0.conv"],
        ),
        (delta, r#""row_shape": [4, 5, 3]"#, &["past.0.delta"]),
    ];
    for (kind, keys, tensors) in wrong {
        let found = declared(kind, keys);
        let expected: Vec<_> = tensors
            .iter()
            .map(|tensor| ("model.onnx".to_owned(), (*tensor).to_owned(), "P7"))
            .collect();
        assert_eq!(found, expected, "{keys}");
    }
}
