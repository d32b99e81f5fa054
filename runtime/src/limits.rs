//! Every bound on what comes from outside. [`crate::manual::limits`] lists them with their reasons; a test keeps the
//! two together.

use std::time::Duration;

/// Bytes of a graph file: what a protobuf may have.
pub(crate) const GRAPH_BYTES: u64 = (2 << 30) - 1;
/// Protobuf fields that are read of the graph files of a model.
pub(crate) const GRAPH_FIELDS: usize = 1 << 22;
/// Inputs, outputs, nodes and tensors of the graphs of a model, together.
pub(crate) const GRAPH_ITEMS: usize = 1 << 17;
/// Inputs, or outputs, of one graph.
pub(crate) const GRAPH_VALUES: usize = 1 << 14;
/// Graphs inside of nodes inside of graphs.
pub(crate) const GRAPH_DEPTH: usize = 8;
/// Bytes of a name in a graph.
pub(crate) const GRAPH_NAME_BYTES: u64 = 1 << 16;
/// Bytes of all names of the graphs of a model together.
pub(crate) const GRAPH_TEXT_BYTES: u64 = 64 << 20;
/// Bytes of the extents of one tensor in a graph.
pub(crate) const GRAPH_SHAPE_BYTES: u64 = 1 << 10;

/// Bytes of a file of measured costs.
pub(crate) const COSTS_BYTES: u64 = 4 << 20;

/// Nodes of a tree that a caller supplies: the first ones are looked at. Work over a tree is quadratic in its nodes.
pub(crate) const SUPPLIED_NODES: usize = 256;

/// Bytes of `tokenizer.json`.
pub(crate) const TOKENIZER_BYTES: u64 = 64 << 20;
/// Steps of a tokenizer's pipeline: normalizers, pre-tokenizers, post-processors, decoders.
pub(crate) const TOKENIZER_STEPS: usize = 64;
/// How many times longer the steps of a tokenizer may make a text, together.
pub(crate) const TOKENIZER_GROWTH: u64 = 1 << 10;
/// How many times longer its decoder may make the text of tokens.
pub(crate) const TOKENIZER_DECODED: u64 = 16;
/// Bytes that a text may grow to by a tokenizer's steps, at worst.
pub(crate) const TOKENIZER_TEXT: usize = 24 << 20;
/// Bytes that a tokenizer may put in place of one character or word.
pub(crate) const TOKENIZER_REPLACEMENT: usize = 256;
/// Bytes of one token in the tokenizer's spelling.
pub(crate) const TOKENIZER_WORD: usize = 4 << 10;
/// Tokens that a tokenizer may put beside a text.
pub(crate) const TOKENIZER_ADDED: usize = 1 << 10;
/// Bytes of a prompt given as text.
pub(crate) const PROMPT_BYTES: usize = 8 << 20;
/// Bytes of one regular expression of a tokenizer.
pub(crate) const PATTERN_BYTES: usize = 16 << 10;
/// Product of the counted repetitions of one regular expression.
pub(crate) const PATTERN_REPEATS: u64 = 10_000;
/// Stack of the thread that runs the tokenizer's code.
pub(crate) const TOKENIZER_STACK: usize = 64 << 20;
/// How long a tokenizer may take to load.
pub(crate) const TOKENIZER_LOAD: Duration = Duration::from_secs(120);
/// How long a text may take to be tokenized.
pub(crate) const TOKENIZE: Duration = Duration::from_secs(10);
/// What it may take longer per byte of text.
pub(crate) const TOKENIZE_PER_BYTE: Duration = Duration::from_micros(20);

/// Bytes of a chat template, in a file of its own or not.
pub(crate) const TEMPLATE_BYTES: u64 = 256 << 10;
/// Bytes of `tokenizer_config.json` and the like.
pub(crate) const TEMPLATE_JSON_BYTES: u64 = 16 << 20;
/// Work of one rendering besides what grows with its input: an instruction or 64 bytes of data each.
pub(crate) const TEMPLATE_FUEL: u64 = 1_000_000;
/// Further work per byte of input.
pub(crate) const TEMPLATE_FUEL_PER_BYTE: u64 = 16;
/// Work of one rendering at most.
pub(crate) const TEMPLATE_FUEL_MOST: u64 = 8_000_000;
/// Columns or digits that one field of a format text may ask for.
pub(crate) const TEMPLATE_COLUMNS: usize = 9_999;
/// Bytes of the format of a date.
pub(crate) const TEMPLATE_DATE_BYTES: usize = 1 << 10;
/// Calls and blocks of a template inside each other.
pub(crate) const TEMPLATE_CALLS: usize = 128;
/// Lists and mappings inside each other in a value that a template prints, and in what a caller passes in.
pub(crate) const TEMPLATE_DEPTH: usize = 128;
/// Values of such a value.
pub(crate) const TEMPLATE_VALUES: usize = 1 << 20;
/// Bytes of a prompt that a template makes.
pub(crate) const TEMPLATE_OUTPUT: usize = 64 << 20;
/// Stack of the thread that reads and renders templates.
pub(crate) const TEMPLATE_STACK: usize = 256 << 20;
/// How long reading a template, or a rendering, may take.
pub(crate) const TEMPLATE_TIME: Duration = Duration::from_secs(5);

/// Bytes of a grammar.
pub(crate) const GRAMMAR_BYTES: usize = 256 << 10;
/// Bytes of a token that a grammar can allow.
pub(crate) const GRAMMAR_TOKEN: usize = 512;
/// Stack of the thread that reads a grammar.
pub(crate) const GRAMMAR_STACK: usize = 256 << 20;
/// How long reading a grammar may take.
pub(crate) const GRAMMAR_TIME: Duration = Duration::from_secs(20);

/// Bytes of all stop strings of a request together.
pub(crate) const STOP_BYTES: usize = 256 << 10;
/// Requests that may be unfinished at once where the caller does not say.
pub(crate) const UNFINISHED: usize = 1024;
/// Tokens of finished requests that named a scope, over all scopes.
pub(crate) const SHARED_TOKENS: usize = 1 << 18;
/// Threads of one operator on a machine with fewer cores.
pub(crate) const THREADS: usize = 256;
/// Bytes of key/value cache that are taken without being asked for.
pub(crate) const CACHE_BYTES: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a constant as the manual writes it.
    fn value(expression: &str) -> String {
        let numbers = expression.trim_matches(['(', ')']).replace('_', "");
        let seconds = |name: &str| expression.strip_prefix(name)?.strip_suffix(')');
        if let Some(seconds) = seconds("Duration::from_secs(") {
            return format!("{seconds} s");
        }
        if let Some(micros) = seconds("Duration::from_micros(") {
            return format!("{micros} us");
        }
        if expression == "(2 << 30) - 1" {
            return ((2u64 << 30) - 1).to_string();
        }
        match numbers.split_once(" << ") {
            Some((number, shift)) => {
                let number: u64 = number.parse().unwrap();
                (number << shift.parse::<u32>().unwrap()).to_string()
            }
            None => numbers,
        }
    }

    #[test]
    fn the_manual_lists_every_bound_with_its_value() {
        let (constants, manual) = (include_str!("limits.rs"), include_str!("manual/limits.rs"));
        let mut count = 0;
        for line in constants.lines() {
            let Some(rest) = line.strip_prefix("pub(crate) const ") else {
                continue;
            };
            let (name, rest) = rest.split_once(':').unwrap();
            let (_, expression) = rest.split_once(" = ").unwrap();
            let expected = format!("| `{name}` | {} |", value(expression.trim_end_matches(';')));
            assert!(manual.contains(&expected), "{expected}");
            count += 1;
        }
        assert_eq!(count, manual.matches("//! | `").count());
        assert_eq!(TOKENIZE.as_secs(), 10);
    }
}
