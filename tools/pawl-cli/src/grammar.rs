//! What texts are held to.

use crate::error::CliError;
use crate::prompts;
use pawl::{Grammar, Request};
use std::path::{Path, PathBuf};

/// What each text must be. An end token comes only where it is complete.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Grammar (one of these)")]
#[group(multiple = false)]
pub(crate) struct GrammarArgs {
    /// A file with a JSON schema: the text is JSON that it describes.
    #[arg(long, value_name = "FILE")]
    json_schema: Option<PathBuf>,
    /// A regular expression that the whole text matches.
    #[arg(long, value_name = "PATTERN")]
    regex: Option<String>,
    /// A file with a grammar in the syntax of Lark; its rule `start` is the whole text.
    #[arg(long, value_name = "FILE")]
    lark: Option<PathBuf>,
}

impl GrammarArgs {
    /// The file that it is read from, if it is.
    pub(crate) fn file(&self) -> &[PathBuf] {
        let file = self.json_schema.as_ref().or(self.lark.as_ref());
        file.map_or(&[], std::slice::from_ref)
    }

    /// Reads it.
    pub(crate) fn read(&self) -> Result<Option<Grammar>, CliError> {
        let text = |file: &Path| {
            let text = prompts::read(file, Grammar::MAX_BYTES, "a grammar");
            text.map_err(|reason| CliError::file(file, reason))
        };
        Ok(match self {
            Self {
                json_schema: Some(file),
                ..
            } => Some(Grammar::json_schema(text(file)?)),
            Self {
                regex: Some(pattern),
                ..
            } => Some(Grammar::regex(pattern)),
            Self {
                lark: Some(file), ..
            } => Some(Grammar::lark(text(file)?)),
            Self {
                json_schema: None,
                regex: None,
                lark: None,
            } => None,
        })
    }
}

/// Holds requests to a grammar.
pub(crate) fn held_to(requests: Vec<Request>, grammar: &Grammar) -> Vec<Request> {
    let held = |request: Request| request.grammar(grammar.clone());
    requests.into_iter().map(held).collect()
}
