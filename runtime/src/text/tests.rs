use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn shipped() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/checkpoints/tiny-python")
}

/// A byte-level tokenizer with merges, added and special tokens.
pub(crate) fn byte_level() -> Arc<dyn Tokenizer> {
    static TOKENIZER: LazyLock<Arc<dyn Tokenizer>> = LazyLock::new(|| {
        Arc::new(HfTokenizer::from_file(shipped().join("tokenizer.json")).unwrap())
    });
    TOKENIZER.clone()
}

/// All token ids.
fn all_ids(tokenizer: &Arc<dyn Tokenizer>) -> impl Iterator<Item = u32> {
    (0..).take(tokenizer.vocab_size())
}

/// A tokenizer in the manner of SentencePiece: `▁` for spaces, `<0xNN>` for other bytes, and a
/// leading space that decoding strips.
pub(crate) fn byte_fallback() -> Arc<dyn Tokenizer> {
    let mut words: Vec<String> = vec!["<unk>".into(), "<s>".into(), "</s>".into()];
    words.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    words.extend(
        [
            "▁", "▁a", "b", "▁the", "é", "日", "▁▁", "\u{FFFD}", "\n", "¤",
        ]
        .map(String::from),
    );
    let vocab: serde_json::Map<String, serde_json::Value> = words
        .into_iter()
        .zip((0u32..).map(serde_json::Value::from))
        .collect();
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true})
    };
    let file = json!({
        "version": "1.0",
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "Replace", "pattern": {"String": "¤"}, "content": ""},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>",
            "byte_fallback": true, "fuse_unk": true},
    });
    Arc::new(HfTokenizer::from_bytes(file.to_string().as_bytes()).unwrap())
}

/// The byte-level tokenizer behind a decoder of several parts, which is decoded in context.
fn composed() -> Arc<dyn Tokenizer> {
    let text = std::fs::read_to_string(shipped().join("tokenizer.json")).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let byte_level = file["decoder"].take();
    file["decoder"] = json!({"type": "Sequence", "decoders": [byte_level, {"type": "Fuse"}]});
    Arc::new(HfTokenizer::from_bytes(file.to_string().as_bytes()).unwrap())
}

/// A tokenizer without a decoder: tokens are joined by spaces.
fn words() -> Arc<dyn Tokenizer> {
    let file = json!({"version": "1.0", "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"a": 0, "bb": 1, "ü": 2, "?": 3}, "unk_token": "?"}});
    Arc::new(HfTokenizer::from_bytes(file.to_string().as_bytes()).unwrap())
}

/// Streams ids and checks every prefix on the way.
fn assert_streams(tokenizer: &Arc<dyn Tokenizer>, ids: &[u32]) {
    let mut stream = Detokenizer::new(tokenizer.clone(), true);
    let mut text = String::new();
    for (count, &id) in (1..).zip(ids) {
        stream.push(id, &mut text).unwrap();
        let mut ended = text.clone();
        stream.clone().flush(&mut ended).unwrap();
        assert_eq!(
            ended,
            tokenizer.decode(&ids[..count], true).unwrap(),
            "{ids:?}"
        );
    }
}

#[test]
fn the_byte_alphabet_is_complete() {
    let tokenizer = byte_level();
    let mut seen = std::collections::HashSet::new();
    for id in all_ids(&tokenizer) {
        let Piece::Bytes(bytes) = tokenizer.piece(id) else {
            panic!("not byte level")
        };
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            tokenizer.decode(&[id], false).unwrap()
        );
        if let [byte] = bytes[..] {
            seen.insert(byte);
        }
    }
    assert_eq!(seen.len(), 256);
}

#[test]
fn streaming_gives_characters_as_soon_as_they_are_complete() {
    let tokenizer = byte_level();
    let text = "naïve 日本語 👩‍👩‍👧 مرحبا";
    let mut stream = Detokenizer::new(tokenizer.clone(), true);
    let mut out = String::new();
    for id in tokenizer.encode(text, false).unwrap() {
        stream.push(id, &mut out).unwrap();
        assert!(text.starts_with(&out));
    }
    assert_eq!(out, text);
}

#[test]
fn a_composed_decoder_streams_whole_characters() {
    let tokenizer = composed();
    assert_eq!(tokenizer.piece(5), Piece::Context { open: false });
    let text = "naïve 日本語 👩‍👩‍👧 مرحبا";
    let mut stream = Detokenizer::new(tokenizer.clone(), true);
    let mut out = String::new();
    for id in tokenizer.encode(text, false).unwrap() {
        stream.push(id, &mut out).unwrap();
        assert!(text.starts_with(&out), "{out:?}");
    }
    assert_eq!(out, text);
    // A text that really ends in replacement characters is not held back for ever.
    let replacement = tokenizer.encode("\u{FFFD}", false).unwrap();
    out.clear();
    for id in replacement.iter().cycle().take(40 * replacement.len()) {
        stream.push(*id, &mut out).unwrap();
    }
    assert!(out.ends_with('\u{FFFD}'));
}

/// Remembers how many tokens were decoded at once.
#[derive(Debug)]
struct Counting(Arc<dyn Tokenizer>, std::sync::atomic::AtomicUsize);

impl Tokenizer for Counting {
    fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        self.0.encode(text, special)
    }

    fn decode(&self, ids: &[u32], skip: bool) -> Result<String, TokenizerError> {
        (self.1).fetch_max(ids.len(), std::sync::atomic::Ordering::Relaxed);
        self.0.decode(ids, skip)
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }

    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    fn is_special(&self, id: u32) -> bool {
        self.0.is_special(id)
    }

    fn piece(&self, id: u32) -> Piece {
        self.0.piece(id)
    }
}

#[test]
fn tokens_without_text_are_not_decoded_again_for_ever() {
    let silent = byte_fallback().token_to_id("¤").unwrap();
    let ids = [[silent; 500].as_slice(), &[260, 261, silent, 260]].concat();
    assert_streams(&byte_fallback(), &ids);
    let counting = Arc::new(Counting(byte_fallback(), 0.into()));
    let mut stream = Detokenizer::new(counting.clone(), true);
    let mut text = String::new();
    for id in ids {
        stream.push(id, &mut text).unwrap();
    }
    assert_eq!(text, "ab a");
    let most = counting.1.load(std::sync::atomic::Ordering::Relaxed);
    assert!(most < 100, "{most} tokens at once");
}

#[test]
fn a_text_that_could_become_too_long_is_refused() {
    let grows = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "b".repeat(1000)});
    let file = json!({"version": "1.0", "added_tokens": [], "normalizer": grows,
        "decoder": {"type": "Replace", "pattern": {"String": "b"}, "content": "c".repeat(16)},
        "model": {"type": "WordLevel", "vocab": {"b": 0, "x": 1, "b".repeat(4000): 2}, "unk_token": "x"}});
    let tokenizer = HfTokenizer::from_bytes(file.to_string().as_bytes()).unwrap();
    assert!(tokenizer.encode(&"a".repeat(1000), false).is_ok());
    let refused = tokenizer.encode(&"a".repeat(26_000), false).unwrap_err();
    let words = "it has 26000 bytes, and the steps of tokenizer.json can make it 1000 times longer";
    assert!(refused.to_string().contains(words), "{refused}");
    // 400 of the long token are too many, as many of a short one are not.
    assert_eq!(tokenizer.decode(&[0; 400], false).unwrap().len(), 400 * 16);
    let refused = tokenizer.decode(&[2; 400], false).unwrap_err();
    assert!(
        refused.to_string().contains("it has 1600000 bytes"),
        "{refused}"
    );
}

#[test]
fn a_token_longer_than_any_is_refused() {
    let file = json!({"version": "1.0", "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"a": 0, "x".repeat(4097): 1}, "unk_token": "a"}});
    let refused = HfTokenizer::from_bytes(file.to_string().as_bytes()).unwrap_err();
    assert!(
        refused.to_string().contains("a token of 4097 bytes"),
        "{refused}"
    );
}

#[test]
fn unknown_ids_have_no_text() {
    assert_streams(&byte_level(), &[5, 4_000_000_000, 6]);
    assert_streams(&byte_fallback(), &[260, 4_000_000_000, 261]);
    // The unknown id does not end the run of bytes, which the last one makes invalid.
    assert_streams(&byte_fallback(), &[197, 131, 4_000_000_000, 131]);
}

#[test]
fn truncation_and_padding_settings_are_ignored() {
    let file = json!({"version": "1.0", "added_tokens": [],
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "?"},
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}});
    let tokenizer = HfTokenizer::from_bytes(file.to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.encode("a a a a", true).unwrap(), [0, 0, 0, 0]);
}

#[test]
fn bad_tokenizer_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    for content in ["", "{", "[]", "{\"version\": \"9\"}", "\u{FFFD}"] {
        std::fs::write(&path, content).unwrap();
        let error = HfTokenizer::from_file(&path).unwrap_err();
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
    }
}

/// Pieces of text that have tripped detokenizers.
fn tricky_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -~]{1,6}",
        "\\PC{1,3}",
        "[\u{4e00}-\u{4fff}]{1,3}",
        "[\u{5d0}-\u{5ea}\u{627}-\u{64a}\u{200f}]{1,4}",
        Just("👩‍👩‍👧‍👦".to_owned()),
        Just("🏳️‍🌈".to_owned()),
        Just("e\u{301}".to_owned()),
        Just("\u{FFFD}".to_owned()),
        Just("<|im_end|>".to_owned()),
        Just("<think>".to_owned()),
        Just("  \n\t".to_owned()),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn random_ids_stream_to_the_whole_decode(ids in prop::collection::vec(0u32..2050, 0..40)) {
        assert_streams(&byte_level(), &ids);
    }

    #[test]
    fn single_bytes_stream_to_the_whole_decode(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
        let tokenizer = byte_level();
        let id = |byte: u8| {
            all_ids(&tokenizer).find(|&id| tokenizer.piece(id) == Piece::Bytes(vec![byte])).unwrap()
        };
        let ids: Vec<u32> = bytes.iter().map(|&byte| id(byte)).collect();
        assert_streams(&tokenizer, &ids);
    }

    #[test]
    fn fallback_bytes_stream_to_the_whole_decode(
        ids in prop::collection::vec(prop_oneof![3 => 0u32..270, 2 => 259u32..268, 1 => 131u32..200], 0..24),
    ) {
        assert_streams(&byte_fallback(), &ids);
    }

    #[test]
    fn joined_words_stream_to_the_whole_decode(ids in prop::collection::vec(0u32..5, 0..12)) {
        assert_streams(&words(), &ids);
    }

    #[test]
    fn text_streams_back_to_itself(text in tricky_text()) {
        let tokenizer = byte_level();
        let ids = tokenizer.encode(&text, false).unwrap();
        assert_streams(&tokenizer, &ids);
        let mut streamed = String::new();
        let mut stream = Detokenizer::new(tokenizer, false);
        for id in ids {
            stream.push(id, &mut streamed).unwrap();
        }
        prop_assert_eq!(streamed, text);
    }

    #[test]
    fn stop_strings_match_the_naive_search(
        text in "[abé日]{0,24}",
        stops in prop::collection::vec("[abé日]{1,5}", 0..6),
        cuts in prop::collection::vec(0usize..30, 0..8),
    ) {
        let set = StopSet::new(&stops);
        let (expected, stop) = naive_stop(&text, &stops);
        let mut state = StopState::default();
        let mut out = String::new();
        let mut found = StopMatch::None;
        for piece in split(&text, &cuts) {
            found = state.push(&set, piece, &mut out);
            if found != StopMatch::None {
                break;
            }
            // Only an end that begins a stop string may be held back, and all of it must be.
            let seen = piece.as_ptr() as usize - text.as_ptr() as usize + piece.len();
            prop_assert_eq!(seen - out.len(), live_end(&text[..seen], &stops));
        }
        if found == StopMatch::None {
            state.flush(&mut out);
        }
        prop_assert_eq!(out, expected);
        prop_assert_eq!(found, stop.map_or(StopMatch::None, StopMatch::Found));
    }
}

/// Text before the stop string that is complete first (of those, the longest), and that string.
fn naive_stop(text: &str, stops: &[String]) -> (String, Option<String>) {
    for end in 0..=text.len() {
        let ending = stops
            .iter()
            .filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
        if let Some(stop) = ending.max_by_key(|stop| stop.len()) {
            return (text[..end - stop.len()].to_owned(), Some(stop.clone()));
        }
    }
    (text.to_owned(), None)
}

/// Length of the longest end of `text` that begins a stop string.
fn live_end(text: &str, stops: &[String]) -> usize {
    let ends = text.char_indices().map(|(start, _)| &text[start..]);
    ends.filter(|end| stops.iter().any(|stop| stop.starts_with(end)))
        .map(str::len)
        .max()
        .unwrap_or(0)
}

/// Cuts a text at character boundaries.
fn split<'a>(text: &'a str, cuts: &[usize]) -> Vec<&'a str> {
    let mut at: Vec<usize> = cuts
        .iter()
        .copied()
        .filter(|&cut| text.is_char_boundary(cut))
        .collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

#[test]
fn thousands_of_stop_strings_are_fine() {
    let stops: Vec<String> = (0..5000).map(|i| format!("<stop-{i}>")).collect();
    let set = StopSet::new(&stops);
    let mut state = StopState::default();
    let mut out = String::new();
    assert_eq!(state.push(&set, "text <stop-12", &mut out), StopMatch::None);
    assert_eq!(out, "text ");
    let found = state.push(&set, "34> more", &mut out);
    assert_eq!(
        (found, out.as_str()),
        (StopMatch::Found("<stop-1234>".into()), "text ")
    );
}
