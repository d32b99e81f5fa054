//! `cargo xtask memory`: what `build-model` takes at most, on a checkpoint that is larger than that.
//!
//! The checkpoint is generated: two gigabytes in bfloat16, of a hybrid model with few layers, a draft head, and an embedding
//! of 248,320 x 1,024 that is not the output projection. The export is made for the CPU, so that weights are converted to
//! float32, and opened in ONNX Runtime as every export is. Needs 6 GB of disk for a minute, and `/proc`.

use crate::{ChoreError, chores, setup};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// Most bytes that may be resident at once.
const MOST: u64 = 700 << 20;
/// How often the peak is read. It is a high-water mark, so what comes between two readings is not missed; only what
/// comes after the last one is, when the program is about to end.
const INTERVAL: Duration = Duration::from_millis(5);

const VOCAB: u64 = 248_320;
const HIDDEN: u64 = 1024;
const INTERMEDIATE: u64 = 36_864;
/// Heads of attention and their size; key/value heads are a quarter.
const HEADS: (u64, u64) = (8, 128);
/// Key and value heads of Gated DeltaNet, all of them of the same size.
const DELTA_HEADS: (u64, u64, u64) = (8, 16, 64);
const KERNEL: u64 = 4;
/// What mixes tokens in each layer.
const LAYERS: [&str; 3] = ["linear_attention", "full_attention", "linear_attention"];

/// Builds the program, generates the checkpoint, and measures the export.
pub(crate) fn check(root: &Path) -> Result<(), ChoreError> {
    let library = setup::ensure(root)?;
    // How it is compiled makes it slower, not larger.
    let build = ["build", "--package", "build-model"];
    chores::run(&mut chores::cargo_command(root, &build))?;
    // Not the system's temporary folder, which may lie in memory.
    let target = chores::target_folder(root)?;
    let scratch = tempfile::tempdir_in(&target).map_err(ChoreError::io(&target))?;
    let input = scratch.path().join("checkpoint");
    let bytes = generate(&input).map_err(ChoreError::io(&input))?;
    let mut export = Command::new(target.join("debug").join("build-model"));
    export
        .env("ORT_DYLIB_PATH", &library)
        .arg("--input")
        .arg(&input)
        .arg("--output")
        .arg(scratch.path().join("model"));
    let peak = peak(&mut export)?;
    let (mib, most) = (peak >> 20, MOST >> 20);
    println!(
        "memory: {mib} MiB resident at most for {} MB of weights",
        bytes / 1_000_000
    );
    if peak <= MOST {
        return Ok(());
    }
    let message = format!("build-model took {mib} MiB, at most {most} MiB are allowed");
    Err(ChoreError::Command(message))
}

/// Runs a command to its end. Returns the most bytes that were resident.
fn peak(command: &mut Command) -> Result<u64, ChoreError> {
    let line = chores::describe(command);
    println!("$ {line}");
    let failed = |what: &dyn std::fmt::Display| ChoreError::Command(format!("{line}: {what}"));
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let mut peak = 0;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| failed(&error))? {
            return match (status.success(), peak) {
                (false, _) => Err(failed(&status)),
                (true, 0) => Err(failed(&"its memory cannot be read from /proc")),
                (true, peak) => Ok(peak),
            };
        }
        peak = peak.max(high_water(&child).unwrap_or(0));
        std::thread::sleep(INTERVAL);
    }
}

/// The most bytes that have been resident so far.
fn high_water(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// Writes the checkpoint folder. Returns the bytes of its weights.
fn generate(folder: &Path) -> std::io::Result<u64> {
    std::fs::create_dir(folder)?;
    std::fs::write(folder.join("config.json"), config().to_string())?;
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in tensors() {
        let begin = end;
        end += 2 * shape.iter().product::<u64>();
        let entry = json!({"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]});
        header.insert(name, entry);
    }
    let header = Value::Object(header).to_string();
    let mut file = BufWriter::new(File::create_new(folder.join("model.safetensors"))?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let block = weights();
    let mut left = end;
    while left > 0 {
        let length = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
        file.write_all(block.get(..length).unwrap_or_default())?;
        left -= length as u64;
    }
    file.into_inner()?.sync_all()?;
    Ok(end)
}

/// A mebibyte of small bfloat16 numbers of either sign.
fn weights() -> Vec<u8> {
    let numbers = (0_u32..1 << 19).map(|i| i.wrapping_mul(2_654_435_761));
    let small = numbers.map(|i| u16::try_from(i >> 16).unwrap_or(0) & 0x80ff | 0x3c00);
    small.flat_map(u16::to_le_bytes).collect()
}

fn config() -> Value {
    let ((heads, head_dim), (key_heads, value_heads, delta_dim)) = (HEADS, DELTA_HEADS);
    json!({
        "model_type": "qwen3_5_text",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS.len(),
        "layer_types": LAYERS,
        "num_attention_heads": heads,
        "num_key_value_heads": heads / 4,
        "head_dim": head_dim,
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": value_heads,
        "linear_key_head_dim": delta_dim,
        "linear_value_head_dim": delta_dim,
        "linear_conv_kernel_dim": KERNEL,
        "mtp_num_hidden_layers": 1,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        "tie_word_embeddings": false,
        "eos_token_id": 2,
    })
}

/// Names and shapes, in the order of the file.
fn tensors() -> Vec<(String, Vec<u64>)> {
    let mut all = vec![
        ("model.embed_tokens.weight".to_owned(), vec![VOCAB, HIDDEN]),
        ("lm_head.weight".to_owned(), vec![VOCAB, HIDDEN]),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
        ("mtp.fc.weight".to_owned(), vec![HIDDEN, 2 * HIDDEN]),
    ];
    for norm in ["norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"] {
        all.push((format!("mtp.{norm}.weight"), vec![HIDDEN]));
    }
    for (index, kind) in LAYERS.iter().enumerate() {
        all.extend(layer(&format!("model.layers.{index}"), kind));
    }
    all.extend(layer("mtp.layers.0", "full_attention"));
    all
}

fn layer(at: &str, kind: &str) -> Vec<(String, Vec<u64>)> {
    let mut parts = vec![
        ("input_layernorm.weight", vec![HIDDEN]),
        ("post_attention_layernorm.weight", vec![HIDDEN]),
        ("mlp.gate_proj.weight", vec![INTERMEDIATE, HIDDEN]),
        ("mlp.up_proj.weight", vec![INTERMEDIATE, HIDDEN]),
        ("mlp.down_proj.weight", vec![HIDDEN, INTERMEDIATE]),
    ];
    parts.extend(match kind {
        "full_attention" => attention(),
        _ => delta(),
    });
    let named = parts.into_iter();
    named
        .map(|(name, shape)| (format!("{at}.{name}"), shape))
        .collect()
}

fn attention() -> Vec<(&'static str, Vec<u64>)> {
    let (heads, dim) = HEADS;
    vec![
        // Query and gate.
        ("self_attn.q_proj.weight", vec![2 * heads * dim, HIDDEN]),
        ("self_attn.k_proj.weight", vec![heads / 4 * dim, HIDDEN]),
        ("self_attn.v_proj.weight", vec![heads / 4 * dim, HIDDEN]),
        ("self_attn.o_proj.weight", vec![HIDDEN, heads * dim]),
        ("self_attn.q_norm.weight", vec![dim]),
        ("self_attn.k_norm.weight", vec![dim]),
    ]
}

fn delta() -> Vec<(&'static str, Vec<u64>)> {
    let (keys, values, dim) = DELTA_HEADS;
    let channels = (2 * keys + values) * dim;
    vec![
        ("linear_attn.in_proj_qkv.weight", vec![channels, HIDDEN]),
        ("linear_attn.in_proj_z.weight", vec![values * dim, HIDDEN]),
        ("linear_attn.in_proj_a.weight", vec![values, HIDDEN]),
        ("linear_attn.in_proj_b.weight", vec![values, HIDDEN]),
        ("linear_attn.conv1d.weight", vec![channels, 1, KERNEL]),
        ("linear_attn.A_log", vec![values]),
        ("linear_attn.dt_bias", vec![values]),
        ("linear_attn.norm.weight", vec![dim]),
        ("linear_attn.out_proj.weight", vec![HIDDEN, values * dim]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkpoint_is_as_large_as_it_should_be() {
        let elements: u64 = tensors()
            .iter()
            .map(|(_, shape)| shape.iter().product::<u64>())
            .sum();
        let bytes = 2 * elements;
        assert!((1_950_000_000..2_100_000_000).contains(&bytes), "{bytes}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_of_a_child_is_read() {
        let mut hungry = Command::new("sh");
        // The shell takes the text of what it runs, and keeps it.
        hungry.args([
            "-c",
            "x=$(head -c 50000000 /dev/zero | tr '\\0' x); sleep 0.2",
        ]);
        let peak = peak(&mut hungry).unwrap();
        assert!(peak > 40_000_000, "{peak}");
        assert!(super::peak(&mut Command::new("false")).is_err());
    }
}
