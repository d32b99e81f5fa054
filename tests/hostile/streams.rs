//! Output that cannot be written: full disks, closed streams, readers that have gone.

use std::path::Path;

use super::case::{Case, Output};
use super::world::{checkpoint, link, model, sparse};

const IDS: [&str; 3] = ["--ids", "5,6", "--ignore-eos"];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = disks();
    let json = [&IDS[..], &["--json"]].concat();
    let no_space = ["standard output", "No space left"];
    for (shown, output, code, words) in [
        ("full", Output::Full, 2, &no_space[..]),
        ("gone", Output::Gone, 141, &[][..]),
    ] {
        let set = |case: Case| case.output(output).code(code);
        cases.extend([
            set(Case::generate(
                format!("generate, output {shown}"),
                &IDS,
                words,
                model,
            )),
            set(Case::generate(
                format!("generate as JSON, output {shown}"),
                &json,
                words,
                model,
            )),
            set(Case::inspect(
                format!("inspect, output {shown}"),
                words,
                model,
            )),
            set(Case::new(
                format!("help, output {shown}"),
                "pawl",
                &["--help"],
                words,
                |_| {},
            )),
            set(Case::new(
                format!("help of generate, output {shown}"),
                "pawl",
                &["generate", "--help"],
                words,
                |_| {},
            )),
            set(Case::new(
                format!("version, output {shown}"),
                "pawl",
                &["--version"],
                words,
                |_| {},
            )),
            set(Case::new(
                format!("help of build-model, output {shown}"),
                "build-model",
                &["--help"],
                words,
                |_| {},
            )),
            set(Case::new(
                format!("version of build-model, output {shown}"),
                "build-model",
                &["--version"],
                words,
                |_| {},
            )),
        ]);
    }
    for output in [Output::Full, Output::Gone, Output::Closed] {
        // The model is in place, whoever hears of it.
        cases.push(
            Case::build(format!("a build, output {output:?}"), &[], &[], checkpoint)
                .output(output)
                .succeeds(),
        );
    }
    cases.extend([
        Case::generate("generate, output closed", &IDS, &[], model)
            .output(Output::Closed)
            .code(0),
        Case::generate("generate, errors full", &IDS, &["generated tokens"], model)
            .output(Output::ErrorsFull)
            .code(0),
        Case::generate("a refusal, errors full", &["--ids", "999"], &[], model)
            .output(Output::ErrorsFull),
        Case::new(
            "a usage error, errors full",
            "pawl",
            &["generate"],
            &[],
            |_| {},
        )
        .output(Output::ErrorsFull),
        Case::build("a build that is refused, errors full", &[], &[], |_| {})
            .output(Output::ErrorsFull),
        Case::build("a build, errors full", &[], &["to/out"], checkpoint)
            .output(Output::ErrorsFull)
            .succeeds(),
        Case::build(
            "a build that warns, errors full",
            &["--checkpoints", "none"],
            &["to/out"],
            checkpoint,
        )
        .output(Output::ErrorsFull)
        .succeeds(),
    ]);
    cases
}

/// Files that cannot be written to their end, or at all. Nothing is left of them.
fn disks() -> Vec<Case> {
    let logits = |name: &str, out: &str, words: &[&str]| {
        let args = [
            "logits",
            "--model",
            "{here}/model",
            "--ids",
            "5,6,7",
            "--out",
            out,
        ];
        Case::new(name, "pawl", &args, words, model)
    };
    vec![
        Case::build(
            "a build on a disk of 100 KB",
            &[],
            &["cannot be written", "model.onnx.data"],
            checkpoint,
        )
        .disk(100 << 10),
        Case::build(
            "a build on a disk of a page",
            &[],
            &["cannot be written"],
            checkpoint,
        )
        .disk(512),
        Case::build(
            "a build whose last file is too large",
            &[],
            &["tokenizer.json", "cannot be written", "File too large"],
            |here| {
                checkpoint(here);
                sparse(&here.join("in/tokenizer.json"), 8 << 20);
            },
        )
        .disk(4 << 20),
        Case::build(
            "a tokenizer that cannot be read",
            &[],
            &["{here}/in/tokenizer.json", "cannot be read"],
            |here| {
                checkpoint(here);
                link(Path::new("/proc/self/mem"), &here.join("in/tokenizer.json"));
            },
        ),
        Case::build(
            "a tokenizer that grows while it is copied",
            &[],
            &["{here}/in/tokenizer.json", "changed while it was copied"],
            |here| {
                checkpoint(here);
                link(
                    Path::new("/proc/self/status"),
                    &here.join("in/tokenizer.json"),
                );
            },
        ),
        logits(
            "logits on a disk of a page",
            "{here}/logits",
            &["{here}/logits"],
        )
        .disk(512),
        logits(
            "logits to a full device",
            "/dev/full",
            &["/dev/full", "regular file"],
        ),
        logits(
            "logits to a folder",
            "{here}/model",
            &["{here}/model", "regular file"],
        ),
        logits(
            "logits below a file",
            "{here}/model/model.onnx/x",
            &["model.onnx"],
        ),
        logits(
            "logits where nothing can be made",
            "/proc/x/logits",
            &["/proc/x"],
        ),
        Case::new(
            "a build where nothing can be made",
            "build-model",
            &["--input", "{here}/in", "--output", "/sys/pawl/out"],
            &["/sys/pawl", "cannot be written"],
            checkpoint,
        ),
    ]
}
