//! The tokenizer trait and its implementation over a `tokenizer.json`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use genai_config_schema::read_regular;
use tokenizers::DecoderWrapper;

use super::guard::{self, Broken, Patience, Room};
use super::tokenizer_screen::{Growth, screen};
use crate::limits::{
    TOKENIZE, TOKENIZE_PER_BYTE, TOKENIZER_BYTES, TOKENIZER_LOAD, TOKENIZER_STACK, TOKENIZER_TEXT,
    TOKENIZER_WORD,
};

/// Where the tokenizer's own code runs.
const ROOM: Room = Room {
    name: "pawl-tokenizer",
    stack: TOKENIZER_STACK,
};

/// Text to token ids and back.
///
/// Implement it to bring a tokenizer of your own; [`HfTokenizer`] reads `tokenizer.json`.
///
/// ```
/// use pawl::{Tokenizer, TokenizerError};
///
/// /// One token per byte.
/// #[derive(Debug)]
/// struct Bytes;
///
/// impl Tokenizer for Bytes {
///     fn encode(&self, text: &str, _: bool) -> Result<Vec<u32>, TokenizerError> {
///         Ok(text.bytes().map(u32::from).collect())
///     }
///
///     fn decode(&self, ids: &[u32], _: bool) -> Result<String, TokenizerError> {
///         Ok(ids.iter().filter_map(|id| char::from_u32(*id)).collect())
///     }
///
///     fn token_to_id(&self, token: &str) -> Option<u32> {
///         token.bytes().next().map(u32::from)
///     }
///
///     fn id_to_token(&self, id: u32) -> Option<String> {
///         char::from_u32(id).map(String::from)
///     }
///
///     fn vocab_size(&self) -> usize {
///         256
///     }
///
///     fn is_special(&self, _: u32) -> bool {
///         false
///     }
/// }
///
/// assert_eq!(Bytes.decode(&Bytes.encode("hi", true)?, true)?, "hi");
/// # Ok::<(), TokenizerError>(())
/// ```
pub trait Tokenizer: Send + Sync + std::fmt::Debug {
    /// Token ids of a text. Special tokens written out in the text become their ids;
    /// `add_special_tokens` adds those that the tokenizer puts around a text by itself.
    ///
    /// # Errors
    /// When the text cannot be tokenized.
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError>;

    /// Text of token ids. Unknown ids give no text; special tokens give none if `skip_special_tokens`.
    ///
    /// # Errors
    /// When the ids cannot be decoded.
    fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, TokenizerError>;

    /// The id of a token's exact content.
    fn token_to_id(&self, token: &str) -> Option<u32>;

    /// The content of a token, in the tokenizer's own spelling.
    fn id_to_token(&self, id: u32) -> Option<String>;

    /// Number of tokens, added ones included.
    fn vocab_size(&self) -> usize;

    /// Whether a token is special: skipped in text that people read.
    fn is_special(&self, id: u32) -> bool;

    /// What a token adds to a text, for streaming. The default suits every tokenizer whose text does
    /// not change far behind the newest token.
    fn piece(&self, id: u32) -> Piece {
        let _ = id;
        Piece::Context { open: false }
    }

    /// The bytes that a token adds within a text, for [`Grammar`](crate::Grammar)s; nothing where it has none. The
    /// default takes what the token adds to itself, which suits every tokenizer that joins the texts of its tokens.
    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        match self.piece(id) {
            Piece::Nothing => None,
            Piece::Bytes(bytes) => Some(bytes),
            Piece::Context { .. } => added_to_itself(self, id),
        }
    }
}

/// What one token adds to a text.
///
/// ```
/// use pawl::Piece;
///
/// assert_eq!(Piece::Bytes(b"hi".to_vec()), Piece::Bytes(vec![104, 105]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Piece {
    /// Nothing: the id is unknown.
    Nothing,
    /// These bytes, whatever stands before; they may be a part of a character.
    Bytes(Vec<u8>),
    /// Something that depends on the tokens before. If `open`, its text is not settled before the
    /// next token that is not open.
    #[non_exhaustive]
    Context {
        /// Whether later tokens may change the text of this one.
        open: bool,
    },
}

/// A tokenizer that failed to load, encode or decode.
///
/// ```
/// use pawl::{HfTokenizer, TokenizerError};
///
/// let error = HfTokenizer::from_file("no/such/tokenizer.json").unwrap_err();
/// assert!(matches!(error, TokenizerError::Read { .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file cannot be read.
    #[error("{}: cannot read the tokenizer: {source}", path.display())]
    #[non_exhaustive]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not a tokenizer this version understands.
    #[error("{}: not a usable tokenizer: {message}", path.display())]
    #[non_exhaustive]
    Parse {
        /// The file.
        path: PathBuf,
        /// The cause.
        message: String,
    },
    /// A text could not be tokenized.
    #[error("cannot tokenize the text: {message}")]
    #[non_exhaustive]
    Encode {
        /// The cause.
        message: String,
    },
    /// Token ids could not be decoded.
    #[error("cannot decode the tokens: {message}")]
    #[non_exhaustive]
    Decode {
        /// The cause.
        message: String,
    },
}

/// A Hugging Face tokenizer read from `tokenizer.json`.
///
/// The file may come from anywhere: what it can ask for is bounded ([`crate::manual::limits`]), and where the code that
/// runs it breaks down or takes too long, that is an error.
///
/// ```no_run
/// use pawl::{HfTokenizer, Tokenizer};
///
/// let tokenizer = HfTokenizer::from_file("demo/tiny-python/tokenizer.json")?;
/// println!("{} tokens", tokenizer.vocab_size());
/// # Ok::<(), pawl::TokenizerError>(())
/// ```
pub struct HfTokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    special: HashSet<u32>,
    spelling: Spelling,
    /// How much longer a text can become.
    growth: Growth,
    /// Bytes of the longest token.
    longest: usize,
    patience: Patience,
    /// The file, for messages.
    origin: PathBuf,
}

/// How tokens spell their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// One character per byte: a token's text is independent of its neighbours.
    ByteLevel,
    /// Anything else, where tokens like `<0x0A>` stand for bytes.
    ByteFallback,
    /// Anything else.
    Other,
}

impl std::fmt::Debug for HfTokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HfTokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("spelling", &self.spelling)
            .finish_non_exhaustive()
    }
}

impl HfTokenizer {
    /// Reads a `tokenizer.json`. Truncation and padding settings in it are ignored.
    ///
    /// # Errors
    /// Names the file when it is missing or not a tokenizer.
    ///
    /// ```
    /// use pawl::HfTokenizer;
    ///
    /// let error = HfTokenizer::from_file("no/such/tokenizer.json").unwrap_err();
    /// assert!(error.to_string().contains("no/such/tokenizer.json"));
    /// ```
    pub fn from_file(path: impl AsRef<Path>) -> Result<HfTokenizer, TokenizerError> {
        let path = path.as_ref();
        let bytes = read_regular(path, TOKENIZER_BYTES).map_err(|source| TokenizerError::Read {
            path: path.to_path_buf(),
            source,
        })?;
        HfTokenizer::load(bytes, path)
    }

    /// Reads the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// When it is not a tokenizer.
    ///
    /// ```
    /// use pawl::{HfTokenizer, Tokenizer};
    ///
    /// let json = r#"{"version": "1.0", "added_tokens": [], "model":
    ///     {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}}"#;
    /// let tokenizer = HfTokenizer::from_bytes(json.as_bytes())?;
    /// assert_eq!(tokenizer.encode("a", false)?, [0]);
    /// # Ok::<(), pawl::TokenizerError>(())
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Result<HfTokenizer, TokenizerError> {
        HfTokenizer::load(bytes.to_vec(), Path::new("tokenizer.json"))
    }

    fn load(bytes: Vec<u8>, path: &Path) -> Result<HfTokenizer, TokenizerError> {
        let unusable = |message: String| TokenizerError::Parse {
            path: path.to_path_buf(),
            message,
        };
        let parsed = guard::run(ROOM, TOKENIZER_LOAD, move || HfTokenizer::parse(&bytes));
        match parsed {
            Ok(Ok(parsed)) => Ok(HfTokenizer {
                origin: path.to_path_buf(),
                ..parsed
            }),
            Ok(Err(message)) => Err(unusable(message)),
            Err(broken) => Err(unusable(broken.to_string())),
        }
    }

    fn parse(bytes: &[u8]) -> Result<HfTokenizer, String> {
        let growth = screen(bytes)?;
        let failed = |error: tokenizers::Error| error.to_string();
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(failed)?;
        inner.with_truncation(None).map_err(failed)?;
        inner.with_padding(None);
        let added = inner.get_added_tokens_decoder();
        let special = added
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| *id)
            .collect();
        let spelling = inner.get_decoder().map_or(Spelling::Other, spelling);
        Ok(HfTokenizer {
            longest: longest_word(&inner)?,
            inner: Arc::new(inner),
            special,
            spelling,
            growth,
            patience: Patience::default(),
            origin: PathBuf::new(),
        })
    }
}

/// Bytes of the longest token. Each token of a text is a copy of it.
fn longest_word(tokenizer: &tokenizers::Tokenizer) -> Result<usize, String> {
    let words = tokenizer.get_vocab(true);
    let longest = words.keys().max_by_key(|word| word.len());
    match longest.map_or(0, String::len) {
        bytes if bytes > TOKENIZER_WORD => Err(format!(
            "a token of {bytes} bytes, at most {TOKENIZER_WORD} are taken: it begins with {:?}",
            longest
                .map_or("", String::as_str)
                .chars()
                .take(40)
                .collect::<String>()
        )),
        bytes => Ok(bytes),
    }
}

fn spelling(decoder: &DecoderWrapper) -> Spelling {
    let chain = if let DecoderWrapper::Sequence(sequence) = decoder {
        sequence.get_decoders()
    } else {
        std::slice::from_ref(decoder)
    };
    if let [DecoderWrapper::ByteLevel(_)] = chain {
        return Spelling::ByteLevel;
    }
    if chain
        .iter()
        .any(|decoder| matches!(decoder, DecoderWrapper::ByteFallback(_)))
    {
        return Spelling::ByteFallback;
    }
    Spelling::Other
}

impl HfTokenizer {
    /// What the tokenizer's code gave; where that broke, the file is to blame.
    fn settled<T>(&self, done: Result<Result<T, String>, Broken>) -> Result<T, String> {
        done.unwrap_or_else(|broken| Err(format!("{}: {broken}", self.origin.display())))
    }

    /// Refuses what could become more text than there may be.
    fn bounded(&self, bytes: usize, growth: u64) -> Result<(), String> {
        let most = TOKENIZER_TEXT / usize::try_from(growth).unwrap_or(usize::MAX).max(1);
        if bytes <= most {
            return Ok(());
        }
        let file = self.origin.display();
        Err(format!(
            "it has {bytes} bytes, and the steps of {file} can make it {growth} times longer: at most {most} are taken"
        ))
    }

    /// Bytes of tokens in the tokenizer's own spelling, exactly only where they are many.
    fn spelled(&self, ids: &[u32]) -> usize {
        let most = ids.len().saturating_mul(self.longest);
        if self.bounded(most, self.growth.decoded).is_ok() {
            return most;
        }
        let words = ids.iter().filter_map(|id| self.id_to_token(*id));
        words.map(|word| word.len()).fold(0, usize::saturating_add)
    }
}

impl Tokenizer for HfTokenizer {
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        self.bounded(text.len(), self.growth.encoded)
            .map_err(|message| TokenizerError::Encode { message })?;
        let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let time = TOKENIZE.saturating_add(TOKENIZE_PER_BYTE.saturating_mul(bytes));
        let (inner, text) = (Arc::clone(&self.inner), text.to_owned());
        let work = move || {
            let encoding = inner.encode_fast(text.as_str(), add_special_tokens);
            let ids = encoding.map(|encoding| encoding.get_ids().to_vec());
            ids.map_err(|error| error.to_string())
        };
        self.settled(self.patience.run(ROOM, time, work))
            .map_err(|message| TokenizerError::Encode { message })
    }

    fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, TokenizerError> {
        self.bounded(self.spelled(ids), self.growth.decoded)
            .map_err(|message| TokenizerError::Decode { message })?;
        let decoded = guard::caught(|| {
            let decoded = self.inner.decode(ids, skip_special_tokens);
            decoded.map_err(|error| error.to_string())
        });
        self.settled(decoded)
            .map_err(|message| TokenizerError::Decode { message })
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    fn piece(&self, id: u32) -> Piece {
        let Some(token) = self.id_to_token(id) else {
            return Piece::Nothing;
        };
        match self.spelling {
            Spelling::ByteLevel => Piece::Bytes(byte_level_bytes(token)),
            Spelling::ByteFallback => Piece::Context {
                open: byte_named(&token).is_some(),
            },
            Spelling::Other => Piece::Context { open: false },
        }
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let token = self.id_to_token(id)?;
        match (self.spelling, byte_named(&token)) {
            (Spelling::ByteFallback, Some(byte)) => Some(vec![byte]),
            (Spelling::ByteLevel, _) => Some(byte_level_bytes(token)),
            _ => added_to_itself(self, id),
        }
    }
}

/// What a token adds to a text that is the token.
fn added_to_itself(tokenizer: &(impl Tokenizer + ?Sized), id: u32) -> Option<Vec<u8>> {
    let once = tokenizer.decode(&[id], false).ok()?;
    let twice = tokenizer.decode(&[id, id], false).ok()?;
    Some(twice.strip_prefix(&once)?.as_bytes().to_vec())
}

/// The byte that a token of the form `<0xE4>` stands for.
fn byte_named(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let digits = Some(digits).filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// The bytes of a token in the byte-level alphabet; a token outside of it (an added one) is its text.
fn byte_level_bytes(token: String) -> Vec<u8> {
    match token.chars().map(byte_of).collect() {
        Some(bytes) => bytes,
        None => token.into_bytes(),
    }
}

/// The byte-level alphabet: printable Latin-1 characters are themselves, the 68 other bytes follow
/// in order from U+0100.
fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    let offset = u8::try_from(code.checked_sub(0x100).unwrap_or(u32::MAX));
    match (u8::try_from(code), offset) {
        (Ok(byte @ (b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)), _) => Some(byte),
        (_, Ok(offset @ 0..=32)) => Some(offset),
        (_, Ok(offset @ 33..=66)) => Some(offset - 33 + 0x7F),
        (_, Ok(67)) => Some(0xAD),
        _ => None,
    }
}
