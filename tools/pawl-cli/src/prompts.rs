//! Prompts from the command line, in the order: texts, files, ids.

use crate::error::CliError;
use crate::load::Ids;
use pawl::{ChatTemplate, Message, Request};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where prompts come from. Each may be given several times.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct PromptArgs {
    /// A text to continue.
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,
    /// A file or pipe with a text to continue.
    #[arg(long, value_name = "FILE")]
    prompt_file: Vec<PathBuf>,
    /// Token ids to continue, such as 1,2,3.
    #[arg(long, value_name = "IDS")]
    ids: Vec<Ids>,
}

impl PromptArgs {
    /// The files that prompts are read from.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.prompt_file
    }

    /// One request per prompt. With `chat`, texts become the user's message of the model's chat template.
    pub(crate) fn requests(&self, model: &Path, chat: bool) -> Result<Vec<Request>, CliError> {
        if chat && !self.ids.is_empty() {
            return Err(CliError::Usage("--chat takes texts, not --ids".to_owned()));
        }
        let mut texts = self.prompt.clone();
        for file in &self.prompt_file {
            let text = read(file, Request::MAX_TEXT_BYTES, "a prompt");
            texts.push(text.map_err(|reason| CliError::file(file, reason))?);
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

/// The text of a file or a pipe: no more than `what` it is for can have, since a device may never end.
pub(crate) fn read(file: &Path, most: usize, what: &str) -> Result<String, String> {
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    if bytes.len() > most {
        return Err(format!(
            "is larger than {most} bytes, the most that {what} can have"
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("is not UTF-8 text: byte {at} begins no character")
    })
}

fn render(template: &ChatTemplate, text: String) -> Result<String, CliError> {
    rendered(template, &[Message::new("user", text)], true)
}

/// The prompt for a chat. An error names the file of the template.
pub(crate) fn rendered(
    template: &ChatTemplate,
    messages: &[Message],
    answer: bool,
) -> Result<String, CliError> {
    let prompt = template.render(messages, None, answer, &serde_json::Map::new());
    prompt.map_err(|error| match template.file() {
        Some(file) => CliError::file(file, error),
        None => error.into(),
    })
}
