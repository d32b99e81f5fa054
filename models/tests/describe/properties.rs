//! Properties over random dimensions and random damage.

use std::collections::BTreeMap;

use pawl_models::{CheckpointInfo, DescribeError, Mixer, Weight, describe};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::fixture::{FIXTURES, fixture};
use crate::synthetic::{Dims, text};
use crate::walk::weights;

prop_compose! {
    fn dims()(
        (vocab, hidden, intermediate) in (1_u64..40, 1_u64..40, 1_u64..60),
        (kv_heads, groups, quarter) in (1_u64..4, 1_u64..4, 1_u64..5),
        (key_heads, per_key, key_dim, value_dim) in (1_u64..4, 1_u64..4, 1_u64..9, 1_u64..9),
        kernel in 2_u64..6,
        attends in prop::collection::vec(any::<bool>(), 1..7),
        (tied, mtp, vision) in any::<(bool, bool, bool)>(),
    ) -> Dims {
        Dims {
            // A special token needs a place.
            vocab: vocab + 2,
            hidden,
            intermediate,
            heads: kv_heads * groups,
            kv_heads,
            // Half of a head turns, which has to be an even number.
            head_dim: 4 * quarter,
            key_heads,
            value_heads: key_heads * per_key,
            key_dim,
            value_dim,
            kernel,
            attends,
            tied,
            mtp,
            vision,
        }
    }
}

fn elements(shape: &[u64]) -> u64 {
    shape.iter().product()
}

/// The rows of every tensor that some weight takes, sorted.
fn coverage<'a>(weights: &[&'a Weight]) -> BTreeMap<&'a str, Vec<(u64, u64)>> {
    let mut rows: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for part in weights.iter().flat_map(|weight| &weight.parts) {
        let taken = rows.entry(&part.tensor).or_default();
        taken.push((part.rows.start, part.rows.end));
        taken.sort_unstable();
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_row_of_every_tensor_is_used_once(dims in dims()) {
        for (name, checkpoint) in dims.all() {
            let model = describe(&checkpoint).unwrap_or_else(|error| panic!("{name}: {error}"));
            let all = weights(&model);
            for weight in &all {
                let held: u64 = weight.parts.iter().map(|part| {
                    assert_eq!(checkpoint.tensors.get(&part.tensor), Some(&part.shape));
                    (part.rows.end - part.rows.start) * elements(&part.shape[1..])
                }).sum();
                prop_assert_eq!(held, elements(&weight.shape));
                prop_assert_eq!(weight.elements(), held);
            }
            let covered = coverage(&all);
            for (tensor, shape) in &checkpoint.tensors {
                if tensor.starts_with("model.visual.") {
                    continue;
                }
                let mut next = 0;
                for (start, end) in covered.get(tensor.as_str()).into_iter().flatten() {
                    prop_assert_eq!(*start, next, "{}", tensor);
                    next = *end;
                }
                prop_assert_eq!(next, shape[0], "{}", tensor);
            }
            prop_assert_eq!(model.output.is_none(), dims.tied);
            prop_assert_eq!(model.layers.len(), dims.attends.len());
        }
    }

    #[test]
    fn the_plan_follows_the_layer_types(dims in dims()) {
        for checkpoint in [dims.qwen3_5(), dims.lfm2()] {
            let model = describe(&checkpoint).expect("a description");
            for (layer, attends) in model.layers.iter().zip(&dims.attends) {
                prop_assert_eq!(matches!(layer.mixer, Mixer::Attention(_)), *attends);
                prop_assert_eq!(layer.kind == "full_attention", *attends);
            }
        }
    }

    #[test]
    fn query_and_gate_rows_alternate_by_head(dims in dims()) {
        let model = describe(&dims.qwen3_5()).expect("a description");
        for layer in &model.layers {
            let Mixer::Attention(a) = &layer.mixer else { continue };
            let gate = a.gate.as_ref().expect("gate");
            prop_assert_eq!(a.query.parts.len() as u64, dims.heads);
            for (head, (query, gate)) in (0..).zip(a.query.parts.iter().zip(&gate.parts)) {
                let start = head * 2 * dims.head_dim;
                prop_assert_eq!(query.rows.clone(), start..start + dims.head_dim);
                prop_assert_eq!(gate.rows.clone(), start + dims.head_dim..start + 2 * dims.head_dim);
            }
        }
    }

    #[test]
    fn damaged_tensors_are_all_named(dims in dims(), victims in prop::collection::vec(any::<(Index, bool)>(), 1..5)) {
        for (_, mut checkpoint) in dims.all() {
            let names: Vec<String> = checkpoint
                .tensors
                .keys()
                .filter(|name| !name.starts_with("model.visual.") && !name.ends_with("embed_tokens.weight"))
                // Absent, these would be read as another width, head size or a tied output.
                .filter(|name| !name.ends_with("feed_forward.w1.weight"))
                .cloned()
                .collect();
            let mut damaged = BTreeMap::new();
            for (index, absent) in &victims {
                let name = index.get(&names);
                if *absent {
                    checkpoint.tensors.remove(name);
                    damaged.insert(name.clone(), None);
                } else if let Some(shape) = checkpoint.tensors.get_mut(name) {
                    shape[0] += 1;
                    damaged.insert(name.clone(), Some(shape.clone()));
                }
            }
            let Err(DescribeError::Tensors { problems }) = describe(&checkpoint) else {
                panic!("damage was not seen: {damaged:?}");
            };
            let found: BTreeMap<_, _> = problems.into_iter().map(|p| (p.tensor, p.found)).collect();
            prop_assert_eq!(found, damaged);
        }
    }

    #[test]
    fn concatenation_keeps_all_rows(rows in prop::collection::vec(0_u64..9, 1..6), columns in 1_u64..5) {
        let parts: Vec<Weight> = rows.iter().enumerate()
            .map(|(i, rows)| Weight::whole(format!("t{i}"), vec![*rows, columns]))
            .collect();
        let whole = Weight::concat(&parts.iter().collect::<Vec<_>>()).expect("same columns");
        prop_assert_eq!(whole.rows(), rows.iter().sum::<u64>());
        prop_assert_eq!(whole.parts.len(), parts.len());
        let other = Weight::whole("other", vec![1, columns + 1]);
        prop_assert!(Weight::concat(&[&whole, &other]).is_err());
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u64..70).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|x| json!(x)),
        prop::sample::select(vec![
            "yarn",
            "linear",
            "llama3",
            "conv",
            "full_attention",
            "x"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        let key = prop::sample::select(vec![
            "rope_type",
            "factor",
            "rope_theta",
            "full_attention",
            "beta_fast",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|map| map
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_value_of_any_key_panics(
        which in any::<Index>(),
        changes in prop::collection::vec((any::<Index>(), any_json()), 1..4),
        generation in prop::option::of(any_json()),
    ) {
        let mut checkpoint: CheckpointInfo = fixture(which.get::<&str>(FIXTURES));
        for (key, value) in changes {
            let keys: Vec<String> = text(&mut checkpoint).keys().cloned().collect();
            text(&mut checkpoint).insert(key.get(&keys).clone(), value);
        }
        checkpoint.generation_config = generation.or(checkpoint.generation_config);
        match describe(&checkpoint) {
            Ok(model) => prop_assert!(!weights(&model).is_empty()),
            Err(error) => prop_assert!(error.to_string().contains("expected")),
        }
    }
}
