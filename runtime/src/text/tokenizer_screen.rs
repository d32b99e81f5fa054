//! What a `tokenizer.json` may ask for, checked before the tokenizer's own code sees it.
//!
//! That code does what the file says, however much it is: a chain of replacements that each double a text, a pattern
//! that is compiled into a program of any size. Time is bounded when it runs; what would take the memory of the machine
//! is refused here.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::limits::{
    PATTERN_BYTES, PATTERN_REPEATS, TOKENIZER_ADDED, TOKENIZER_DECODED, TOKENIZER_GROWTH,
    TOKENIZER_REPLACEMENT, TOKENIZER_STEPS,
};

/// The parts of the file that say what is done to a text. The vocabulary is skipped.
#[derive(Debug, Deserialize)]
struct Pipeline {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    model: Option<Words>,
}

/// What the model adds to words, or puts in their place.
#[derive(Debug, Deserialize)]
struct Words {
    #[serde(default)]
    unk_token: Value,
    #[serde(default)]
    continuing_subword_prefix: Value,
    #[serde(default)]
    end_of_word_suffix: Value,
}

/// How many times longer a text can become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    /// From a text to the texts of its tokens.
    pub(super) encoded: u64,
    /// From the texts of tokens to a text.
    pub(super) decoded: u64,
}

/// Refuses a file that asks for too much, saying what and where; tells how much a text can grow by one that is taken.
pub(super) fn screen(bytes: &[u8]) -> Result<Growth, String> {
    // As text: of bytes, what is skipped would not be looked at.
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let pipeline: Pipeline = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Some(words) = &pipeline.model {
        words
            .check()
            .map_err(|problem| format!("model: {problem}"))?;
    }
    let mut encoded = 1;
    for (section, steps) in [
        (&NORMALIZER, &pipeline.normalizer),
        (&PRE_TOKENIZER, &pipeline.pre_tokenizer),
        (&POST_PROCESSOR, &pipeline.post_processor),
    ] {
        encoded = section.grown(encoded, steps)?;
    }
    Ok(Growth {
        encoded,
        decoded: DECODER.grown(1, &pipeline.decoder)?,
    })
}

impl Words {
    fn check(&self) -> Result<(), String> {
        for (key, value) in [
            ("unk_token", &self.unk_token),
            ("continuing_subword_prefix", &self.continuing_subword_prefix),
            ("end_of_word_suffix", &self.end_of_word_suffix),
        ] {
            let bytes = value.as_str().map_or(0, str::len);
            if bytes > TOKENIZER_REPLACEMENT {
                return Err(format!(
                    "{key}: a text of {bytes} bytes, at most {TOKENIZER_REPLACEMENT} are taken"
                ));
            }
        }
        Ok(())
    }
}

/// A part of the pipeline.
struct Section {
    name: &'static str,
    /// The steps there are. The tokenizer's code guesses what a step is where its type is missing or unknown.
    types: &'static [&'static str],
    /// The key of the steps of a sequence.
    inner: &'static str,
    /// How many times longer a text may become.
    most: u64,
}

const NORMALIZER: Section = Section {
    name: "normalizer",
    types: &[
        "BertNormalizer",
        "ByteLevel",
        "Lowercase",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "Nmt",
        "Precompiled",
        "Prepend",
        "Replace",
        "Sequence",
        "Strip",
        "StripAccents",
    ],
    inner: "normalizers",
    most: TOKENIZER_GROWTH,
};

const PRE_TOKENIZER: Section = Section {
    name: "pre_tokenizer",
    types: &[
        "BertPreTokenizer",
        "ByteLevel",
        "CharDelimiterSplit",
        "Digits",
        "FixedLength",
        "Metaspace",
        "Punctuation",
        "Sequence",
        "Split",
        "UnicodeScripts",
        "Whitespace",
        "WhitespaceSplit",
    ],
    inner: "pretokenizers",
    most: TOKENIZER_GROWTH,
};

const POST_PROCESSOR: Section = Section {
    name: "post_processor",
    types: &[
        "BertProcessing",
        "ByteLevel",
        "RobertaProcessing",
        "Sequence",
        "TemplateProcessing",
    ],
    inner: "processors",
    most: TOKENIZER_GROWTH,
};

const DECODER: Section = Section {
    name: "decoder",
    types: &[
        "BPEDecoder",
        "ByteFallback",
        "ByteLevel",
        "CTC",
        "Fuse",
        "Metaspace",
        "Replace",
        "Sequence",
        "Strip",
        "WordPiece",
    ],
    inner: "decoders",
    most: TOKENIZER_DECODED,
};

impl Section {
    /// How much a text has grown after these steps, if it had grown so much before.
    fn grown(&self, before: u64, steps: &Value) -> Result<u64, String> {
        let mut seen = Seen {
            section: self,
            steps: 0,
            added: 0,
            growth: before,
        };
        seen.step(steps)
            .map_err(|problem| format!("{}: {problem}", self.name))?;
        Ok(seen.growth)
    }

    fn is(&self, other: &Section) -> bool {
        self.name == other.name
    }
}

/// What has been seen of a section.
struct Seen<'a> {
    section: &'a Section,
    steps: usize,
    /// Tokens that are put beside the text.
    added: usize,
    /// How many times longer a text can become.
    growth: u64,
}

impl Seen<'_> {
    /// A step, or a sequence of them. What a step is called does not always decide what it is: every key counts.
    fn step(&mut self, step: &Value) -> Result<(), String> {
        let step = match step {
            Value::Null => return Ok(()),
            Value::Object(step) => step,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err("expected an object".to_owned());
            }
        };
        self.steps += 1;
        if self.steps > TOKENIZER_STEPS {
            return Err(format!("more than {TOKENIZER_STEPS} steps"));
        }
        let kind = step.get("type").and_then(Value::as_str);
        let Some(kind) = kind.filter(|kind| self.section.types.contains(kind)) else {
            let expected = self.section.types.join(", ");
            let found = kind.map_or("none".to_owned(), short);
            return Err(format!(
                "a step of type {found}, expected one of {expected}"
            ));
        };
        self.pattern(step)?;
        self.template(step)?;
        let growth = growth(self.section, kind, step)?;
        self.grow(growth)?;
        match step.get(self.section.inner) {
            Some(Value::Array(steps)) => steps.iter().try_for_each(|step| self.step(step)),
            _ => Ok(()),
        }
    }

    fn grow(&mut self, growth: u64) -> Result<(), String> {
        self.growth = self.growth.saturating_mul(growth);
        let most = self.section.most;
        if self.growth > most {
            return Err(format!(
                "its steps can make a text more than {most} times longer"
            ));
        }
        Ok(())
    }

    fn pattern(&self, step: &Map<String, Value>) -> Result<(), String> {
        let regex = step.get("pattern").and_then(|pattern| pattern.get("Regex"));
        let Some(Value::String(regex)) = regex else {
            return Ok(());
        };
        if self.section.is(&DECODER) {
            // A step of the engine waits for it, and nothing bounds its time.
            return Err("a regular expression, only plain texts are replaced here".to_owned());
        }
        check_pattern(regex)
    }

    /// A template says where the text goes, and which tokens go beside it.
    fn template(&mut self, step: &Map<String, Value>) -> Result<(), String> {
        let Some(Value::Array(pieces)) = step.get("single") else {
            return Ok(());
        };
        let mut texts = 0u64;
        for piece in pieces {
            if piece.get("Sequence").is_some_and(Value::is_object) {
                texts = texts.saturating_add(1);
                continue;
            }
            let special = piece.get("SpecialToken").and_then(|piece| piece.get("id"));
            let special = special.and_then(Value::as_str);
            let special =
                special.ok_or("single: a piece that is no Sequence and no SpecialToken")?;
            self.added = self.added.saturating_add(added(step, special)?);
            if self.added > TOKENIZER_ADDED {
                return Err(format!(
                    "it adds more than {TOKENIZER_ADDED} tokens to a text"
                ));
            }
        }
        self.grow(texts.max(1))
    }
}

/// Tokens that a piece of a template stands for.
fn added(template: &Map<String, Value>, special: &str) -> Result<usize, String> {
    let token = template
        .get("special_tokens")
        .and_then(|tokens| tokens.get(special))
        .filter(|token| token.is_object())
        .ok_or_else(|| format!("special_tokens: {} is not among them", short(special)))?;
    let list = |key: &str| token.get(key).and_then(Value::as_array);
    let texts = list("tokens")
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    if let Some(long) = texts
        .map(str::len)
        .find(|long| *long > TOKENIZER_REPLACEMENT)
    {
        return Err(format!(
            "special_tokens: a text of {long} bytes, at most {TOKENIZER_REPLACEMENT} are taken"
        ));
    }
    let count = |key: &str| list(key).map_or(0, Vec::len);
    Ok(count("ids").max(count("tokens")).max(1))
}

/// How many times longer a step makes a text at most, in bytes. The text may have one letter, and stand between two
/// special tokens.
fn growth(section: &Section, kind: &str, step: &Map<String, Value>) -> Result<u64, String> {
    let text = |key: &str| step.get(key).and_then(Value::as_str);
    let by_kind = match kind {
        // What Unicode says of its normal forms.
        "NFKC" | "NFKD" => 11,
        "NFC" | "NFD" => 3,
        // Decomposes, and changes letters to small ones.
        "BertNormalizer" => 6,
        "Lowercase" => 2,
        "BPEDecoder" | "CTC" | "WordPiece" => 3,
        // A byte becomes a letter of two, or one that stands for what is no character.
        "ByteLevel" if section.is(&POST_PROCESSOR) => 1,
        "ByteLevel" => match step.get("add_prefix_space") {
            Some(Value::Bool(true)) => 3,
            None if section.is(&PRE_TOKENIZER) => 3,
            _ => 2,
        },
        _ => 1,
    };
    let mut all = vec![by_kind];
    if step.contains_key("content") && step.contains_key("pattern") {
        all.push(replacement(step));
    }
    if let Some(table) = text("precompiled_charsmap") {
        all.push(precompiled(table)?);
    }
    // Decoders take these away.
    if section.is(&NORMALIZER) || section.is(&PRE_TOKENIZER) {
        all.extend(
            [text("prepend"), text("replacement")]
                .into_iter()
                .flatten()
                .map(longer_by),
        );
        if step.get("add_prefix_space") == Some(&Value::Bool(true)) {
            all.push(3);
        }
    }
    Ok(all.into_iter().max().unwrap_or(1))
}

/// The start of a name from the file, for a message.
fn short(name: &str) -> String {
    let start: String = name.chars().take(80).collect();
    format!("{start:?}")
}

/// How many times longer a text becomes by another one before it.
fn longer_by(text: &str) -> u64 {
    u64::try_from(text.len())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

/// How many times longer a replacement makes a text.
fn replacement(step: &Map<String, Value>) -> u64 {
    let length = |text: Option<&Value>| text.and_then(Value::as_str).map_or(0, str::len);
    let content = length(step.get("content"));
    let plain = length(
        step.get("pattern")
            .and_then(|pattern| pattern.get("String")),
    );
    let growth = match plain {
        // A pattern may match before, between and after characters.
        0 => content.saturating_mul(2).saturating_add(1),
        plain => content.div_ceil(plain),
    };
    u64::try_from(growth.max(1)).unwrap_or(u64::MAX)
}

/// A table of replacements in the format of SentencePiece: the length of a trie, the trie, and texts that end in zeros.
/// Any character may have the longest of them.
fn precompiled(table: &str) -> Result<u64, String> {
    let table = BASE64_STANDARD
        .decode(table)
        .map_err(|error| format!("precompiled_charsmap: {error}"))?;
    let Some((length, rest)) = table.split_first_chunk::<4>() else {
        return Ok(1);
    };
    let trie = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let texts = rest
        .get(trie..)
        .ok_or("precompiled_charsmap: it is shorter than it says")?;
    let longest = texts.split(|byte| *byte == 0).map(<[u8]>::len).max();
    match longest.unwrap_or(0) {
        longest if longest > TOKENIZER_REPLACEMENT => Err(format!(
            "precompiled_charsmap: a replacement of {longest} bytes, at most {TOKENIZER_REPLACEMENT} are taken"
        )),
        longest => Ok(u64::try_from(longest.max(1)).unwrap_or(u64::MAX)),
    }
}

fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.len() > PATTERN_BYTES {
        return Err(format!(
            "a pattern of {} bytes, at most {PATTERN_BYTES} are taken",
            pattern.len()
        ));
    }
    let counts = pattern.split('{').skip(1).filter_map(|rest| {
        let (counts, _) = rest.split_once('}')?;
        let largest = counts.split(',').map(|count| count.trim().parse::<u64>());
        largest.flatten().max()
    });
    let product = counts.fold(1u64, |product, count| product.saturating_mul(count.max(1)));
    if product > PATTERN_REPEATS {
        return Err(format!(
            "a pattern whose counted repetitions multiply to {product}, at most {PATTERN_REPEATS} are taken"
        ));
    }
    Ok(())
}
