//! What is refused, and what is built with a warning.

use pawl_models::{Mixer, ModelDescription};

use crate::decoder::{emit, warnings};
use crate::error::BuildError;
use crate::options::{BuildOptions, Spelling, Target};
use crate::plan::Plan;
use crate::testing::hybrid;

#[test]
fn what_no_target_can_run_is_refused_with_the_reason() {
    type Break = fn(&mut ModelDescription);
    let cases: [(Break, &str); 5] = [
        (
            |model| {
                model
                    .layers
                    .retain(|l| !matches!(l.mixer, Mixer::Attention(_)))
            },
            "a model without attention layers",
        ),
        (
            |model| {
                let mut other = model.layers[1].clone();
                if let Mixer::Attention(attention) = &mut other.mixer {
                    attention.kv_heads = 4;
                }
                model.layers.push(other);
            },
            "key/value caches of (2, 6) and (4, 6)",
        ),
        (
            |model| {
                if let Mixer::Attention(attention) = &mut model.layers[1].mixer {
                    attention.key_norm.as_mut().unwrap().epsilon = 1e-5;
                }
            },
            "their epsilons must be equal, found 0.000001 and 0.00001",
        ),
        (
            |model| {
                if let Mixer::ShortConv(conv) = &mut model.layers[2].mixer {
                    conv.kernel = 1;
                }
            },
            "layer 2: a convolution of 1 taps",
        ),
        (
            |model| model.mtp.as_mut().unwrap().layer = model.layers[0].clone(),
            "a drafting head with a linear_attention layer",
        ),
    ];
    for (break_it, expected) in cases {
        let mut model = hybrid();
        break_it(&mut model);
        let error = emit(&model, &BuildOptions::default()).unwrap_err();
        assert!(matches!(error, BuildError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_description_that_contradicts_itself_is_a_defect_not_a_file() {
    type Break = fn(&mut ModelDescription);
    let cases: [(Break, &str); 6] = [
        (
            |model| model.final_norm.weight.shape = vec![3],
            "/final_norm: last axis of X",
        ),
        (
            |model| model.embedding.shape = vec![11, 9],
            "/layers.0/mixer_norm: last axis of X",
        ),
        (
            |model| model.layers[1].mlp.down.shape.swap(0, 1),
            "/layers.1/mlp/down: columns of B",
        ),
        (
            |model| model.layers[1].mlp.up.transform = pawl_models::Transform::AddOne,
            "/layers.1/mlp/gate_up: weights",
        ),
        (
            |model| {
                if let Mixer::GatedDelta(delta) = &mut model.layers[0].mixer {
                    delta.key_heads = 3;
                }
            },
            "/layers.0/gated_delta/delta_rule: columns of qkv",
        ),
        (
            |model| {
                if let Mixer::Attention(attention) = &mut model.layers[1].mixer {
                    attention.rope.inverse_frequencies.pop();
                }
            },
            "/rotation/inverse_frequencies: rotary width",
        ),
    ];
    for (break_it, expected) in cases {
        let mut model = hybrid();
        break_it(&mut model);
        let error = emit(&model, &BuildOptions::default()).unwrap_err();
        assert!(matches!(error, BuildError::Defect { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn lengths_are_limited_by_the_model_and_said_when_capped() {
    let mut model = hybrid();
    model.context_length = 1 << 20;
    let mut options = BuildOptions::default();
    let limit = |options: &BuildOptions| Plan::new(&model, options).map(|p| p.sequence_limit);
    assert_eq!(limit(&options).unwrap(), 1 << 20);
    assert_eq!(warnings(&model, &options, &[]).unwrap(), [""; 0]);
    options.target = Target::Cuda;
    assert_eq!(limit(&options).unwrap(), 262_144);
    assert!(warnings(&model, &options, &[]).unwrap()[0].contains("--max-sequence"));
    options.max_sequence = Some(300_000);
    assert_eq!(limit(&options).unwrap(), 300_000);
    assert_eq!(warnings(&model, &options, &[]).unwrap(), [""; 0]);
    options.max_sequence = Some((1 << 20) + 1);
    let error = limit(&options).unwrap_err().to_string();
    assert!(error.contains("--max-sequence 1048577"), "{error}");
    options = BuildOptions {
        target: Target::Cuda,
        spelling: Spelling::Genai018,
        max_sequence: Some(9),
        ..BuildOptions::default()
    };
    assert!(warnings(&model, &options, &[]).unwrap()[0].contains("head is left out"));
    options.mtp = false;
    assert_eq!(warnings(&model, &options, &[]).unwrap(), [""; 0]);
}
