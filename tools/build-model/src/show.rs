//! What is shown: a bar while building, the report afterwards.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use genai_config_schema::{printable, quoted};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use pawl::{Opened, VerifiedGraph};
use pawl_builder::Progress;
use serde_json::Value;

use crate::Done;

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
pub(crate) fn finished(done: &Done, json: bool) {
    if json {
        print(&format!("{:#}\n", value(done)));
        return;
    }
    for warning in &done.report.warnings {
        let _ = writeln!(io::stderr(), "warning: {}", printable(warning));
    }
    print(&printable(&text(done)));
}

fn print(text: &str) {
    let mut output = io::stdout();
    let printed = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
    if let Err(error) = printed
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = writeln!(
            io::stderr(),
            "warning: the report could not be printed: {error}"
        );
    }
}

fn value(done: &Done) -> Value {
    let verified = |graph: &VerifiedGraph| {
        serde_json::json!({
            "file": graph.file,
            "tensors": graph.tensors,
            "opened_on_cpu": graph.opened == Opened::OnCpu,
            "replayed": graph.replayed,
        })
    };
    // JSON has no bytes that are no letters.
    let mut value = serde_json::json!({ "output": done.output.to_string_lossy() });
    if let (Some(object), Ok(Value::Object(report))) =
        (value.as_object_mut(), serde_json::to_value(&done.report))
    {
        object.extend(report);
        let verified = done.verified.graphs.iter().map(verified).collect();
        object.insert("verified".to_owned(), verified);
    }
    value
}

fn text(done: &Done) -> String {
    let report = &done.report;
    let options = &report.options;
    let mut text = format!(
        "{}: {} for {}, {}, {} parameters, checkpoints {}, {}, sequences of {} tokens\n",
        done.output.display(),
        report.model_type,
        options.target,
        options.dtype,
        HumanCount(report.parameters),
        options.checkpoints,
        match options.mtp_weights {
            Some(weights) => format!("a drafting head (weights {weights})"),
            None => "no drafting head".to_owned(),
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
            "  left out: {tensors} tensors {}*: {}",
            quoted(prefix),
            skipped.reason
        );
    }
    for line in done.verified.to_string().lines() {
        let _ = writeln!(text, "  verified: {line}");
    }
    text
}
