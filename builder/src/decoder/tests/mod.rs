mod refusals;
mod structure;
mod wiring;

use std::collections::BTreeMap;

use crate::graph::ir::{Graph, Node, ValueInfo};

pub(super) fn inputs(graph: &Graph) -> BTreeMap<&str, &ValueInfo> {
    graph.inputs.iter().map(|v| (v.name.as_str(), v)).collect()
}

pub(super) fn outputs(graph: &Graph) -> BTreeMap<&str, &ValueInfo> {
    graph.outputs.iter().map(|v| (v.name.as_str(), v)).collect()
}

pub(super) fn nodes<'a>(graph: &'a Graph, op_type: &str) -> Vec<&'a Node> {
    let wanted = |node: &&Node| node.op_type == op_type;
    graph.nodes.iter().filter(wanted).collect()
}
