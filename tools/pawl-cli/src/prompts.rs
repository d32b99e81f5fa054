//! Prompts from the command line, in the order: texts, files, ids.

use crate::error::CliError;
use crate::load::Ids;
use pawl::{ChatTemplate, Message, Request};
use std::path::{Path, PathBuf};

/// Where prompts come from. Each may be given several times.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct PromptArgs {
    /// A text to continue.
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,
    /// A file with a text to continue.
    #[arg(long, value_name = "FILE")]
    prompt_file: Vec<PathBuf>,
    /// Token ids to continue, such as 1,2,3.
    #[arg(long, value_name = "IDS")]
    ids: Vec<Ids>,
}

impl PromptArgs {
    /// One request per prompt. With `chat`, texts become the user's message of the model's chat template.
    pub(crate) fn requests(&self, model: &Path, chat: bool) -> Result<Vec<Request>, CliError> {
        if chat && !self.ids.is_empty() {
            return Err(CliError::Usage("--chat takes texts, not --ids".to_owned()));
        }
        let mut texts = self.prompt.clone();
        for file in &self.prompt_file {
            texts.push(std::fs::read_to_string(file).map_err(|e| CliError::file(file, e))?);
        }
        let template = if chat {
            Some(ChatTemplate::load(model)?)
        } else {
            None
        };
        let mut requests = Vec::with_capacity(texts.len() + self.ids.len());
        for text in texts {
            requests.push(match &template {
                Some(template) => Request::from_rendered(render(template, text)?),
                None => Request::from_text(text),
            });
        }
        requests.extend(
            self.ids
                .iter()
                .map(|Ids(ids)| Request::from_ids(ids.clone())),
        );
        Ok(requests)
    }
}

fn render(template: &ChatTemplate, text: String) -> Result<String, CliError> {
    let messages = [Message::new("user", text)];
    Ok(template.render(&messages, None, true, &serde_json::Map::new())?)
}
