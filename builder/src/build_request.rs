//! One build, from a checkpoint folder to a staged export.

use std::path::PathBuf;

use genai_config_schema::MAX_BYTES;
use pawl_models::Skipped;

use crate::error::BuildError;
use crate::interrupt::Interrupt;
use crate::onnx::export::{Export, Layout, Written};
use crate::options::{BuildOptions, CheckpointOption};
use crate::plan::Plan;
use crate::report::{BuildReport, EffectiveOptions, SkippedTensors};
use crate::source::{Checkpoint, companions};
use crate::stage::Stage;
use crate::{commit, config, decoder, room};

/// What to build, from what, to where.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuildRequest {
    /// Folder of the checkpoint, in the layout of Hugging Face.
    pub input: PathBuf,
    /// Folder to make.
    pub output: PathBuf,
    /// How.
    pub options: BuildOptions,
    /// Stops the build from another thread.
    pub interrupt: Interrupt,
}

impl BuildRequest {
    /// A request to build `output` from `input`.
    #[must_use]
    pub fn new(
        input: impl Into<PathBuf>,
        output: impl Into<PathBuf>,
        options: BuildOptions,
    ) -> Self {
        Self {
            input: input.into(),
            output: output.into(),
            options,
            interrupt: Interrupt::default(),
        }
    }
}

/// Told how far a build has come, in bytes of weights. `()` ignores it.
pub trait Progress {
    /// Writing begins; `total` bytes will be written.
    fn begin(&mut self, total: u64);
    /// `bytes` more have been written to `file`.
    fn advance(&mut self, file: &str, bytes: u64);
}

impl Progress for () {
    fn begin(&mut self, _: u64) {}
    fn advance(&mut self, _: &str, _: u64) {}
}

/// A complete export that is not at its destination yet. Dropping it removes it.
#[derive(Debug)]
#[must_use = "an export that is not published is removed"]
pub struct StagedExport {
    stage: Stage,
    report: BuildReport,
}

impl StagedExport {
    /// Where the export lies until it is published: a folder that can be loaded.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.stage.path()
    }

    /// What was built.
    #[must_use]
    pub fn report(&self) -> &BuildReport {
        &self.report
    }

    /// Moves the export to its destination, replacing an old one if the options force it. Returns the
    /// destination and the report.
    ///
    /// # Errors
    /// Something came to be at the destination, it cannot be written, or the build was interrupted.
    /// It is then as it was, and the export is removed.
    pub fn publish(self) -> Result<(PathBuf, BuildReport), BuildError> {
        Ok((self.stage.publish()?, self.report))
    }
}

/// Builds a model into a staging folder beside the output.
///
/// Everything that can be refused is refused before the first weight is written.
/// Peak memory does not depend on the size of the model. Same input and options, same bytes.
///
/// # Errors
/// The options, the checkpoint or the output cannot be used, reading or writing fails, or the build
/// is interrupted. Nothing is left behind.
pub fn build(
    request: &BuildRequest,
    progress: &mut dyn Progress,
) -> Result<StagedExport, BuildError> {
    let staged = stage(request, progress);
    // Whatever failed first, it was because the staging folder went.
    request.interrupt.check()?;
    staged
}

fn stage(request: &BuildRequest, progress: &mut dyn Progress) -> Result<StagedExport, BuildError> {
    let BuildRequest {
        input,
        output,
        options,
        interrupt,
    } = request;
    options.validate()?;
    let stage = Stage::create(output, input, options.force, interrupt)?;
    let checkpoint = Checkpoint::open(input)?;
    let describe = |source| BuildError::Describe {
        folder: input.clone(),
        source,
    };
    let model = pawl_models::describe(&checkpoint.info()).map_err(describe)?;
    let mut graphs = decoder::emit(&model, options)?;
    graphs.extend(commit::emit(&model, options)?);
    let layout = Layout::new(&graphs, &checkpoint)?;
    let generation = checkpoint.generation_config();
    let config = config::genai_config(&model, options, &layout.shared()?, generation)?;
    config.validate().map_err(|errors| {
        BuildError::defect("genai_config.json", "contents", errors.to_string())
    })?;
    let config = config.to_json();
    if config.len() > MAX_BYTES {
        let problem = format!(
            "asks for a genai_config.json of {} bytes, at most {MAX_BYTES} are read",
            config.len()
        );
        return Err(BuildError::input(&input.join("config.json"), "", problem));
    }
    let (companions, absent) = companions(input)?;
    let copied: u64 = companions.iter().map(|companion| companion.size).sum();
    room::check(&stage.path(), layout.bytes().saturating_add(copied))?;

    let mut export =
        Export::new(stage.path(), progress, interrupt).finite_only(options.refuse_nonfinite);
    export.graphs(&layout, &checkpoint)?;
    export.file("genai_config.json", config.as_bytes())?;
    export.companions(&companions)?;
    let mut written = export.finish();
    let warnings = checkpoint.warnings().iter().cloned();
    let warnings = warnings
        .chain(decoder::warnings(&model, options, &graphs)?)
        .chain(absent);
    written.warnings.splice(0..0, warnings);
    let report = report(&Plan::new(&model, options)?, options, written);
    Ok(StagedExport { stage, report })
}

fn report(plan: &Plan<'_>, options: &BuildOptions, written: Written) -> BuildReport {
    let model = plan.description;
    let skipped = |skipped: &Skipped| SkippedTensors {
        prefix: skipped.prefix.clone(),
        tensors: skipped.tensors,
        reason: skipped.reason.to_owned(),
    };
    BuildReport {
        model_type: model.model_type.clone(),
        architecture: model.architecture,
        parameters: written.parameters,
        total_bytes: written.files.iter().map(|file| file.bytes).sum(),
        files: written.files,
        skipped: model.skipped.iter().map(skipped).collect(),
        warnings: written.warnings,
        options: EffectiveOptions {
            target: options.target,
            dtype: options.effective_dtype(),
            checkpoints: match plan.checkpoints {
                Some(_) => options.checkpoints,
                None => CheckpointOption::None,
            },
            mtp: plan.head.is_some(),
            wiring: plan.head.map(|_| plan.wiring),
            mtp_weights: plan.head.map(|_| plan.mtp_weights),
            spelling: options.spelling,
            max_sequence: plan.sequence_limit,
        },
    }
}
