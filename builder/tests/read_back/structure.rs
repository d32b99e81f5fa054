//! Nodes, values and operator versions.

use std::collections::{BTreeMap, BTreeSet};

use onnx_protobuf::{GraphProto, ModelProto, ValueInfoProto};
use protobuf::{Message, SpecialFields};

use crate::Exported;

/// Versions of the ONNX format and of its operators that ONNX Runtime 1.32 knows.
const NEWEST_FORMAT: i64 = 13;
const NEWEST_OPERATORS: i64 = 26;

pub(crate) fn check(exported: &Exported) {
    for (file, model) in exported.all() {
        let at = format!("{}: {file}", exported.name);
        assert!((3..=NEWEST_FORMAT).contains(&model.ir_version), "{at}");
        assert!(!model.graph.name.is_empty(), "{at}");
        assert!(
            model.functions.is_empty() && model.training_info.is_empty(),
            "{at}"
        );
        understood(model, &at);
        versions(model, &at);
        flow(&model.graph, &at);
        for value in model.graph.input.iter().chain(&model.graph.output) {
            shaped(value, &at);
        }
    }
}

/// No field has a number that the format does not have.
fn understood(model: &ModelProto, at: &str) {
    let none = |fields: &SpecialFields, what: &str| {
        assert_eq!(fields.unknown_fields().iter().count(), 0, "{at}: {what}");
    };
    none(model.special_fields(), "model");
    none(model.graph.special_fields(), "graph");
    for node in &model.graph.node {
        none(node.special_fields(), &node.name);
        for attribute in &node.attribute {
            none(attribute.special_fields(), &attribute.name);
            assert!(!attribute.name.is_empty(), "{at}: {}", node.name);
            let kind = attribute.type_.enum_value().unwrap();
            let plain = ["INT", "FLOAT", "STRING", "INTS", "FLOATS"];
            assert!(
                plain.contains(&format!("{kind:?}").as_str()),
                "{at}: {kind:?}"
            );
        }
    }
    for tensor in &model.graph.initializer {
        none(tensor.special_fields(), &tensor.name);
    }
}

/// Every domain in use has one version, and no other domain does.
fn versions(model: &ModelProto, at: &str) {
    let mut versions = BTreeMap::new();
    for import in &model.opset_import {
        let known = versions.insert(import.domain.as_str(), import.version);
        assert_eq!(known, None, "{at}: {:?} twice", import.domain);
    }
    let nodes = model.graph.node.iter();
    let mut used: BTreeSet<&str> = nodes.map(|node| node.domain.as_str()).collect();
    used.insert("");
    assert_eq!(
        versions.keys().copied().collect::<BTreeSet<_>>(),
        used,
        "{at}"
    );
    for (domain, version) in versions {
        let newest = if domain.is_empty() {
            NEWEST_OPERATORS
        } else {
            1
        };
        assert!(
            (1..=newest).contains(&version),
            "{at}: {domain:?} {version}"
        );
    }
}

/// Every value is made once, before it is used, and everything that is made is used.
fn flow(graph: &GraphProto, at: &str) {
    let mut made: BTreeSet<&str> = BTreeSet::new();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let given = graph.input.iter().map(|value| value.name.as_str());
    let weights = graph.initializer.iter().map(|tensor| tensor.name.as_str());
    for name in given.chain(weights) {
        assert!(!name.is_empty() && made.insert(name), "{at}: {name:?}");
    }
    let mut nodes = BTreeSet::new();
    for node in &graph.node {
        assert!(!node.op_type.is_empty(), "{at}: {}", node.name);
        assert!(
            !node.name.is_empty() && nodes.insert(&node.name),
            "{at}: {}",
            node.name
        );
        for input in node.input.iter().filter(|input| !input.is_empty()) {
            assert!(
                made.contains(input.as_str()),
                "{at}: {} uses {input}",
                node.name
            );
            used.insert(input);
        }
        for output in node.output.iter().filter(|output| !output.is_empty()) {
            assert!(made.insert(output), "{at}: {} makes {output}", node.name);
        }
    }
    for output in &graph.output {
        assert!(
            made.contains(output.name.as_str()),
            "{at}: nothing makes {}",
            output.name
        );
        used.insert(&output.name);
    }
    for tensor in &graph.initializer {
        assert!(
            used.contains(tensor.name.as_str()),
            "{at}: {} is not used",
            tensor.name
        );
    }
}

/// A graph's input or output has an element type, and a name or size for every axis.
fn shaped(value: &ValueInfoProto, at: &str) {
    let tensor = value.type_.tensor_type();
    assert_ne!(tensor.elem_type, 0, "{at}: {}", value.name);
    assert!(tensor.shape.is_some(), "{at}: {}", value.name);
    for dim in &tensor.shape.dim {
        let known = dim.dim_value() > 0 || !dim.dim_param().is_empty();
        assert!(known, "{at}: {} {:?}", value.name, tensor.shape);
    }
}
