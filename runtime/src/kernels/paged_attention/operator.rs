//! `pawl::PagedAttention` as ONNX Runtime sees it.

use ort::operator::{
    ComputeContext, Kernel, KernelContext, Operator, OperatorInput, OperatorOutput,
    ShapeInferenceContext,
};
use ort::value::TensorElementType::{Float32, Int32};

use super::super::batch::Batch;
use super::super::error::KernelError;
use super::super::isa::Level;
use super::super::node::{Axis, axes, declare, guarded, head_count};
use super::super::tensor::{Inputs, required_output};
use super::kernel::{Scratch, Step, run};
use super::plan::{Extents, Plan};
use super::project::{Norm, Rotation};

/// Added to the mean square of a head before its root, unless the node says otherwise.
const DEFAULT_EPSILON: f32 = 1e-6;

/// Registers `pawl::PagedAttention`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagedAttention;

impl Operator for PagedAttention {
    type Kernel<'attr> = PagedAttentionKernel;

    fn name(&self) -> &str {
        "PagedAttention"
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        [
            OperatorInput::required(Float32),
            OperatorInput::required(Float32),
            OperatorInput::required(Float32),
            OperatorInput::required(Int32),
            OperatorInput::required(Int32),
            OperatorInput::required(Int32),
            OperatorInput::optional(Float32),
            OperatorInput::optional(Float32),
            OperatorInput::optional(Float32),
            OperatorInput::optional(Float32),
        ]
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [
            OperatorOutput::required(Float32),
            OperatorOutput::required(Float32),
            OperatorOutput::required(Float32),
        ]
    }

    fn create_kernel<'attr>(
        &self,
        context: &KernelContext<'attr>,
    ) -> ort::Result<PagedAttentionKernel> {
        guarded(|| PagedAttentionKernel::new(context))
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
    let Some(keys) = axes::<4>(&inputs, 1) else {
        return;
    };
    declare(context, 1, &keys);
    if let Some(values) = axes::<4>(&inputs, 2) {
        declare(context, 2, &values);
    }
    if let Some([tokens, _]) = axes::<2>(&inputs, 0) {
        let heads = context.attr::<i64>("num_heads").ok();
        let width = heads
            .zip(keys[3].known())
            .and_then(|(heads, dim)| heads.checked_mul(dim));
        declare(context, 0, &[tokens, Axis::computed(width)]);
    }
}

/// A `pawl::PagedAttention` node.
#[derive(Debug)]
pub(crate) struct PagedAttentionKernel {
    heads: usize,
    kv_heads: usize,
    scale: Option<f32>,
    epsilon: f32,
    level: Level,
    batch: Batch,
    plan: Plan,
    scratch: Scratch,
}

impl PagedAttentionKernel {
    fn new(context: &KernelContext<'_>) -> Result<Self, KernelError> {
        let heads = head_count(context, "num_heads")?;
        let kv_heads = head_count(context, "kv_num_heads")?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(KernelError::Attribute {
                name: "num_heads",
                expected: "a multiple of kv_num_heads",
                found: format!("{heads} for {kv_heads}"),
            });
        }
        Ok(Self {
            heads,
            kv_heads,
            scale: context.get::<f32>("scale"),
            epsilon: context
                .get::<f32>("qk_norm_epsilon")
                .unwrap_or(DEFAULT_EPSILON),
            level: Level::best(),
            batch: Batch::default(),
            plan: Plan::default(),
            scratch: Scratch::default(),
        })
    }

    fn run(&mut self, context: &ComputeContext) -> Result<(), KernelError> {
        let inputs = Inputs::read(context)?;
        let extents = self.extents(&inputs)?;
        let qkv = inputs.required::<f32>(0, "qkv")?;
        let [tokens, _] = qkv.dims("[tokens, query | key | value]")?;
        let qkv = qkv.shaped(&[tokens, extents.packed()])?;
        let rotation = rotation(&inputs, extents, tokens)?;
        let norm = |index, name| norm(&inputs, (index, name), extents, self.epsilon);
        let (query_norm, key_norm) = (norm(8, "q_norm")?, norm(9, "k_norm")?);
        self.read_rows(&inputs, extents, tokens)?;

        let output = required_output(context, 0, "output", &[tokens, self.heads * extents.dim])?;
        let keys = inputs.in_place(context, (1, 1), "key_cache")?;
        let values = inputs.in_place(context, (2, 2), "value_cache")?;
        #[expect(clippy::cast_precision_loss, reason = "a head size is small")]
        let default_scale = 1.0 / (extents.dim as f32).sqrt();
        let step = Step {
            level: self.level,
            extents,
            qkv,
            batch: &self.batch,
            plan: &self.plan,
            rotation,
            query_norm,
            key_norm,
            scale: self.scale.unwrap_or(default_scale),
            keys,
            values,
            output,
        };
        run(&step, &mut self.scratch, context)
    }

    fn extents(&self, inputs: &Inputs<'_>) -> Result<Extents, KernelError> {
        let axes = "[blocks, block_size, kv_heads, dim]";
        let keys: [usize; 4] = inputs.bank_dims(1, "key_cache", axes)?;
        let values: [usize; 4] = inputs.bank_dims(2, "value_cache", axes)?;
        let [blocks, block_size, kv_heads, dim] = keys;
        let expected = || format!("[blocks, block_size, {}, dim], not empty", self.kv_heads);
        let refuse = |name, expected: String, found: [usize; 4]| {
            let found = found
                .iter()
                .map(|&d| i64::try_from(d).unwrap_or(i64::MAX))
                .collect();
            Err(KernelError::Shape {
                name,
                expected,
                found,
            })
        };
        if kv_heads != self.kv_heads || keys.contains(&0) {
            return refuse("key_cache", expected(), keys);
        }
        if values != keys {
            return refuse("value_cache", format!("{keys:?}"), values);
        }
        Ok(Extents {
            heads: self.heads,
            kv_heads,
            dim,
            blocks,
            block_size,
        })
    }

    fn read_rows(
        &mut self,
        inputs: &Inputs<'_>,
        extents: Extents,
        tokens: usize,
    ) -> Result<(), KernelError> {
        let cumulative = inputs.required::<i32>(3, "cumulative_sequence_lengths")?;
        let [_] = cumulative.dims("[rows + 1]")?;
        self.batch.read(cumulative.data, tokens)?;
        let rows = self.batch.rows();
        let past = inputs
            .required::<i32>(4, "past_sequence_lengths")?
            .shaped(&[rows])?;
        let table = inputs.required::<i32>(5, "block_table")?;
        let [_, max_blocks] = table.dims("[rows, max_blocks]")?;
        let table = table.shaped(&[rows, max_blocks])?;
        self.plan
            .read(extents, &self.batch, past, (table, max_blocks))
    }
}

impl Kernel for PagedAttentionKernel {
    fn compute(&mut self, context: &ComputeContext) -> ort::Result<()> {
        guarded(|| self.run(context))
    }
}

fn rotation<'v>(
    inputs: &'v Inputs<'_>,
    extents: Extents,
    tokens: usize,
) -> Result<Option<Rotation<'v>>, KernelError> {
    let cos = inputs.optional::<f32>(6, "cos")?;
    let sin = inputs.optional::<f32>(7, "sin")?;
    let (cos, sin) = match (cos, sin) {
        (None, None) => return Ok(None),
        (Some(cos), Some(sin)) => (cos, sin),
        (None, Some(_)) => return Err(KernelError::Missing { name: "cos" }),
        (Some(_), None) => return Err(KernelError::Missing { name: "sin" }),
    };
    let [_, half] = cos.dims("[tokens, half the rotated elements]")?;
    let half = half.min(extents.dim / 2);
    let shape = [tokens, half];
    Ok(Some(Rotation {
        cos: cos.shaped(&shape)?,
        sin: sin.shaped(&shape)?,
        half,
    }))
}

fn norm<'v>(
    inputs: &'v Inputs<'_>,
    (index, name): (usize, &'static str),
    extents: Extents,
    epsilon: f32,
) -> Result<Option<Norm<'v>>, KernelError> {
    let weight = inputs.optional::<f32>(index, name)?;
    weight
        .map(|w| {
            w.shaped(&[extents.dim])
                .map(|weight| Norm { weight, epsilon })
        })
        .transpose()
}
