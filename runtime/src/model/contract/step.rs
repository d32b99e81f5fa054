//! Per-step inputs, logits and hidden rows.

use super::paged::extent;
use super::pattern::{Axis, Pattern, Side, find};
use super::report::{ContractCode, Findings};
use crate::exec::{Signature, StepInput};
use crate::model::graph_io::GraphIo;
use crate::model::tensor_spec::DataType;
use genai_config_schema::{DecoderInputs, GenaiConfig, Manifest, Mtp, MtpInputs, StateLayout};
use std::collections::BTreeSet;

/// One possible input of a step.
struct Candidate<'a> {
    input: StepInput,
    /// Name that the configuration gives, and the one that is looked for where it gives none.
    named: &'a Option<String>,
    default: &'static str,
    /// Whether the graph cannot do without.
    required: bool,
}

impl<'a> Candidate<'a> {
    fn new(
        input: StepInput,
        named: &'a Option<String>,
        default: &'static str,
        required: bool,
    ) -> Self {
        Self {
            input,
            named,
            default,
            required,
        }
    }
}

/// What a decoder may take per step, and what it must take given its state.
fn decoder_candidates<'a>(
    inputs: &'a DecoderInputs,
    manifest: &Manifest,
    host: bool,
) -> [Candidate<'a>; 9] {
    use StepInput as Step;
    let paged = manifest.paged.is_some();
    let mut fixed = manifest.fixed.iter();
    let banks = fixed
        .clone()
        .any(|tensor| tensor.layout == StateLayout::Bank);
    let captures = fixed.any(|tensor| tensor.checkpoints.is_some());
    let cumulative = &inputs.cumulative_sequence_lengths;
    let (past, table) = (&inputs.past_sequence_lengths, &inputs.block_table);
    let counts = &inputs.state_update_capture_count;
    [
        Candidate::new(Step::InputIds, &inputs.input_ids, "input_ids", true),
        Candidate::new(
            Step::PositionIds,
            &inputs.position_ids,
            "position_ids",
            false,
        ),
        Candidate::new(
            Step::CumulativeLengths,
            cumulative,
            "cumulative_sequence_lengths",
            true,
        ),
        Candidate::new(Step::PastLengths, past, "past_sequence_lengths", paged),
        Candidate::new(Step::BlockTable, table, "block_table", paged),
        Candidate::new(
            Step::LogitsIndices,
            &inputs.logits_indices,
            "logits_indices",
            host,
        ),
        Candidate::new(Step::ReadRows, &inputs.read_rows, "read_rows", banks),
        Candidate::new(Step::WriteRows, &inputs.write_rows, "write_rows", banks),
        Candidate::new(Step::CaptureCounts, counts, "capture_counts", captures),
    ]
}

/// What a drafting head may take per step: tokens paired with hidden rows, and a cache of its own.
fn head_candidates(inputs: &MtpInputs, host: bool) -> [Candidate<'_>; 7] {
    use StepInput as Step;
    let cumulative = &inputs.cumulative_sequence_lengths;
    let (past, table) = (&inputs.past_sequence_lengths, &inputs.block_table);
    [
        Candidate::new(Step::InputIds, &inputs.input_ids, "input_ids", true),
        Candidate::new(
            Step::HiddenStates,
            &inputs.hidden_states,
            "hidden_states",
            true,
        ),
        Candidate::new(
            Step::PositionIds,
            &inputs.position_ids,
            "position_ids",
            false,
        ),
        Candidate::new(
            Step::CumulativeLengths,
            cumulative,
            "cumulative_sequence_lengths",
            true,
        ),
        Candidate::new(Step::PastLengths, past, "past_sequence_lengths", true),
        Candidate::new(Step::BlockTable, table, "block_table", true),
        Candidate::new(
            Step::LogitsIndices,
            &inputs.logits_indices,
            "logits_indices",
            host,
        ),
    ]
}

/// Checks what the decoder takes and gives per step.
pub(super) fn decoder(
    config: &GenaiConfig,
    manifest: &Manifest,
    graph: &GraphIo,
    host: bool,
    findings: &mut Findings,
) -> Signature {
    let decoder = &config.model.decoder;
    let inputs = &decoder.inputs;
    let candidates = decoder_candidates(inputs, manifest, host);
    if let Some(active) = &inputs.state_update_active
        && let Some(spec) = find(graph, Side::Input, active, ContractCode::M6, findings)
    {
        Pattern::new(DataType::I32, [Axis::Is(1)]).require(spec, ContractCode::M6, findings);
    }
    let hidden_size = u64::from(decoder.hidden_size);
    let mut signature = resolve(graph, &candidates, hidden_size, findings);
    let outputs = &decoder.outputs;
    check_outputs(
        config,
        graph,
        (&outputs.logits, &outputs.hidden_states),
        host,
        &mut signature,
        findings,
    );
    require_hidden_for_head(config, graph, &mut signature, findings);
    if !host {
        let declared = [&inputs.state_update_active, &inputs.attention_metadata];
        signature.others = declared.into_iter().flatten().cloned().collect();
    }
    signature
}

/// A head reads the decoder's hidden rows, so the decoder must give them under the name that the head expects.
fn require_hidden_for_head(
    config: &GenaiConfig,
    graph: &GraphIo,
    signature: &mut Signature,
    findings: &mut Findings,
) {
    let Some(mtp) = config
        .model
        .mtp
        .as_ref()
        .filter(|mtp| mtp.enabled != Some(false))
    else {
        return;
    };
    let name = mtp.main_hidden_states.as_deref().unwrap_or("hidden_states");
    if signature.hidden.as_deref() != Some(name)
        && find(graph, Side::Output, name, ContractCode::M1, findings).is_some()
    {
        signature.hidden = Some(name.to_owned());
    }
}

/// Checks what a drafting head takes and gives per step.
pub(super) fn head(
    config: &GenaiConfig,
    mtp: &Mtp,
    graph: &GraphIo,
    host: bool,
    findings: &mut Findings,
) -> Signature {
    let inputs = &mtp.inputs;
    let candidates = head_candidates(inputs, host);
    let hidden_size = u64::from(config.model.decoder.hidden_size);
    let mut signature = resolve(graph, &candidates, hidden_size, findings);
    let outputs = &mtp.outputs;
    check_outputs(
        config,
        graph,
        (&outputs.logits, &outputs.hidden_states),
        host,
        &mut signature,
        findings,
    );
    if !host {
        signature.others = inputs.attention_metadata.iter().cloned().collect();
    }
    signature
}

fn resolve(
    graph: &GraphIo,
    candidates: &[Candidate<'_>],
    hidden_size: u64,
    findings: &mut Findings,
) -> Signature {
    let mut signature = Signature {
        hidden_size: extent(hidden_size),
        ..Signature::default()
    };
    for candidate in candidates {
        let name = candidate.named.as_deref().unwrap_or(candidate.default);
        let optional = candidate.named.is_none() && !candidate.required;
        if optional && graph.input(name).is_none() {
            continue;
        }
        let (code, pattern) = expected(candidate.input, hidden_size);
        let missing = if code == ContractCode::M5 {
            code
        } else {
            ContractCode::M1
        };
        if let Some(spec) = find(graph, Side::Input, name, missing, findings) {
            pattern.require(spec, code, findings);
            signature.inputs.push((candidate.input, name.to_owned()));
        }
    }
    signature
}

fn expected(input: StepInput, hidden_size: u64) -> (ContractCode, Pattern<'static>) {
    let (rows, tokens) = (Axis::Run("rows"), Axis::Run("num_tokens"));
    let plain = |kind, axes: &[Axis<'static>]| (ContractCode::P1, Pattern::new(kind, axes));
    match input {
        StepInput::InputIds | StepInput::PositionIds => plain(DataType::I64, &[tokens]),
        StepInput::CumulativeLengths => plain(DataType::I32, &[Axis::Run("rows + 1")]),
        StepInput::PastLengths | StepInput::ReadRows | StepInput::WriteRows => {
            plain(DataType::I32, &[rows])
        }
        StepInput::BlockTable => plain(DataType::I32, &[rows, Axis::Run("max_blocks")]),
        StepInput::LogitsIndices => plain(DataType::I32, &[Axis::Run("num_logits")]),
        StepInput::CaptureCounts => (ContractCode::M5, Pattern::new(DataType::I32, [rows])),
        StepInput::HiddenStates => (
            ContractCode::P1,
            Pattern::new(None, [tokens, Axis::Is(hidden_size)]),
        ),
    }
}

fn check_outputs(
    config: &GenaiConfig,
    graph: &GraphIo,
    (logits, hidden): (&Option<String>, &Option<String>),
    host: bool,
    signature: &mut Signature,
    findings: &mut Findings,
) {
    let data_type = host.then_some(DataType::F32);
    let vocab = u64::from(config.model.vocab_size);
    signature.vocab = extent(vocab);
    signature.logits = logits.as_deref().unwrap_or("logits").to_owned();
    if let Some(spec) = find(
        graph,
        Side::Output,
        &signature.logits,
        ContractCode::M1,
        findings,
    ) {
        Pattern::new(data_type, [Axis::Run("num_logits"), Axis::Is(vocab)]).require(
            spec,
            ContractCode::P3,
            findings,
        );
    }
    let name = hidden.as_deref().unwrap_or("hidden_states");
    if hidden.is_none() && graph.output(name).is_none() {
        return;
    }
    if let Some(spec) = find(graph, Side::Output, name, ContractCode::M1, findings) {
        let width = u64::from(config.model.decoder.hidden_size);
        Pattern::new(data_type, [Axis::Run("num_tokens"), Axis::Is(width)]).require(
            spec,
            ContractCode::P3,
            findings,
        );
        signature.hidden = Some(name.to_owned());
    }
}

/// Every input of the graph must be given a value in every step: one that nobody declared is state that would be lost.
pub(super) fn refuse_unbound<'a>(
    graph: &GraphIo,
    signature: &'a Signature,
    state: impl Iterator<Item = &'a String>,
    findings: &mut Findings,
) {
    let step = signature.inputs.iter().map(|(_, name)| name);
    let bound: BTreeSet<&String> = step.chain(&signature.others).chain(state).collect();
    for input in graph
        .inputs
        .iter()
        .filter(|input| !bound.contains(&input.name))
    {
        findings.add(
            ContractCode::P2,
            &input.name,
            "an input or state that genai_config.json declares",
            input,
        );
    }
}
