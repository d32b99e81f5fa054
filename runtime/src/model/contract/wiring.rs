//! Whether the operators read and write what the configuration declares for them.
//!
//! Names, types and shapes agree just as well when two inputs of one type are crossed, or keys and values, and the model
//! then computes something else without a word. So every input and output of the operators that keep state is followed
//! to the graph's own inputs and outputs, and what these are declared as must be what the operator takes there. A graph
//! that keeps its state by other operators is not followed.

use super::report::{ContractCode, Findings};
use super::wiring_layout::{Layout, Role, layout_of};
use crate::exec::{Signature, StepInput};
use crate::model::graph_io::{GraphIo, Node};
use crate::model::spec::StateSpec;
use genai_config_schema::{CheckpointAlignment, CheckpointForm};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

/// What an input or output of the graph is declared as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Declared {
    Step(StepInput),
    /// Keys or values of a layer.
    Key(u32),
    Value(u32),
    /// A fixed state, by its place among them.
    State(usize),
    /// The checkpoints of a fixed state.
    Checkpoints(usize),
}

/// What is declared, and the graph by its names.
struct Wiring<'a> {
    graph: &'a GraphIo,
    state: &'a StateSpec,
    inputs: BTreeMap<&'a str, Declared>,
    outputs: Vec<(&'a str, Declared)>,
    /// The node that makes a value, and the place of the value among its outputs.
    makers: Makers<'a>,
    /// What the values are that nodes only pass on.
    origins: HashMap<&'a str, &'a str>,
}

type Makers<'a> = HashMap<&'a str, (&'a Node, usize)>;

/// Checks every operator that keeps state, the embedding, and where logits come from.
pub(super) fn check(
    graph: &GraphIo,
    signature: &Signature,
    state: &StateSpec,
    findings: &mut Findings,
) {
    let wiring = Wiring::new(graph, signature, state);
    let mut read = HashSet::new();
    for node in &graph.nodes {
        if let Some(layout) = layout_of(node) {
            wiring.check_inputs(node, layout, &mut read, findings);
            wiring.check_capture(node, layout, findings);
        }
    }
    wiring.check_other_readers(&read, findings);
    wiring.check_outputs(findings);
    wiring.check_embedding(signature, findings);
    wiring.check_results(signature, findings);
}

impl<'a> Wiring<'a> {
    fn new(graph: &'a GraphIo, signature: &'a Signature, state: &'a StateSpec) -> Self {
        let steps = signature.inputs.iter();
        let mut inputs: BTreeMap<&str, Declared> = steps
            .map(|(input, name)| (name.as_str(), Declared::Step(*input)))
            .collect();
        let mut outputs = Vec::new();
        for layer in state.paged.iter().flat_map(|paged| &paged.layers) {
            inputs.insert(&layer.key_input, Declared::Key(layer.layer));
            inputs.insert(&layer.value_input, Declared::Value(layer.layer));
            outputs.push((layer.key_output.as_str(), Declared::Key(layer.layer)));
            outputs.push((layer.value_output.as_str(), Declared::Value(layer.layer)));
        }
        for (index, fixed) in state.fixed.iter().enumerate() {
            inputs.insert(&fixed.input, Declared::State(index));
            outputs.push((fixed.output.as_str(), Declared::State(index)));
            if let Some(checkpoints) = &fixed.checkpoints {
                outputs.push((checkpoints.output.as_str(), Declared::Checkpoints(index)));
            }
        }
        let made = graph.nodes.iter().flat_map(|node| {
            let places = node.outputs.iter().enumerate();
            places.map(move |(place, name)| (name.as_str(), (node, place)))
        });
        let makers: Makers<'_> = made.collect();
        Self {
            graph,
            state,
            inputs,
            outputs,
            origins: origins(&makers),
            makers,
        }
    }

    /// The value that `name` is, through nodes that only pass it on.
    fn origin(&self, name: &'a str) -> &'a str {
        self.origins.get(name).copied().unwrap_or(name)
    }

    /// What stands at a place of a node's inputs, if that is an input of the graph.
    fn declared_at(&self, node: &'a Node, place: usize) -> Option<(&'a str, Declared)> {
        let name = self.origin(node.inputs.get(place)?);
        Some((name, *self.inputs.get(name)?))
    }

    fn check_inputs(
        &self,
        node: &'a Node,
        layout: &Layout,
        read: &mut HashSet<Declared>,
        findings: &mut Findings,
    ) {
        let layer =
            layout
                .inputs
                .iter()
                .find_map(|(place, role)| match self.declared_at(node, *place) {
                    Some((_, Declared::Key(layer))) if *role == Role::Key => Some(layer),
                    _ => None,
                });
        for (place, role) in layout.inputs {
            let Some((name, declared)) = self.declared_at(node, *place) else {
                continue;
            };
            let fits = match (role, declared) {
                (Role::Step(wanted), Declared::Step(found)) => *wanted == found,
                (Role::Key, Declared::Key(_)) => true,
                (Role::Value, Declared::Value(found)) => layer.is_none_or(|wanted| wanted == found),
                (Role::State, Declared::State(index)) => self.has_operator(index, layout),
                _ => false,
            };
            if !fits {
                let expected = format!("{}, as {} reads it", role, shown(node));
                let found = format!("declared as {}", self.describe(declared));
                findings.add(ContractCode::P8, name, expected, found);
            } else if !matches!(declared, Declared::Step(_)) && !read.insert(declared) {
                let found = "read by two";
                findings.add(ContractCode::P8, name, "a state of one operator", found);
            }
        }
    }

    /// The operator that keeps a fixed state may write it before others read it, so there may be no others.
    fn check_other_readers(&self, read: &HashSet<Declared>, findings: &mut Findings) {
        let nodes = self.graph.nodes.iter();
        for node in nodes.filter(|node| layout_of(node).is_none() && !passes_on(node)) {
            for place in 0..node.inputs.len() {
                if let Some((name, declared)) = self.declared_at(node, place)
                    && matches!(declared, Declared::State(_))
                    && read.contains(&declared)
                {
                    let found = format!("read by {} too", shown(node));
                    findings.add(ContractCode::P8, name, "a state of one operator", found);
                }
            }
        }
    }

    fn has_operator(&self, index: usize, layout: &Layout) -> bool {
        let fixed = self.state.fixed.get(index);
        fixed.is_some_and(|fixed| layout.operator == Some(fixed.operator))
    }

    /// Every declared output that an operator makes must be the one of the state that the operator reads.
    fn check_outputs(&self, findings: &mut Findings) {
        for (name, declared) in &self.outputs {
            let Some((node, place)) = self.makers.get(self.origin(name)) else {
                continue;
            };
            let Some(layout) = layout_of(node) else {
                continue;
            };
            let made = self.made(node, layout, *place);
            if made != Some(*declared) {
                let found = match made {
                    Some(made) => format!("{} of {}", self.describe(made), shown(node)),
                    None => format!("output {place} of {}", shown(node)),
                };
                findings.add(ContractCode::P9, name, self.describe(*declared), found);
            }
        }
    }

    /// What an output of an operator is, by the state that the operator reads.
    fn made(&self, node: &'a Node, layout: &Layout, place: usize) -> Option<Declared> {
        let role = layout.outputs.get(place.checked_sub(1)?)?;
        let reads = |wanted: Role| {
            let (place, _) = layout.inputs.iter().find(|(_, role)| *role == wanted)?;
            self.declared_at(node, *place).map(|(_, declared)| declared)
        };
        if *role != Role::Checkpoints {
            return reads(*role);
        }
        match reads(Role::State)? {
            Declared::State(index) => Some(Declared::Checkpoints(index)),
            Declared::Step(_)
            | Declared::Key(_)
            | Declared::Value(_)
            | Declared::Checkpoints(_) => None,
        }
    }

    /// An operator must capture as many transitions or states as are declared.
    fn check_capture(&self, node: &'a Node, layout: &Layout, findings: &mut Findings) {
        let state = layout.inputs.iter().find(|(_, role)| *role == Role::State);
        let Some((_, Declared::State(index))) =
            state.and_then(|(place, _)| self.declared_at(node, *place))
        else {
            return;
        };
        let Some(fixed) = self.state.fixed.get(index) else {
            return;
        };
        let declared = fixed.checkpoints.as_ref().map(|checkpoints| {
            let form = match checkpoints.form {
                CheckpointForm::State => "state",
                CheckpointForm::Update => "update",
            };
            let alignment = match checkpoints.alignment {
                CheckpointAlignment::Left => "left",
                CheckpointAlignment::Right => "right",
            };
            format!("{form}:{} {alignment}", checkpoints.count)
        });
        let number = node.attribute(layout.count).map_or(0, |found| found.number);
        let form = node.attribute("checkpoint_form");
        let form = form.map_or("update", |found| found.text.as_str());
        let alignment = layout.alignment(form);
        let built = (number != 0).then(|| format!("{form}:{number} {alignment}"));
        // What an operator could capture and nobody asks for does no harm.
        if declared.is_some() && built != declared {
            let show = |capture: Option<String>| capture.unwrap_or_else(|| "none".to_owned());
            let expected = format!("checkpoints {}", show(declared));
            let found = format!("checkpoints {} in {}", show(built), shown(node));
            findings.add(ContractCode::P11, &fixed.input, expected, found);
        }
    }

    /// The rows of the embedding are chosen by tokens and by nothing else.
    fn check_embedding(&self, signature: &Signature, findings: &mut Findings) {
        let shape = [signature.vocab, signature.hidden_size].map(|extent| extent as u64);
        let weights = self.graph.initializers.iter();
        let tables = weights.filter(|weight| weight.dims == shape);
        let tables: HashSet<&str> = tables.map(|weight| weight.name.as_str()).collect();
        for node in &self.graph.nodes {
            let gathers = node.domain.is_empty() && node.kind == "Gather";
            let table = node.inputs.first().map(|name| self.origin(name));
            if !gathers || table.is_none_or(|table| !tables.contains(table)) {
                continue;
            }
            match self.declared_at(node, 1) {
                None | Some((_, Declared::Step(StepInput::InputIds))) => {}
                Some((name, declared)) => {
                    let expected = format!("token ids, as {} reads them", shown(node));
                    let found = format!("declared as {}", self.describe(declared));
                    findings.add(ContractCode::P8, name, expected, found);
                }
            }
        }
    }

    /// Logits are of the rows that are asked for; hidden rows are of all tokens.
    fn check_results(&self, signature: &Signature, findings: &mut Findings) {
        let mut steps = signature.inputs.iter();
        let Some((_, chosen)) = steps.find(|(input, _)| *input == StepInput::LogitsIndices) else {
            return;
        };
        let mut report = |name: &str, expected: &str, found: &str| {
            findings.add(ContractCode::P10, name, expected, found);
        };
        if self.is_made(&signature.logits) && !self.depends(&signature.logits, chosen) {
            report(
                &signature.logits,
                "of the rows that are asked for",
                "made without asking for rows",
            );
        }
        if let Some(hidden) = &signature.hidden
            && self.is_made(hidden)
            && self.depends(hidden, chosen)
        {
            report(
                hidden,
                "a row for every token",
                "made of the rows that logits are asked for",
            );
        }
    }

    fn is_made(&self, name: &str) -> bool {
        self.makers.contains_key(name)
    }

    /// Whether the value `name` is made from the value `from`.
    fn depends(&self, name: &str, from: &str) -> bool {
        let mut seen = HashSet::new();
        let mut open = vec![name];
        while let Some(name) = open.pop() {
            if name == from {
                return true;
            }
            if let Some((node, _)) = self.makers.get(name)
                && seen.insert(std::ptr::from_ref::<Node>(node))
            {
                let used = node.inputs.iter().chain(&node.branches);
                open.extend(used.map(String::as_str));
            }
        }
        false
    }

    fn describe(&self, declared: Declared) -> String {
        let state = |index: usize| {
            let fixed = self.state.fixed.get(index);
            fixed.map_or("state".to_owned(), |fixed| {
                format!("state of {:?} in layer {}", fixed.operator, fixed.layer)
            })
        };
        match declared {
            Declared::Step(input) => Role::Step(input).to_string(),
            Declared::Key(layer) => format!("keys of layer {layer}"),
            Declared::Value(layer) => format!("values of layer {layer}"),
            Declared::State(index) => state(index),
            Declared::Checkpoints(index) => format!("checkpoints of the {}", state(index)),
        }
    }
}

/// Follows every value that is only passed on to where it comes from; each node is passed once.
fn origins<'a>(makers: &Makers<'a>) -> HashMap<&'a str, &'a str> {
    let mut origins: HashMap<&str, &str> = HashMap::new();
    for name in makers.keys() {
        let (mut at, mut chain) = (*name, Vec::new());
        while !origins.contains_key(at)
            && let Some((node, 0)) = makers.get(at)
            && passes_on(node)
            && let Some(input) = node.inputs.first()
        {
            // A damaged graph may pass a value on in a circle, which ends where it began.
            origins.insert(at, at);
            chain.push(at);
            at = input;
        }
        let origin = origins.get(at).copied().unwrap_or(at);
        origins.extend(chain.into_iter().map(|name| (name, origin)));
    }
    origins
}

fn passes_on(node: &Node) -> bool {
    node.domain.is_empty() && matches!(node.kind.as_str(), "Identity" | "Cast")
}

fn shown(node: &Node) -> impl fmt::Display {
    let domain = if node.domain.is_empty() {
        "ai.onnx"
    } else {
        &node.domain
    };
    format!("`{}` ({domain}::{})", node.name, node.kind)
}
