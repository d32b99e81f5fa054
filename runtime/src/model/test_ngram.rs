//! A model that knows its last ids only: n-grams hashed by ONNX Runtime's `VarlenNGramHashMapping`, and a table that
//! turns the hashes of a token into its logits. Beside it the same in plain code, over a whole text.
//!
//! Hidden rows are the hashes, `[num_tokens, 4]`, so that every row of a step can be looked at. All sums are exact.

use super::test_onnx::{Attribute, F32, I32, I64, Onnx};
use crate::sample::{Sampler, SamplingParams, Scratch};
use std::fs;

/// Tokens.
pub(crate) const VOCAB: usize = 13;
/// The token that ends a text: no n-gram reaches over it, and it stands for what lies before a text.
pub(crate) const EOS: u32 = 2;
/// Ids that are looked back on: n-grams are of up to 3 tokens.
pub(crate) const LOOK_BACK: usize = 2;
/// Hashes of one token: two of its bigram, then two of its trigram.
pub(crate) const HEADS: usize = 4;
/// Drafts that a step can verify, and one more.
const CAPTURES: i64 = 6;

const MULTIPLIERS: [i64; 3] = [0x9E37_79B9_7F4B, 0x7FEB_352D_1A85, 0x1B87_3593_0E61];
const SIZES: [i64; HEADS] = [31, 37, 41, 43];
const OFFSETS: [i64; HEADS] = [0, 31, 68, 109];
const TABLE: usize = 152;

/// The hashes of every token of a text, by their definition.
pub(crate) fn hashes(text: &[u32]) -> Vec<[i64; HEADS]> {
    // What stands `back` tokens before `at`, if the text has not ended since.
    let before = |at: usize, back: usize| {
        let start = at.checked_sub(back);
        let whole = start.filter(|start| !text[*start..at].contains(&EOS));
        i64::from(whole.map_or(EOS, |start| text[start]))
    };
    let hash = |at: usize, head: usize| {
        let order = 2 + head / 2;
        let parts = (0..order).map(|back| before(at, back).wrapping_mul(MULTIPLIERS[back]));
        let mixed = parts.fold(0, |mixed, part| mixed ^ part);
        mixed.rem_euclid(SIZES[head]) + OFFSETS[head]
    };
    (0..text.len())
        .map(|at| std::array::from_fn(|head| hash(at, head)))
        .collect()
}

/// A multiple of 1/1024, so that sums are exact in any order.
fn weight(row: usize, token: usize) -> f32 {
    let mixed = ((row * 977 + token * 131 + 7) as u64).wrapping_mul(2_654_435_761) >> 7;
    ((mixed % 4093) as f32 - 2046.0) / 1024.0
}

/// How requests sample, so that texts have no short cycles.
pub(crate) fn params() -> SamplingParams {
    SamplingParams::sampled(1.0).seed(4)
}

/// The tokens that follow a text, by the definition alone; the text goes on after it has ended.
pub(crate) fn follow(prompt: &[u32], count: usize) -> Vec<u32> {
    let sampler = Sampler::new(&params(), 0).unwrap();
    let (mut text, mut scratch) = (prompt.to_vec(), Scratch::default());
    for _ in 0..count {
        let ids = *hashes(&text).last().unwrap();
        let rows = ids.map(|id| usize::try_from(id).unwrap());
        let logit = |token: usize| -> f32 { rows.iter().map(|row| weight(*row, token)).sum() };
        let logits: Vec<f32> = (0..VOCAB).map(logit).collect();
        let drawn = sampler.draw(&logits, text.len() as u64, &mut scratch);
        text.push(drawn.unwrap().token);
    }
    text.split_off(prompt.len())
}

/// The history that `text` leaves, as its state.
pub(crate) fn history(text: &[u32]) -> Vec<f32> {
    let fresh = std::iter::repeat_n(&EOS, LOOK_BACK);
    let all: Vec<f32> = fresh.chain(text).map(|id| *id as f32).collect();
    all[text.len()..].to_vec()
}

fn graph() -> Onnx {
    let table: Vec<f32> = (0..TABLE * VOCAB)
        .map(|at| weight(at / VOCAB, at % VOCAB))
        .collect();
    let axis0 = [("axis", Attribute::Int(0))];
    let to = |kind| [("to", Attribute::Int(kind))];
    Onnx::default()
        .input("input_ids", I64, "num_tokens")
        .input("cumulative", I32, "rows_plus_one")
        .input("logits_indices", I32, "num_logits")
        .input("read_rows", I32, "rows")
        .input("write_rows", I32, "rows")
        .input("capture_counts", I32, "rows")
        .input("past.0.ids", I64, "bank_rows 2")
        .output("logits", F32, "num_logits 13")
        .output("hidden", F32, "num_tokens 4")
        .output("present.0.ids", I64, "bank_rows 2")
        .output("checkpoints.0", I64, "slots rows 2")
        .ints("multipliers", &[3], &MULTIPLIERS)
        .ints("sizes", &[4], &SIZES)
        .ints("offsets", &[4], &OFFSETS)
        .ints("eos", &[], &[EOS.into()])
        .ints("zero", &[1], &[0])
        .ints("one", &[1], &[1])
        .ints("minus1", &[1], &[-1])
        .floats("table", &[152, 13], &table)
        .node("Gather", "past.0.ids read_rows", "past", &axis0)
        .node(
            "com.microsoft:VarlenNGramHashMapping",
            "input_ids multipliers sizes cumulative past offsets eos - - capture_counts",
            "hashes present - updates",
            &[
                ("max_ngram_size", Attribute::Int(3)),
                ("n_head_per_ngram", Attribute::Int(2)),
                ("pad_id", Attribute::Int(0)),
                ("reset_on_eos", Attribute::Int(1)),
                ("state_update_capacity", Attribute::Int(CAPTURES)),
            ],
        )
        // Logits of the rows that are asked for.
        .node("Cast", "hashes", "hidden", &to(1))
        .node("Gather", "hashes logits_indices", "wanted", &axis0)
        .node("Gather", "table wanted", "votes", &axis0)
        .node(
            "ReduceSum",
            "votes one",
            "logits",
            &[("keepdims", Attribute::Int(0))],
        )
        // The bank: what each row leaves to its row, but for those that write none.
        .node("Cast", "write_rows", "targets", &to(7))
        .node("GreaterOrEqual", "targets zero", "written", &[])
        .node("Compress", "present written", "kept", &axis0)
        .node("Compress", "targets written", "rows", &axis0)
        .node("Unsqueeze", "rows minus1", "places", &[])
        .node("ScatterND", "past.0.ids places kept", "present.0.ids", &[])
        .node(
            "Transpose",
            "updates",
            "checkpoints.0",
            &[("perm", Attribute::Ints(&[1, 0, 2]))],
        )
}

/// Its configuration.
pub(crate) const CONFIG: &str = r#"{
 "model": {
  "type": "ngram", "vocab_size": 13, "context_length": 200, "eos_token_id": [2],
  "decoder": {
   "filename": "ngram.onnx", "hidden_size": 4, "num_attention_heads": 1, "num_key_value_heads": 1,
   "num_hidden_layers": 1, "head_size": 1,
   "inputs": {"input_ids": "input_ids", "cumulative_sequence_lengths": "cumulative",
    "logits_indices": "logits_indices", "read_rows": "read_rows", "write_rows": "write_rows",
    "state_update_capture_count": "capture_counts"},
   "outputs": {"logits": "logits", "hidden_states": "hidden"},
   "captures_in_mixed_steps": true,
   "state_groups": [
    {"kind": "fixed", "operator": "token_history", "layer_ids": [0], "row_shape": [2], "element_type": "int64",
     "fresh_token_id": 2, "state_layout": "bank", "bindings": {
      "state": {"input": "past.%d.ids", "output": "present.%d.ids", "checkpoints": "checkpoints.%d"}},
     "checkpoint_count": 6, "checkpoint_alignment": "left", "checkpoint_form": "update"}]
  }
 },
 "engine": {"dynamic_batching": {"block_size": 2, "max_batch_size": 4}}
}"#;

/// A folder with the whole model.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("genai_config.json"), CONFIG).unwrap();
    graph().write(folder.path(), "ngram.onnx");
    folder
}
