//! What the tokens of a model spell, as grammars need it.

use super::cursor::{Ends, GrammarCursor, told};
use super::definition::{Grammar, GrammarKind};
use super::error::GrammarError;
use crate::limits::{GRAMMAR_BYTES, GRAMMAR_STACK, GRAMMAR_TIME, GRAMMAR_TOKEN};
use crate::text::{Tokenizer, guard};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use std::sync::{Arc, OnceLock};

/// Where the code of grammars runs when one is read.
const ROOM: guard::Room = guard::Room {
    name: "pawl-grammar",
    stack: GRAMMAR_STACK,
};

/// The grammars of one engine. What its tokens spell is found out once, when the first grammar comes.
#[derive(Clone, Default)]
pub(crate) struct Grammars(Arc<OnceLock<Result<Arc<ParserFactory>, GrammarError>>>);

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl Grammars {
    /// A cursor behind what `begun` has of the grammar's text already; the first of these tokens is the `index`-th of its
    /// prompt.
    ///
    /// # Errors
    /// Grammars that cannot be used, and beginnings that are not of them.
    pub(crate) fn cursor(
        &self,
        grammar: &Grammar,
        (begun, index): (&[u32], usize),
        ends: Ends,
        (tokenizer, vocab_size): (&Arc<dyn Tokenizer>, u32),
    ) -> Result<GrammarCursor, GrammarError> {
        let kind = grammar.kind();
        let bytes = grammar.text().len();
        if bytes > GRAMMAR_BYTES {
            let limit = GRAMMAR_BYTES;
            return Err(GrammarError::TooLong { kind, bytes, limit });
        }
        let tokens = Arc::clone(tokenizer);
        let factory = self.0.get_or_init(|| vocabulary(tokens, vocab_size));
        let (factory, grammar, begun) = (factory.clone()?, grammar.clone(), begun.to_vec());
        let read = move || {
            let cursor = GrammarCursor::new(matcher(&factory, &grammar)?, ends, vocab_size);
            follow(cursor, kind, &begun, index)
        };
        guard::run(ROOM, GRAMMAR_TIME, read).unwrap_or_else(|broken| {
            let message = broken.to_string();
            Err(GrammarError::Unusable { kind, message })
        })
    }
}

fn matcher(factory: &ParserFactory, grammar: &Grammar) -> Result<Matcher, GrammarError> {
    let (kind, text) = (grammar.kind(), grammar.text());
    let unusable = |message: String| GrammarError::Unusable {
        kind,
        message: told(&message),
    };
    let grammar = match kind {
        GrammarKind::JsonSchema => {
            let schema = serde_json::from_str(text).map_err(|error| unusable(error.to_string()))?;
            TopLevelGrammar::from_json_schema(schema)
        }
        // What follows it would be escaped, and nothing does.
        GrammarKind::Regex if ends_in_escape(text) => {
            return Err(unusable("it ends with a lone backslash".to_owned()));
        }
        GrammarKind::Regex => TopLevelGrammar::from_regex(text),
        GrammarKind::Lark => TopLevelGrammar::from_lark(text.to_owned()),
    };
    let matcher = Matcher::new(factory.create_parser(grammar));
    match matcher.get_error() {
        Some(message) => Err(unusable(message)),
        None => Ok(matcher),
    }
}

fn ends_in_escape(pattern: &str) -> bool {
    let backslashes = pattern.bytes().rev().take_while(|byte| *byte == b'\\');
    backslashes.count() % 2 == 1
}

/// Takes the tokens that a text has begun with.
fn follow(
    mut cursor: GrammarCursor,
    kind: GrammarKind,
    begun: &[u32],
    index: usize,
) -> Result<GrammarCursor, GrammarError> {
    let unsatisfiable = |error: super::MatchError| {
        let message = error.to_string();
        GrammarError::Unsatisfiable { kind, message }
    };
    for (index, &id) in (index..).zip(begun) {
        if cursor.is_complete() {
            return Err(GrammarError::Complete { kind });
        }
        let refused = GrammarError::Prompt { kind, index, id };
        if cursor.is_end(id) || cursor.legal(&[id]) == 0 {
            return Err(refused);
        }
        cursor.accept(id).map_err(|_| refused)?;
    }
    if !cursor.is_complete() {
        cursor.begin().map_err(unsatisfiable)?;
    }
    if cursor.is_complete() {
        return Err(GrammarError::Complete { kind });
    }
    Ok(cursor)
}

fn vocabulary(
    tokenizer: Arc<dyn Tokenizer>,
    vocab_size: u32,
) -> Result<Arc<ParserFactory>, GrammarError> {
    let built = guard::run(ROOM, GRAMMAR_TIME, move || {
        let words = words(&*tokenizer, vocab_size);
        let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
        let trie = TokTrie::from(&TokRxInfo::new(count, vocab_size), &words);
        // Tokens are never forced: what may follow is then a function of the text so far.
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&tokens).map_err(|error| error.to_string())?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Arc::new(factory))
    });
    let failed = |message: String| GrammarError::Vocabulary { message };
    let built = built.map_err(|broken| failed(broken.to_string()))?;
    built.map_err(|message: String| failed(told(&message)))
}

/// What each token spells; nothing for those that are no part of any text. Special tokens have a sign before their name
/// that no text has, by which grammars can ask for them. The last word is none of the model's: it stands for the end of a
/// text, which is then the same whatever ends a request: several end tokens, a stop token, or nothing.
fn words(tokenizer: &dyn Tokenizer, vocab_size: u32) -> Vec<Vec<u8>> {
    let sign = TokTrie::SPECIAL_TOKEN_MARKER;
    let word = |id: u32| {
        if tokenizer.is_special(id) {
            let name = tokenizer
                .id_to_token(id)
                .filter(|name| name.starts_with('<'));
            return name.map_or(Vec::new(), |name| [&[sign], name.as_bytes()].concat());
        }
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        if bytes.contains(&sign) {
            Vec::new()
        } else {
            bytes
        }
    };
    let short = |word: Vec<u8>| {
        if word.len() > GRAMMAR_TOKEN {
            Vec::new()
        } else {
            word
        }
    };
    let end = [&[sign], &b"<end of text>"[..]].concat();
    (0..vocab_size)
        .map(|id| short(word(id)))
        .chain([end])
        .collect()
}
