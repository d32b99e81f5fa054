//! Settings that cannot be, and settings that are not supported: each is refused by name.

use pawl_models::{CheckpointInfo, describe, model_types};
use serde_json::{Value, json};

use crate::synthetic::{Dims, text};

fn family(name: &str) -> CheckpointInfo {
    let mut all = Dims::default().all().into_iter();
    all.find(|(family, _)| *family == name)
        .map(|(_, checkpoint)| checkpoint)
        .expect("family")
}

fn refused(mut checkpoint: CheckpointInfo, key: &str, value: &Value) -> (&'static str, String) {
    text(&mut checkpoint).insert(key.to_owned(), value.clone());
    match describe(&checkpoint) {
        Ok(_) => panic!("{key}: {value} was taken"),
        Err(error) => (error.code(), error.to_string()),
    }
}

/// Families, key, value: all refused as not supported, by name.
fn unsupported() -> Vec<(&'static [&'static str], &'static str, Value)> {
    const ALL: &[&str] = &["llama", "qwen3", "lfm2", "qwen3_5"];
    vec![
        (ALL, "hidden_act", json!("gelu")),
        (ALL, "quantization_config", json!({"bits": 4})),
        (ALL, "quantization", json!({"bits": 4})),
        (ALL, "attention_bias", json!(true)),
        (ALL, "mlp_bias", json!(true)),
        (ALL, "attn_logit_softcapping", json!(50.0)),
        (ALL, "final_logit_softcapping", json!(30)),
        (ALL, "num_experts", json!(8)),
        (ALL, "num_local_experts", json!(8)),
        (ALL, "residual_multiplier", json!(0.22)),
        (ALL, "no_rope_layers", json!([1, 0])),
        (ALL, "per_layer_config", json!({"0": {"head_dim": 4}})),
        (&["llama", "qwen3", "lfm2"], "attn_output_gate", json!(true)),
        (
            &["llama", "qwen3", "lfm2"],
            "partial_rotary_factor",
            json!(0.5),
        ),
        (&["llama", "lfm2", "qwen3_5"], "sliding_window", json!(64)),
        (&["llama"], "use_qk_norm", json!(true)),
        (&["lfm2"], "conv_bias", json!(true)),
        (&["lfm2"], "block_use_swiglu", json!(false)),
        (&["lfm2"], "use_pos_enc", json!(false)),
        (&["qwen3_5"], "attn_output_gate", json!(false)),
        (&["qwen3_5"], "output_gate_type", json!("sigmoid")),
        (&["qwen3_5"], "mtp_use_dedicated_embeddings", json!(true)),
        (&["qwen3_5"], "mtp_num_hidden_layers", json!(2)),
    ]
}

#[test]
fn unsupported_settings_are_refused_by_name() {
    for (families, key, value) in unsupported() {
        for name in families {
            let (code, message) = refused(family(name), key, &value);
            assert_eq!(code, "unsupported", "{name}: {message}");
            let start = format!("config.json: not supported: {key}: expected ");
            assert!(message.starts_with(&start), "{message}");
            assert!(message.ends_with(&format!("found {value}")), "{message}");
        }
    }
}

#[test]
fn supported_values_of_the_same_settings_are_taken() {
    for (key, value) in [
        ("hidden_act", json!("silu")),
        ("quantization_config", json!({})),
        ("attention_bias", json!(false)),
        ("attn_logit_softcapping", json!(null)),
        ("num_experts", json!(0)),
        ("residual_multiplier", json!(1.0)),
        ("use_sliding_window", json!(false)),
        ("pretraining_tp", json!(4)),
    ] {
        for (name, mut checkpoint) in Dims::default().all() {
            let described = describe(&checkpoint);
            text(&mut checkpoint).insert(key.to_owned(), value.clone());
            assert_eq!(describe(&checkpoint), described, "{name}: {key}");
        }
    }
}

#[test]
fn all_unsupported_settings_are_in_one_error() {
    let mut checkpoint = Dims {
        vision: true,
        ..Dims::default()
    }
    .qwen3_5();
    checkpoint.config["quantization_config"] = json!({"bits": 8});
    text(&mut checkpoint).insert("mlp_bias".to_owned(), json!(true));
    text(&mut checkpoint).insert("hidden_act".to_owned(), json!("relu"));
    let error = describe(&checkpoint).expect_err("refused").to_string();
    for key in [
        "text_config.mlp_bias",
        "text_config.hidden_act",
        " quantization_config",
    ] {
        assert!(error.contains(key), "{key} in {error}");
    }
}

/// `rope_scaling` of a Llama file | code of the error | part of its message.
const ROTARY: &str = r#"
{"rope_type": "dynamic", "factor": 2} | unsupported | rope_scaling.rope_type: expected one of default, linear, llama3, yarn, found "dynamic"
{"type": "longrope"} | unsupported | rope_scaling.type: expected one of default, linear, llama3, yarn, found "longrope"
{"rope_type": "mrope"} | unsupported | found "mrope"
{"factor": 2} | bad_value | rope_scaling.rope_type: expected one of default, linear, llama3, yarn, found nothing
{"rope_type": 3} | bad_value | rope_scaling.rope_type: expected a string, found 3
{"rope_type": "linear"} | bad_value | rope_scaling.factor: expected a positive number, found nothing
{"rope_type": "linear", "factor": 0} | bad_value | rope_scaling.factor: expected a positive number, found 0
{"rope_type": "linear", "factor": "4"} | bad_value | rope_scaling.factor: expected a positive number, found "4"
{"rope_type": "linear", "factor": 2, "partial_rotary_factor": 0.5} | unsupported | rope_scaling.partial_rotary_factor
{"rope_type": "llama3", "factor": 8} | bad_value | rope_scaling.low_freq_factor: expected a positive number, found nothing
{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4} | bad_value | rope_scaling.high_freq_factor: expected a number above low_freq_factor (4), found 4
{"rope_type": "yarn", "factor": 4, "beta_fast": -1} | bad_value | rope_scaling.beta_fast: expected a positive number, found -1
{"rope_type": "yarn", "factor": 4, "truncate": 1} | bad_value | rope_scaling.truncate: expected true or false, found 1
{"rope_type": "yarn", "factor": 4, "rope_theta": 1} | bad_value | rope_scaling.rope_theta: expected a number above 1 for yarn, found 1
{"rope_type": "yarn", "factor": 4, "attention_factor": 0} | bad_value | rope_scaling.attention_factor: expected a positive number, found 0
{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": -4} | bad_value | rope_scaling.original_max_position_embeddings: expected a positive number, found -4
{"rope_theta": 1e-300} | bad_value | rope_scaling.rope_theta: expected rotary settings that give finite frequencies
"linear" | bad_value | config.json: rope_scaling: expected an object, found "linear"
"#;

#[test]
fn rotary_settings() {
    for [section, code, part] in table(ROTARY) {
        let section: Value = serde_json::from_str(section).expect("JSON");
        let (found, message) = refused(family("llama"), "rope_scaling", &section);
        assert_eq!(found, code, "{section}: {message}");
        assert!(message.contains(part), "{section}: {message}");
    }
}

#[test]
fn a_share_of_a_head_that_cannot_turn() {
    let section = json!({"partial_rotary_factor": 1.5});
    let (_, message) = refused(family("qwen3_5"), "rope_parameters", &section);
    let expected = "rope_parameters.partial_rotary_factor: expected a factor up to 1";
    assert!(message.contains(expected), "{message}");
    let ten = Dims {
        head_dim: 10,
        ..Dims::default()
    };
    let section = json!({"partial_rotary_factor": 0.3});
    let (_, message) = refused(ten.qwen3_5(), "rope_parameters", &section);
    let expected = "an even number of the 10 elements of a head, found 0.3";
    assert!(message.ends_with(expected), "{message}");
}

/// Lines of three columns.
fn table(text: &str) -> impl Iterator<Item = [&str; 3]> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| {
        let columns: Vec<&str> = line.split(" | ").collect();
        columns
            .try_into()
            .unwrap_or_else(|_| panic!("three columns: {line}"))
    })
}

/// Family and key | value | start of what the message says was expected.
const BAD_VALUES: &str = r#"
llama vocab_size | 0 | an integer from 1 to 2147483648
llama hidden_size | -24 | an integer from 1 to
llama hidden_size | 24.5 | an integer from 1 to
llama hidden_size | "24" | an integer from 1 to
llama hidden_size | null | an integer from 1 to
llama num_hidden_layers | 1000000000 | an integer from 1 to 1024
llama num_attention_heads | 18446744073709551615 | an integer from 1 to 4096
llama num_key_value_heads | 3 | a divisor of num_attention_heads (4)
llama num_key_value_heads | 8 | a divisor of num_attention_heads (4)
llama head_dim | 0 | an integer from 1 to
llama max_position_embeddings | [] | an integer from 1 to
llama intermediate_size | true | an integer from 1 to
llama rms_norm_eps | 0 | a positive number
llama rms_norm_eps | "1e-6" | a positive number
llama rope_theta | -1.0 | a positive number
llama tie_word_embeddings | 1 | true or false
llama layer_types | ["full_attention"] | 4 entries, one per layer
lfm2 layer_types | "conv" | a list
lfm2 conv_L_cache | 1 | an integer from 2 to 64
lfm2 block_auto_adjust_ff_dim | "no" | true or false
qwen3_5 linear_num_value_heads | 3 | a multiple of linear_num_key_heads (2)
qwen3_5 linear_num_key_heads | 0 | an integer from 1 to
qwen3_5 linear_key_head_dim | null | an integer from 1 to
qwen3_5 linear_conv_kernel_dim | 65 | an integer from 2 to 64
qwen3_5 mtp_num_hidden_layers | -1 | an integer from 0
"#;

#[test]
fn impossible_values_are_refused_with_what_was_expected() {
    for [subject, value, expected] in table(BAD_VALUES) {
        let (name, key) = subject.split_once(' ').expect("family and key");
        let value: Value = serde_json::from_str(value).expect("JSON");
        let (code, message) = refused(family(name), key, &value);
        assert_eq!(code, "bad_value", "{name}: {message}");
        let start = format!("config.json: {key}: expected {expected}");
        assert!(message.starts_with(&start), "{name}: {message}");
    }
}

#[test]
fn lfm2_attention_layers_exist() {
    let mut checkpoint = family("lfm2");
    text(&mut checkpoint).remove("layer_types");
    let (_, message) = refused(checkpoint, "full_attn_idxs", &json!([1, 4]));
    let expected =
        "config.json: full_attn_idxs: expected a list of layers, each from 0 to 3, found [1,4]";
    assert_eq!(message, expected);
}

#[test]
fn layer_types_are_known_ones() {
    for (name, known) in [
        ("llama", "full_attention"),
        ("qwen3", "full_attention"),
        ("lfm2", "full_attention, conv"),
        ("qwen3_5", "full_attention, linear_attention"),
    ] {
        let kinds = json!([
            "full_attention",
            "full_attention",
            "sliding_attention",
            "full_attention"
        ]);
        let (_, message) = refused(family(name), "layer_types", &kinds);
        let expected = format!(
            "config.json: layer_types[2]: expected one of {known}, found \"sliding_attention\""
        );
        assert_eq!(message, expected);
    }
}

#[test]
fn qwen3_window_only_if_a_layer_uses_it() {
    let mut checkpoint = family("qwen3");
    let described = describe(&checkpoint);
    text(&mut checkpoint).insert("sliding_window".to_owned(), json!(64));
    assert_eq!(describe(&checkpoint), described);
    text(&mut checkpoint).insert("use_sliding_window".to_owned(), json!(true));
    assert_eq!(
        describe(&checkpoint),
        described,
        "from layer 28 on, and there are 4"
    );
    let (code, message) = refused(checkpoint.clone(), "max_window_layers", &json!(3));
    assert_eq!(
        (code, message.contains("use_sliding_window")),
        ("unsupported", true),
        "{message}"
    );
    text(&mut checkpoint).insert("layer_types".to_owned(), json!(vec!["full_attention"; 4]));
    text(&mut checkpoint).insert("max_window_layers".to_owned(), json!(3));
    assert_eq!(describe(&checkpoint), described, "the list decides");
}

#[test]
fn a_head_size_that_cannot_be_derived() {
    let mut checkpoint = Dims {
        hidden: 22,
        ..Dims::default()
    }
    .llama("llama");
    text(&mut checkpoint).remove("head_dim");
    let error = describe(&checkpoint).expect_err("refused").to_string();
    assert_eq!(
        error,
        "config.json: head_dim: expected an integer, as hidden_size (22) is not a multiple of num_attention_heads (4), found nothing"
    );
}

#[test]
fn architectures() {
    for (value, found) in [
        (json!("mamba"), "\"mamba\""),
        (json!(7), "7"),
        (json!(null), "nothing"),
    ] {
        let mut checkpoint = family("llama");
        checkpoint.config["model_type"] = value;
        let error = describe(&checkpoint).expect_err("refused");
        assert_eq!(error.code(), "unknown_architecture");
        let known: Vec<_> = model_types().collect();
        assert_eq!(
            error.to_string(),
            format!(
                "config.json: model_type: expected one of {}, found {found}",
                known.join(", ")
            )
        );
    }
    let mut checkpoint = family("llama");
    checkpoint.config = json!([1]);
    let error = describe(&checkpoint).expect_err("refused").to_string();
    assert_eq!(
        error,
        "config.json: (top level): expected an object, found [1]"
    );
}

#[test]
fn the_wrapper_holds_a_text_model() {
    let wrapped = Dims {
        vision: true,
        ..Dims::default()
    }
    .qwen3_5();
    let mut other = wrapped.clone();
    other.config["text_config"]["model_type"] = json!("qwen3_5_moe_text");
    let error = describe(&other).expect_err("refused").to_string();
    assert_eq!(
        error,
        "config.json: text_config.model_type: expected \"qwen3_5_text\", found \"qwen3_5_moe_text\""
    );
    let mut empty = wrapped;
    empty.config["text_config"] = json!(null);
    let error = describe(&empty).expect_err("refused").to_string();
    assert_eq!(
        error,
        "config.json: text_config: expected an object, found nothing"
    );
}
