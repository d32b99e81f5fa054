//! `pawl inspect`.

use crate::error::{CliError, flags};
use crate::load::MemoryArgs;
use crate::numbers::whole;
use genai_config_schema::printable;
use pawl::{Inspection, StatePlan};
use serde_json::{Value, json};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The model folder. It is read, not loaded: it may be for another provider, or too large for this machine.
    #[arg(
        value_name = "DIR",
        required_unless_present = "plan",
        conflicts_with = "plan"
    )]
    model: Option<PathBuf>,
    /// Plans fixed state from this genai_config.json alone, with checkpoints of either form.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["memory_limit", "max_batch_size", "kv_blocks"]
    )]
    plan: Option<PathBuf>,
    /// Checkpoint slots of a row to plan for, 1 to 8.
    #[arg(
        long,
        value_name = "W",
        default_value_t = 8,
        value_parser = whole::<u32>(0),
        allow_negative_numbers = true,
        requires = "plan",
        conflicts_with = "model"
    )]
    window: u32,
    /// Requests to plan for, from 1, each of which may capture; by default as many as the file says.
    #[arg(
        long,
        value_name = "N",
        value_parser = whole::<NonZeroUsize>(1),
        allow_negative_numbers = true,
        requires = "plan",
        conflicts_with = "model"
    )]
    rows: Option<NonZeroUsize>,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let mut output = std::io::stdout().lock();
    if let Some(file) = &args.plan {
        let plan = StatePlan::read(file, args.window, args.rows)?;
        match args.json {
            true => writeln!(output, "{:#}", plan_json(&plan))?,
            false => writeln!(output, "{}", printable(&plan.to_string()))?,
        }
    }
    if let Some(folder) = &args.model {
        let mut found = pawl::inspect(folder, &args.memory.options())?;
        found.obstacle = found.obstacle.map(|obstacle| flags(&obstacle));
        match args.json {
            true => writeln!(output, "{:#}", model_json(folder, &found))?,
            false => writeln!(output, "{}", printable(&found.to_string()))?,
        }
    }
    Ok(())
}

fn model_json(folder: &Path, found: &Inspection) -> Value {
    let memory = &found.memory;
    json!({
        // JSON has no bytes that are no letters.
        "folder": folder.to_string_lossy(),
        "info": found.info,
        "memory": {
            "entries": memory.entries(),
            "total": memory.total(),
            "kv_blocks": memory.kv_blocks(),
            "block_size": memory.block_size(),
            "slots": memory.slots(),
        },
        "obstacle": found.obstacle,
    })
}

fn plan_json(plan: &StatePlan) -> Value {
    let one = &plan.per_request;
    let overhead = json!({"state": one.state_overhead(), "update": one.update_overhead()});
    let mut value = json!(plan);
    if let Some(object) = value.as_object_mut() {
        object.insert("overhead".to_owned(), overhead);
    }
    value
}
