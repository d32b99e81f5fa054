//! Checkpoints of random weights, of any size: what a step costs does not depend on what the weights say.

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;
use std::path::Path;

/// A hybrid of three Gated DeltaNet layers to one of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RandomHybrid {
    /// Layers, a multiple of four.
    pub layers: usize,
    /// Width of a hidden row.
    pub hidden: usize,
    /// Value heads, and as many key heads; also heads of the layers that attend.
    pub heads: usize,
    /// Width of every head.
    pub head_dim: usize,
    /// Width of the layers between.
    pub intermediate: usize,
    /// Tokens.
    pub vocab: usize,
}

/// Samples that a convolution sees.
const KERNEL: usize = 4;

impl RandomHybrid {
    /// Twelve layers of hidden size 768, 12 heads of 64 and 32,000 tokens.
    pub const TWELVE_LAYERS: Self = Self {
        layers: 12,
        hidden: 768,
        heads: 12,
        head_dim: 64,
        intermediate: 2048,
        vocab: 32_000,
    };

    /// Four small layers.
    pub const SMALL: Self = Self {
        layers: 4,
        hidden: 48,
        heads: 3,
        head_dim: 16,
        intermediate: 64,
        vocab: 300,
    };

    /// Writes `config.json` and `model.safetensors`, in bfloat16, into a folder. Same sizes, same bytes.
    ///
    /// # Panics
    ///
    /// When they cannot be written.
    pub fn write(&self, folder: &Path) {
        let config = serde_json::to_vec_pretty(&self.config()).expect("plain JSON");
        std::fs::write(folder.join("config.json"), config).expect("a writable folder");
        let shapes = self.shapes();
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = shapes
            .into_iter()
            .map(|(name, shape)| {
                let count = shape.iter().product();
                let scale = scale(&name, &shape);
                let bytes = (0..count)
                    .flat_map(|_| bfloat16(random.next() * scale))
                    .collect();
                (name, shape, bytes)
            })
            .collect();
        let views = tensors.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::BF16, shape.clone(), bytes);
            (name.as_str(), view.expect("bytes of the shape"))
        });
        let file = folder.join("model.safetensors");
        safetensors::serialize_to_file(views, None, &file).expect("a writable folder");
    }

    fn config(&self) -> serde_json::Value {
        let kinds: Vec<&str> = (0..self.layers)
            .map(|layer| match layer % 4 {
                3 => "full_attention",
                _ => "linear_attention",
            })
            .collect();
        json!({
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "dtype": "bfloat16",
            "attention_bias": false,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "layer_types": kinds,
            "linear_conv_kernel_dim": KERNEL,
            "linear_key_head_dim": self.head_dim,
            "linear_num_key_heads": self.heads,
            "linear_num_value_heads": self.heads,
            "linear_value_head_dim": self.head_dim,
            "max_position_embeddings": 4096,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.heads / 3,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default",
            },
            "tie_word_embeddings": true,
            "vocab_size": self.vocab,
        })
    }

    /// Names and shapes of all tensors.
    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let hidden = self.hidden;
        let mut shapes = vec![
            (
                "model.embed_tokens.weight".to_owned(),
                vec![self.vocab, hidden],
            ),
            ("model.norm.weight".to_owned(), vec![hidden]),
        ];
        for layer in 0..self.layers {
            let mixer = match layer % 4 {
                3 => self.attention(),
                _ => self.gated_delta(),
            };
            let mlp = [
                ("input_layernorm.weight", vec![hidden]),
                ("post_attention_layernorm.weight", vec![hidden]),
                ("mlp.gate_proj.weight", vec![self.intermediate, hidden]),
                ("mlp.up_proj.weight", vec![self.intermediate, hidden]),
                ("mlp.down_proj.weight", vec![hidden, self.intermediate]),
            ];
            let all = mixer.into_iter().chain(mlp);
            shapes.extend(all.map(|(name, shape)| (format!("model.layers.{layer}.{name}"), shape)));
        }
        shapes
    }

    fn gated_delta(&self) -> Vec<(&'static str, Vec<usize>)> {
        let (hidden, values) = (self.hidden, self.heads * self.head_dim);
        vec![
            ("linear_attn.A_log", vec![self.heads]),
            ("linear_attn.dt_bias", vec![self.heads]),
            ("linear_attn.conv1d.weight", vec![3 * values, 1, KERNEL]),
            ("linear_attn.in_proj_qkv.weight", vec![3 * values, hidden]),
            ("linear_attn.in_proj_z.weight", vec![values, hidden]),
            ("linear_attn.in_proj_a.weight", vec![self.heads, hidden]),
            ("linear_attn.in_proj_b.weight", vec![self.heads, hidden]),
            ("linear_attn.norm.weight", vec![self.head_dim]),
            ("linear_attn.out_proj.weight", vec![hidden, values]),
        ]
    }

    fn attention(&self) -> Vec<(&'static str, Vec<usize>)> {
        let (hidden, width) = (self.hidden, self.heads * self.head_dim);
        vec![
            ("self_attn.q_proj.weight", vec![2 * width, hidden]),
            ("self_attn.k_proj.weight", vec![width / 3, hidden]),
            ("self_attn.v_proj.weight", vec![width / 3, hidden]),
            ("self_attn.o_proj.weight", vec![hidden, width]),
            ("self_attn.q_norm.weight", vec![self.head_dim]),
            ("self_attn.k_norm.weight", vec![self.head_dim]),
        ]
    }
}

/// How far values go: matrices keep rows at their length, everything else stays near what training starts from.
fn scale(name: &str, shape: &[usize]) -> f32 {
    match shape {
        _ if name.ends_with("conv1d.weight") => 0.5,
        [_, inputs] => 1.7 / (*inputs as f32).sqrt(),
        _ => 0.1,
    }
}

fn bfloat16(value: f32) -> [u8; 2] {
    let [_, _, low, high] = value.to_le_bytes();
    [low, high]
}

/// Reproducible numbers in (-1, 1).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / 8_388_608.0 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Export;
    use pawl::{Engine, EngineOptions, LoadOptions, Request};

    #[test]
    fn a_random_checkpoint_is_built_and_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        RandomHybrid::SMALL.write(folder.path());
        let export = Export::with(folder.path(), |_| {});
        let model = export.load(&LoadOptions::default());
        let engine = Engine::new(model, &EngineOptions::default()).expect("an engine");
        let request = Request::from_ids([5, 6, 7])
            .max_new_tokens(8)
            .ignore_eos(true);
        let answer = engine.generate(request).expect("an answer");
        assert_eq!(answer.tokens.len(), 8);
    }
}
