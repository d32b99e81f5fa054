use pawl_models::Weight;

use super::ir::{Attribute, Dim, Dtype, Graph};
use super::*;
use crate::error::BuildError;

const ROWS: Dim = Dim::Symbol("rows");

/// A graph with an input `x` and the builder it is in.
fn start() -> (GraphBuilder, Value) {
    let mut g = GraphBuilder::new("model.onnx");
    let x = g.input("x", Dtype::F32, [ROWS, 2.into()]).unwrap();
    (g, x)
}

fn negate(g: &mut GraphBuilder, name: &str, x: &Value) -> Result<Value, BuildError> {
    let output = Output::main(x.dtype(), x.dims());
    let [y] = g.node(Operator::onnx("Neg", name, [x]), [output])?;
    Ok(y)
}

fn problem<T: std::fmt::Debug>(result: Result<T, BuildError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn names_follow_the_scopes() {
    let (mut g, x) = start();
    let y = g
        .within("layers.3", |g| {
            let weight = Weight::whole("w", [2, 2]);
            let weight = g.within("mlp", |g| g.weight("up.weight", Dtype::F32, &weight))?;
            let x = g.within("mlp", |g| negate(g, "neg", &x))?;
            let operator =
                Operator::onnx("Two", "two", [&x, &weight]).with("axis", Attribute::Int(1));
            let [y, z] = g.node(
                operator,
                [
                    Output::main(Dtype::F32, [ROWS]),
                    Output::named("other", Dtype::F32, [ROWS]),
                ],
            )?;
            let [sum] = g.node(
                Operator::onnx("Add", "sum", [&y, &z]),
                [Output::main(Dtype::F32, [ROWS])],
            )?;
            Ok(sum)
        })
        .unwrap();
    g.output(Place::Result, "y", &y);
    let graph = g.finish().unwrap();
    assert_eq!((graph.name.as_str(), &*graph.file), ("model", "model.onnx"));
    let names = |f: fn(&ir::Node) -> String| graph.nodes.iter().map(f).collect::<Vec<_>>();
    assert_eq!(
        names(|node| node.name.clone()),
        ["/layers.3/mlp/neg", "/layers.3/two", "/layers.3/sum"]
    );
    assert_eq!(
        names(|node| node.outputs.join(" ")),
        [
            "/layers.3/mlp/neg",
            "/layers.3/two /layers.3/two.other",
            "y"
        ]
    );
    assert_eq!(
        names(|node| node.inputs.join(" ")),
        [
            "x",
            "/layers.3/mlp/neg layers.3.mlp.up.weight",
            "/layers.3/two /layers.3/two.other",
        ]
    );
}

#[test]
fn a_scope_closes_when_its_body_fails() {
    let (mut g, x) = start();
    let failed = g.within("part", |g| -> Result<(), BuildError> {
        Err(g.check("inner").defect("x", "1", "2"))
    });
    assert!(problem(failed).contains("model.onnx: /part/inner: x: expected 1, found 2"));
    let y = negate(&mut g, "neg", &x).unwrap();
    g.output(Place::Result, "y", &y);
    assert_eq!(g.finish().unwrap().nodes[0].name, "/neg");
}

#[test]
fn absent_inputs_keep_their_place_and_trailing_ones_vanish() {
    let (mut g, x) = start();
    let operator = Operator {
        domain: "pawl",
        op_type: "Op",
        name: "op",
        inputs: vec![None, Some(&x), None, None],
        attributes: vec![],
    };
    let [y] = g
        .node(operator, [Output::main(Dtype::F32, [ROWS])])
        .unwrap();
    g.output(Place::Result, "y", &y);
    assert_eq!(g.finish().unwrap().nodes[0].inputs, ["", "x"]);
}

#[test]
fn equal_integer_lists_are_one_initializer() {
    let (mut g, x) = start();
    let a = g.integers(&[0, -1, 2]).unwrap();
    let b = g.within("scope", |g| g.integers(&[0, -1, 2])).unwrap();
    assert_eq!(a, b);
    let [y] = g
        .node(
            Operator::onnx("Op", "op", [&x, &a, &b]),
            [Output::main(Dtype::F32, [ROWS])],
        )
        .unwrap();
    g.output(Place::Result, "y", &y);
    let graph = g.finish().unwrap();
    assert_eq!(graph.initializers.len(), 1);
    assert_eq!(graph.initializers[0].name, "integers.0_-1_2");
}

#[test]
fn a_name_is_defined_once() {
    let (mut g, x) = start();
    assert!(problem(g.input("x", Dtype::I64, [ROWS])).contains("x: two values"));
    negate(&mut g, "neg", &x).unwrap();
    assert!(problem(negate(&mut g, "neg", &x)).contains("/neg: two nodes"));
    let weight = Weight::whole("w", [2]);
    g.weight("w", Dtype::F32, &weight).unwrap();
    assert!(problem(g.weight("w", Dtype::F32, &weight)).contains("w: two values"));
}

#[test]
fn only_values_of_this_graph_are_used() {
    let (mut g, x) = start();
    let mut other = GraphBuilder::new("mtp.onnx");
    assert!(problem(negate(&mut other, "neg", &x)).contains("mtp.onnx: x: this graph has no F32"));
    other.input("x", Dtype::F16, [ROWS, 2.into()]).unwrap();
    assert!(problem(negate(&mut other, "neg", &x)).contains("value [rows, 2]"));
    negate(&mut g, "neg", &x).unwrap();
}

#[test]
fn data_must_have_the_size_of_its_shape() {
    let (mut g, _) = start();
    let weight = Weight::whole("w", [2, 3]);
    assert!(g.weight_as("a", Dtype::F16, &weight, vec![2, 1, 3]).is_ok());
    let error = problem(g.weight_as("b", Dtype::F16, &weight, vec![7]));
    assert!(
        error.contains("b: expected the elements of [7], found [2, 3]"),
        "{error}"
    );
    let error = problem(g.weight_as("c", Dtype::F16, &weight, vec![u64::MAX, 2]));
    assert!(error.contains("c: expected the elements"), "{error}");
    assert!(g.constant("d", Dtype::F16, &[2], vec![0; 4]).is_ok());
    let error = problem(g.constant("e", Dtype::F32, &[2], vec![0; 4]));
    assert!(
        error.contains("e: expected the bytes of F32 [2], found 4"),
        "{error}"
    );
}

#[test]
fn what_nothing_reads_is_refused() {
    type Leave = fn(&mut GraphBuilder, &Value);
    let cases: [(Leave, Option<&str>); 4] = [
        (
            |g, _| drop(g.input("y", Dtype::F32, [ROWS])),
            Some("model.onnx: y: nothing reads"),
        ),
        (|g, _| drop(g.offered_input("y", Dtype::F32, [ROWS])), None),
        (
            |g, x| drop(negate(g, "unused", x)),
            Some("/unused: nothing reads"),
        ),
        (
            |g, _| drop(g.integers(&[1])),
            Some("integers.1: nothing reads"),
        ),
    ];
    for (leave, expected) in cases {
        let (mut g, x) = start();
        leave(&mut g, &x);
        let y = negate(&mut g, "neg", &x).unwrap();
        g.output(Place::Result, "out", &y);
        match (g.finish(), expected) {
            (Ok(_), None) => {}
            (Err(error), Some(text)) => assert!(error.to_string().contains(text), "{error}"),
            (result, _) => panic!("{result:?} against {expected:?}"),
        }
    }
}

#[test]
fn outputs_are_results_with_names_of_their_own() {
    type Publish = fn(&mut GraphBuilder, &Value, &Value);
    let cases: [(Publish, &str); 4] = [
        (
            |g, x, _| g.output(Place::State, "z", x),
            "x: an output must be the result of a node",
        ),
        (
            |g, _, y| g.output(Place::State, "z", y),
            "/neg: two outputs have this value",
        ),
        (
            |g, _, y| {
                let z = negate(g, "again", y).unwrap();
                g.output(Place::State, "out", &z);
            },
            "out: an output takes the name",
        ),
        (
            |g, _, y| {
                let z = negate(g, "again", y).unwrap();
                g.output(Place::State, "x", &z);
            },
            "x: an output takes the name",
        ),
    ];
    for (publish, expected) in cases {
        let (mut g, x) = start();
        let y = negate(&mut g, "neg", &x).unwrap();
        g.output(Place::Result, "out", &y);
        publish(&mut g, &x, &y);
        let error = problem(g.finish());
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn outputs_are_ordered_by_place() {
    let (mut g, x) = start();
    for (place, name) in [
        (Place::Checkpoint, "c"),
        (Place::State, "b"),
        (Place::Result, "a"),
        (Place::State, "b2"),
    ] {
        let y = negate(&mut g, name, &x).unwrap();
        g.output(place, name, &y);
    }
    let graph: Graph = g.finish().unwrap();
    let names: Vec<&str> = graph.outputs.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "b2", "c"]);
}
