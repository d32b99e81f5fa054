//! Loading a toy model, and every way in which a folder cannot be loaded.

use super::*;
use crate::device::ElementType;
use crate::error::ErrorCode;
use crate::exec::{Capture, StepInputs, StepOutputs};
use crate::model::FixedBuffers;
use crate::model::spec::PagedBuffers;
use crate::model::test_toy::{CONFIG, ROW, folder, graph};
use crate::model::{VerifyOptions, verify};
use std::fs;
use std::sync::LazyLock;

impl Model {
    /// A model whose graphs are stood in for, with room for `slots` requests in `blocks` blocks of the cache. What else a
    /// folder says is the toy model's.
    pub(crate) fn stand_in(
        decoder: Decoder,
        head: Option<Decoder>,
        slots: usize,
        blocks: usize,
    ) -> Self {
        static SOURCE: LazyLock<Source> = LazyLock::new(|| Source::read(folder().path()).unwrap());
        let mut config = SOURCE.config.clone();
        config.model.vocab_size = u32::try_from(decoder.vocab()).unwrap();
        let block_size = decoder.state().paged.as_ref().unwrap().block_size;
        let limits = Limits {
            slots,
            checkpoint_rows: slots + 5,
            scheduled_tokens: 64,
            sequence: blocks * block_size,
            kv_blocks: blocks,
            block_size,
            logits_rows: slots * 8,
        };
        let plan = MemoryPlan::new(&config, &SOURCE.contract, &limits, &[]).unwrap();
        Self {
            folder: SOURCE.folder.clone(),
            info: ModelInfo::new(&SOURCE, Provider::Cpu, &limits),
            commit: None,
            device: Arc::new(HostDevice),
            config,
            decoder,
            head,
            limits,
            plan,
            fingerprint: Fingerprint::test(0),
            threads: None,
        }
    }
}

fn load_toy(folder: &Path) -> Result<Model, LoadError> {
    Model::load(folder, &LoadOptions::new().threads(1))
}

/// Loads after changing the configuration.
fn load_changed(from: &str, to: &str) -> LoadError {
    let folder = folder();
    let config = CONFIG.replace(from, to);
    assert_ne!(config, CONFIG);
    fs::write(folder.path().join(CONFIG_FILE), config).unwrap();
    Model::load(folder.path(), &LoadOptions::new()).unwrap_err()
}

#[test]
fn a_model_of_an_unknown_type_loads_and_runs() {
    let folder = folder();
    let mut model = load_toy(folder.path()).unwrap();
    let info = model.info();
    assert_eq!(
        (info.model_type.as_str(), info.vocab_size, info.has_head),
        ("toy", 3, false)
    );
    let groups: Vec<_> = info
        .state_groups
        .iter()
        .map(|group| (group.kind, group.elements))
        .collect();
    assert_eq!(groups, [("key/value cache", 2), ("causal convolution", 3)]);
    assert!(info.to_string().contains("checkpoints state:2"), "{info}");
    assert_eq!((model.limits.slots, model.limits.kv_blocks), (2, 8));

    let buffer = |shape: &[usize]| model.device.allocate(ElementType::F32, shape).unwrap();
    let mut paged = [PagedBuffers {
        key: buffer(&[8, 2, 1, 1]),
        value: buffer(&[8, 2, 1, 1]),
    }];
    let mut fixed = [FixedBuffers::new(buffer(&[5, ROW, 1]), None)];
    let inputs = StepInputs {
        input_ids: vec![2],
        cumulative: vec![0, 1],
        past: vec![0],
        block_table: vec![5],
        max_blocks: 1,
        logits_indices: vec![0],
        read_rows: vec![4],
        write_rows: vec![1],
        capture_counts: vec![0],
        ..StepInputs::default()
    };
    let mut outputs = StepOutputs::default();
    model
        .decoder
        .run(
            &inputs,
            &mut paged,
            &mut fixed,
            Capture::Off,
            &mut outputs,
            false,
        )
        .unwrap();
    // The scale is a shared weight, mapped from the data file.
    assert_eq!(outputs.logits, [2.0, 4.0, 6.0]);
    assert_eq!(fixed[0].bank.row_f32(1).unwrap(), [1.0; ROW]);
}

#[test]
fn a_built_model_verifies() {
    let report = verify(folder().path(), &VerifyOptions::new()).unwrap();
    assert_eq!(
        report.to_string(),
        "toy.onnx: 17 inputs and outputs agree, opens in ONNX Runtime"
    );
}

#[test]
fn every_missing_or_damaged_file_is_named() {
    let cases: [(&str, Option<&[u8]>, ErrorCode); 8] = [
        (CONFIG_FILE, None, ErrorCode::FileUnreadable),
        (CONFIG_FILE, Some(b"{"), ErrorCode::ConfigInvalid),
        (
            CONFIG_FILE,
            Some(b"{\"model\": {}}"),
            ErrorCode::ConfigInvalid,
        ),
        ("toy.onnx", None, ErrorCode::FileUnreadable),
        ("toy.onnx", Some(b""), ErrorCode::GraphInvalid),
        ("toy.onnx", Some(b"not a model"), ErrorCode::GraphInvalid),
        ("toy.data", None, ErrorCode::ContractMismatch),
        ("toy.data", Some(b"short"), ErrorCode::ContractMismatch),
    ];
    for (file, contents, code) in cases {
        let folder = folder();
        let path = folder.path().join(file);
        match contents {
            Some(contents) => fs::write(&path, contents).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let error = load_toy(folder.path()).unwrap_err();
        assert_eq!(error.code(), code, "{file}: {error}");
        assert!(error.to_string().contains(file), "{error}");
        let verified = verify(folder.path(), &VerifyOptions::new()).unwrap_err();
        assert_eq!(verified.to_string(), error.to_string());
    }
    let error = load_toy(Path::new("/does/not/exist")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::FileUnreadable);
}

#[test]
fn a_graph_that_onnx_runtime_does_not_understand_is_named_with_its_answer() {
    let folder = folder();
    graph()
        .node("NoSuchOperator", "logits", "nothing", &[])
        .write(folder.path(), "toy.onnx");
    let error = load_toy(folder.path()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::GraphInvalid);
    for part in ["toy.onnx", "NoSuchOperator"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(verify(folder.path(), &VerifyOptions::new()).is_err());
}

#[test]
fn nothing_falls_back_to_another_provider() {
    let folder = folder();
    let cuda = LoadOptions::new().provider(Provider::Cuda { device_id: 0 });
    let error = Model::load(folder.path(), &cuda).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ProviderUnavailable);
    assert!(
        error
            .to_string()
            .starts_with("CUDA device 0 cannot be used: "),
        "{error}"
    );

    let by_file = |provider: &str| {
        load_changed(
            r#""hidden_size""#,
            &format!(r#""session_options": {{"provider_options": [{provider}]}}, "hidden_size""#),
        )
    };
    for (provider, part) in [
        (r#"{"cuda": {"device_id": "3"}}"#, "CUDA device 3"),
        (r#"{"cuda": {"device_id": "first"}}"#, "device_id"),
        (r#"{"tensorrt": {}}"#, "tensorrt"),
    ] {
        let error = by_file(provider);
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// With the feature, ONNX Runtime is asked; the one for CPUs does not have the provider, and says so.
#[test]
#[cfg(feature = "cuda")]
fn the_answer_of_a_runtime_without_the_provider_is_passed_on() {
    let folder = folder();
    let attention = "com.microsoft:PagedAttention";
    graph()
        .node(attention, "logits", "nothing", &[])
        .write(folder.path(), "toy.onnx");
    let cuda = LoadOptions::new().provider(Provider::Cuda { device_id: 0 });
    let error = Model::load(folder.path(), &cuda).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ProviderUnavailable, "{error}");
    assert!(
        error
            .to_string()
            .contains("CUDA execution provider is not enabled in this build"),
        "{error}"
    );
}

#[test]
fn a_model_for_another_provider_is_not_run_on_the_cpu() {
    let folder = folder();
    let attention = "com.microsoft:PagedAttention";
    graph()
        .node(attention, "logits", "nothing", &[])
        .write(folder.path(), "toy.onnx");
    let error = load_toy(folder.path()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ProviderUnavailable);
    assert!(error.to_string().contains("--target cpu"), "{error}");
    // It is not a sound graph for the other provider either.
    let error = verify(folder.path(), &VerifyOptions::new()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("must be refused on the CPU for want of"),
        "{error}"
    );
}

#[test]
fn options_that_the_model_cannot_serve_are_refused() {
    let folder = folder();
    let error = Model::load(folder.path(), &LoadOptions::new().max_sequence(9)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OptionInvalid);
    let error = Model::load(
        folder.path(),
        &LoadOptions::new().library("/does/not/exist.so"),
    )
    .unwrap_err();
    assert_eq!(error.code(), ErrorCode::LibraryNotFound);
    let many = LoadOptions::new().threads(100_000);
    let error = Model::load(folder.path(), &many).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OptionInvalid);
    assert!(
        error
            .to_string()
            .contains("threads is 100000, expected at most"),
        "{error}"
    );
    let error = load_changed(
        r#""hidden_size""#,
        r#""session_options": {"intra_op_num_threads": 100000}, "hidden_size""#,
    );
    assert!(
        error.to_string().contains("intra_op_num_threads is 100000"),
        "{error}"
    );
    let error = load_changed(
        r#""hidden_size""#,
        r#""session_options": {"custom_ops_library": "evil.so"}, "hidden_size""#,
    );
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    assert!(error.to_string().contains("custom_ops_library"), "{error}");
    for entry in [
        "session.model_external_initializers_file_folder_path",
        "ep.context_enable",
    ] {
        let options = format!(r#""session_options": {{"{entry}": "here"}}, "hidden_size""#);
        let error = load_changed(r#""hidden_size""#, &options);
        assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
        assert!(error.to_string().contains(entry), "{error}");
    }
}

#[test]
fn an_option_wins_over_the_file() {
    let file = SessionOptions {
        intra_op_num_threads: Some(3),
        graph_optimization_level: Some(GraphOptimizationLevel::Basic),
        enable_cpu_mem_arena: Some(false),
        config_entries: [("session.x".to_owned(), "1".to_owned())].into(),
        ..SessionOptions::default()
    };
    load(Wanted::default()).unwrap();
    let settings =
        |threads| session_settings(Path::new("g"), Provider::Cpu, &file, threads).unwrap();
    let threads = |option| {
        settings(NonZeroUsize::new(option))
            .threads
            .map(NonZeroUsize::get)
    };
    assert_eq!((threads(5), threads(0)), (Some(5), Some(3)));
    let settings = settings(None);
    assert_eq!(settings.optimize, GraphOptimizationLevel::Basic);
    assert!(!settings.arena);
    assert_eq!(settings.entries, [("session.x".to_owned(), "1".to_owned())]);
}

#[test]
fn a_fingerprint_follows_graphs_and_weights() {
    let of = |change: &dyn Fn(&Path)| {
        let folder = folder();
        change(folder.path());
        load_toy(folder.path()).unwrap().fingerprint
    };
    let plain = of(&|_| {});
    assert_eq!(plain, of(&|_| {}));
    // The configuration may change.
    let config = |folder: &Path| {
        let spaced = CONFIG.replacen('{', "{ ", 1);
        fs::write(folder.join(CONFIG_FILE), spaced).unwrap();
    };
    assert_eq!(plain, of(&config));
    let weights = |folder: &Path| {
        let path = folder.join("toy.data");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    assert_ne!(plain, of(&weights));
    let graph = |folder: &Path| {
        let path = folder.join("toy.onnx");
        // A field of the model that says who made it.
        let maker = [fs::read(&path).unwrap(), vec![0x12, 1, b'x']].concat();
        fs::write(&path, maker).unwrap();
    };
    assert_ne!(plain, of(&graph));
}
