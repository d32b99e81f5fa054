//! `pawl::GatedDeltaNet` as ONNX Runtime sees it.

use ort::operator::{
    ComputeContext, Kernel, KernelContext, Operator, OperatorInput, OperatorOutput,
    ShapeInferenceContext,
};
use ort::value::TensorElementType::{Float32, Int32};

use super::super::batch::{BankRows, Batch, Captures, CheckpointForm, Checkpoints};
use super::super::error::KernelError;
use super::super::isa::Level;
use super::super::memory::Cells;
use super::super::node::{Axis, axes, declare, guarded, head_count};
use super::super::owed::{Deferred, Ledger};
use super::super::tensor::{Inputs, optional_output, required_output};
use super::kernel::{Step, run};
use super::layout::Heads;
use super::prepare::{Inputs as TokenInputs, Prepared};
use std::sync::Arc;

/// Registers `pawl::GatedDeltaNet`, whose states a ledger may still ask for.
#[derive(Clone, Debug)]
pub(crate) struct GatedDeltaNet(pub(crate) Arc<Ledger>);

impl Operator for GatedDeltaNet {
    type Kernel<'attr> = GatedDeltaNetKernel;

    fn name(&self) -> &str {
        "GatedDeltaNet"
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        [
            OperatorInput::required(Float32),
            OperatorInput::required(Float32),
            OperatorInput::required(Float32),
            OperatorInput::required(Float32),
            OperatorInput::required(Float32),
            OperatorInput::required(Float32),
            OperatorInput::required(Int32),
            OperatorInput::required(Int32),
            OperatorInput::required(Int32),
            OperatorInput::optional(Int32),
        ]
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [
            OperatorOutput::required(Float32),
            OperatorOutput::required(Float32),
            OperatorOutput::optional(Float32),
        ]
    }

    fn create_kernel<'attr>(
        &self,
        context: &KernelContext<'attr>,
    ) -> ort::Result<GatedDeltaNetKernel> {
        guarded(|| GatedDeltaNetKernel::new(context, Arc::clone(&self.0)))
    }

    fn infer_shape(&self, context: &mut ShapeInferenceContext) -> ort::Result<()> {
        guarded(|| {
            infer(context);
            Ok(())
        })
    }
}

fn infer(context: &mut ShapeInferenceContext) {
    let inputs = context.inputs();
    let Some(state) = axes::<4>(&inputs, 5) else {
        return;
    };
    declare(context, 1, &state);
    let [_, values, value_dim, key_dim] = state;
    let product = |a: Option<i64>, b: Option<i64>| a.zip(b).and_then(|(a, b)| a.checked_mul(b));
    let all_values = product(values.known(), value_dim.known());
    if let Some([tokens, _]) = axes::<2>(&inputs, 0) {
        declare(context, 0, &[tokens, Axis::computed(all_values)]);
    }
    let Some([rows]) = axes::<1>(&inputs, 7) else {
        return;
    };
    let slots = Axis::slots(context.attr("checkpoint_count").ok());
    match context.attr::<String>("checkpoint_form").as_deref() {
        Ok("update") => {
            let all_keys = product(context.attr::<i64>("key_heads").ok(), key_dim.known());
            let width = all_keys
                .zip(all_values)
                .zip(values.known())
                .map(|((keys, deltas), decays)| decays + keys + deltas);
            declare(context, 2, &[slots, rows, Axis::computed(width)]);
        }
        Ok("state") => declare(context, 2, &[slots, rows, values, value_dim, key_dim]),
        Ok(_) | Err(_) => {}
    }
}

/// A `pawl::GatedDeltaNet` node.
#[derive(Debug)]
pub(crate) struct GatedDeltaNetKernel {
    key_heads: usize,
    checkpoints: Checkpoints,
    level: Level,
    prepared: Prepared,
    batch: Batch,
    rows: BankRows,
    captures: Captures,
    ledger: Arc<Ledger>,
    deferred: Deferred,
}

impl GatedDeltaNetKernel {
    fn new(context: &KernelContext<'_>, ledger: Arc<Ledger>) -> Result<Self, KernelError> {
        let form = context.get::<String>("checkpoint_form");
        let count = context.get::<i64>("checkpoint_count");
        Ok(Self {
            key_heads: head_count(context, "key_heads")?,
            checkpoints: Checkpoints::parse(form.as_deref(), count)?,
            level: Level::best(),
            prepared: Prepared::default(),
            batch: Batch::default(),
            rows: BankRows::default(),
            captures: Captures::default(),
            ledger,
            deferred: Deferred::default(),
        })
    }

    fn run(&mut self, context: &ComputeContext) -> Result<(), KernelError> {
        let inputs = Inputs::read(context)?;
        let (heads, bank_rows) = self.heads(&inputs)?;
        let qkv = inputs.required::<f32>(0, "qkv")?;
        let [tokens, _] = qkv.dims("[tokens, query | key | value]")?;
        let per_token = [tokens, heads.values];
        let token_inputs = TokenInputs {
            qkv: qkv.shaped(&[tokens, heads.packed()])?,
            decay: inputs.required::<f32>(1, "decay")?.shaped(&per_token)?,
            beta: inputs.required::<f32>(2, "beta")?.shaped(&per_token)?,
            a_log: inputs
                .required::<f32>(3, "a_log")?
                .shaped(&[heads.values])?,
            dt_bias: inputs
                .required::<f32>(4, "dt_bias")?
                .shaped(&[heads.values])?,
        };
        self.read_rows(&inputs, tokens, bank_rows)?;

        let output = required_output(
            context,
            0,
            "output",
            &[tokens, heads.values * heads.value_dim],
        )?;
        let bank = inputs.in_place(context, (5, 1), "state")?;
        let slots = self.slots(context, heads)?;
        // Last of what may refuse: from here on only a panic leaves states half made.
        let (rows, deferred) = (&self.rows, &mut self.deferred);
        let debt = self.ledger.settle_but(bank, rows, deferred, context)?;
        let step = Step {
            level: self.level,
            heads,
            inputs: token_inputs,
            batch: &self.batch,
            rows: &self.rows,
            bank,
            output,
            captures: &self.captures,
            checkpoints: self.checkpoints,
            slots,
            deferred: &self.deferred,
        };
        run(&step, &mut self.prepared, context)?;
        if let Some(debt) = debt {
            self.ledger.close(bank, debt);
        }
        Ok(())
    }

    fn heads(&self, inputs: &Inputs<'_>) -> Result<(Heads, usize), KernelError> {
        let axes = "[bank_rows, value_heads, value_dim, key_dim]";
        let [bank_rows, values, value_dim, key_dim] = inputs.bank_dims(5, "state", axes)?;
        let keys = self.key_heads;
        if bank_rows * values * value_dim * key_dim > 0 && values.is_multiple_of(keys) {
            return Ok((
                Heads {
                    keys,
                    values,
                    key_dim,
                    value_dim,
                },
                bank_rows,
            ));
        }
        let found = [bank_rows, values, value_dim, key_dim];
        Err(KernelError::Shape {
            name: "state",
            expected: format!("{axes}, none empty, with a multiple of {keys} value heads"),
            found: found
                .iter()
                .map(|&d| i64::try_from(d).unwrap_or(i64::MAX))
                .collect(),
        })
    }

    fn read_rows(
        &mut self,
        inputs: &Inputs<'_>,
        tokens: usize,
        bank_rows: usize,
    ) -> Result<(), KernelError> {
        let cumulative = inputs.required::<i32>(6, "cumulative_sequence_lengths")?;
        let [_] = cumulative.dims("[rows + 1]")?;
        self.batch.read(cumulative.data, tokens)?;
        let rows = [self.batch.rows()];
        let read = inputs.required::<i32>(7, "read_rows")?.shaped(&rows)?;
        let write = inputs.required::<i32>(8, "write_rows")?.shaped(&rows)?;
        self.rows.read(read, write, bank_rows)?;
        let counts = inputs.optional::<i32>(9, "capture_counts")?;
        let counts = counts.map(|counts| counts.shaped(&rows)).transpose()?;
        self.captures.read(counts, &self.batch, self.checkpoints)
    }

    fn slots<'c>(
        &self,
        context: &'c ComputeContext,
        heads: Heads,
    ) -> Result<Option<Cells<'c>>, KernelError> {
        let slots = if self.captures.any() {
            self.checkpoints.slots
        } else {
            0
        };
        let (
            rows,
            Heads {
                values,
                value_dim,
                key_dim,
                ..
            },
        ) = (self.batch.rows(), heads);
        match self.checkpoints.form {
            CheckpointForm::None => Ok(None),
            CheckpointForm::Update => {
                optional_output(context, 2, &[slots, rows, heads.transition().width()])
            }
            CheckpointForm::State => {
                optional_output(context, 2, &[slots, rows, values, value_dim, key_dim])
            }
        }
    }
}

impl Kernel for GatedDeltaNetKernel {
    fn compute(&mut self, context: &ComputeContext) -> ort::Result<()> {
        guarded(|| self.run(context))
    }
}
