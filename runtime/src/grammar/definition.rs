//! What a caller says a text must be.

use crate::limits::GRAMMAR_BYTES;
use std::sync::Arc;

/// What the generated text must be; see [`Request::grammar`](crate::Request::grammar). Nothing is checked before the
/// request is submitted.
///
/// ```
/// use pawl::{Grammar, Request};
///
/// let request = Request::from_text("The answer is ").grammar(Grammar::regex("yes|no"));
/// # let _ = request;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grammar {
    kind: GrammarKind,
    text: Arc<str>,
    begins: Option<usize>,
}

/// How a [`Grammar`] is written.
///
/// ```
/// assert_eq!(pawl::GrammarKind::Regex.to_string(), "regular expression");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GrammarKind {
    /// A JSON schema, as JSON.
    JsonSchema,
    /// A regular expression that the whole text matches.
    Regex,
    /// A context-free grammar in a variant of the Lark syntax; its rule `start` is the whole text.
    Lark,
}

impl std::fmt::Display for GrammarKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::JsonSchema => "JSON schema",
            Self::Regex => "regular expression",
            Self::Lark => "Lark grammar",
        })
    }
}

impl Grammar {
    /// Most bytes of a grammar; the schemas and grammars of languages have some ten thousand.
    ///
    /// ```
    /// assert!("[0-9]+".len() <= pawl::Grammar::MAX_BYTES);
    /// ```
    pub const MAX_BYTES: usize = GRAMMAR_BYTES;

    fn new(kind: GrammarKind, text: &str) -> Self {
        Self {
            kind,
            text: text.into(),
            begins: None,
        }
    }

    /// JSON that a schema describes. References lead into the schema itself (`#/$defs/...`), never outside.
    ///
    /// ```
    /// let schema = r#"{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}"#;
    /// let grammar = pawl::Grammar::json_schema(schema);
    /// assert_eq!(grammar.kind(), pawl::GrammarKind::JsonSchema);
    /// ```
    #[must_use]
    pub fn json_schema(schema: impl AsRef<str>) -> Self {
        Self::new(GrammarKind::JsonSchema, schema.as_ref())
    }

    /// A text that a regular expression matches from its beginning to its end, in the syntax of the crate `regex`. It has
    /// no anchors and does not look around.
    ///
    /// ```
    /// let grammar = pawl::Grammar::regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}");
    /// assert_eq!(grammar.text(), r"[0-9]{4}-[0-9]{2}-[0-9]{2}");
    /// ```
    #[must_use]
    pub fn regex(pattern: impl AsRef<str>) -> Self {
        Self::new(GrammarKind::Regex, pattern.as_ref())
    }

    /// A text of a context-free grammar in the syntax of Lark: rules in small letters, terminals in capitals, and `start`
    /// for the whole text.
    ///
    /// ```
    /// let grammar = pawl::Grammar::lark("start: NUMBER (\"+\" NUMBER)*\nNUMBER: /[0-9]+/");
    /// assert_eq!(grammar.kind().to_string(), "Lark grammar");
    /// ```
    #[must_use]
    pub fn lark(grammar: impl AsRef<str>) -> Self {
        Self::new(GrammarKind::Lark, grammar.as_ref())
    }

    /// Says that the grammar's text has begun in the prompt, with the token at this position: for a request that goes on
    /// where another one stopped. Without it, the text begins behind the prompt.
    ///
    /// ```no_run
    /// # use pawl::{Engine, Grammar, Kept, Request};
    /// # fn branch(engine: &Engine, prompt: &[u32], fork: Kept, next: u32) -> Result<(), pawl::GenerateError> {
    /// // `fork` is a state of a request with this prompt and this grammar.
    /// let grammar = Grammar::regex("[0-9]+( [0-9]+)*").begun_at(prompt.len());
    /// let tokens = [fork.tokens(), &[next]].concat();
    /// engine.generate(Request::from_ids(tokens).continue_from(fork).grammar(grammar))?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn begun_at(mut self, position: usize) -> Self {
        self.begins = Some(position);
        self
    }

    /// How it is written.
    ///
    /// ```
    /// assert_eq!(pawl::Grammar::regex("a+").kind(), pawl::GrammarKind::Regex);
    /// ```
    #[must_use]
    pub fn kind(&self) -> GrammarKind {
        self.kind
    }

    /// What was given.
    ///
    /// ```
    /// assert_eq!(pawl::Grammar::regex("a+").text(), "a+");
    /// ```
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where its text begins in the prompt, if it does.
    pub(crate) fn begins(&self) -> Option<usize> {
        self.begins
    }
}
