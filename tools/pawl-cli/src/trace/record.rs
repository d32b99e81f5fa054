//! Recording a trace while generating.

use super::format::{Draft, Row, Seconds, Settings, Step, Token, Trace, VERSION};
use super::texts;
use crate::error::CliError;
use crate::output::Target;
use pawl::{DraftTree, Engine, EngineOptions, ObservedRow, ObservedStep};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Collects the steps of an engine. Texts are added in the end, so that a step waits as little as possible.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Step>>>);

impl Recorder {
    /// Options of an engine whose steps are recorded.
    pub(crate) fn watch(&self, options: EngineOptions) -> EngineOptions {
        let recorder = self.clone();
        options.observe_steps(move |step: &ObservedStep<'_>| recorder.record(step))
    }

    /// Writes what was recorded.
    pub(crate) fn write(
        &self,
        target: &Target,
        model: &Path,
        engine: &Engine,
    ) -> Result<(), CliError> {
        let mut steps = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(tokenizer) = engine.tokenizer() {
            texts::add(&mut steps, tokenizer);
        }
        let trace = Trace {
            version: VERSION,
            model: model.display().to_string(),
            settings: Settings {
                speculation: engine.speculation().to_string(),
                draft_policy: engine.speculation().policy.to_string(),
            },
            steps,
        };
        target.write_with(|file| -> std::io::Result<()> {
            let mut file = BufWriter::new(File::create(file)?);
            serde_json::to_writer(&mut file, &trace)?;
            file.flush()
        })
    }

    fn record(&self, step: &ObservedStep<'_>) {
        let times = step.times();
        let seconds = Seconds {
            run: times.run.as_secs_f64(),
            draft: Some(times.draft.as_secs_f64()),
            commit: times.commit.as_secs_f64(),
        };
        let rows = step.rows().iter().map(row).collect();
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = steps.len();
        steps.push(Step {
            index,
            seconds,
            rows,
        });
    }
}

fn row(observed: &ObservedRow<'_>) -> Row {
    let nodes = observed.drafted().into_iter().flat_map(DraftTree::nodes);
    let drafted = nodes.map(|(parent, token)| Draft {
        parent,
        token: without_text(token),
    });
    let drawn = observed.drawn().iter().map(|draw| without_text(draw.token));
    let mut row = Row {
        request: observed.request().value(),
        past: observed.past(),
        prompt: observed.is_prefill(),
        run: observed.run(),
        branches: observed.branches(),
        winner: observed.winner(),
        drafted: drafted.collect(),
        accepted: 0,
        drawn: drawn.collect(),
        source: observed.source().map(|source| source.to_string()),
        why: Some(observed.why()).filter(|why| !why.is_empty()),
    };
    // What was drawn follows the drafts as far as they were accepted.
    row.accepted = row.drawn.len();
    row.accepted = row.path().len();
    row
}

fn without_text(id: u32) -> Token {
    Token {
        id,
        text: String::new(),
    }
}
