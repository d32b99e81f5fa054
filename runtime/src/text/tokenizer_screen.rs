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
        words.check().map_err(|problem| format!("model: {problem}"))?;
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
            _ => return Err("expected an object".to_owned()),
        };
        self.steps += 1;
        if self.steps > TOKENIZER_STEPS {
            return Err(format!("more than {TOKENIZER_STEPS} steps"));
        }
        let kind = step.get("type").and_then(Value::as_str);
        let Some(kind) = kind.filter(|kind| self.section.types.contains(kind)) else {
            let expected = self.section.types.join(", ");
            let found = kind.map_or("none".to_owned(), |kind| format!("{kind:.80?}"));
            return Err(format!("a step of type {found}, expected one of {expected}"));
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
            let special = special.ok_or("single: a piece that is no Sequence and no SpecialToken")?;
            self.added = self.added.saturating_add(added(step, special)?);
            if self.added > TOKENIZER_ADDED {
                return Err(format!("it adds more than {TOKENIZER_ADDED} tokens to a text"));
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
        .ok_or_else(|| format!("special_tokens: {special:.80?} is not among them"))?;
    let list = |key: &str| token.get(key).and_then(Value::as_array);
    let texts = list("tokens").into_iter().flatten().filter_map(Value::as_str);
    if let Some(long) = texts.map(str::len).find(|long| *long > TOKENIZER_REPLACEMENT) {
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
        "ByteLevel" => match step.get("add_prefix_space") {
            Some(Value::Bool(true)) => 3,
            None if section.is(&PRE_TOKENIZER) => 3,
            _ => 2,
        },
        _ => 1,
    };
    let mut all = vec![by_kind];
    if step.contains_key("content") {
        all.push(replacement(step));
    }
    if let Some(table) = text("precompiled_charsmap") {
        all.push(precompiled(table)?);
    }
    // Decoders take these away.
    if !section.is(&DECODER) {
        all.extend([text("prepend"), text("replacement")].into_iter().flatten().map(longer_by));
        if step.get("add_prefix_space") == Some(&Value::Bool(true)) {
            all.push(3);
        }
    }
    Ok(all.into_iter().max().unwrap_or(1))
}

/// How many times longer a text becomes by another one before it.
fn longer_by(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_add(1)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(file: &Value) -> Option<String> {
        screen(file.to_string().as_bytes()).err()
    }

    fn double() -> Value {
        json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})
    }

    #[test]
    fn usual_pipelines_pass() {
        let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let split = json!({"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}| ?\p{L}+"},
            "behavior": "Isolated", "invert": false});
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false});
        let template = json!({"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}});
        let back = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        for (file, encoded, decoded) in [
            (json!({"normalizer": {"type": "Sequence", "normalizers":
                [{"type": "Prepend", "prepend": "▁"}, spaces]}, "model": {"vocab": {}, "unk_token": "<unk>"},
                "decoder": back, "post_processor": template}), 12, 1),
            (json!({"normalizer": {"type": "NFC"}, "decoder": bytes, "post_processor": bytes,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes]}}), 12, 2),
            (json!({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"},
                {"type": "StripAccents"}, {"type": "Lowercase"}, table(33)]},
                "pre_tokenizer": null}), 726, 1),
            (json!({"normalizer": null}), 1, 1),
        ] {
            let growth = Growth { encoded, decoded };
            assert_eq!(screen(file.to_string().as_bytes()), Ok(growth), "{file}");
        }
    }

    fn table(text: usize) -> Value {
        let table = [vec![0; 4], vec![b'a'; text], vec![0]].concat();
        json!({"type": "Precompiled", "precompiled_charsmap": BASE64_STANDARD.encode(table)})
    }

    fn chain(step: Value, count: usize) -> Value {
        json!({"type": "Sequence", "normalizers": vec![step; count]})
    }

    #[test]
    fn what_would_take_the_memory_of_the_machine_is_refused() {
        let bytes = json!({"type": "ByteLevel"});
        let regex = |pattern: String| json!({"type": "Split", "pattern": {"Regex": pattern}});
        let prepend = json!({"type": "Prepend", "prepend": "a".repeat(2000)});
        let decoders = json!({"type": "Sequence", "decoders": vec![double(); 5]});
        let by_pattern = json!({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""});
        for (section, step, words) in [
            ("normalizer", chain(double(), 11), "times longer"),
            ("normalizer", chain(bytes, 20), "times longer"),
            ("normalizer", chain(json!({"type": "NFKC"}), 3), "times longer"),
            ("normalizer", prepend, "times longer"),
            ("decoder", decoders, "times longer"),
            ("decoder", by_pattern, "regular expression"),
            ("normalizer", chain(json!({"type": "Nmt"}), 65), "steps"),
            ("normalizer", table(100_000), "100000 bytes"),
            ("pre_tokenizer", regex("a{1000}{1000}".to_owned()), "1000000"),
            ("pre_tokenizer", regex("a".repeat(20_000)), "20000 bytes"),
            ("model", json!({"unk_token": "a".repeat(257)}), "unk_token: a text of 257 bytes"),
        ] {
            let message = refusal(&json!({section: step})).unwrap_or_default();
            assert!(
                message.starts_with(section) && message.contains(words),
                "{words}: {message}"
            );
        }
        assert_eq!(refusal(&json!({"normalizer": chain(double(), 10)})), None);
        assert_eq!(refusal(&json!({"normalizer": table(30)})), None);
    }

    /// The tokenizer's code takes such steps by their keys.
    #[test]
    fn steps_whose_type_is_not_known_are_refused() {
        let untyped = json!({"pattern": {"String": "a"}, "content": "aa"});
        let typed = |kind: &str| {
            let mut step = untyped.clone();
            step["type"] = json!(kind);
            step
        };
        for (section, step) in [
            ("normalizer", untyped.clone()),
            ("normalizer", typed("replace")),
            ("normalizer", typed("Bert")),
            ("normalizer", chain(untyped.clone(), 2)),
            ("normalizer", json!({"normalizers": [double()]})),
            ("decoder", untyped.clone()),
            ("decoder", json!({"decoders": [double()]})),
            ("pre_tokenizer", json!({"type": "Replace"})),
            ("post_processor", json!({"single": []})),
        ] {
            let message = refusal(&json!({section: step})).unwrap_or_default();
            assert!(
                message.starts_with(section) && message.contains("a step of type "),
                "{step}: {message}"
            );
        }
        for step in [json!(["Replace"]), json!("NFC"), chain(json!(7), 1)] {
            let message = refusal(&json!({"normalizer": step})).unwrap_or_default();
            assert!(message.contains("expected an object"), "{step}: {message}");
        }
    }

    /// These types are not known to the tokenizer's code as such: it goes by the keys.
    #[test]
    fn what_a_step_is_called_hides_nothing() {
        let replace = |kind: &str| {
            let mut step = double();
            step["type"] = json!(kind);
            step
        };
        let growth = |section: &str, step: Value| {
            let file = json!({section: step}).to_string();
            screen(file.as_bytes()).map(|growth| growth.encoded.max(growth.decoded))
        };
        assert_eq!(growth("normalizer", replace("Nmt")), Ok(2));
        let inside = json!({"type": "BertNormalizer", "normalizers": [double(), double()]});
        assert_eq!(growth("normalizer", inside), Ok(24));
        let spaces = json!({"type": "CharDelimiterSplit", "replacement": "▁"});
        assert_eq!(growth("pre_tokenizer", spaces), Ok(4));
    }

    #[test]
    fn templates_multiply_and_add() {
        let text = json!({"Sequence": {"id": "A", "type_id": 0}});
        let token = json!({"SpecialToken": {"id": "x", "type_id": 0}});
        let template = |kind: &str, pieces: Vec<Value>, ids: usize| {
            json!({"post_processor": {"type": kind, "single": pieces, "pair": [],
                "special_tokens": {"x": {"id": "x", "ids": vec![1; ids], "tokens": []}}}})
        };
        let grown = |file: Value| screen(file.to_string().as_bytes()).map(|growth| growth.encoded);
        const KIND: &str = "TemplateProcessing";
        assert_eq!(grown(template(KIND, vec![text.clone(); 3], 1)), Ok(3));
        assert_eq!(grown(template(KIND, vec![token.clone(), text.clone()], 9)), Ok(1));
        for (file, words) in [
            (template(KIND, vec![text.clone(); 2000], 1), "times longer"),
            (template("ByteLevel", vec![text; 2000], 1), "times longer"),
            (template(KIND, vec![token.clone(); 2], 600), "more than 1024 tokens"),
            (template(KIND, vec![token; 1025], 0), "more than 1024 tokens"),
            (template(KIND, vec![json!({"SpecialToken": {"id": "y"}})], 1), "\"y\" is not among them"),
            (template(KIND, vec![json!({"SpecialToken": ["x", 0]})], 1), "no SpecialToken"),
        ] {
            let message = grown(file).unwrap_err();
            assert!(message.starts_with("post_processor: ") && message.contains(words), "{message}");
        }
    }
}
