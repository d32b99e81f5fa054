//! A graph must not contradict itself: what the emitters get wrong is found before anything is
//! written, with the name of the node.

use std::collections::HashSet;

use crate::error::BuildError;
use crate::graph::ir::{Graph, Initializer, InitializerData};

/// Checks names, order and sizes: every value is made once and before it is used, every node name
/// is unique, and every initializer's data is as long as its type and dimensions say.
pub(crate) fn check(graph: &Graph) -> Result<(), BuildError> {
    let defect = |name: &str, problem: String| BuildError::defect(&graph.file, name, problem);
    let mut values = HashSet::new();
    for initializer in &graph.initializers {
        check_size(graph, initializer)?;
    }
    let inputs = graph.inputs.iter().map(|input| &input.name);
    for name in inputs.chain(
        graph
            .initializers
            .iter()
            .map(|initializer| &initializer.name),
    ) {
        if name.is_empty() || !values.insert(name.as_str()) {
            return Err(defect(
                name,
                "an input or initializer without a name of its own".to_owned(),
            ));
        }
    }
    let mut nodes = HashSet::new();
    for node in &graph.nodes {
        if node.name.is_empty() || !nodes.insert(node.name.as_str()) {
            return Err(defect(
                &node.name,
                format!("{}: no name of its own", node.op_type),
            ));
        }
        for input in node.inputs.iter().filter(|input| !input.is_empty()) {
            if !values.contains(input.as_str()) {
                return Err(defect(
                    &node.name,
                    format!("uses {input} before it is made"),
                ));
            }
        }
        for output in node.outputs.iter().filter(|output| !output.is_empty()) {
            if !values.insert(output) {
                return Err(defect(&node.name, format!("makes {output} a second time")));
            }
        }
    }
    let mut outputs = HashSet::new();
    for output in &graph.outputs {
        if !values.contains(output.name.as_str()) || !outputs.insert(output.name.as_str()) {
            return Err(defect(
                &output.name,
                "an output that nothing makes, or a second".to_owned(),
            ));
        }
    }
    Ok(())
}

fn check_size(graph: &Graph, initializer: &Initializer) -> Result<(), BuildError> {
    let defect = |problem: &str| {
        let dims = &initializer.dims;
        BuildError::defect(
            &graph.file,
            &initializer.name,
            format!("{problem} {dims:?}"),
        )
    };
    let elements = (initializer.dims.iter())
        .try_fold(1_u64, |product, &extent| product.checked_mul(extent))
        .ok_or_else(|| defect("too many elements:"))?;
    let fits = match &initializer.data {
        InitializerData::Weight(weight) => {
            let parts = weight.parts.iter().try_fold(0_u64, |sum, part| {
                let trailing = part.shape.get(1..).unwrap_or_default();
                let rows = part.rows.end.checked_sub(part.rows.start)?;
                let count = trailing.iter().try_fold(rows, |n, &d| n.checked_mul(d))?;
                sum.checked_add(count)
            });
            parts == Some(elements) && weight.elements() == elements
        }
        InitializerData::Values(bytes) => {
            elements.checked_mul(initializer.dtype.size()) == Some(bytes.len() as u64)
        }
    };
    match fits {
        true => Ok(()),
        false => Err(defect("the data does not have the elements of")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ir::{Dim, Dtype, Node, ValueInfo};
    use pawl_models::Weight;

    fn value(name: &str) -> ValueInfo {
        ValueInfo {
            name: name.to_owned(),
            dtype: Dtype::F32,
            dims: vec![Dim::Symbol("n"), Dim::Static(2)],
        }
    }

    fn graph() -> Graph {
        let weight = |name: &str| Initializer {
            name: name.to_owned(),
            dtype: Dtype::F32,
            dims: vec![2],
            data: InitializerData::Weight(Weight::whole("t", [2])),
            shared: false,
        };
        let add = |name: &str, input: &str, constant: &str, output: &str| Node {
            name: name.to_owned(),
            domain: "",
            op_type: "Add",
            inputs: vec![input.to_owned(), constant.to_owned(), String::new()],
            outputs: vec![output.to_owned(), String::new()],
            attributes: vec![],
        };
        Graph {
            name: "g".to_owned(),
            file: "model.onnx".into(),
            opset: 23,
            nodes: vec![add("first", "x", "w", "y"), add("second", "y", "v", "z")],
            inputs: vec![value("x")],
            outputs: vec![value("z")],
            initializers: vec![weight("w"), weight("v")],
        }
    }

    #[test]
    fn a_sound_graph_passes() {
        check(&graph()).unwrap();
    }

    #[test]
    fn each_contradiction_is_named() {
        type Break = fn(&mut Graph);
        let cases: [(Break, &str); 9] = [
            (|g| g.nodes.swap(0, 1), "second: uses y before it is made"),
            (
                |g| g.nodes[1].name = "first".to_owned(),
                "first: Add: no name of its own",
            ),
            (
                |g| g.nodes[1].outputs[0] = "y".to_owned(),
                "second: makes y a second time",
            ),
            (
                |g| g.nodes[1].inputs[1] = "u".to_owned(),
                "second: uses u before",
            ),
            (
                |g| g.outputs.push(value("q")),
                "q: an output that nothing makes",
            ),
            (
                |g| g.outputs.push(value("z")),
                "z: an output that nothing makes, or a second",
            ),
            (
                |g| g.inputs.push(value("w")),
                "w: an input or initializer without",
            ),
            (
                |g| g.initializers[0].dims = vec![3],
                "w: the data does not have the elements of [3]",
            ),
            (
                |g| g.initializers[1].dims = vec![u64::MAX, 2],
                "v: too many elements",
            ),
        ];
        for (break_it, expected) in cases {
            let mut broken = graph();
            break_it(&mut broken);
            let message = check(&broken).unwrap_err().to_string();
            assert!(
                message.contains(&format!("model.onnx: {expected}")),
                "{message}"
            );
        }
    }
}
