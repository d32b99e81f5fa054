//! Numbers that must fit together: token ids, lengths, heads, shared weights, batching.

use crate::report::Report;
use crate::{ConfigCode, Decoder, Engine, GenaiConfig, Model, Search, SharedInitializer, path};

pub(super) fn check(config: &GenaiConfig, report: &mut Report) {
    tokens(&config.model, report);
    decoder(&config.model.decoder, report);
    search(&config.search, config.model.context_length, report);
    engine(&config.engine, report);
    if config.speculative.ngram_size == Some(1) {
        let at = "speculative.ngram_size";
        report.rule(ConfigCode::OutOfRange, at, "expected 0 or 2 to 16, found 1");
    }
}

fn tokens(model: &Model, report: &mut Report) {
    let single = [
        ("model.bos_token_id", model.bos_token_id),
        ("model.pad_token_id", model.pad_token_id),
        ("model.sep_token_id", model.sep_token_id),
        ("model.decoder_start_token_id", model.decoder_start_token_id),
        ("model.bot_token_id", model.bot_token_id),
        ("model.eot_token_id", model.eot_token_id),
        ("model.bor_token_id", model.bor_token_id),
        ("model.eor_token_id", model.eor_token_id),
    ];
    for (at, id) in single {
        if let Some(id) = id {
            token(id, model.vocab_size, at, report);
        }
    }
    for (index, &id) in model.eos_token_id.iter().enumerate() {
        let at = path::index("model.eos_token_id", index);
        token(id, model.vocab_size, &at, report);
    }
}

/// Checks one token id.
pub(super) fn token(id: u32, vocabulary: u32, at: &str, report: &mut Report) {
    if vocabulary > 0 && id >= vocabulary {
        let message = format!("token {id} is not below vocab_size, {vocabulary}");
        report.rule(ConfigCode::OutOfRange, at, message);
    }
}

fn decoder(decoder: &Decoder, report: &mut Report) {
    let layers = decoder.num_hidden_layers;
    let named = decoder.layer_types.len();
    if layers > 0 && named > 0 && u32::try_from(named) != Ok(layers) {
        let message = format!("{named} layer types for {layers} layers");
        report.rule(
            ConfigCode::Inconsistent,
            "model.decoder.layer_types",
            message,
        );
    }
    let (heads, shared) = (decoder.num_attention_heads, decoder.num_key_value_heads);
    if heads > 0 && shared > 0 && !heads.is_multiple_of(shared) {
        let message = format!("{heads} query heads cannot share {shared} key/value heads evenly");
        report.rule(
            ConfigCode::Inconsistent,
            "model.decoder.num_key_value_heads",
            message,
        );
    }
    initializers(&decoder.shared_initializers, "model.decoder", report);
}

/// Checks the sizes of shared weights.
pub(super) fn initializers(list: &[SharedInitializer], parent: &str, report: &mut Report) {
    for (index, weight) in list.iter().enumerate() {
        let at = path::index(&path::key(parent, "shared_initializers"), index);
        if weight.offset.checked_add(weight.length).is_none() {
            let message = "offset and length reach beyond 2^64";
            report.rule(ConfigCode::OutOfRange, &path::key(&at, "length"), message);
        }
        if let Some(bits) = element_bits(weight.data_type)
            && byte_length(&weight.shape, bits) != Some(weight.length)
        {
            let message = format!(
                "{} bytes are not what shape {:?} of element type {} takes",
                weight.length, weight.shape, weight.data_type
            );
            report.rule(ConfigCode::Inconsistent, &path::key(&at, "length"), message);
        }
    }
}

/// Bits of an ONNX element type; `None` for strings and types this list does not know.
const fn element_bits(data_type: u32) -> Option<u64> {
    match data_type {
        7 | 11 | 13 | 14 => Some(64),
        1 | 6 | 12 => Some(32),
        4 | 5 | 10 | 16 => Some(16),
        2 | 3 | 9 | 17..=20 | 24 => Some(8),
        21..=23 => Some(4),
        15 => Some(128),
        _ => None,
    }
}

/// Bytes of a packed tensor; `None` beyond 2^64 bits.
fn byte_length(shape: &[u64], bits: u64) -> Option<u64> {
    let bits = shape
        .iter()
        .try_fold(bits, |total, &extent| total.checked_mul(extent))?;
    Some(bits.div_ceil(8))
}

fn search(search: &Search, context: u32, report: &mut Report) {
    let longest = match search.max_length {
        None | Some(0) => context,
        Some(longest) => longest,
    };
    if context > 0 && longest > context {
        let message = format!("{longest} is more than context_length, {context}");
        report.rule(ConfigCode::Inconsistent, "search.max_length", message);
    }
    if let Some(shortest) = search.min_length
        && longest > 0
        && shortest > longest
    {
        let message = format!("{shortest} is more than the longest sequence, {longest}");
        report.rule(ConfigCode::Inconsistent, "search.min_length", message);
    }
    let beams = search.num_beams.unwrap_or(1);
    if let Some(returned) = search.num_return_sequences
        && returned > beams
        && !report.damaged_near("search.num_beams")
    {
        let message = format!("{returned} sequences out of {beams} beams");
        report.rule(
            ConfigCode::Inconsistent,
            "search.num_return_sequences",
            message,
        );
    }
}

fn engine(engine: &Engine, report: &mut Report) {
    if engine.dynamic_batching.is_some() && engine.static_batching.is_some() {
        let message = "batching is either dynamic or static";
        report.rule(ConfigCode::Exclusive, "engine.static_batching", message);
    }
    if let Some(batching) = &engine.dynamic_batching
        && batching.num_blocks.is_some()
        && batching.gpu_utilization_factor.is_some()
    {
        let at = "engine.dynamic_batching.gpu_utilization_factor";
        report.rule(
            ConfigCode::Exclusive,
            at,
            "num_blocks already says how many blocks",
        );
    }
}
