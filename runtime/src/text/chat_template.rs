//! Chat messages to one prompt, by the template that comes with a model.

use std::path::{Path, PathBuf};

use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Map, Value};

use super::jinja::{Raised, environment, normalize};

/// Work a template may do besides what grows with its input; a long chat needs a small part of it.
const BASE_FUEL: u64 = 1_000_000;

/// Work allowed per byte of input.
const FUEL_PER_BYTE: u64 = 16;

/// Largest template or tokenizer configuration read, in bytes.
const LARGEST_FILE: u64 = 64 << 20;

/// Names of the special tokens that templates may use.
const SPECIAL_TOKENS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// One chat message: any JSON object; templates decide which keys mean something.
///
/// ```
/// use pawl::Message;
///
/// let message = Message::new("user", "Hello").with("name", "Ada");
/// assert_eq!(message.role(), Some("user"));
/// ```
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Message(Map<String, Value>);

impl Message {
    /// A message with a role and a content: text, or whatever else the template takes.
    ///
    /// ```
    /// let message = pawl::Message::new("system", "Be brief.");
    /// assert_eq!(message.get("content").and_then(|c| c.as_str()), Some("Be brief."));
    /// ```
    #[must_use]
    pub fn new(role: impl Into<String>, content: impl Into<Value>) -> Message {
        Message(Map::new())
            .with("role", role.into())
            .with("content", content)
    }

    /// Sets another key.
    ///
    /// ```
    /// let message = pawl::Message::new("tool", "42").with("tool_call_id", "call-1");
    /// assert!(message.get("tool_call_id").is_some());
    /// ```
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Message {
        self.0.insert(key.into(), value.into());
        self
    }

    /// The value of a key.
    ///
    /// ```
    /// assert!(pawl::Message::new("user", "Hi").get("tool_calls").is_none());
    /// ```
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// The role, where it is a text.
    ///
    /// ```
    /// assert_eq!(pawl::Message::new("user", "Hi").role(), Some("user"));
    /// ```
    #[must_use]
    pub fn role(&self) -> Option<&str> {
        self.get("role").and_then(Value::as_str)
    }
}

impl From<Map<String, Value>> for Message {
    fn from(object: Map<String, Value>) -> Message {
        Message(object)
    }
}

/// A model's chat template, compiled.
///
/// Rendering follows `transformers`: the same whitespace rules, functions and JSON; work and
/// recursion are bounded, and templates have no access to files.
///
/// ```
/// use pawl::{ChatTemplate, Message};
///
/// let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
/// let template = ChatTemplate::from_source(source)?;
/// let prompt = template.render(&[Message::new("user", "Hi")], None, true, &Default::default())?;
/// assert_eq!(prompt, "<user>Hi");
/// # Ok::<(), pawl::TemplateError>(())
/// ```
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Names of the templates; the first is used where none fits better.
    names: Vec<String>,
    special_tokens: Map<String, Value>,
}

/// A chat template that is missing, wrong, or refuses its input.
///
/// ```
/// use pawl::{ChatTemplate, TemplateError};
///
/// let error = ChatTemplate::from_source("{% for %}").unwrap_err();
/// assert!(matches!(error, TemplateError::Syntax { .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The model folder has no chat template.
    #[error(
        "{}: no chat template: none of chat_template.jinja, chat_template.json and \
         tokenizer_config.json (key chat_template) gives one",
        folder.display()
    )]
    #[non_exhaustive]
    Absent {
        /// The model folder.
        folder: PathBuf,
    },
    /// A file cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    #[non_exhaustive]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file holds something other than expected.
    #[error("{}: {key}: expected {expected}", path.display())]
    #[non_exhaustive]
    Format {
        /// The file.
        path: PathBuf,
        /// The key, or the file's outermost value.
        key: String,
        /// What should be there.
        expected: String,
    },
    /// The template is not valid.
    #[error("chat template {name:?}: {message}")]
    #[non_exhaustive]
    Syntax {
        /// Name of the template.
        name: String,
        /// What is wrong, with its line.
        message: String,
    },
    /// The template rejected the messages (`raise_exception`).
    #[error("the chat template refuses these messages: {message}")]
    #[non_exhaustive]
    Raised {
        /// The template's message.
        message: String,
    },
    /// Rendering failed.
    #[error("the chat template failed: {message}")]
    #[non_exhaustive]
    Render {
        /// What failed, with its line.
        message: String,
    },
}

impl ChatTemplate {
    /// Reads the template of a model folder: `chat_template.jinja`, else `chat_template.json`, else
    /// the `chat_template` of `tokenizer_config.json` (one text or a list of named ones). Special
    /// tokens come from `tokenizer_config.json` and `special_tokens_map.json`.
    ///
    /// # Errors
    /// When there is none, or a file is unreadable or not valid.
    ///
    /// ```
    /// use pawl::{ChatTemplate, TemplateError};
    ///
    /// let error = ChatTemplate::load("no/such/folder").unwrap_err();
    /// assert!(matches!(error, TemplateError::Absent { .. }));
    /// ```
    pub fn load(folder: impl AsRef<Path>) -> Result<ChatTemplate, TemplateError> {
        let folder = folder.as_ref();
        let config = read_object(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
        let mut template = ChatTemplate::compile(sources(folder, &config)?)?;
        let map = read_object(&folder.join("special_tokens_map.json"))?.unwrap_or_default();
        for name in SPECIAL_TOKENS {
            let token = [&config, &map]
                .into_iter()
                .find_map(|from| special_token(from.get(name)?));
            if let Some(token) = token {
                template
                    .special_tokens
                    .insert(name.to_owned(), Value::String(token));
            }
        }
        Ok(template)
    }

    /// Compiles a template given as text, without special tokens.
    ///
    /// # Errors
    /// When it is not a valid template.
    ///
    /// ```
    /// assert!(pawl::ChatTemplate::from_source("{% if %}").is_err());
    /// ```
    pub fn from_source(source: &str) -> Result<ChatTemplate, TemplateError> {
        ChatTemplate::compile(vec![("default".to_owned(), source.to_owned())])
    }

    fn compile(sources: Vec<(String, String)>) -> Result<ChatTemplate, TemplateError> {
        let mut environment = environment();
        let mut names = Vec::new();
        for (name, source) in sources {
            environment
                .add_template_owned(name.clone(), normalize(&source))
                .map_err(|error| TemplateError::Syntax {
                    name: name.clone(),
                    message: error_text(&error),
                })?;
            names.push(name);
        }
        Ok(ChatTemplate {
            environment,
            names,
            special_tokens: Map::new(),
        })
    }

    /// The prompt for a chat.
    ///
    /// `tools` are JSON function descriptions; `add_generation_prompt` ends the prompt where the
    /// assistant's answer begins; `extra` sets further template variables (such as
    /// `enable_thinking`) and takes precedence. A template named `tool_use` is used when there are
    /// tools, else the one named `default`.
    ///
    /// # Errors
    /// When the template refuses the messages, fails, or does too much work.
    ///
    /// ```
    /// use pawl::{ChatTemplate, Message, TemplateError};
    ///
    /// let source = "{{ raise_exception('only user messages') }}";
    /// let error = ChatTemplate::from_source(source)?
    ///     .render(&[Message::new("system", "Hi")], None, true, &Default::default())
    ///     .unwrap_err();
    /// assert!(matches!(error, TemplateError::Raised { .. }));
    /// # Ok::<(), TemplateError>(())
    /// ```
    pub fn render(
        &self,
        messages: &[Message],
        tools: Option<&[Value]>,
        add_generation_prompt: bool,
        extra: &Map<String, Value>,
    ) -> Result<String, TemplateError> {
        let messages = messages
            .iter()
            .map(|message| Value::Object(message.0.clone()))
            .collect();
        let tools = tools.map_or(Value::Null, |tools| Value::Array(tools.to_vec()));
        let name = self.choose(!tools.is_null());
        let mut variables = self.special_tokens.clone();
        variables.insert("messages".to_owned(), Value::Array(messages));
        variables.insert("tools".to_owned(), tools);
        variables.insert("documents".to_owned(), Value::Null);
        variables.insert(
            "add_generation_prompt".to_owned(),
            Value::Bool(add_generation_prompt),
        );
        variables.extend(
            extra
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );

        let bytes = serde_json::to_string(&variables).map_or(0, |text| text.len());
        let input_fuel = u64::try_from(bytes)
            .unwrap_or(u64::MAX)
            .saturating_mul(FUEL_PER_BYTE);
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(BASE_FUEL.saturating_add(input_fuel)));
        environment
            .get_template(name)
            .and_then(|template| template.render(Serde(&variables)))
            .map_err(|error| render_error(&error))
    }

    fn choose(&self, tools: bool) -> &str {
        let named = |wanted| self.names.iter().find(|name| name.as_str() == wanted);
        let tool_use = if tools { named("tool_use") } else { None };
        let chosen = tool_use.or_else(|| named("default")).or(self.names.first());
        chosen.map_or("default", String::as_str)
    }
}

/// Named template texts of a folder.
fn sources(
    folder: &Path,
    config: &Map<String, Value>,
) -> Result<Vec<(String, String)>, TemplateError> {
    let jinja = folder.join("chat_template.jinja");
    if let Some(source) = read_text(&jinja)? {
        return Ok(vec![("default".to_owned(), source)]);
    }
    let json = folder.join("chat_template.json");
    if let Some(object) = read_object(&json)?
        && let Some(template) = object.get("chat_template")
    {
        return named_sources(&json, template);
    }
    match config.get("chat_template") {
        None | Some(Value::Null) => Err(TemplateError::Absent {
            folder: folder.to_path_buf(),
        }),
        Some(template) => named_sources(&folder.join("tokenizer_config.json"), template),
    }
}

fn named_sources(path: &Path, value: &Value) -> Result<Vec<(String, String)>, TemplateError> {
    let wrong = || TemplateError::Format {
        path: path.to_path_buf(),
        key: "chat_template".to_owned(),
        expected: "a text, or a list of objects with name and template".to_owned(),
    };
    if let Value::String(source) = value {
        return Ok(vec![("default".to_owned(), source.clone())]);
    }
    let list = value
        .as_array()
        .filter(|list| !list.is_empty())
        .ok_or_else(wrong)?;
    let entry = |entry: &Value| {
        let name = entry.get("name")?.as_str()?.to_owned();
        Some((name, entry.get("template")?.as_str()?.to_owned()))
    };
    list.iter()
        .map(|item| entry(item).ok_or_else(wrong))
        .collect()
}

/// A special token as a text, or as an object with its content.
fn special_token(value: &Value) -> Option<String> {
    value
        .as_str()
        .or_else(|| value.get("content")?.as_str())
        .map(str::to_owned)
}

/// The text of a file; `None` when there is no such file.
fn read_text(path: &Path) -> Result<Option<String>, TemplateError> {
    let failed = |source| TemplateError::Read {
        path: path.to_path_buf(),
        source,
    };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if metadata.len() > LARGEST_FILE => {
            return Err(TemplateError::Format {
                path: path.to_path_buf(),
                key: "size".to_owned(),
                expected: format!("at most {LARGEST_FILE} bytes, found {}", metadata.len()),
            });
        }
        Ok(_) => {}
    }
    std::fs::read_to_string(path).map(Some).map_err(failed)
}

/// The JSON object of a file; `None` when there is no such file.
fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, TemplateError> {
    let Some(text) = read_text(path)? else {
        return Ok(None);
    };
    let wrong = |message: String| TemplateError::Format {
        path: path.to_path_buf(),
        key: "file".to_owned(),
        expected: format!("a JSON object ({message})"),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(_) => Err(wrong("found another JSON value".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn render_error(error: &minijinja::Error) -> TemplateError {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref::<Raised>() {
            return TemplateError::Raised {
                message: message.clone(),
            };
        }
        source = cause.source();
    }
    TemplateError::Render {
        message: error_text(error),
    }
}

/// The error and its causes on one line.
fn error_text(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
