//! Paths among the free entries of session, run and provider options.

use std::collections::BTreeMap;

use crate::report::Report;
use crate::{ConfigCode, GenaiConfig, RunOptions, SessionOptions, path};

/// How the names of entries that hold a path end.
const FILE_LIKE: &[&str] = &[
    "path",
    "dir",
    "directory",
    "file",
    "filename",
    "folder",
    "library",
    "prefix",
];

pub(super) fn check(config: &GenaiConfig, report: &mut Report) {
    let model = &config.model;
    let decoder = &model.decoder;
    graph(
        "model.decoder",
        &decoder.session_options,
        &decoder.run_options,
        report,
    );
    if let Some(mtp) = &model.mtp {
        graph("model.mtp", &mtp.session_options, &mtp.run_options, report);
    }
    for (at, drafter) in [
        ("model.dflash2", &model.dflash2),
        ("model.dspark", &model.dspark),
    ] {
        if let Some(drafter) = drafter {
            graph(at, &drafter.session_options, &drafter.run_options, report);
        }
    }
}

fn graph(at: &str, session: &SessionOptions, run: &RunOptions, report: &mut Report) {
    let session_at = path::key(at, "session_options");
    entries(&session.config_entries, &session_at, report);
    entries(&run.0, &path::key(at, "run_options"), report);
    let providers_at = path::key(&session_at, "provider_options");
    for (index, provider) in session.provider_options.iter().enumerate() {
        let at = path::key(&path::index(&providers_at, index), &provider.name);
        entries(&provider.options, &at, report);
    }
}

fn entries(entries: &BTreeMap<String, String>, at: &str, report: &mut Report) {
    for (key, value) in entries {
        let name = key.to_ascii_lowercase();
        if !FILE_LIKE.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        if let Some(fault) = path::file_fault(value) {
            let message = format!("{fault}, found {:?}", path::shorten(value));
            report.rule(ConfigCode::UnsafePath, &path::key(at, key), message);
        }
    }
}
