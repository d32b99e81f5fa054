//! Where weights lie.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use onnx_protobuf::TensorProto;
use onnx_protobuf::tensor_proto::DataLocation;
use serde_json::Value;

use crate::Exported;

/// A page, so that each weight can be mapped on its own.
const ALIGNMENT: u64 = 4096;

/// A stretch of a data file: first byte and length.
type Place = (u64, u64);

pub(crate) fn check(exported: &Exported) {
    let mut files: BTreeMap<String, BTreeSet<Place>> = BTreeMap::new();
    for (file, model) in exported.all() {
        let at = format!("{}: {file}", exported.name);
        for tensor in &model.graph.initializer {
            let at = format!("{at}: {}", tensor.name);
            if let Some((data, place)) = external(tensor, &at) {
                files.entry(data).or_default().insert(place);
            }
        }
    }
    for (file, places) in &files {
        let at = format!("{}: {file}", exported.name);
        let length = fs::metadata(exported.folder.join(file)).unwrap().len();
        apart(places, length, &at);
    }
    let there: BTreeSet<_> = fs::read_dir(&exported.folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "data"))
        .collect();
    assert_eq!(
        files.into_keys().collect::<BTreeSet<_>>(),
        there,
        "{}",
        exported.name
    );
    shared(exported);
}

/// The place of a tensor's data outside of the graph. What is inside has the length that type and extents ask for.
fn external(tensor: &TensorProto, at: &str) -> Option<(String, Place)> {
    let bytes = bytes(tensor, at);
    if tensor.data_location.enum_value().unwrap() == DataLocation::DEFAULT {
        assert_eq!(tensor.raw_data.len() as u64, bytes, "{at}");
        assert!(tensor.external_data.is_empty(), "{at}");
        return None;
    }
    assert!(tensor.raw_data.is_empty(), "{at}");
    let entries = tensor.external_data.iter();
    let entries: BTreeMap<_, _> = entries
        .map(|e| (e.key.as_str(), e.value.as_str()))
        .collect();
    assert_eq!(entries.len(), tensor.external_data.len(), "{at}");
    let keys: Vec<_> = entries.keys().copied().collect();
    assert_eq!(keys, ["length", "location", "offset"], "{at}");
    let number = |key: &str| -> u64 { entries[key].parse().unwrap() };
    assert_eq!(number("length"), bytes, "{at}");
    assert_eq!(number("offset") % ALIGNMENT, 0, "{at}");
    let location = entries["location"];
    assert!(
        !location.is_empty() && !location.contains(['/', '\\']),
        "{at}"
    );
    Some((location.to_owned(), (number("offset"), bytes)))
}

fn bytes(tensor: &TensorProto, at: &str) -> u64 {
    let size = match tensor.data_type {
        1 | 6 => 4,
        2 => 1,
        7 => 8,
        10 | 16 => 2,
        other => panic!("{at}: type {other}"),
    };
    let extents = tensor
        .dims
        .iter()
        .map(|extent| u64::try_from(*extent).unwrap());
    extents.product::<u64>() * size
}

/// Weights lie inside the file, none over another, with less than a page between them, up to the end.
fn apart(places: &BTreeSet<Place>, length: u64, at: &str) {
    let mut reached = 0;
    for &(offset, bytes) in places {
        assert!(
            offset >= reached,
            "{at}: {offset} lies in what ends at {reached}"
        );
        assert!(
            offset - reached < ALIGNMENT,
            "{at}: nothing from {reached} to {offset}"
        );
        reached = offset + bytes;
    }
    assert_eq!(reached, length, "{at}");
}

/// Weights that the configuration says are shared are where the graphs say.
fn shared(exported: &Exported) {
    let model = &exported.config["model"];
    for (section, (file, graph)) in ["decoder", "mtp"].iter().zip(&exported.graphs) {
        let entries = model[section]["shared_initializers"].as_array();
        for entry in entries.into_iter().flatten() {
            let at = format!("{}: {file}: {}", exported.name, entry["name"]);
            let mut tensors = graph.graph.initializer.iter();
            let tensor = tensors
                .find(|tensor| entry["name"] == tensor.name.as_str())
                .unwrap();
            let (location, (offset, bytes)) = external(tensor, &at).unwrap();
            assert_eq!(entry["data_file"], location.as_str(), "{at}");
            assert_eq!(entry["offset"], offset.to_string().as_str(), "{at}");
            assert_eq!(entry["length"], bytes.to_string().as_str(), "{at}");
            assert_eq!(entry["data_type"], tensor.data_type, "{at}");
            assert_eq!(entry["shape"], Value::from(tensor.dims.clone()), "{at}");
        }
    }
}
