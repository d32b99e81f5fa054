//! One ONNX Runtime session: how it is opened, and what it declares.

use super::environment::Loaded;
use super::shared_weights::SharedWeights;
use crate::kernels::{Ledger, Operators};
use crate::model::Provider;
use crate::model::tensor_spec::{DataType, Dim, TensorSpec};
use ort::ep::{self, ExecutionProviderDispatch};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::value::{Outlet, TensorElementType, ValueType};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a session is opened.
pub(crate) struct SessionSettings {
    pub(crate) provider: Provider,
    /// Threads that one operator may use; `None` lets ONNX Runtime take one per core.
    pub(crate) threads: Option<NonZeroUsize>,
    /// Pawl's own operators.
    pub(crate) operators: Option<Operators>,
    /// How far ONNX Runtime rewrites the graph.
    pub(crate) optimize: genai_config_schema::GraphOptimizationLevel,
    /// Whether intermediate values come from an arena.
    pub(crate) arena: bool,
    /// Further configuration entries of ONNX Runtime, by name.
    pub(crate) entries: Vec<(String, String)>,
}

/// An open session.
#[derive(Debug)]
pub(crate) struct Session {
    // Declared before the weights: the session is closed before the memory it reads is released.
    inner: ort::session::Session,
    file: PathBuf,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    ledger: Option<Arc<Ledger>>,
    _weights: Option<Arc<SharedWeights>>,
}

impl Session {
    /// Opens the graph `file`. Weights that `weights` holds are taken from there; the others are mapped by ONNX
    /// Runtime from the graph's external data.
    pub(crate) fn open(
        loaded: &Loaded,
        file: &Path,
        settings: SessionSettings,
        weights: Option<(&Arc<SharedWeights>, &str)>,
    ) -> ort::Result<Self> {
        let ledger = settings.operators.as_ref();
        let ledger = ledger.map(|operators| Arc::clone(&operators.ledger));
        let mut builder = configure(loaded, settings)?;
        if let Some((weights, graph)) = weights {
            builder = weights.give(builder, graph)?;
        }
        let inner = builder.commit_from_file(file)?;
        Ok(Self {
            inputs: inner.inputs().iter().map(spec).collect(),
            outputs: inner.outputs().iter().map(spec).collect(),
            inner,
            file: file.to_path_buf(),
            ledger,
            _weights: weights.map(|(weights, _)| Arc::clone(weights)),
        })
    }

    /// The graph file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Declared inputs.
    pub(crate) fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// Declared outputs.
    pub(crate) fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// What Pawl's operators of the session are to make of their banks; `None` without them.
    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledger.as_ref()
    }

    pub(crate) fn inner(&self) -> &ort::session::Session {
        &self.inner
    }
}

/// How long a thread that has nothing to do waits awake. Waking one takes as long as a small operator, and a step has more
/// than a hundred of them; so threads stay awake within a step, and from one step to the next where little lies between.
/// Waiting longer would take the cores from other processes.
const SPIN_MICROSECONDS: &str = "50";

fn configure(loaded: &Loaded, settings: SessionSettings) -> ort::Result<SessionBuilder> {
    // Memory patterns are kept per input shape, and a step's shapes are different nearly every time.
    let mut builder = ort::session::Session::builder(&loaded.environment)?
        .with_optimization_level(level(settings.optimize))?
        .with_intra_op_spinning(true)?
        .with_config_entry("session.intra_op.spin_duration_us", SPIN_MICROSECONDS)?
        .with_memory_pattern(false)?
        .with_no_environment_execution_providers()?
        .with_execution_providers(providers(&settings)?)?;
    if let Some(threads) = settings.threads {
        builder = builder.with_intra_threads(threads.get())?;
    }
    if let Some(operators) = settings.operators {
        builder = builder.with_operators(operators.domain)?;
    }
    for (key, value) in settings.entries {
        builder = builder.with_config_entry(key, value)?;
    }
    Ok(builder)
}

/// The providers to register, most wanted first. Each must register: none is ever replaced by another silently.
fn providers(settings: &SessionSettings) -> ort::Result<Vec<ExecutionProviderDispatch>> {
    let host = ep::CPU::default()
        .with_arena_allocator(settings.arena)
        .build()
        .error_on_failure();
    match settings.provider {
        Provider::Cpu => Ok(vec![host]),
        #[cfg(feature = "cuda")]
        Provider::Cuda { device_id } => Ok(vec![crate::device::cuda_provider(device_id)?, host]),
        #[cfg(not(feature = "cuda"))]
        Provider::Cuda { .. } => Err(ort::Error::new(
            "this build of Pawl has no CUDA support; build it with `--features cuda`",
        )),
    }
}

fn level(level: genai_config_schema::GraphOptimizationLevel) -> GraphOptimizationLevel {
    use genai_config_schema::GraphOptimizationLevel as Wire;
    match level {
        Wire::DisableAll => GraphOptimizationLevel::Disable,
        Wire::Basic => GraphOptimizationLevel::Level1,
        Wire::Extended => GraphOptimizationLevel::Level2,
        Wire::All => GraphOptimizationLevel::All,
    }
}

fn spec(outlet: &Outlet) -> TensorSpec {
    let name = outlet.name().to_owned();
    let ValueType::Tensor {
        ty,
        shape,
        dimension_symbols,
    } = outlet.dtype()
    else {
        return TensorSpec {
            name,
            data_type: DataType(0),
            dims: None,
        };
    };
    let symbols = dimension_symbols
        .iter()
        .cloned()
        .chain(std::iter::repeat(String::new()));
    let dims = shape
        .iter()
        .zip(symbols)
        .map(|(extent, symbol)| match u64::try_from(*extent) {
            Ok(extent) => Dim::Fixed(extent),
            Err(_) => Dim::Symbol(symbol),
        });
    TensorSpec {
        name,
        data_type: data_type(*ty),
        dims: Some(dims.collect()),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "types that no export uses are all the same to Pawl"
)]
fn data_type(kind: TensorElementType) -> DataType {
    DataType(match kind {
        TensorElementType::Float32 => 1,
        TensorElementType::Uint8 => 2,
        TensorElementType::Int8 => 3,
        TensorElementType::Uint16 => 4,
        TensorElementType::Int16 => 5,
        TensorElementType::Int32 => 6,
        TensorElementType::Int64 => 7,
        TensorElementType::String => 8,
        TensorElementType::Bool => 9,
        TensorElementType::Float16 => 10,
        TensorElementType::Float64 => 11,
        TensorElementType::Uint32 => 12,
        TensorElementType::Uint64 => 13,
        TensorElementType::Bfloat16 => 16,
        _ => 0,
    })
}
