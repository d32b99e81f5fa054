//! Sums that can be checked by hand, and sizes that cannot exist.

use super::*;
use crate::device::ElementType;
use crate::exec::Signature;
use crate::model::contract::{GraphContract, StateTypes};
use crate::model::spec::{CheckpointSpec, FixedSpec, PagedNames, StateSpec};
use genai_config_schema::{
    CheckpointAlignment, CheckpointForm, StateDecay, StateLayout, StateOperator,
};

fn config(batching: &str) -> GenaiConfig {
    let text = format!(
        r#"{{"model": {{"type": "x", "vocab_size": 10, "context_length": 100, "decoder": {{
         "filename": "model.onnx", "hidden_size": 6, "num_attention_heads": 1, "num_key_value_heads": 1,
         "num_hidden_layers": 2, "head_size": 4}}}}, "engine": {{"dynamic_batching": {batching}}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn paged(layers: u32) -> PagedSpec {
    let names = |layer: u32| PagedNames {
        layer,
        key_input: String::new(),
        key_output: String::new(),
        value_input: String::new(),
        value_output: String::new(),
    };
    PagedSpec {
        layers: (0..layers).map(names).collect(),
        block_size: 8,
        kv_heads: 3,
        head_dim: 4,
    }
}

fn contract(row_shape: &[usize]) -> Contract {
    let fixed = FixedSpec {
        layer: 0,
        operator: StateOperator::CausalConv,
        layout: StateLayout::Bank,
        element: ElementType::F32,
        fresh: 0,
        input: String::new(),
        output: String::new(),
        row_shape: row_shape.to_vec(),
        key_heads: None,
        decay: StateDecay::PerHead,
        checkpoints: Some(CheckpointSpec {
            output: String::new(),
            count: 4,
            form: CheckpointForm::Update,
            alignment: CheckpointAlignment::Left,
            width: 5,
        }),
    };
    let graph = |paged, fixed| GraphContract {
        signature: Signature {
            hidden_size: 6,
            ..Signature::default()
        },
        state: StateSpec {
            paged: Some(paged),
            fixed,
            captures_in_mixed_steps: true,
        },
        types: StateTypes::default(),
        host: true,
    };
    Contract {
        decoder: graph(paged(2), vec![fixed]),
        head: Some(graph(paged(1), Vec::new())),
        commits: Vec::new(),
        shared: Vec::new(),
        data_files: vec![(PathBuf::from("m/model.onnx.data"), 1000)],
    }
}

fn plan(
    config: &GenaiConfig,
    contract: &Contract,
    options: &LoadOptions,
) -> Result<MemoryPlan, LoadError> {
    let graphs = [(PathBuf::from("m/model.onnx"), 24)];
    MemoryPlan::settle(config, contract, options, &graphs).map(|(_, plan)| plan)
}

#[test]
fn every_byte_is_counted_once() {
    let config = config(r#"{"block_size": 8, "max_batch_size": 2, "max_scheduled_tokens": 50}"#);
    let plan = plan(&config, &contract(&[5, 3]), &LoadOptions::new()).unwrap();
    let blocks = 2 * 100u64.div_ceil(8);
    let token = 3 * 4 * 2 * 4;
    let bytes: Vec<u64> = plan.entries().iter().map(|entry| entry.bytes).collect();
    assert_eq!(
        bytes,
        [
            24,
            1000,
            5 * 15 * 4,
            4 * 8 * 5 * 4,
            2 * blocks * 8 * token,
            blocks * 8 * token,
            8 * 4 * 10 * 4,
            50 * 6 * 4
        ]
    );
    assert_eq!(plan.total(), bytes.iter().sum::<u64>());
    assert_eq!(
        (plan.kv_blocks(), plan.block_size(), plan.slots()),
        (26, 8, 2)
    );
    let table = plan.to_string();
    assert!(
        table.contains("weights, `model.onnx.data`") && table.contains("26 blocks of 8 tokens"),
        "{table}"
    );
    assert!(
        table.contains("checkpoint staging, 8 rows, some for branches of drafts"),
        "{table}"
    );
    let widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
    assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
}

#[test]
fn options_win_over_the_file_and_that_over_the_defaults() {
    let resolve = |batching: &str, options: LoadOptions| {
        Limits::resolve(&config(batching), &contract(&[5, 3]), &options).unwrap()
    };
    let limits = resolve("{}", LoadOptions::new());
    assert_eq!(
        (limits.slots, limits.scheduled_tokens, limits.sequence),
        (16, 2048, 100)
    );
    let limits = resolve(
        r#"{"max_batch_size": 3, "num_blocks": 7}"#,
        LoadOptions::new().max_sequence(9),
    );
    assert_eq!((limits.slots, limits.kv_blocks, limits.sequence), (3, 7, 9));
    let limits = resolve(
        r#"{"max_batch_size": 3, "num_blocks": 7}"#,
        LoadOptions::new().max_batch_size(2).kv_blocks(5),
    );
    assert_eq!((limits.slots, limits.kv_blocks), (2, 5));

    let error = Limits::resolve(
        &config("{}"),
        &contract(&[5, 3]),
        &LoadOptions::new().max_sequence(101),
    )
    .unwrap_err();
    assert!(error.to_string().contains("max_sequence is 101"), "{error}");
}

#[test]
fn few_requests_have_rows_for_branches_where_staging_is_small() {
    let rows = |batch: usize, change: &dyn Fn(&mut Vec<FixedSpec>)| {
        let mut contract = contract(&[5, 3]);
        change(&mut contract.decoder.state.fixed);
        let options = LoadOptions::new().max_batch_size(batch);
        let limits = Limits::resolve(&config("{}"), &contract, &options).unwrap();
        (limits.checkpoint_rows, limits.logits_rows)
    };
    let state = |fixed: &mut Vec<FixedSpec>| {
        let mut second = fixed[0].clone();
        second.checkpoints.as_mut().unwrap().form = CheckpointForm::State;
        fixed.push(second);
    };
    assert_eq!(rows(2, &|_| ()), (8, 32));
    assert_eq!(rows(9, &|_| ()), (9, 36));
    assert_eq!(rows(2, &state), (2, 8));
    assert_eq!(rows(2, &|fixed| fixed[0].checkpoints = None), (2, 2));
    assert_eq!(rows(2, &|fixed| fixed.clear()), (8, 8));
}

#[test]
fn the_default_cache_is_capped() {
    let mut long = config("{}");
    long.model.context_length = u32::MAX;
    let limits = Limits::resolve(&long, &contract(&[5, 3]), &LoadOptions::new()).unwrap();
    let block = 3 * 8 * (3 * 4 * 2 * 4);
    assert_eq!(limits.kv_blocks as u64, CACHE_BYTES / block);
    assert_eq!(limits.sequence, u32::MAX as usize);
}

#[test]
fn sizes_that_no_machine_has_are_refused_with_the_plan() {
    let small = config("{}");
    let error = plan(&small, &contract(&[1 << 40, 1 << 40]), &LoadOptions::new()).unwrap_err();
    assert!(
        error.to_string().contains("larger than the address space"),
        "{error}"
    );
    let error = plan(
        &small,
        &contract(&[5, 3]),
        &LoadOptions::new().kv_blocks(1 << 60),
    )
    .unwrap_err();
    assert_eq!(error.code(), crate::ErrorCode::OutOfMemory);
    if available_memory().is_some() {
        let large = LoadOptions::new().kv_blocks(1 << 36);
        let plan = plan(&small, &contract(&[5, 3]), &large).unwrap();
        let error = plan.require_fit().unwrap_err();
        assert!(
            error
                .to_string()
                .contains("; lower max_batch_size (now 16) or kv_blocks (now 68719476736)\n"),
            "{error}"
        );
    }
}

#[test]
fn a_limit_shrinks_the_cache_and_then_refuses_with_the_plan() {
    let (config, contract) = (config("{}"), contract(&[5, 3]));
    let planned = |limit| plan(&config, &contract, &LoadOptions::new().memory_limit(limit));
    let block = 3 * 8 * (3 * 4 * 2 * 4);
    let free = planned(0).unwrap();
    let total = free.total();
    assert!(free.kv_blocks() > 3);
    assert_eq!(planned(total).unwrap(), free);
    let tight = planned(total - 2 * block).unwrap();
    assert_eq!(tight.kv_blocks(), free.kv_blocks() - 2);
    let least = total - (free.kv_blocks() as u64 - 1) * block;
    assert_eq!(planned(least).unwrap().kv_blocks(), 1);
    let error = planned(least - 1).unwrap_err();
    assert_eq!(error.code(), crate::ErrorCode::OutOfMemory);
    // The cache is as small as it can be already.
    let advice = "raise it, or lower max_batch_size (now 16)\n";
    for part in [
        "memory limit of",
        advice,
        "key/value cache, 1 block of",
        "total",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let chosen = LoadOptions::new()
        .kv_blocks(free.kv_blocks())
        .memory_limit(total - 1);
    let error = plan(&config, &contract, &chosen).unwrap_err().to_string();
    let advice = format!(
        "max_batch_size (now 16) or kv_blocks (now {})\n",
        free.kv_blocks()
    );
    assert!(
        error.contains("memory limit of") && error.contains(&advice),
        "{error}"
    );
    let one = LoadOptions::new().max_batch_size(1).memory_limit(1);
    let error = plan(&config, &contract, &one).unwrap_err().to_string();
    assert!(error.contains("memory limit of 1 B; raise it\n"), "{error}");
}

#[test]
fn sizes_are_shown_with_a_unit() {
    let shown: Vec<String> = [0, 1023, 1024, 1536 << 10, 3 << 30, 5 << 50]
        .map(|n| Bytes(n).to_string())
        .into();
    assert_eq!(
        shown,
        [
            "0 B",
            "1023 B",
            "1.0 KiB",
            "1.5 MiB",
            "3.0 GiB",
            "5120.0 TiB"
        ]
    );
}

#[test]
fn elements_of_sixteen_bits_take_two_bytes() {
    let config = config(r#"{"block_size": 8, "max_batch_size": 2, "max_scheduled_tokens": 50}"#);
    let mut half = contract(&[5, 3]);
    half.decoder.types = StateTypes {
        cache: Some(DataType::F16),
        fixed: vec![DataType::BF16],
    };
    let bytes = |contract: &Contract| -> Vec<u64> {
        let plan = plan(&config, contract, &LoadOptions::new()).unwrap();
        plan.entries().iter().map(|entry| entry.bytes).collect()
    };
    let (float, half) = (bytes(&contract(&[5, 3])), bytes(&half));
    for (index, (float, half)) in float.iter().zip(&half).enumerate() {
        // Banks, checkpoints and the decoder's cache.
        let shrinks = (2..5).contains(&index);
        assert_eq!(*float, half * if shrinks { 2 } else { 1 }, "{index}");
    }
}
