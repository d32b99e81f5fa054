//! Where weights lie.

use super::report::{ContractCode, Findings};
use super::{GraphFile, Subject};
use crate::exec::SharedTensor;
use crate::model::graph_io::{ExternalData, Initializer};
use crate::model::tensor_spec::DataType;
use genai_config_schema::SharedInitializer;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Checks every weight outside of the graph files and every shared weight. Returns the shared ones, and every data
/// file with its size in bytes.
pub(super) fn check(
    subject: &Subject<'_>,
    findings: &mut Findings,
) -> (Vec<SharedTensor>, Vec<(PathBuf, u64)>) {
    let mut files = DataFiles {
        folder: subject.folder,
        sizes: BTreeMap::new(),
    };
    let decoder = (
        subject.decoder,
        &subject.config.model.decoder.shared_initializers,
    );
    let head = subject
        .head
        .map(|(mtp, graph)| (graph, &mtp.shared_initializers));
    let mut shared = Vec::new();
    for (graph, list) in [Some(decoder), head].into_iter().flatten() {
        findings.start(&graph.name);
        for weight in &graph.io.initializers {
            if let Some(place) = &weight.external {
                files.check(weight, place, findings);
            }
        }
        shared.extend(
            list.iter()
                .filter_map(|entry| check_shared(subject.folder, graph, entry, findings)),
        );
    }
    let found = files
        .sizes
        .into_iter()
        .filter_map(|(path, size)| Some((path, size?)));
    (shared, found.collect())
}

/// Sizes of the data files, each looked up once; `None` for one that is missing.
struct DataFiles<'a> {
    folder: &'a Path,
    sizes: BTreeMap<PathBuf, Option<u64>>,
}

impl DataFiles<'_> {
    fn check(&mut self, weight: &Initializer, place: &ExternalData, findings: &mut Findings) {
        let mut wrong = |expected: &str, found: String| {
            findings.add(ContractCode::P5, &weight.name, expected, found);
        };
        let Some(path) = below(self.folder, &place.location) else {
            return wrong(
                "in a file below the model folder",
                format!("in `{}`", place.location),
            );
        };
        let size = *self.sizes.entry(path).or_insert_with_key(|path| {
            std::fs::metadata(path)
                .ok()
                .filter(|m| m.is_file())
                .map(|m| m.len())
        });
        let Some(size) = size else {
            return wrong(
                "in a file of the model",
                format!("in `{}`, which is missing", place.location),
            );
        };
        let Some(bytes) = weight.bytes() else {
            return wrong(
                "of a type and shape with a size",
                format!("{} {:?}", weight.data_type, weight.dims),
            );
        };
        if place.length.is_some_and(|length| length != bytes) {
            return wrong(
                &format!("{bytes} bytes long"),
                format!("{} bytes", place.length.unwrap_or(0)),
            );
        }
        if place.offset.checked_add(bytes).is_none_or(|end| end > size) {
            wrong(
                &format!("within the {size} bytes of `{}`", place.location),
                format!("{bytes} bytes from {}", place.offset),
            );
        }
    }
}

/// The path of `location`, unless it leaves the folder.
fn below(folder: &Path, location: &str) -> Option<PathBuf> {
    let relative = Path::new(location);
    let plain = relative
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    (plain && !location.is_empty()).then(|| folder.join(relative))
}

/// A shared weight must be what the graph itself declares: the sessions read it from where the configuration says.
fn check_shared(
    folder: &Path,
    graph: &GraphFile,
    entry: &SharedInitializer,
    findings: &mut Findings,
) -> Option<SharedTensor> {
    let data_type = DataType(i32::try_from(entry.data_type).unwrap_or(i32::MAX));
    let declared = |kind: DataType, shape: &[u64], file: &str, offset: u64, length: u64| {
        format!("{kind} {shape:?}, {length} bytes of `{file}` from {offset}")
    };
    let expected = declared(
        data_type,
        &entry.shape,
        &entry.data_file,
        entry.offset,
        entry.length,
    );
    let found = match graph.io.initializer(&entry.name) {
        None => "missing".to_owned(),
        Some(weight) => match &weight.external {
            None => "stored in the graph file".to_owned(),
            Some(place) => declared(
                weight.data_type,
                &weight.dims,
                &place.location,
                place.offset,
                place.length.or(weight.bytes()).unwrap_or(0),
            ),
        },
    };
    if found != expected {
        findings.add(ContractCode::P6, &entry.name, expected, found);
        return None;
    }
    Some(SharedTensor {
        graph: graph.name.clone(),
        name: entry.name.clone(),
        file: below(folder, &entry.data_file)?,
        offset: entry.offset,
        length: entry.length,
        data_type,
        shape: entry.shape.clone(),
    })
}
