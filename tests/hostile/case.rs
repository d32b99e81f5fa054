//! What a case is.

use std::path::Path;
use std::sync::Arc;

use pawl::ErrorCode;

/// Stands for the folder of the case in arguments and variables.
pub(crate) const HERE: &str = "{here}";

/// Stands for a byte that is no UTF-8 in arguments and variables.
pub(crate) const BYTE: &str = "{byte}";

/// Makes the files of a case in its folder.
pub(crate) type Make = Arc<dyn Fn(&Path) + Send + Sync>;

/// One case.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) make: Make,
    pub(crate) tool: &'static str,
    pub(crate) args: Vec<String>,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// What standard input gives.
    pub(crate) input: Vec<u8>,
    pub(crate) output: Output,
    /// Most bytes that a file written by the tool may have, as on a full disk.
    pub(crate) disk: Option<u64>,
    pub(crate) code: i32,
    /// Most bytes of standard error.
    pub(crate) longest: Option<usize>,
    /// What the library says when it is asked for the same.
    pub(crate) error: Option<ErrorCode>,
    /// Whether it answers before it is refused: standard output then holds something.
    pub(crate) late: bool,
    /// What standard error must hold, or standard output where the case succeeds.
    pub(crate) words: Vec<String>,
    /// The one entry of the case's folder that may be new or other afterwards, as the output of a success.
    pub(crate) writes: Option<&'static str>,
}

/// Where standard output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Read,
    /// To a device that is full.
    Full,
    /// Nowhere.
    Closed,
    /// To a pipe whose reader has gone.
    Gone,
    /// Standard error to a device that is full.
    ErrorsFull,
}

impl Case {
    /// A case that must be refused with exit code 2 and a message that holds `words`.
    pub(crate) fn new(
        name: impl Into<String>,
        tool: &'static str,
        args: &[&str],
        words: &[&str],
        make: impl Fn(&Path) + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            make: Arc::new(make),
            tool,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            variables: Vec::new(),
            input: Vec::new(),
            output: Output::Read,
            disk: None,
            code: 2,
            longest: None,
            error: None,
            late: false,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            writes: None,
        }
    }

    /// A build of `{here}/in` to `{here}/to/out`.
    pub(crate) fn build(
        name: impl Into<String>,
        more: &[&str],
        words: &[&str],
        make: impl Fn(&Path) + Send + Sync + 'static,
    ) -> Self {
        let mut args = vec!["--input", "{here}/in", "--output", "{here}/to/out"];
        args.extend(more);
        Self::new(name, "build-model", &args, words, make)
    }

    /// `pawl inspect {here}/model`.
    pub(crate) fn inspect(
        name: impl Into<String>,
        words: &[&str],
        make: impl Fn(&Path) + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, "pawl", &["inspect", "{here}/model"], words, make)
    }

    /// A model at `{here}/model` that is loaded, and answers if it can.
    pub(crate) fn load(
        name: impl Into<String>,
        words: &[&str],
        make: impl Fn(&Path) + Send + Sync + 'static,
    ) -> Self {
        Self::generate(name, &["--ids", "5"], words, make)
    }

    /// `pawl generate --model {here}/model --max-new-tokens 2`, and more.
    pub(crate) fn generate(
        name: impl Into<String>,
        more: &[&str],
        words: &[&str],
        make: impl Fn(&Path) + Send + Sync + 'static,
    ) -> Self {
        let mut args = vec![
            "generate",
            "--model",
            "{here}/model",
            "--max-new-tokens",
            "2",
        ];
        args.extend(more);
        Self::new(name, "pawl", &args, words, make)
    }

    /// `pawl chat --model {here}/model --max-new-tokens 2`, and more, on what `lines` say.
    pub(crate) fn chat(
        name: impl Into<String>,
        more: &[&str],
        lines: impl Into<Vec<u8>>,
        words: &[&str],
        make: impl Fn(&Path) + Send + Sync + 'static,
    ) -> Self {
        let mut args = vec!["chat", "--model", "{here}/model", "--max-new-tokens", "2"];
        args.extend(more);
        Self::new(name, "pawl", &args, words, make).input(lines)
    }

    /// The exit code that is expected instead of 2.
    pub(crate) fn code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    /// The code of the library's error.
    pub(crate) fn coded(mut self, error: ErrorCode) -> Self {
        self.error = self.error.or(Some(error));
        self
    }

    /// What is refused comes after something was answered.
    pub(crate) fn late(mut self) -> Self {
        self.late = true;
        self
    }

    /// The case succeeds. A build leaves a model at `{here}/to/out`; nothing else leaves anything.
    pub(crate) fn succeeds(mut self) -> Self {
        self.writes = (self.tool == "build-model").then_some("to");
        self.code(0)
    }

    /// The case succeeds and leaves a file or folder of this name.
    pub(crate) fn leaves(mut self, name: &'static str) -> Self {
        self.writes = Some(name);
        self.code(0)
    }

    pub(crate) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    pub(crate) fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    pub(crate) fn disk(mut self, bytes: u64) -> Self {
        self.disk = Some(bytes);
        self
    }

    pub(crate) fn variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }
}
