//! A decoder graph (or a drafting head) with everything resolved: one call per step.
//!
//! Persistent buffers are bound as input and output at once, by the same value, so operators write state in place.
//! Checkpoint outputs are bound only on a step that captures; on any other step they are not even allocated.

use super::bound_run::BoundRun;
use super::buffer_value::BufferValue;
use super::debts;
use super::executor::{Executor, Run};
use super::session::Session;
use super::step::{Capture, StepInputs, StepOutputs};
use super::tensor_value::TensorValue;
use crate::error::RunError;
use crate::kernels::Ledger;
use crate::model::FixedBuffers;
use crate::model::spec::{PagedBuffers, StateSpec};
use std::path::Path;
use std::sync::Arc;

/// One per-step input of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StepInput {
    InputIds,
    PositionIds,
    CumulativeLengths,
    PastLengths,
    BlockTable,
    LogitsIndices,
    ReadRows,
    WriteRows,
    CaptureCounts,
    HiddenStates,
}

/// Names and widths of what a graph takes and gives besides its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signature {
    /// Per-step inputs that the graph has.
    pub(crate) inputs: Vec<(StepInput, String)>,
    /// Output `[num_logits, vocab]`.
    pub(crate) logits: String,
    /// Columns of the logits.
    pub(crate) vocab: usize,
    /// Output `[num_tokens, hidden]`, where the graph has one.
    pub(crate) hidden: Option<String>,
    /// Columns of hidden rows, in and out; 0 where the graph has none.
    pub(crate) hidden_size: usize,
    /// Declared inputs that only other providers' operators have; nothing gives them a value.
    pub(crate) others: Vec<String>,
}

/// A graph ready to run.
#[derive(Debug)]
pub(crate) struct Decoder {
    executor: Box<dyn Executor>,
    graph: String,
    signature: Signature,
    state: StateSpec,
}

/// A session with its names resolved and its values made: what runs a graph outside of tests.
#[derive(Debug)]
struct Bound {
    run: BoundRun,
    values: StateValues,
    /// Where Pawl's operators of the session look for what they owe.
    ledger: Option<Arc<Ledger>>,
}

/// Values over the persistent buffers, made when first used and kept while the buffers stay the same.
#[derive(Debug, Default)]
struct StateValues {
    /// Key and value of each paged layer.
    paged: Vec<(BufferValue, BufferValue)>,
    /// Bank of each fixed tensor.
    banks: Vec<BufferValue>,
    /// Checkpoint staging of each fixed tensor, viewed for the rows of the step.
    checkpoints: Vec<BufferValue>,
}

/// Where each output stands among the names of the run: logits, hidden, then per paged layer key and value, then per
/// fixed tensor its bank, then the checkpoints of those that have any.
const LOGITS: usize = 0;

impl Decoder {
    /// Resolves the names of `session`. The contract has been checked: every name exists with the right shape.
    pub(crate) fn new(
        session: Session,
        signature: Signature,
        state: StateSpec,
    ) -> Result<Self, RunError> {
        let graph = file_name(session.file());
        let bound = Bound::new(session, &signature, &state);
        let bound = bound.map_err(|error| RunError::Failed {
            graph: graph.clone(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            executor: Box::new(bound),
            graph,
            signature,
            state,
        })
    }

    /// A graph that `executor` stands in for.
    #[cfg(test)]
    pub(crate) fn with(
        executor: Box<dyn Executor>,
        signature: Signature,
        state: StateSpec,
    ) -> Self {
        let graph = "stand-in".to_owned();
        Self {
            executor,
            graph,
            signature,
            state,
        }
    }

    /// Names and widths.
    #[cfg(test)]
    pub(crate) fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The state that the graph keeps between steps.
    pub(crate) fn state(&self) -> &StateSpec {
        &self.state
    }

    /// Columns of the logits.
    pub(crate) fn vocab(&self) -> usize {
        self.signature.vocab
    }

    /// Columns of hidden rows; 0 where the graph has none.
    pub(crate) fn hidden_size(&self) -> usize {
        self.signature.hidden_size
    }

    /// The session, where one runs the graph.
    #[cfg(feature = "cuda")]
    pub(crate) fn session(&self) -> Option<&Session> {
        self.executor.session()
    }

    /// Runs one step. `paged` and `fixed` are the buffers of the state, in the order of [`Self::state`]; they are
    /// read and written in place. `outputs.logits` receives `[num_logits, vocab]`; `outputs.hidden` receives
    /// `[num_tokens, hidden]` if `want_hidden`, and is empty otherwise.
    ///
    /// # Errors
    /// Inputs that do not belong together or a state that was lost (then nothing ran), or a failure inside ONNX Runtime (then
    /// state rows that the step was to write are unspecified; rows it was only to read hold what they held, or the state
    /// that they were owed).
    #[expect(
        clippy::too_many_arguments,
        reason = "a step is what is read, kept and given, each its own borrow"
    )]
    pub(crate) fn run(
        &mut self,
        inputs: &StepInputs,
        paged: &mut [PagedBuffers],
        fixed: &mut [FixedBuffers],
        capture: Capture,
        outputs: &mut StepOutputs,
        want_hidden: bool,
    ) -> Result<(), RunError> {
        super::step_check::check(inputs, &self.signature, &self.state, capture)
            .and_then(|()| self.check_buffers(paged, fixed, want_hidden))
            .map_err(|reason| RunError::Step {
                graph: self.graph.clone(),
                reason,
            })?;
        let failed = |reason| RunError::Failed {
            graph: self.graph.clone(),
            reason,
        };
        debts::settle(fixed, &inputs.read_rows, self.executor.makes_owed()).map_err(failed)?;
        let run = Run {
            signature: &self.signature,
            state: &self.state,
            inputs,
            paged,
            fixed,
            capture,
            outputs,
            want_hidden,
        };
        self.executor.execute(run).map_err(failed)
    }

    fn check_buffers(
        &self,
        paged: &[PagedBuffers],
        fixed: &[FixedBuffers],
        want_hidden: bool,
    ) -> Result<(), String> {
        if want_hidden && self.signature.hidden.is_none() {
            return Err("hidden rows were asked for, but the graph has no such output".to_owned());
        }
        let expected = (layers(&self.state), self.state.fixed.len());
        if (paged.len(), fixed.len()) != expected {
            return Err(format!(
                "buffers for {} paged layers and {} fixed tensors were given, expected {} and {}",
                paged.len(),
                fixed.len(),
                expected.0,
                expected.1
            ));
        }
        Ok(())
    }
}

impl Executor for Bound {
    fn execute(&mut self, mut run: Run<'_>) -> Result<(), String> {
        self.bind_state(&mut run)
            .map_err(|error| error.to_string())?;
        debts::hand_over(self.ledger.as_deref(), run.fixed);
        let done = self.run_bound(&mut run);
        let collected = debts::collect(self.ledger.as_deref(), run.fixed, done.is_ok());
        done.map_err(|error| error.to_string()).and(collected)
    }

    fn makes_owed(&self) -> bool {
        self.ledger.is_some()
    }

    #[cfg(feature = "cuda")]
    fn session(&self) -> Option<&Session> {
        Some(self.run.session())
    }
}

impl Bound {
    fn new(session: Session, signature: &Signature, state: &StateSpec) -> ort::Result<Self> {
        let (paged, fixed) = (layers(state), state.fixed.len());
        let inputs = input_names(signature, state);
        let outputs = output_names(signature, state);
        let values = StateValues {
            paged: (0..paged).map(|_| Default::default()).collect(),
            banks: (0..fixed).map(|_| Default::default()).collect(),
            checkpoints: (0..fixed).map(|_| Default::default()).collect(),
        };
        Ok(Self {
            ledger: session.ledger().map(Arc::clone),
            run: BoundRun::new(session, inputs, outputs)?,
            values,
        })
    }

    fn bind_state(&mut self, run: &mut Run<'_>) -> ort::Result<()> {
        let rows = run.inputs.past.len();
        for ((key, value), buffers) in self.values.paged.iter_mut().zip(run.paged.iter_mut()) {
            key.bind(&mut buffers.key)?;
            value.bind(&mut buffers.value)?;
        }
        for (value, buffers) in self.values.banks.iter_mut().zip(run.fixed.iter_mut()) {
            value.bind(&mut buffers.bank)?;
        }
        if run.capture == Capture::Off {
            return Ok(());
        }
        for ((value, spec), buffers) in self
            .values
            .checkpoints
            .iter_mut()
            .zip(&run.state.fixed)
            .zip(run.fixed.iter_mut())
        {
            if let (Some(shape), Some(staging)) =
                (spec.checkpoint_shape(rows), &mut buffers.checkpoints)
            {
                value.bind_front(staging, &shape)?;
                buffers.poison_checkpoints(shape.iter().product());
            } else if spec.checkpoints.is_some() {
                return Err(ort::Error::new(format!(
                    "`{}` has no staging buffer",
                    spec.input
                )));
            }
        }
        Ok(())
    }

    fn run_bound(&mut self, run: &mut Run<'_>) -> ort::Result<()> {
        let Run {
            signature,
            state,
            inputs,
            capture,
            outputs,
            want_hidden,
            ..
        } = run;
        let (capture, want_hidden) = (*capture, *want_hidden);
        let (logits, hidden) = (inputs.logits_indices.len(), inputs.input_ids.len());
        let (vocab, width) = (signature.vocab, signature.hidden_size);
        outputs.logits.resize(logits.saturating_mul(vocab), 0.0);
        let hidden = if want_hidden { hidden } else { 0 };
        outputs.hidden.resize(hidden.saturating_mul(width), 0.0);

        let step = step_values(signature, inputs)?;
        let logits = TensorValue::output(&mut outputs.logits, &[logits, vocab])?;
        let hidden = match want_hidden {
            true => Some(TensorValue::output(&mut outputs.hidden, &[hidden, width])?),
            false => None,
        };
        let mut taken: Vec<&TensorValue<'_>> = step.iter().collect();
        let mut given: Vec<(usize, &TensorValue<'_>)> = vec![(LOGITS, &logits)];
        given.extend(hidden.iter().map(|value| (LOGITS + 1, value)));
        let first_state = LOGITS + 1 + usize::from(signature.hidden.is_some());
        self.values
            .persistent(first_state, &mut taken, &mut given)?;
        if capture == Capture::On {
            let first = first_state + 2 * self.values.paged.len() + self.values.banks.len();
            self.values.captured(first, state, &mut given)?;
        }
        self.run.run(&taken, &given)
    }
}

/// Values over the step's vectors, in the order of the graph's input names.
fn step_values<'a>(
    signature: &Signature,
    inputs: &'a StepInputs,
) -> ort::Result<Vec<TensorValue<'a>>> {
    let (tokens, rows) = (inputs.input_ids.len(), inputs.past.len());
    let value = |input: &StepInput| match input {
        StepInput::InputIds => TensorValue::input(&inputs.input_ids, &[tokens]),
        StepInput::PositionIds => TensorValue::input(&inputs.position_ids, &[tokens]),
        StepInput::CumulativeLengths => {
            TensorValue::input(&inputs.cumulative, &[rows.saturating_add(1)])
        }
        StepInput::PastLengths => TensorValue::input(&inputs.past, &[rows]),
        StepInput::BlockTable => {
            TensorValue::input(&inputs.block_table, &[rows, inputs.max_blocks])
        }
        StepInput::LogitsIndices => {
            TensorValue::input(&inputs.logits_indices, &[inputs.logits_indices.len()])
        }
        StepInput::ReadRows => TensorValue::input(&inputs.read_rows, &[rows]),
        StepInput::WriteRows => TensorValue::input(&inputs.write_rows, &[rows]),
        StepInput::CaptureCounts => TensorValue::input(&inputs.capture_counts, &[rows]),
        StepInput::HiddenStates => {
            TensorValue::input(&inputs.hidden_states, &[tokens, signature.hidden_size])
        }
    };
    signature
        .inputs
        .iter()
        .map(|(input, _)| value(input))
        .collect()
}

impl StateValues {
    /// Adds every persistent value as input and output, in the order of the names.
    fn persistent<'a>(
        &'a self,
        first_output: usize,
        taken: &mut Vec<&'a TensorValue<'a>>,
        given: &mut Vec<(usize, &'a TensorValue<'a>)>,
    ) -> ort::Result<()> {
        let paged = self.paged.iter().flat_map(|(key, value)| [key, value]);
        for (index, value) in paged.chain(&self.banks).enumerate() {
            let value = value.get()?;
            taken.push(value);
            given.push((first_output + index, value));
        }
        Ok(())
    }

    /// Adds the checkpoint outputs.
    fn captured<'a>(
        &'a self,
        first_output: usize,
        state: &StateSpec,
        given: &mut Vec<(usize, &'a TensorValue<'a>)>,
    ) -> ort::Result<()> {
        let having = self
            .checkpoints
            .iter()
            .zip(&state.fixed)
            .filter(|(_, spec)| spec.checkpoints.is_some());
        for (index, (value, _)) in having.enumerate() {
            given.push((first_output + index, value.get()?));
        }
        Ok(())
    }
}

fn layers(state: &StateSpec) -> usize {
    state.paged.as_ref().map_or(0, |paged| paged.layers.len())
}

fn input_names(signature: &Signature, state: &StateSpec) -> Vec<String> {
    let mut names: Vec<String> = signature
        .inputs
        .iter()
        .map(|(_, name)| name.clone())
        .collect();
    for layer in state.paged.iter().flat_map(|paged| &paged.layers) {
        names.extend([layer.key_input.clone(), layer.value_input.clone()]);
    }
    names.extend(state.fixed.iter().map(|fixed| fixed.input.clone()));
    names
}

fn output_names(signature: &Signature, state: &StateSpec) -> Vec<String> {
    let mut names = vec![signature.logits.clone()];
    names.extend(signature.hidden.clone());
    for layer in state.paged.iter().flat_map(|paged| &paged.layers) {
        names.extend([layer.key_output.clone(), layer.value_output.clone()]);
    }
    names.extend(state.fixed.iter().map(|fixed| fixed.output.clone()));
    names.extend(
        state
            .fixed
            .iter()
            .filter_map(|fixed| Some(fixed.checkpoints.as_ref()?.output.clone())),
    );
    names
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
