//! A model whose operators are wired as declared, and every way to cross two of them.

use super::tests::{Case, F32};
use crate::model::graph_io::{Attribute, Initializer, Node};
use crate::model::tensor_spec::DataType;

/// A node as `domain:Type`, with its inputs and outputs as words, `-` for one that is left out.
fn node(kind: &str, inputs: &str, outputs: &str) -> Node {
    let (domain, kind) = kind.split_once(':').unwrap_or(("", kind));
    let words = |text: &str| {
        let words = text.split_whitespace();
        words.map(|word| word.replace('-', "")).collect()
    };
    Node {
        name: format!("the_{kind}"),
        domain: domain.to_owned(),
        kind: kind.to_owned(),
        inputs: words(inputs),
        outputs: words(outputs),
        ..Node::default()
    }
}

fn capturing(mut node: Node, form: &str, count: i64) -> Node {
    let attribute = |name: &str, number, text: &str| Attribute {
        name: name.to_owned(),
        number,
        text: text.to_owned(),
    };
    node.attributes = vec![
        attribute("checkpoint_count", count, ""),
        attribute("checkpoint_form", 0, form),
    ];
    node
}

const ATTENTION: &str = "qkv past_key_values.1.key past_key_values.1.value cumulative_sequence_lengths \
     past_sequence_lengths block_table";
const CONV: &str =
    "x w - past.0.conv cumulative_sequence_lengths read_rows write_rows capture_counts";
const DELTA: &str =
    "qkv2 d b a t past.0.delta cumulative_sequence_lengths read_rows write_rows capture_counts";

/// The decoder of the other tests with its nodes.
fn wired() -> Case {
    let mut case = Case::new();
    let embedding = Initializer {
        name: "embed".to_owned(),
        data_type: DataType::F32,
        dims: vec![50, 8],
        external: None,
    };
    let graph = &mut case.decoder.io;
    graph.initializers.push(embedding);
    graph.nodes = vec![
        node("Gather", "embed input_ids", "x"),
        capturing(
            node(
                "pawl:CausalConv",
                CONV,
                "qkv2 present.0.conv checkpoints.0.conv",
            ),
            "update",
            4,
        ),
        capturing(
            node(
                "pawl:GatedDeltaNet",
                DELTA,
                "qkv present.0.delta checkpoints.0.delta",
            ),
            "update",
            4,
        ),
        node(
            "pawl:PagedAttention",
            ATTENTION,
            "hidden_states present.1.key present.1.value",
        ),
        node("Gather", "hidden_states logits_indices", "rows"),
        node("Gemm", "rows head", "logits"),
    ];
    case
}

/// The wired model with two words of one node exchanged.
fn crossed(kind: &str, one: &str, other: &str) -> Vec<(String, String, &'static str)> {
    let mut case = wired();
    let mut nodes = case.decoder.io.nodes.iter_mut();
    let node = nodes.find(|node| node.kind == kind).unwrap();
    let mut found = 0;
    for name in node.inputs.iter_mut().chain(&mut node.outputs) {
        let new = match name.as_str() {
            name if name == one => other,
            name if name == other => one,
            _ => continue,
        };
        *name = new.to_owned();
        found += 1;
    }
    assert_eq!(found, 2, "{one} {other}");
    case.mismatches()
}

#[test]
fn a_model_wired_as_declared_agrees_also_through_nodes_that_pass_on() {
    assert_eq!(wired().mismatches(), []);
    let mut case = wired();
    let graph = &mut case.decoder.io;
    for node in &mut graph.nodes {
        for name in &mut node.inputs {
            if name == "past_sequence_lengths" {
                *name = "cast".to_owned();
            }
        }
        for name in &mut node.outputs {
            if name == "present.1.key" {
                *name = "key".to_owned();
            }
        }
    }
    graph
        .nodes
        .push(node("Cast", "past_sequence_lengths", "cast"));
    graph.nodes.push(node("Identity", "key", "present.1.key"));
    assert_eq!(case.mismatches(), []);
}

#[test]
fn crossed_inputs_are_told_apart() {
    for (kind, one, other) in [
        (
            "PagedAttention",
            "past_key_values.1.key",
            "past_key_values.1.value",
        ),
        (
            "PagedAttention",
            "cumulative_sequence_lengths",
            "past_sequence_lengths",
        ),
        ("CausalConv", "read_rows", "write_rows"),
        ("CausalConv", "write_rows", "capture_counts"),
        ("GatedDeltaNet", "cumulative_sequence_lengths", "read_rows"),
    ] {
        let found = crossed(kind, one, other);
        let told: Vec<_> = found
            .iter()
            .filter(|(_, _, code)| *code == "P8")
            .map(|(_, tensor, _)| tensor.as_str())
            .collect();
        assert!(told.contains(&one) && told.contains(&other), "{found:?}");
    }
}

#[test]
fn outputs_must_be_of_the_state_that_was_read() {
    for (kind, one, other) in [
        ("PagedAttention", "present.1.key", "present.1.value"),
        ("CausalConv", "present.0.conv", "checkpoints.0.conv"),
    ] {
        let found = crossed(kind, one, other);
        let expected = [one, other].map(|name| ("model.onnx".to_owned(), name.to_owned(), "P9"));
        let mut told = found.clone();
        told.sort();
        assert_eq!(told, {
            let mut expected = expected.to_vec();
            expected.sort();
            expected
        });
    }
}

#[test]
fn a_state_has_one_operator_of_its_kind() {
    let mut case = wired();
    let graph = &mut case.decoder.io;
    graph.nodes[2].inputs[5] = "past.0.conv".to_owned();
    let codes: Vec<_> = case.mismatches().iter().map(|m| m.2).collect();
    assert!(codes.contains(&"P8") && codes.contains(&"P9"), "{codes:?}");

    let mut case = wired();
    let mut again = case.decoder.io.nodes[1].clone();
    again.outputs = vec!["elsewhere".to_owned()];
    case.decoder.io.nodes.push(again);
    let message = case.check().unwrap_err().to_string();
    assert!(
        message.contains("`past.0.conv` is read by two"),
        "{message}"
    );
}

#[test]
fn nobody_else_reads_the_state_of_an_operator() {
    let mut case = wired();
    let mut reader = case.decoder.io.nodes[1].clone();
    (reader.domain, reader.kind) = (String::new(), "Gather".to_owned());
    reader.inputs = vec!["past.0.conv".to_owned(), "read_rows".to_owned()];
    reader.outputs = vec!["elsewhere".to_owned()];
    case.decoder.io.nodes.push(reader);
    let message = case.check().unwrap_err().to_string();
    let told = "`past.0.conv` is read by";
    assert!(
        message.contains(told) && message.contains("Gather"),
        "{message}"
    );
}

#[test]
fn only_tokens_choose_rows_of_the_embedding() {
    let mut case = wired();
    case.decoder.io.nodes[0].inputs[1] = "past_sequence_lengths".to_owned();
    let expected = (
        "model.onnx".to_owned(),
        "past_sequence_lengths".to_owned(),
        "P8",
    );
    assert_eq!(case.mismatches(), [expected]);
}

#[test]
fn logits_are_of_chosen_rows_and_hidden_rows_are_not() {
    let mut case = wired();
    case.decoder.io.nodes[5].inputs[0] = "hidden_states".to_owned();
    let expected = |name: &str| ("model.onnx".to_owned(), name.to_owned(), "P10");
    assert_eq!(case.mismatches(), [expected("logits")]);
    let mut case = wired();
    case.decoder.io.nodes[3].inputs[0] = "rows".to_owned();
    assert_eq!(case.mismatches(), [expected("hidden_states")]);
}

#[test]
fn an_operator_captures_what_is_declared() {
    for (form, count, wrong) in [
        ("update", 4, 0),
        ("update", 8, 1),
        ("state", 4, 1),
        ("update", 0, 1),
    ] {
        let mut case = wired();
        let node = case.decoder.io.nodes[1].clone();
        case.decoder.io.nodes[1] = capturing(node, form, count);
        let codes: Vec<_> = case.mismatches().iter().map(|m| m.2).collect();
        assert_eq!(codes, vec!["P11"; wrong], "{form}:{count}");
    }
}

#[test]
fn an_operator_aligns_as_declared() {
    for (convolution, delta, wrong) in [
        ("left", "right", 0),
        ("left", "left", 1),
        ("right", "right", 1),
        ("right", "left", 2),
    ] {
        let mut case = wired();
        case.set(("checkpoints.0.conv", F32, "slots rows 32 3"));
        case.set(("checkpoints.0.delta", F32, "slots rows 4 3 5"));
        for node in [1, 2] {
            let built = capturing(case.decoder.io.nodes[node].clone(), "state", 4);
            case.decoder.io.nodes[node] = built;
        }
        let form = case.config.replace("\"update\"", "\"state\"");
        let mut parts = form.splitn(3, "\"left\"");
        let mut part = || parts.next().unwrap();
        case.config = format!("{}\"{convolution}\"{}\"{delta}\"{}", part(), part(), part());
        let codes: Vec<_> = case.mismatches().iter().map(|m| m.2).collect();
        assert_eq!(codes, vec!["P11"; wrong], "{convolution}, {delta}");
    }
}

/// Many operators at the end of a long chain: each node is passed once, not once for each operator.
#[test]
fn a_long_chain_is_followed_to_its_end() {
    let mut case = wired();
    let nodes = &mut case.decoder.io.nodes;
    nodes[1].inputs[5] = "p19999".to_owned();
    for place in 0..20_000 {
        let from = match place {
            0 => "write_rows".to_owned(),
            _ => format!("p{}", place - 1),
        };
        nodes.push(node("Identity", &from, &format!("p{place}")));
    }
    let mut again = nodes[1].clone();
    again.outputs.clear();
    again.inputs = vec!["p19999".to_owned(); 8];
    nodes.extend(vec![again; 20_000]);
    let found = case.mismatches();
    assert_eq!(found.len(), 1000);
    let first = ("model.onnx".to_owned(), "write_rows".to_owned(), "P8");
    assert_eq!(found[0], first);
}

/// A branch uses values of the graph around it.
#[test]
fn what_a_branch_uses_is_used_by_its_node() {
    let mut case = wired();
    let logits = &mut case.decoder.io.nodes[5];
    logits.kind = "If".to_owned();
    logits.inputs = vec!["condition".to_owned()];
    logits.branches = vec!["rows".to_owned()];
    assert_eq!(case.mismatches(), []);
    case.decoder.io.nodes[5].branches.clear();
    let expected = ("model.onnx".to_owned(), "logits".to_owned(), "P10");
    assert_eq!(case.mismatches(), [expected]);
}

#[test]
fn a_circle_of_nodes_ends() {
    let mut case = wired();
    let graph = &mut case.decoder.io;
    graph.nodes.push(node("Identity", "round", "about"));
    graph.nodes.push(node("Identity", "about", "round"));
    graph.nodes[3].inputs[3] = "round".to_owned();
    assert_eq!(case.mismatches(), []);
}
