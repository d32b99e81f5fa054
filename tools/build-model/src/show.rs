//! What is shown: a bar while building, the report afterwards.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use pawl_builder::{BuildReport, Progress};

/// A progress bar on standard error; nothing where that is no terminal.
#[derive(Debug, Default)]
pub(crate) struct Bar(Option<ProgressBar>);

impl Progress for Bar {
    fn begin(&mut self, total: u64) {
        if !io::stderr().is_terminal() {
            return;
        }
        let bar = ProgressBar::new(total);
        let style = "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        self.0 = Some(bar);
    }

    fn advance(&mut self, file: &str, bytes: u64) {
        let Some(bar) = &self.0 else { return };
        if bar.message() != file {
            bar.set_message(file.to_owned());
        }
        bar.inc(bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Prints the report. A reader that has gone away is no failure: the model is in place.
pub(crate) fn finished(path: &Path, report: &BuildReport, json: bool) {
    if json {
        let mut value = serde_json::json!({ "output": path });
        if let (Some(object), Ok(serde_json::Value::Object(fields))) =
            (value.as_object_mut(), serde_json::to_value(report))
        {
            object.extend(fields);
        }
        let _ = writeln!(io::stdout(), "{value:#}");
        return;
    }
    for warning in &report.warnings {
        eprintln!("warning: {warning}");
    }
    let _ = io::stdout().write_all(text(path, report).as_bytes());
}

fn text(path: &Path, report: &BuildReport) -> String {
    let options = &report.options;
    let mut text = format!(
        "{}: {} for {}, {}, {} parameters, checkpoints {}, {}, sequences of {} tokens\n",
        path.display(),
        report.model_type,
        options.target,
        options.dtype,
        HumanCount(report.parameters),
        options.checkpoints,
        if options.mtp {
            "a drafting head"
        } else {
            "no drafting head"
        },
        HumanCount(options.max_sequence),
    );
    for file in &report.files {
        let _ = writeln!(
            text,
            "  {:<24} {:>12}",
            file.name,
            HumanBytes(file.bytes).to_string()
        );
    }
    for skipped in &report.skipped {
        let (prefix, tensors) = (&skipped.prefix, HumanCount(skipped.tensors));
        let _ = writeln!(
            text,
            "  left out: {tensors} tensors {prefix}*: {}",
            skipped.reason
        );
    }
    text
}
