//! A graph must not contradict itself: what the emitters get wrong is found before anything is
//! written, with the name of the node.

use std::collections::HashSet;

use pawl_models::Weight;

use crate::error::BuildError;
use crate::graph::ir::{Graph, Initializer, InitializerData};
use crate::quantized;

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
        InitializerData::Weight(weight) => read_elements(weight) == Some(elements),
        InitializerData::Quantized(weight, half) => {
            let whole = quantized::shape(weight).and_then(|_| read_elements(weight));
            whole.is_some_and(|weights| half.elements(weights) == elements)
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

/// Elements of a weight, if its parts have as many as its shape says.
fn read_elements(weight: &Weight) -> Option<u64> {
    let parts = weight.parts.iter().try_fold(0_u64, |sum, part| {
        let trailing = part.shape.get(1..).unwrap_or_default();
        let rows = part.rows.end.checked_sub(part.rows.start)?;
        let count = trailing.iter().try_fold(rows, |n, &d| n.checked_mul(d))?;
        sum.checked_add(count)
    });
    parts.filter(|parts| weight.elements() == *parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ir::{Dim, Dtype, Node, ValueInfo};
    use crate::quantized::Half;

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

    /// The weights of `graph` are the halves of a matrix of two rows of two blocks.
    fn quantized(graph: &mut Graph) {
        let halves = [
            (Half::Values, Dtype::U8, vec![2, 2, 32]),
            (Half::Scales, Dtype::F32, vec![2, 2]),
        ];
        for (initializer, (half, dtype, dims)) in graph.initializers.iter_mut().zip(halves) {
            (initializer.dtype, initializer.dims) = (dtype, dims);
            initializer.data = InitializerData::Quantized(Weight::whole("t", [2, 64]), half);
        }
    }

    #[test]
    fn a_sound_graph_passes() {
        let mut graph = graph();
        check(&graph).unwrap();
        quantized(&mut graph);
        check(&graph).unwrap();
    }

    #[test]
    fn each_contradiction_is_named() {
        type Break = fn(&mut Graph);
        let cases: [(Break, &str); 12] = [
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
            (
                |g| {
                    quantized(g);
                    g.initializers[0].dims = vec![2, 2, 31];
                },
                "w: the data does not have the elements of [2, 2, 31]",
            ),
            (
                |g| {
                    quantized(g);
                    g.initializers[1].dims = vec![2, 64];
                },
                "v: the data does not have the elements of [2, 64]",
            ),
            (
                |g| {
                    let weight = Weight::whole("t", [64, 2]);
                    g.initializers[1].data = InitializerData::Quantized(weight, Half::Scales);
                    g.initializers[1].dims = vec![4];
                },
                "v: the data does not have the elements of [4]",
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
