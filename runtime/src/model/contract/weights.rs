//! Where weights lie.

use super::report::{ContractCode, Findings};
use super::{GraphFile, Subject};
use crate::exec::SharedTensor;
use crate::model::graph_io::{ExternalData, Initializer};
use crate::model::tensor_spec::DataType;
use genai_config_schema::{SharedInitializer, confined, regular_size};
use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

/// Checks every weight outside of the graph files, the data files, and every shared weight. Returns the shared ones,
/// and every data file with its size in bytes.
pub(super) fn check(
    subject: &Subject<'_>,
    findings: &mut Findings,
) -> (Vec<SharedTensor>, Vec<(PathBuf, u64)>) {
    let mut files = DataFiles {
        folder: subject.folder,
        files: BTreeMap::new(),
    };
    let decoder = (
        subject.decoder,
        &subject.config.model.decoder.shared_initializers,
    );
    let head = subject
        .head
        .map(|(mtp, graph)| (graph, &mtp.shared_initializers));
    let mut shared = Vec::new();
    let commits = subject.commits.iter().map(|graph| (graph, [].as_slice()));
    let graphs = [Some(decoder), head].into_iter().flatten();
    let graphs = graphs.map(|(graph, list)| (graph, list.as_slice()));
    for (graph, list) in graphs.chain(commits) {
        findings.start(&graph.name);
        for weight in graph.io.weights() {
            if let Some(place) = &weight.external {
                files.add(&graph.name, weight, place, findings);
            }
        }
        // Of two with one name, ONNX Runtime takes the last.
        let named = graph.io.initializers.iter();
        let named: HashMap<_, _> = named.map(|weight| (weight.name.as_str(), weight)).collect();
        for entry in list {
            let weight = named.get(entry.name.as_str()).copied();
            shared.extend(check_shared(subject.folder, graph, entry, weight, findings));
        }
    }
    (shared, files.check(findings))
}

/// The data files, each looked up once, when every graph has said what it reads there.
struct DataFiles<'a> {
    folder: &'a Path,
    files: BTreeMap<PathBuf, DataFile>,
}

/// What the graphs say about one data file.
struct DataFile {
    /// The first graph that reads it, and what it calls it.
    graph: String,
    location: String,
    /// End of the last weight, bytes.
    end: u64,
    /// Whether the end is known: every weight in it has a place.
    whole: bool,
}

impl DataFiles<'_> {
    fn add(
        &mut self,
        graph: &str,
        weight: &Initializer,
        place: &ExternalData,
        findings: &mut Findings,
    ) {
        let mut wrong = |expected: &str, found: String| {
            findings.add(ContractCode::P5, &weight.name, expected, found);
        };
        let Some(path) = below(self.folder, &place.location) else {
            return wrong(
                "in a file below the model folder",
                format!("in `{}`", place.location),
            );
        };
        let file = self.files.entry(path).or_insert_with(|| DataFile {
            graph: graph.to_owned(),
            location: place.location.clone(),
            end: 0,
            whole: true,
        });
        let Some(bytes) = weight.bytes() else {
            file.whole = false;
            return wrong(
                "of a type and shape with a size",
                format!("{} {:?}", weight.data_type, weight.dims),
            );
        };
        if place.length.is_some_and(|length| length != bytes) {
            file.whole = false;
            return wrong(
                &format!("{bytes} bytes long"),
                format!("{} bytes", place.length.unwrap_or(0)),
            );
        }
        match place.offset.checked_add(bytes) {
            Some(end) => file.end = file.end.max(end),
            None => {
                file.whole = false;
                wrong(
                    &format!("within `{}`", place.location),
                    format!("{bytes} bytes from {}", place.offset),
                );
            }
        }
    }

    /// Every file must end where its last weight ends: a shorter one was cut, and a longer one is of another model.
    fn check(self, findings: &mut Findings) -> Vec<(PathBuf, u64)> {
        let mut sizes = Vec::new();
        for (path, file) in self.files {
            let size = confined(self.folder, &file.location).and_then(|_| regular_size(&path));
            let fits = match &size {
                Ok(size) if file.whole => *size == file.end,
                Ok(size) => *size >= file.end,
                Err(_) => false,
            };
            if !fits {
                let found = match &size {
                    Ok(size) => format!("{size} bytes long"),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        "missing".to_owned()
                    }
                    Err(error) => format!("unreadable: {error}"),
                };
                findings.start(&file.graph);
                let expected = format!("{} bytes long", file.end);
                findings.add(ContractCode::P5, &file.location, expected, found);
            }
            sizes.extend(size.map(|size| (path, size)));
        }
        sizes
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
    weight: Option<&Initializer>,
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
    let found = match weight {
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
