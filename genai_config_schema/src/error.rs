//! What can be wrong with a file.

use std::fmt;
use std::path::PathBuf;

/// Defines the codes: variant, the word in messages, what it means.
macro_rules! codes {
    ($($variant:ident $word:literal $meaning:literal,)*) => {
        /// Why a file is rejected.
        ///
        /// `C1` to `C32` are the rejections that both spellings inherit from onnxruntime-genai.
        /// Five of its numbers have no place here: C3 and C4 refuse the pawl spelling itself
        /// (within a genai-0.18 file that is `mixed_spellings`), and C21, C24 and C25 are about
        /// keys of `state_update` that neither spelling has any more (they are C5).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ConfigCode {
            $(#[doc = $meaning] $variant,)*
        }

        impl ConfigCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The code as a word, such as `C7` or `unknown_key`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// What the code means, one sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                }
            }
        }
    };
}

codes! {
    C1 "C1" "`state_groups` is present but empty.",
    C2 "C2" "A state group has no kind, or an unknown one.",
    C5 "C5" "A key of an older format stands inside `state_update`.",
    C6 "C6" "A state group has no layer.",
    C7 "C7" "A layer id is negative or not below `num_hidden_layers`.",
    C8 "C8" "A layer id appears twice in one group.",
    C9 "C9" "A layer belongs to two paged groups.",
    C10 "C10" "A `paged_kv` group of the pawl spelling binds something other than key and value.",
    C11 "C11" "A `fixed` group binds something other than state.",
    C12 "C12" "A name template is empty, or does not have exactly one `%d` and no other `%`.",
    C13 "C13" "Two inputs, or two outputs, of a graph have the same name.",
    C14 "C14" "A checkpoint template without a positive count, or a count without a template.",
    C15 "C15" "A paged group declares checkpoints.",
    C16 "C16" "`checkpoint_count` is not a whole number from 0 to 8.",
    C17 "C17" "`checkpoint_alignment` is neither `left` nor `right`.",
    C18 "C18" "A paged group declares `state_update`.",
    C19 "C19" "A group declares `state_update`, or one of its bindings, twice.",
    C20 "C20" "A `state_update` capacity is not within 1 to 8 (0 to 8 for the decoder's).",
    C22 "C22" "The capture count input is missing although states are captured, or is not a name.",
    C23 "C23" "`state_update_active` is not a name.",
    C26 "C26" "`key_head_count` is missing, not positive, or on an operator without key heads.",
    C27 "C27" "Fixed groups differ in their capacity, checkpoint count or `enabled`.",
    C28 "C28" "Some fixed groups declare checkpoints or updates and others do not.",
    C29 "C29" "Fixed groups need `engine.dynamic_batching`.",
    C30 "C30" "There is more than one paged group, or none in the genai-0.18 spelling.",
    C31 "C31" "A sliding-window layer is not in the paged group.",
    C32 "C32" "A number of `engine.dynamic_batching` is not positive or not whole.",
    Unreadable "unreadable" "The file cannot be read, or is not UTF-8.",
    NotJson "not_json" "The text is not JSON.",
    TooLarge "too_large" "The text is longer than the bound.",
    TooDeep "too_deep" "Objects and lists are nested deeper than the bound.",
    DuplicateKey "duplicate_key" "A key appears twice in one object.",
    UnknownKey "unknown_key" "The format has no such key here.",
    MissingKey "missing_key" "A required key is absent.",
    WrongType "wrong_type" "A value has the wrong JSON type; null is none.",
    NotInteger "not_integer" "A whole number is expected, a fraction was found.",
    NotFinite "not_finite" "A number is infinite or not a number.",
    OutOfRange "out_of_range" "A number or a list's length is outside its bounds.",
    UnknownWord "unknown_word" "A string is none of the words that may stand here.",
    BadName "bad_name" "A tensor name is empty, too long or contains `%`.",
    UnsafePath "unsafe_path" "A path is absolute or leaves the model folder.",
    MixedSpellings "mixed_spellings" "Keys of the pawl and of the genai-0.18 spelling stand in one file.",
    Misplaced "misplaced" "A key stands on a kind of group that has no use for it.",
    Exclusive "exclusive" "Two keys exclude each other.",
    Inconsistent "inconsistent" "Two values contradict each other.",
    UpdateAlignment "update_alignment" "Checkpoints of the form `update` are always aligned left.",
}

impl fmt::Display for ConfigCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message} [{code}]", if path.is_empty() { "(root)" } else { path })]
#[non_exhaustive]
pub struct ConfigError {
    /// Why.
    pub code: ConfigCode,
    /// Where, such as `model.decoder.state_groups[1].layer_ids[0]`; empty for the root.
    pub path: String,
    /// What was expected and what was found.
    pub message: String,
}

impl ConfigError {
    pub(crate) fn new(
        code: ConfigCode,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code,
            path: path.into(),
            message: message.into(),
        }
    }
}

/// Everything that is wrong with a file, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigErrors {
    /// The file, when the text came from one.
    pub file: Option<PathBuf>,
    /// The errors, in the order of the file where it has one.
    pub errors: Vec<ConfigError>,
}

impl ConfigErrors {
    /// The codes, in order.
    pub fn codes(&self) -> impl Iterator<Item = ConfigCode> + '_ {
        self.errors.iter().map(|error| error.code)
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self {
            file: None,
            errors: vec![error],
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}", file.display())?,
            None => f.write_str("configuration")?,
        }
        match self.errors.as_slice() {
            [error] => write!(f, ": {error}"),
            errors => {
                write!(f, ": {} errors", errors.len())?;
                errors.iter().try_for_each(|error| write!(f, "\n  {error}"))
            }
        }
    }
}

impl std::error::Error for ConfigErrors {}
