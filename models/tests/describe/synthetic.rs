//! Made-up checkpoints of any dimensions: settings and tensor shapes as transformers writes them.

use std::collections::BTreeMap;

use pawl_models::CheckpointInfo;
use serde_json::{Value, json};

/// Dimensions of a made-up checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Dims {
    pub(crate) vocab: u64,
    pub(crate) hidden: u64,
    pub(crate) intermediate: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) head_dim: u64,
    pub(crate) key_heads: u64,
    pub(crate) value_heads: u64,
    pub(crate) key_dim: u64,
    pub(crate) value_dim: u64,
    pub(crate) kernel: u64,
    /// Which layers attend.
    pub(crate) attends: Vec<bool>,
    pub(crate) tied: bool,
    pub(crate) mtp: bool,
    /// Qwen3.5 beside a vision tower.
    pub(crate) vision: bool,
}

impl Default for Dims {
    fn default() -> Self {
        Self {
            vocab: 31,
            hidden: 24,
            intermediate: 40,
            heads: 4,
            kv_heads: 2,
            head_dim: 8,
            key_heads: 2,
            value_heads: 4,
            key_dim: 6,
            value_dim: 10,
            kernel: 4,
            attends: vec![false, true, true, false],
            tied: false,
            mtp: true,
            vision: false,
        }
    }
}

#[derive(Default)]
struct Shapes {
    prefix: String,
    shapes: BTreeMap<String, Vec<u64>>,
}

impl Shapes {
    fn put(&mut self, name: &str, shape: &[u64]) {
        let name = format!("{}{name}", self.prefix);
        assert!(self.shapes.insert(name, shape.to_vec()).is_none());
    }
}

impl Dims {
    /// Every family under its name.
    pub(crate) fn all(&self) -> [(&'static str, CheckpointInfo); 4] {
        [
            ("llama", self.llama("llama")),
            ("qwen3", self.llama("qwen3")),
            ("lfm2", self.lfm2()),
            ("qwen3_5", self.qwen3_5()),
        ]
    }

    fn base(&self, model_type: &str) -> Value {
        json!({
            "model_type": model_type,
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.attends.len(),
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": 512,
            "tie_word_embeddings": self.tied,
            "bos_token_id": null,
            "eos_token_id": 2,
        })
    }

    /// Llama or Qwen3; all layers attend.
    pub(crate) fn llama(&self, model_type: &str) -> CheckpointInfo {
        let mut s = Shapes::default();
        self.ends(&mut s, "model.", "norm");
        for layer in 0..self.attends.len() {
            s.prefix = format!("model.layers.{layer}.");
            self.block(&mut s, ["input_layernorm", "post_attention_layernorm"]);
            self.attention(&mut s, "o_proj", 1);
            if model_type == "qwen3" {
                s.put("self_attn.q_norm.weight", &[self.head_dim]);
                s.put("self_attn.k_norm.weight", &[self.head_dim]);
            }
            self.mlp(&mut s, ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]);
        }
        let mut config = self.base(model_type);
        config["rms_norm_eps"] = json!(1e-6);
        config["hidden_act"] = json!("silu");
        checkpoint(config, s)
    }

    pub(crate) fn lfm2(&self) -> CheckpointInfo {
        let mut s = Shapes::default();
        self.ends(&mut s, "model.", "embedding_norm");
        for (layer, attends) in self.attends.iter().enumerate() {
            s.prefix = format!("model.layers.{layer}.");
            self.block(&mut s, ["operator_norm", "ffn_norm"]);
            if *attends {
                self.attention(&mut s, "out_proj", 1);
                s.put("self_attn.q_layernorm.weight", &[self.head_dim]);
                s.put("self_attn.k_layernorm.weight", &[self.head_dim]);
            } else {
                s.put("conv.in_proj.weight", &[3 * self.hidden, self.hidden]);
                s.put("conv.conv.weight", &[self.hidden, 1, self.kernel]);
                s.put("conv.out_proj.weight", &[self.hidden, self.hidden]);
            }
            self.mlp(
                &mut s,
                ["feed_forward.w1", "feed_forward.w3", "feed_forward.w2"],
            );
        }
        let mut config = self.base("lfm2");
        config["norm_eps"] = json!(1e-5);
        config["conv_L_cache"] = json!(self.kernel);
        config["block_auto_adjust_ff_dim"] = json!(false);
        config["layer_types"] = self.layer_types("conv");
        checkpoint(config, s)
    }

    pub(crate) fn qwen3_5(&self) -> CheckpointInfo {
        let mut s = Shapes::default();
        let prefix = if self.vision {
            "model.language_model."
        } else {
            "model."
        };
        self.ends(&mut s, prefix, "norm");
        for (layer, attends) in self.attends.iter().enumerate() {
            s.prefix = format!("{prefix}layers.{layer}.");
            self.qwen3_5_layer(&mut s, *attends);
        }
        if self.mtp {
            s.prefix = "mtp.".to_owned();
            s.put("fc.weight", &[self.hidden, 2 * self.hidden]);
            s.put("pre_fc_norm_embedding.weight", &[self.hidden]);
            s.put("pre_fc_norm_hidden.weight", &[self.hidden]);
            s.put("norm.weight", &[self.hidden]);
            s.prefix = "mtp.layers.0.".to_owned();
            self.qwen3_5_layer(&mut s, true);
        }
        let mut text = self.base("qwen3_5_text");
        text["rms_norm_eps"] = json!(1e-6);
        text["layer_types"] = self.layer_types("linear_attention");
        text["linear_num_key_heads"] = json!(self.key_heads);
        text["linear_num_value_heads"] = json!(self.value_heads);
        text["linear_key_head_dim"] = json!(self.key_dim);
        text["linear_value_head_dim"] = json!(self.value_dim);
        text["linear_conv_kernel_dim"] = json!(self.kernel);
        text["mtp_num_hidden_layers"] = json!(u64::from(self.mtp));
        text["rope_parameters"] = json!({"rope_theta": 10000.0, "partial_rotary_factor": 0.5});
        if !self.vision {
            return checkpoint(text, s);
        }
        s.prefix = "model.visual.".to_owned();
        s.put("pos_embed.weight", &[7, 5]);
        s.put("merger.norm.weight", &[5]);
        let config = json!({
            "model_type": "qwen3_5",
            "text_config": text,
            "vision_config": {"hidden_act": "gelu_pytorch_tanh", "attention_bias": true},
            "tie_word_embeddings": self.tied,
        });
        checkpoint(config, s)
    }

    fn qwen3_5_layer(&self, s: &mut Shapes, attends: bool) {
        self.block(s, ["input_layernorm", "post_attention_layernorm"]);
        self.mlp(s, ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]);
        if attends {
            self.attention(s, "o_proj", 2);
            s.put("self_attn.q_norm.weight", &[self.head_dim]);
            s.put("self_attn.k_norm.weight", &[self.head_dim]);
            return;
        }
        let values = self.value_heads * self.value_dim;
        let channels = 2 * self.key_heads * self.key_dim + values;
        s.put("linear_attn.in_proj_qkv.weight", &[channels, self.hidden]);
        s.put("linear_attn.in_proj_z.weight", &[values, self.hidden]);
        s.put(
            "linear_attn.in_proj_a.weight",
            &[self.value_heads, self.hidden],
        );
        s.put(
            "linear_attn.in_proj_b.weight",
            &[self.value_heads, self.hidden],
        );
        s.put("linear_attn.conv1d.weight", &[channels, 1, self.kernel]);
        s.put("linear_attn.A_log", &[self.value_heads]);
        s.put("linear_attn.dt_bias", &[self.value_heads]);
        s.put("linear_attn.norm.weight", &[self.value_dim]);
        s.put("linear_attn.out_proj.weight", &[self.hidden, values]);
    }

    fn ends(&self, s: &mut Shapes, prefix: &str, norm: &str) {
        s.put(
            &format!("{prefix}embed_tokens.weight"),
            &[self.vocab, self.hidden],
        );
        s.put(&format!("{prefix}{norm}.weight"), &[self.hidden]);
        if !self.tied {
            s.put("lm_head.weight", &[self.vocab, self.hidden]);
        }
    }

    fn block(&self, s: &mut Shapes, norms: [&str; 2]) {
        for norm in norms {
            s.put(&format!("{norm}.weight"), &[self.hidden]);
        }
    }

    fn attention(&self, s: &mut Shapes, output: &str, query_blocks: u64) {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        s.put(
            "self_attn.q_proj.weight",
            &[queries * query_blocks, self.hidden],
        );
        s.put("self_attn.k_proj.weight", &[keys, self.hidden]);
        s.put("self_attn.v_proj.weight", &[keys, self.hidden]);
        s.put(
            &format!("self_attn.{output}.weight"),
            &[self.hidden, queries],
        );
    }

    fn mlp(&self, s: &mut Shapes, [gate, up, down]: [&str; 3]) {
        s.put(&format!("{gate}.weight"), &[self.intermediate, self.hidden]);
        s.put(&format!("{up}.weight"), &[self.intermediate, self.hidden]);
        s.put(&format!("{down}.weight"), &[self.hidden, self.intermediate]);
    }

    fn layer_types(&self, other: &str) -> Value {
        let kinds = self.attends.iter();
        kinds
            .map(|attends| if *attends { "full_attention" } else { other })
            .collect()
    }
}

fn checkpoint(config: Value, s: Shapes) -> CheckpointInfo {
    CheckpointInfo {
        config,
        generation_config: None,
        tensors: s.shapes,
    }
}

/// The settings of the language model.
pub(crate) fn text(checkpoint: &mut CheckpointInfo) -> &mut serde_json::Map<String, Value> {
    let nested = checkpoint.config.get("text_config").is_some();
    let text = if nested {
        &mut checkpoint.config["text_config"]
    } else {
        &mut checkpoint.config
    };
    text.as_object_mut().expect("an object")
}
