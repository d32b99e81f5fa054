//! Reading what was written gives what was written, for random files of both spellings; and no
//! damage to a file makes reading it do anything but answer.
#![allow(missing_docs, reason = "a test program has no public interface")]

use std::collections::BTreeMap;

use genai_config_schema::*;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

fn word() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_ \u{e9}\"\\\\.-]{1,12}"
}

fn file() -> impl Strategy<Value = String> {
    "([a-z0-9_]{1,6}/)?[a-z0-9_.-]{0,6}[a-z0-9]"
}

fn session_options() -> impl Strategy<Value = SessionOptions> {
    let entries = btree_map("[a-z_]{1,6}\\.[a-z_.]{0,5}x", word(), 0..3);
    let device = option::of(any::<u32>()).prop_map(|id| DeviceFilteringOptions {
        hardware_device_type: id.map(|_| "GPU".to_owned()),
        hardware_device_id: id,
        hardware_vendor_id: None,
    });
    let provider = (
        "[a-zA-Z]{1,8}",
        option::of(device),
        btree_map("[a-z_]{1,8}x", word(), 0..3),
    )
        .prop_map(
            |(name, device_filtering_options, options)| ProviderOptions {
                name,
                device_filtering_options,
                options,
            },
        );
    (
        entries,
        vec(provider, 0..3),
        option::of(0..64_u32),
        option::of(any::<bool>()),
        option::of(file()),
    )
        .prop_map(
            |(config_entries, provider_options, threads, arena, library)| SessionOptions {
                intra_op_num_threads: threads,
                enable_cpu_mem_arena: arena,
                custom_ops_library: library,
                graph_optimization_level: threads.map(|_| GraphOptimizationLevel::Extended),
                provider_options,
                config_entries,
                ..SessionOptions::default()
            },
        )
}

fn search() -> impl Strategy<Value = Search> {
    let share = || option::of(0.0..=1.0_f32);
    let chances = (
        option::of(0.0..1e30_f32),
        share(),
        share(),
        option::of(f32::MIN_POSITIVE..9.0),
    );
    let counts = (
        option::of(any::<u32>()),
        option::of(0..=64_u32),
        option::of(-1..=i64::MAX),
    );
    (chances, counts, option::of(any::<bool>())).prop_map(|(chances, counts, sample)| Search {
        do_sample: sample,
        temperature: chances.0,
        top_p: chances.1,
        min_p: chances.2,
        repetition_penalty: chances.3,
        top_k: counts.0,
        max_length: counts.1,
        random_seed: counts.2,
        ..Search::default()
    })
}

fn engine() -> impl Strategy<Value = Engine> {
    let count = || option::of(1..=u32::MAX);
    (count(), count(), count(), option::of(any::<bool>())).prop_map(|numbers| Engine {
        dynamic_batching: Some(DynamicBatching {
            block_size: numbers.0,
            num_blocks: numbers.1,
            gpu_utilization_factor: numbers.1.is_none().then_some(0.55),
            max_batch_size: numbers.2,
            prefix_caching: numbers.3,
            ..DynamicBatching::default()
        }),
        static_batching: None,
    })
}

/// What the groups of a file are made from.
#[derive(Clone, Debug)]
struct Plan {
    /// Per layer: attention or not. Both occur.
    attends: Vec<bool>,
    checkpoints: u32,
    form: CheckpointForm,
    layout: StateLayout,
}

impl Plan {
    fn ids(&self, attends: bool) -> Vec<u32> {
        (0..)
            .zip(&self.attends)
            .filter(|(_, own)| **own == attends)
            .map(|(id, _)| id)
            .collect()
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let layouts = select(vec![StateLayout::Rows, StateLayout::Bank]);
    let forms = select(vec![CheckpointForm::State, CheckpointForm::Update]);
    (vec(any::<bool>(), 0..9), 0..=8_u32, forms, layouts).prop_map(
        |(mut attends, checkpoints, form, layout)| {
            attends.extend([true, false]);
            Plan {
                attends,
                checkpoints,
                form,
                layout,
            }
        },
    )
}

fn name(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn binding(what: &str, checkpoints: bool) -> Option<Binding> {
    Some(Binding {
        input: format!("past.%d.{what}"),
        output: format!("present.%d.{what}"),
        checkpoints: checkpoints.then(|| format!("checkpoints.%d.{what}")),
    })
}

fn pawl_groups(plan: &Plan) -> Vec<StateGroup> {
    let captures = plan.checkpoints > 0;
    let fixed = |operator, what, right| StateGroup {
        kind: StateKind::Fixed,
        operator: Some(operator),
        layer_ids: plan.ids(false),
        key_head_count: (operator == StateOperator::GatedDeltaNet).then_some(2),
        state_layout: Some(plan.layout),
        bindings: Some(Bindings {
            state: binding(what, captures),
            ..Bindings::default()
        }),
        checkpoint_count: captures.then_some(plan.checkpoints),
        checkpoint_alignment: captures.then_some(match plan.form {
            CheckpointForm::State if right => CheckpointAlignment::Right,
            CheckpointForm::State | CheckpointForm::Update => CheckpointAlignment::Left,
        }),
        checkpoint_form: captures.then_some(plan.form),
        row_shape: match operator {
            StateOperator::CausalConv => vec![u64::from(plan.checkpoints) + 1, 3],
            StateOperator::GatedDeltaNet if captures => vec![2, 1, 5],
            StateOperator::GatedDeltaNet | StateOperator::TokenHistory => Vec::new(),
        },
        element_type: captures.then_some(ElementType::Bfloat16),
        fresh_token_id: None,
        decay: (right && plan.checkpoints > 2).then_some(StateDecay::PerKey),
        commit_filename: captures.then(|| format!("commit.{what}.onnx")),
        state_update: None,
    };
    let paged = StateGroup {
        layer_ids: plan.ids(true),
        bindings: Some(Bindings {
            key: binding("key", false),
            value: binding("value", false),
            state: None,
        }),
        ..StateGroup::default()
    };
    vec![
        paged,
        fixed(StateOperator::CausalConv, "conv", false),
        fixed(StateOperator::GatedDeltaNet, "recurrent", true),
    ]
}

fn genai_groups(plan: &Plan) -> Vec<StateGroup> {
    let update = |key_head_count| {
        (plan.checkpoints > 0).then_some(StateUpdate {
            capacity: plan.checkpoints,
            enabled: (plan.checkpoints > 4).then_some(false),
            key_head_count,
        })
    };
    let group = |kind, attends, state_update| StateGroup {
        kind,
        layer_ids: plan.ids(attends),
        state_update,
        ..StateGroup::default()
    };
    vec![
        group(StateKind::PagedKv, true, None),
        group(StateKind::FixedConv, false, update(None)),
        group(StateKind::FixedRecurrent, false, update(Some(4))),
    ]
}

fn decoder(plan: &Plan, pawl: bool) -> Decoder {
    let bank = pawl && plan.layout == StateLayout::Bank;
    Decoder {
        filename: "model.onnx".to_owned(),
        hidden_size: 8,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        num_hidden_layers: u32::try_from(plan.attends.len()).expect("few"),
        head_size: 2,
        inputs: DecoderInputs {
            input_ids: name("input_ids"),
            cumulative_sequence_lengths: name("cumulative_sequence_lengths"),
            past_sequence_lengths: name("past_sequence_lengths"),
            block_table: name("block_table"),
            read_rows: bank.then(|| "read_rows".to_owned()),
            write_rows: bank.then(|| "write_rows".to_owned()),
            state_update_capture_count: name("counts"),
            past_conv_names: (!pawl).then(|| "past_key_values.%d.c".to_owned()),
            ..DecoderInputs::default()
        },
        outputs: DecoderOutputs {
            logits: name("logits"),
            hidden_states: name("hidden_states"),
            ..DecoderOutputs::default()
        },
        captures_in_mixed_steps: pawl.then_some(bank),
        state_groups: if pawl {
            pawl_groups(plan)
        } else {
            genai_groups(plan)
        },
        ..Decoder::default()
    }
}

fn config() -> impl Strategy<Value = GenaiConfig> {
    let model = (
        word(),
        1..=u32::MAX,
        vec(any::<Index>(), 0..3),
        option::of(file()),
    );
    let options = (session_options(), btree_map("[a-z._]{1,8}x", word(), 0..3));
    (plan(), any::<bool>(), model, options, search(), engine()).prop_map(
        |(plan, pawl, model, options, search, engine)| {
            let (kind, vocab_size, eos, tokenizer_dir) = model;
            let token = |index: Index| {
                u32::try_from(index.index(vocab_size as usize)).expect("below a u32")
            };
            let decoder = Decoder {
                session_options: options.0,
                run_options: RunOptions(options.1),
                ..decoder(&plan, pawl)
            };
            let model = Model {
                kind,
                vocab_size,
                tokenizer_dir,
                context_length: 64,
                eos_token_id: eos.into_iter().map(token).collect(),
                decoder,
                ..Model::default()
            };
            GenaiConfig {
                model,
                search,
                engine,
                speculative: Speculative::default(),
            }
        },
    )
}

/// All places of a value, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                places(value, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(object) => {
            for (key, value) in object {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3..40_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[%a-z./\\\\]{0,6}".prop_map(Value::from),
        select(vec![
            "fixed",
            "fixed_conv",
            "paged_kv",
            "a.%d",
            "past.%d.conv",
            "logits",
            "left"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let key = select(vec![
            "kind", "key", "state", "input", "output", "capacity", "cuda", "x.y",
        ]);
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(key.prop_map(str::to_owned), inner, 0..3)
                .prop_map(|map: BTreeMap<String, Value>| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn reading_what_was_written_is_identity(config in config()) {
        let text = config.to_json();
        let read = GenaiConfig::from_json(&text);
        prop_assert_eq!(read.as_ref(), Ok(&config), "{}", text);
        prop_assert_eq!(config.validate(), Ok(()));
        prop_assert_eq!(read.expect("equal").to_json(), text);
        prop_assert!(config.manifest().is_ok());
    }

    #[test]
    fn damage_is_answered(
        config in config(),
        damage in vec((any::<Index>(), json_value()), 1..4),
    ) {
        let mut value: Value = serde_json::from_str(&config.to_json()).expect("written");
        for (place, new) in damage {
            let mut found = Vec::new();
            places(&value, "", &mut found);
            let place = place.get(&found);
            *value.pointer_mut(place).expect("a place") = new;
        }
        match GenaiConfig::from_json(&value.to_string()) {
            Ok(read) => {
                prop_assert_eq!(read.validate(), Ok(()));
                prop_assert_eq!(GenaiConfig::from_json(&read.to_json()), Ok(read));
            }
            Err(errors) => {
                prop_assert!(!errors.errors.is_empty());
                prop_assert!(errors.errors.len() <= MAX_ERRORS);
            }
        }
    }
}
