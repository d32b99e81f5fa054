//! Chat messages to one prompt, by the template that comes with a model.

use std::path::{Path, PathBuf};

use genai_config_schema::{MAX_TOLD, read_regular_text, shortened};
use minijinja::machinery::{eval, get_compiled_template, make_string_output};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde_json::{Map, Value};

use super::guard::{self, Broken, Patience, Room};
use super::jinja::{Raised, environment, normalize};
use super::kept;
use super::template_screen::screen;
use crate::limits::{
    TEMPLATE_BYTES, TEMPLATE_DEPTH, TEMPLATE_FUEL, TEMPLATE_FUEL_MOST, TEMPLATE_FUEL_PER_BYTE,
    TEMPLATE_JSON_BYTES, TEMPLATE_OUTPUT, TEMPLATE_STACK, TEMPLATE_TIME,
};

/// Where templates are rendered.
const ROOM: Room = Room {
    name: "pawl-template",
    stack: TEMPLATE_STACK,
};

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
    /// The templates, compiled.
    environment: Environment<'static>,
    /// Names of the templates; the first is used where none fits better.
    names: Vec<String>,
    /// Where it was read from.
    file: Option<PathBuf>,
    special_tokens: Map<String, Value>,
    patience: Patience,
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
        let (file, sources) = sources(folder, &config)?;
        let mut template = ChatTemplate::compile(sources)?;
        template.file = Some(file);
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

    /// The file that it was read from; `None` for one that was given as text.
    ///
    /// ```
    /// let template = pawl::ChatTemplate::from_source("{{ messages }}")?;
    /// assert_eq!(template.file(), None);
    /// # Ok::<(), pawl::TemplateError>(())
    /// ```
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    fn compile(sources: Vec<(String, String)>) -> Result<ChatTemplate, TemplateError> {
        let names: Vec<String> = sources.iter().map(|(name, _)| name.clone()).collect();
        let failed = |name: Option<&String>, message: String| TemplateError::Syntax {
            name: name.cloned().unwrap_or_default(),
            message,
        };
        let most = usize::try_from(TEMPLATE_BYTES).unwrap_or(usize::MAX);
        if let Some((name, source)) = sources.iter().find(|(_, source)| source.len() > most) {
            let message = format!("has {} bytes, at most {most} are read", source.len());
            return Err(failed(Some(name), message));
        }
        // The parser calls itself for what nests and for what is chained.
        let environment = guard::run(ROOM, TEMPLATE_TIME, move || parse(sources))
            .unwrap_or_else(|broken| Err(failed(names.first(), broken.to_string())))?;
        Ok(ChatTemplate {
            environment,
            names,
            file: None,
            special_tokens: Map::new(),
            patience: Patience::default(),
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
        refuse_deep(messages, tools.unwrap_or_default(), extra)?;
        let messages = messages
            .iter()
            .map(|message| Value::Object(message.0.clone()))
            .collect();
        let tools = tools.map_or(Value::Null, |tools| Value::Array(tools.to_vec()));
        let name = self.choose(!tools.is_null()).to_owned();
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
        let templates = self.environment.clone();
        let work = move || render(&templates, &name, &variables);
        match self.patience.run(ROOM, TEMPLATE_TIME, work) {
            Ok(rendered) => rendered,
            Err(broken) => Err(unrendered(&broken)),
        }
    }

    fn choose(&self, tools: bool) -> &str {
        let named = |wanted| self.names.iter().find(|name| name.as_str() == wanted);
        let tool_use = if tools { named("tool_use") } else { None };
        let chosen = tool_use.or_else(|| named("default")).or(self.names.first());
        chosen.map_or("default", String::as_str)
    }
}

/// Templates with their names.
type Sources = Vec<(String, String)>;

/// Named template texts of a folder.
fn sources(
    folder: &Path,
    config: &Map<String, Value>,
) -> Result<(PathBuf, Sources), TemplateError> {
    let jinja = folder.join("chat_template.jinja");
    if let Some(source) = read_text(&jinja, TEMPLATE_BYTES)? {
        return Ok((jinja, vec![("default".to_owned(), source)]));
    }
    let json = folder.join("chat_template.json");
    if let Some(object) = read_object(&json)?
        && let Some(template) = object.get("chat_template")
    {
        let sources = named_sources(&json, template)?;
        return Ok((json, sources));
    }
    match config.get("chat_template") {
        None | Some(Value::Null) => Err(TemplateError::Absent {
            folder: folder.to_path_buf(),
        }),
        Some(template) => {
            let file = folder.join("tokenizer_config.json");
            let sources = named_sources(&file, template)?;
            Ok((file, sources))
        }
    }
}

fn named_sources(path: &Path, value: &Value) -> Result<Sources, TemplateError> {
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

/// An environment with the given templates.
fn parse(sources: Vec<(String, String)>) -> Result<Environment<'static>, TemplateError> {
    let mut environment = environment();
    for (name, source) in sources {
        let source = normalize(&source);
        let wrong = |message| TemplateError::Syntax {
            name: name.clone(),
            message,
        };
        screen(&source, environment.syntax().clone()).map_err(wrong)?;
        environment
            .add_template_owned(name.clone(), source)
            .map_err(|error| wrong(error_text(&error)))?;
    }
    Ok(environment)
}

/// Runs a template. Other templates cannot be included: only the chosen one's program is bounded.
fn render(
    templates: &Environment<'static>,
    name: &str,
    variables: &Map<String, Value>,
) -> Result<String, TemplateError> {
    let failed = |error: &minijinja::Error| render_error(error);
    let bytes = serde_json::to_string(variables).map_or(0, |text| text.len());
    let input = u64::try_from(bytes).unwrap_or(u64::MAX);
    let mut engine = environment();
    let more = input.saturating_mul(TEMPLATE_FUEL_PER_BYTE);
    let fuel = TEMPLATE_FUEL.saturating_add(more).min(TEMPLATE_FUEL_MOST);
    engine.set_fuel(Some(fuel));
    let template = templates.get_template(name).map_err(|e| failed(&e))?;
    let compiled = get_compiled_template(&template);
    let program = kept::bounded(&compiled.instructions);
    let blocks = compiled.blocks.iter();
    let blocks = blocks
        .map(|(name, block)| (*name, kept::bounded(block)))
        .collect();
    let mut text = String::new();
    eval(
        &engine,
        &program,
        Serde(variables).into(),
        &blocks,
        &mut make_string_output(&mut text),
        AutoEscape::None,
    )
    .map_err(|error| failed(&error))?;
    if text.len() > TEMPLATE_OUTPUT {
        let message = format!("its text has more than {TEMPLATE_OUTPUT} bytes");
        return Err(TemplateError::Render { message });
    }
    Ok(text)
}

fn unrendered(broken: &Broken) -> TemplateError {
    TemplateError::Render {
        message: broken.to_string(),
    }
}

/// Refuses input that is nested deeper than files can hold it: copying it and writing it out take stack by its depth.
fn refuse_deep(
    messages: &[Message],
    tools: &[Value],
    extra: &Map<String, Value>,
) -> Result<(), TemplateError> {
    let messages = messages.iter().flat_map(|message| message.0.values());
    let mut open: Vec<(&Value, usize)> = messages
        .chain(tools)
        .chain(extra.values())
        .map(|value| (value, 2))
        .collect();
    while let Some((value, depth)) = open.pop() {
        let inner = depth + 1;
        match value {
            Value::Array(_) | Value::Object(_) if depth > TEMPLATE_DEPTH => {
                let message = format!(
                    "the messages or variables are nested deeper than {TEMPLATE_DEPTH} levels"
                );
                return Err(TemplateError::Render { message });
            }
            Value::Array(items) => open.extend(items.iter().map(|item| (item, inner))),
            Value::Object(map) => open.extend(map.values().map(|item| (item, inner))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

/// The text of a file of at most `most` bytes; `None` when there is no such file.
fn read_text(path: &Path, most: u64) -> Result<Option<String>, TemplateError> {
    match read_regular_text(path, most) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TemplateError::Read {
            path: path.to_path_buf(),
            source,
        }),
    }
}

/// The JSON object of a file; `None` when there is no such file.
fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, TemplateError> {
    let Some(text) = read_text(path, TEMPLATE_JSON_BYTES)? else {
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
                message: shortened(message, MAX_TOLD).into_owned(),
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
    shortened(&text, MAX_TOLD).into_owned()
}
