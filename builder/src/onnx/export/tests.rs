use std::fs;

use super::*;
use crate::graph::ir::{Dtype, Initializer};
use crate::source::companions;
use crate::source::testing::{checkpoint, f32_bytes};
use pawl_models::{Transform, Weight};

fn initializer(name: &str, dtype: Dtype, weight: Weight, shared: bool) -> Initializer {
    Initializer {
        name: name.to_owned(),
        dtype,
        dims: weight.shape.clone(),
        data: InitializerData::Weight(weight),
        shared,
    }
}

fn graph(file: &'static str, initializers: Vec<Initializer>) -> Graph {
    Graph {
        name: file.to_owned(),
        file: file.into(),
        opset: 23,
        nodes: vec![],
        inputs: vec![],
        outputs: vec![],
        initializers,
    }
}

/// Counts what it is told.
#[derive(Default)]
struct Counter {
    total: u64,
    done: u64,
    files: Vec<String>,
}

impl Progress for Counter {
    fn begin(&mut self, total: u64) {
        self.total = total;
    }

    fn advance(&mut self, file: &str, bytes: u64) {
        self.done += bytes;
        if self.files.last().is_none_or(|last| last != file) {
            self.files.push(file.to_owned());
        }
    }
}

fn two_graphs() -> [Graph; 2] {
    let norm = Weight {
        transform: Transform::AddOne,
        ..Weight::whole("norm", [3])
    };
    let table = Initializer {
        name: "table".to_owned(),
        dtype: Dtype::I64,
        dims: vec![256],
        data: InitializerData::Values(vec![9; 2048]),
        shared: false,
    };
    [
        graph(
            "model.onnx",
            vec![
                initializer("embed", Dtype::F32, Weight::whole("embed", [2, 3]), true),
                initializer("norm", Dtype::F16, norm, false),
                table,
            ],
        ),
        graph(
            "mtp.onnx",
            vec![
                initializer("embed", Dtype::F32, Weight::whole("embed", [2, 3]), true),
                initializer("fc", Dtype::Bf16, Weight::whole("fc", [1]), false),
            ],
        ),
    ]
}

fn write(folder: &Path, progress: &mut dyn Progress) -> (Written, Vec<SharedPlacement>) {
    let input = tempfile::tempdir().unwrap();
    let (embed, norm, fc) = (
        f32_bytes(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        f32_bytes(&[0.5; 3]),
        f32_bytes(&[f32::NAN]),
    );
    let checkpoint = checkpoint(
        input.path(),
        &[
            ("fc", "F32", vec![1], &fc),
            ("embed", "F32", vec![2, 3], &embed),
            ("norm", "F32", vec![3], &norm),
        ],
    );
    let graphs = two_graphs();
    let layout = Layout::new(&graphs, &checkpoint).unwrap();
    let interrupt = Interrupt::default();
    let mut export = Export::new(folder.to_owned(), progress, &interrupt);
    export.graphs(&layout, &checkpoint).unwrap();
    export
        .companions(&companions(input.path()).unwrap().0)
        .unwrap();
    (export.finish(), layout.shared().unwrap())
}

#[test]
fn data_lies_where_the_plan_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut counter = Counter::default();
    let (written, shared) = write(folder.path(), &mut counter);
    let model = fs::read(folder.path().join("model.onnx.data")).unwrap();
    assert_eq!(model.len(), 2 * 4096 + 2048);
    assert_eq!(model[..24], f32_bytes(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    assert!(model[24..4096].iter().all(|byte| *byte == 0));
    assert_eq!(model[4096..4102], [0x00, 0x3E, 0x00, 0x3E, 0x00, 0x3E]);
    assert_eq!(model[8192..], [9; 2048]);
    let mtp = fs::read(folder.path().join("mtp.onnx.data")).unwrap();
    assert_eq!((mtp.len(), mtp[1] & 0x7F), (2, 0x7F));

    assert_eq!((counter.total, counter.done), (10_242, 10_242));
    assert_eq!(counter.files, ["model.onnx.data", "mtp.onnx.data"]);
    let places: Vec<_> = shared
        .iter()
        .map(|s| (&*s.graph, &*s.data_file, s.offset, s.length))
        .collect();
    assert_eq!(
        places,
        [
            ("model.onnx", "model.onnx.data", 0, 24),
            ("mtp.onnx", "model.onnx.data", 0, 24)
        ]
    );

    let names: Vec<_> = written.files.iter().map(|file| &*file.name).collect();
    assert_eq!(
        names,
        [
            "config.json",
            "model.onnx",
            "model.onnx.data",
            "mtp.onnx",
            "mtp.onnx.data"
        ]
    );
    for file in &written.files {
        assert_eq!(
            fs::metadata(folder.path().join(&file.name)).unwrap().len(),
            file.bytes
        );
    }
    assert_eq!(written.parameters, 6 + 3 + 1);
    let warning = "model.safetensors: fc: holds 1 NaN and 0 infinite values";
    assert!(written.warnings[0].contains(warning));
    assert_eq!(written.warnings.len(), 1);
}

#[test]
fn same_input_same_bytes() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (written, _) = write(one.path(), &mut ());
    write(two.path(), &mut ());
    assert_eq!(
        fs::read_dir(two.path()).unwrap().count(),
        written.files.len()
    );
    for file in written.files {
        let bytes = |folder: &Path| fs::read(folder.join(&file.name)).unwrap();
        assert_eq!(bytes(one.path()), bytes(two.path()), "{}", file.name);
    }
}

#[test]
fn a_weight_that_cannot_be_read_is_refused_before_anything_is_written() {
    let input = tempfile::tempdir().unwrap();
    let good = f32_bytes(&[1.0]);
    let checkpoint = checkpoint(
        input.path(),
        &[
            ("good", "F32", vec![1], &good),
            ("bad", "I32", vec![1], &good),
        ],
    );
    let graph = graph(
        "model.onnx",
        vec![
            initializer("a", Dtype::F32, Weight::whole("good", [1]), false),
            initializer("b", Dtype::F32, Weight::whole("bad", [1]), false),
        ],
    );
    let message = Layout::new(&[graph], &checkpoint).unwrap_err().to_string();
    assert!(
        message.contains("model.safetensors: bad: is I32; weights must be"),
        "{message}"
    );
}

/// The room of a companion was planned, and its reader is to blame where it cannot be read.
#[test]
fn a_companion_that_changes_is_refused_by_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let copied = |size| {
        let companion = Companion {
            name: "tokenizer.json",
            path: path.clone(),
            size,
        };
        let mut bytes = Vec::new();
        let copied = copy(&companion, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        });
        copied.map(|()| bytes).map_err(|error| error.to_string())
    };
    let missing = copied(9).unwrap_err();
    assert!(
        missing.contains("tokenizer.json: cannot be read"),
        "{missing}"
    );
    let contents = vec![7; 100_000];
    fs::write(&path, &contents).unwrap();
    assert_eq!(copied(100_000).unwrap(), contents);
    for size in [99_999, 100_001] {
        let changed = copied(size).unwrap_err();
        let part = format!("tokenizer.json: changed while it was copied: it had {size} bytes");
        assert!(changed.contains(&part), "{changed}");
    }
}
