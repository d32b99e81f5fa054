//! `pawl::CausalConv` as ONNX Runtime sees it.

use ort::operator::{
    ComputeContext, Kernel, KernelContext, Operator, OperatorInput, OperatorOutput,
    ShapeInferenceContext,
};
use ort::value::TensorElementType::{Float32, Int32};
use ort::value::TensorValueType;

use super::super::batch::{BankRows, Batch, Captures, CheckpointForm, Checkpoints};
use super::super::error::KernelError;
use super::super::isa::Level;
use super::super::node::{Axis, axes, declare, guarded};
use super::super::owed::Ledger;
use super::super::tensor::{Inputs, optional_output, required_output};
use super::kernel::{Activation, MAX_WIDTH, Step, Taps, run};
use std::sync::Arc;

/// Registers `pawl::CausalConv`, whose states a ledger may still ask for.
#[derive(Clone, Debug)]
pub(crate) struct CausalConv(pub(crate) Arc<Ledger>);

impl Operator for CausalConv {
    type Kernel<'attr> = CausalConvKernel;

    fn name(&self) -> &str {
        "CausalConv"
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        [
            OperatorInput::required(Float32),
            OperatorInput::required(Float32),
            OperatorInput::optional(Float32),
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
    ) -> ort::Result<CausalConvKernel> {
        guarded(|| CausalConvKernel::new(context, Arc::clone(&self.0)))
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
    if let Some(x) = axes::<2>(&inputs, 0) {
        declare(context, 0, &x);
    }
    let Some(state) = axes::<3>(&inputs, 3) else {
        return;
    };
    declare(context, 1, &state);
    let Some([rows]) = axes::<1>(&inputs, 5) else {
        return;
    };
    let [_, channels, before] = state;
    let slots = Axis::slots(context.attr("checkpoint_count").ok());
    match context.attr::<String>("checkpoint_form").as_deref() {
        Ok("update") => declare(context, 2, &[slots, rows, channels]),
        Ok("state") => declare(context, 2, &[slots, rows, channels, before]),
        Ok(_) | Err(_) => {}
    }
}

/// A `pawl::CausalConv` node.
#[derive(Debug)]
pub(crate) struct CausalConvKernel {
    activation: Activation,
    checkpoints: Checkpoints,
    level: Level,
    taps: Taps,
    constant_weight: bool,
    batch: Batch,
    rows: BankRows,
    captures: Captures,
    ledger: Arc<Ledger>,
}

impl CausalConvKernel {
    fn new(context: &KernelContext<'_>, ledger: Arc<Ledger>) -> Result<Self, KernelError> {
        let form = context.get::<String>("checkpoint_form");
        let count = context.get::<i64>("checkpoint_count");
        let mut taps = Taps::default();
        let constant = context.constant_input::<TensorValueType<f32>>(1);
        let constant_weight = match &constant {
            Ok(weight) => {
                let (shape, data) = weight.extract_tensor();
                pack(&mut taps, shape, data)?;
                true
            }
            Err(_) => false,
        };
        Ok(Self {
            activation: activation(context.get::<String>("activation").as_deref())?,
            checkpoints: Checkpoints::parse(form.as_deref(), count)?,
            level: Level::best(),
            taps,
            constant_weight,
            batch: Batch::default(),
            rows: BankRows::default(),
            captures: Captures::default(),
            ledger,
        })
    }

    fn run(&mut self, context: &ComputeContext) -> Result<(), KernelError> {
        let inputs = Inputs::read(context)?;
        if !self.constant_weight {
            let weight = inputs.required::<f32>(1, "weight")?;
            let [channels, width] = weight.dims("[channels, width]")?;
            pack(
                &mut self.taps,
                &[signed(channels), signed(width)],
                weight.data,
            )?;
        }
        let (channels, before) = (self.taps.channels(), self.taps.width() - 1);
        let x = inputs.required::<f32>(0, "x")?;
        let [tokens, _] = x.dims("[tokens, channels]")?;
        let x = x.shaped(&[tokens, channels])?;
        let bias = inputs.optional::<f32>(2, "bias")?;
        let bias = bias.map(|bias| bias.shaped(&[channels])).transpose()?;
        let [bank_rows, ..] = state_dims(&inputs, channels, before)?;
        self.read_rows(&inputs, tokens, bank_rows)?;

        let y = required_output(context, 0, "y", &[tokens, channels])?;
        let bank = inputs.in_place(context, (3, 1), "state")?;
        let slots = self.slots(context)?;
        self.ledger.settle(bank, context)?;
        let step = Step {
            x,
            taps: &self.taps,
            bias,
            activation: self.activation,
            batch: &self.batch,
            rows: &self.rows,
            bank,
            y,
            captures: &self.captures,
            checkpoints: self.checkpoints,
            slots,
        };
        run(&step, self.level, context)
    }

    fn read_rows(
        &mut self,
        inputs: &Inputs<'_>,
        tokens: usize,
        bank_rows: usize,
    ) -> Result<(), KernelError> {
        let cumulative = inputs.required::<i32>(4, "cumulative_sequence_lengths")?;
        let [_] = cumulative.dims("[rows + 1]")?;
        self.batch.read(cumulative.data, tokens)?;
        let rows = [self.batch.rows()];
        let read = inputs.required::<i32>(5, "read_rows")?.shaped(&rows)?;
        let write = inputs.required::<i32>(6, "write_rows")?.shaped(&rows)?;
        self.rows.read(read, write, bank_rows)?;
        let counts = inputs.optional::<i32>(7, "capture_counts")?;
        let counts = counts.map(|counts| counts.shaped(&rows)).transpose()?;
        self.captures.read(counts, &self.batch, self.checkpoints)
    }

    fn slots<'c>(
        &self,
        context: &'c ComputeContext,
    ) -> Result<Option<super::super::memory::Cells<'c>>, KernelError> {
        let slots = if self.captures.any() {
            self.checkpoints.slots
        } else {
            0
        };
        let (rows, channels) = (self.batch.rows(), self.taps.channels());
        match self.checkpoints.form {
            CheckpointForm::None => Ok(None),
            CheckpointForm::Update => optional_output(context, 2, &[slots, rows, channels]),
            CheckpointForm::State => {
                optional_output(context, 2, &[slots, rows, channels, self.taps.width() - 1])
            }
        }
    }
}

impl Kernel for CausalConvKernel {
    fn compute(&mut self, context: &ComputeContext) -> ort::Result<()> {
        guarded(|| self.run(context))
    }
}

fn state_dims(
    inputs: &Inputs<'_>,
    channels: usize,
    before: usize,
) -> Result<[usize; 3], KernelError> {
    let found: [usize; 3] = inputs.bank_dims(3, "state", "[bank_rows, channels, width - 1]")?;
    let [bank_rows, ..] = found;
    if bank_rows > 0 && found == [bank_rows, channels, before] {
        return Ok(found);
    }
    let expected = format!("[bank_rows, {channels}, {before}]");
    Err(KernelError::Shape {
        name: "state",
        expected,
        found: found.map(signed).to_vec(),
    })
}

fn pack(taps: &mut Taps, shape: &[i64], weight: &[f32]) -> Result<(), KernelError> {
    let extents = match *shape {
        [channels, width] => usize::try_from(channels)
            .ok()
            .zip(usize::try_from(width).ok()),
        _ => None,
    };
    match extents {
        Some((channels, width)) if channels > 0 && (2..=MAX_WIDTH).contains(&width) => {
            taps.pack(weight, channels, width);
            Ok(())
        }
        Some(_) | None => Err(KernelError::Shape {
            name: "weight",
            expected: format!("[channels, width] with width in 2..={MAX_WIDTH}"),
            found: shape.to_vec(),
        }),
    }
}

fn activation(text: Option<&str>) -> Result<Activation, KernelError> {
    match text {
        None | Some("none") => Ok(Activation::None),
        Some("silu") => Ok(Activation::Silu),
        Some(other) => Err(KernelError::Attribute {
            name: "activation",
            expected: "\"silu\" or \"none\"",
            found: format!("{other:?}"),
        }),
    }
}

fn signed(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
