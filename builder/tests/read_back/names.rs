//! The names in `genai_config.json` are those of the graphs: all of them, and no others.

use std::collections::BTreeSet;
use std::fs;

use onnx_protobuf::ValueInfoProto;
use serde_json::Value;

use crate::Exported;

/// Names taken and names given.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    inputs: BTreeSet<String>,
    outputs: BTreeSet<String>,
}

pub(crate) fn check(exported: &Exported) {
    sizes(exported);
    commits(exported);
    let model = &exported.config["model"];
    let sections = [decoder(&model["decoder"]), head(&model["mtp"])];
    for ((file, graph), declared) in exported.graphs.iter().zip(sections) {
        let inputs = graph.graph.input.iter().map(|value| value.name.clone());
        let outputs = graph.graph.output.iter().map(|value| value.name.clone());
        let found = Names {
            inputs: inputs.collect(),
            outputs: outputs.collect(),
        };
        assert_eq!(found, declared, "{}: {file}", exported.name);
        assert_eq!(
            found.inputs.len(),
            graph.graph.input.len(),
            "{}: {file}",
            exported.name
        );
        assert_eq!(
            found.outputs.len(),
            graph.graph.output.len(),
            "{}: {file}",
            exported.name
        );
    }
}

/// A commit graph takes the bank and the checkpoints of its group's layers, as the decoder's graph declares them; and
/// every file of one is named by a group.
fn commits(exported: &Exported) {
    let (_, decoder) = &exported.graphs[0];
    let groups = &exported.config["model"]["decoder"]["state_groups"];
    let groups = groups.as_array().unwrap().iter();
    let groups = groups.filter(|group| group.get("commit_filename").is_some());
    for (group, (file, graph)) in groups.zip(&exported.commits) {
        let state = &group["bindings"]["state"];
        let at = format!("{}: {file}", exported.name);
        for layer in group["layer_ids"].as_array().unwrap() {
            for (values, side, input) in [
                (&decoder.graph.input, "input", "bank"),
                (&decoder.graph.output, "checkpoints", "checkpoints"),
            ] {
                let name = state[side].as_str().unwrap();
                let name = name.replace("%d", &layer.to_string());
                let of_decoder = values.iter().find(|value| value.name == name).unwrap();
                let mut inputs = graph.graph.input.iter();
                let own = inputs.find(|value| value.name == input).unwrap();
                let shape = |value: &ValueInfoProto| {
                    let tensor = value.type_.tensor_type();
                    let extents = tensor.shape.dim.iter().skip(1).map(|dim| dim.dim_value());
                    (tensor.elem_type, extents.collect::<Vec<_>>())
                };
                assert_eq!(shape(own), shape(of_decoder), "{at}: {name}");
            }
        }
    }
    let files = fs::read_dir(&exported.folder).unwrap();
    let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let written: BTreeSet<_> = files.filter(|name| name.starts_with("commit.")).collect();
    let named = exported.commits.iter().map(|(file, _)| file.clone());
    assert_eq!(written, named.collect(), "{}", exported.name);
}

/// What the configuration says about the sizes of states is what the decoder's graph declares.
fn sizes(exported: &Exported) {
    let decoder = &exported.config["model"]["decoder"];
    let (_, graph) = &exported.graphs[0];
    for group in decoder["state_groups"].as_array().unwrap() {
        let Some(bindings) = group["bindings"].as_object() else {
            assert!(group.get("row_shape").is_none() && group.get("element_type").is_none());
            continue;
        };
        let heads = [&decoder["num_key_value_heads"], &decoder["head_size"]];
        let row: Vec<_> = match group["kind"].as_str().unwrap() {
            "paged_kv" => heads.into_iter().collect(),
            _ => group["row_shape"].as_array().unwrap().iter().collect(),
        };
        let types = ["float32", "float16", "bfloat16"].iter().zip([1, 10, 16]);
        let mut known = types.filter(|(word, _)| group["element_type"] == **word);
        let element = known.next().unwrap().1;
        for (binding, layer) in bindings.values().flat_map(|binding| {
            let layers = group["layer_ids"].as_array().unwrap();
            layers.iter().map(move |layer| (binding, layer.to_string()))
        }) {
            let name = binding["input"].as_str().unwrap().replace("%d", &layer);
            let mut inputs = graph.graph.input.iter();
            let input = inputs.find(|input| input.name == name).unwrap();
            let tensor = input.type_.tensor_type();
            let extents: Vec<_> = tensor.shape.dim.iter().map(|dim| dim.dim_value()).collect();
            let at = format!("{}: {name}", exported.name);
            assert_eq!(tensor.elem_type, element, "{at}");
            let tail = &extents[extents.len() - row.len()..];
            assert_eq!(
                tail,
                row.iter().map(|n| n.as_i64().unwrap()).collect::<Vec<_>>(),
                "{at}"
            );
        }
    }
}

/// What a decoder's section names.
fn decoder(section: &Value) -> Names {
    let mut names = Names {
        inputs: plain(&section["inputs"]),
        outputs: plain(&section["outputs"]),
    };
    for group in section["state_groups"].as_array().unwrap() {
        let layers = group["layer_ids"].as_array().unwrap();
        let layers: Vec<_> = layers.iter().map(|layer| layer.as_u64().unwrap()).collect();
        let (inputs, outputs) = match group.get("bindings") {
            Some(bindings) => bound(bindings),
            None => listed(section, group),
        };
        names.inputs.extend(expand(&inputs, &layers));
        names.outputs.extend(expand(&outputs, &layers));
    }
    names
}

/// What a drafting head's section names; its caches are those of its own layers.
fn head(section: &Value) -> Names {
    let mut names = Names {
        inputs: plain(&section["inputs"]),
        outputs: plain(&section["outputs"]),
    };
    let layers: Vec<_> = (0..section["num_hidden_layers"].as_u64().unwrap_or(1)).collect();
    names
        .inputs
        .extend(expand(&templates(&section["inputs"]), &layers));
    names
        .outputs
        .extend(expand(&templates(&section["outputs"]), &layers));
    names
}

fn texts(section: &Value) -> Vec<&str> {
    let object = section.as_object().into_iter().flatten();
    object.map(|(_, name)| name.as_str().unwrap()).collect()
}

fn plain(section: &Value) -> BTreeSet<String> {
    let texts = texts(section).into_iter();
    texts
        .filter(|name| !name.contains("%d"))
        .map(str::to_owned)
        .collect()
}

fn templates(section: &Value) -> Vec<&str> {
    let texts = texts(section).into_iter();
    texts.filter(|name| name.contains("%d")).collect()
}

/// Templates of a group that binds its tensors.
fn bound(bindings: &Value) -> (Vec<&str>, Vec<&str>) {
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for binding in bindings.as_object().unwrap().values() {
        inputs.push(binding["input"].as_str().unwrap());
        outputs.push(binding["output"].as_str().unwrap());
        outputs.extend(
            binding
                .get("checkpoints")
                .map(|name| name.as_str().unwrap()),
        );
    }
    (inputs, outputs)
}

/// Templates of a group whose tensors are named under `inputs` and `outputs`.
fn listed<'a>(section: &'a Value, group: &Value) -> (Vec<&'a str>, Vec<&'a str>) {
    let (inputs, mut outputs): (&[_], Vec<_>) = match group["kind"].as_str().unwrap() {
        "paged_kv" => (
            &["past_key_names", "past_value_names"],
            vec!["present_key_names", "present_value_names"],
        ),
        "fixed_conv" => (&["past_conv_names"], vec!["present_conv_names"]),
        "fixed_recurrent" => (&["past_recurrent_names"], vec!["present_recurrent_names"]),
        other => panic!("{other}"),
    };
    let update = match group["kind"].as_str().unwrap() {
        "fixed_conv" => "state_update_conv_value_names",
        _ => "state_update_recurrent_capsule_names",
    };
    outputs.extend(group.get("state_update").map(|_| update));
    let names = |side: &str, keys: &[&str]| -> Vec<&'a str> {
        keys.iter()
            .map(|key| section[side][*key].as_str().unwrap())
            .collect()
    };
    (names("inputs", inputs), names("outputs", &outputs))
}

fn expand<'a>(templates: &'a [&str], layers: &'a [u64]) -> impl Iterator<Item = String> + 'a {
    let name = |template: &str, layer: u64| template.replace("%d", &layer.to_string());
    templates
        .iter()
        .flat_map(move |template| layers.iter().map(move |layer| name(template, *layer)))
}
