//! No two inputs, and no two outputs, of a graph share a name.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::report::Report;
use crate::template::expand;
use crate::{ConfigCode, Decoder, GenaiConfig, StateGroup, manifest, path};

use super::groups;

/// A section, a key in it and the name there.
type Declared = (&'static str, String, String);

/// The names of one section of inputs or outputs.
fn declared(section: &impl Serialize, at: &'static str) -> Vec<Declared> {
    let entries = match serde_json::to_value(section) {
        Ok(Value::Object(entries)) => entries,
        _ => return Vec::new(),
    };
    let name = |(key, name): (String, Value)| Some((at, key, name.as_str()?.to_owned()));
    entries.into_iter().filter_map(name).collect()
}

fn is_template(key: &str) -> bool {
    key.ends_with("_names")
}

/// The templates of one section.
pub(super) fn templates(section: &impl Serialize, at: &'static str) -> Vec<Declared> {
    let mut names = declared(section, at);
    names.retain(|(_, key, _)| is_template(key));
    names
}

/// The inputs, or the outputs, of one graph.
#[derive(Default)]
struct Names {
    /// Name to where it was found first.
    first: BTreeMap<String, String>,
    /// Pairs of places that share names; one report says it for all layers.
    reported: BTreeSet<(String, String)>,
}

impl Names {
    fn add(&mut self, name: String, at: &str, report: &mut Report) {
        if let Some(first) = self.first.get(&name) {
            if !self.reported.insert((first.clone(), at.to_owned())) {
                return;
            }
            let message = format!("`{}` is already a name of {first}", path::shorten(&name));
            report.rule(ConfigCode::C13, at, message);
        } else {
            self.first.insert(name, at.to_owned());
        }
    }

    /// Adds a section, its templates once for each of `layers`.
    fn section(&mut self, names: Vec<Declared>, layers: &[u32], report: &mut Report) {
        for (parent, key, name) in names {
            let at = path::key(parent, &key);
            if !is_template(&key) {
                self.add(name, &at, report);
                continue;
            }
            for &layer in layers {
                self.add(expand(&name, layer), &at, report);
            }
        }
    }
}

pub(super) fn check(config: &GenaiConfig, report: &mut Report) {
    let model = &config.model;
    decoder(&model.decoder, report);
    if let Some(mtp) = &model.mtp {
        let layers: Vec<u32> = (0..mtp.num_hidden_layers.unwrap_or(1)).collect();
        let inputs = declared(&mtp.inputs, "model.mtp.inputs");
        let outputs = declared(&mtp.outputs, "model.mtp.outputs");
        Names::default().section(inputs, &layers, report);
        Names::default().section(outputs, &layers, report);
    }
    let drafters = [
        (
            &model.dflash2,
            "model.dflash2.inputs",
            "model.dflash2.outputs",
        ),
        (&model.dspark, "model.dspark.inputs", "model.dspark.outputs"),
    ];
    for (drafter, inputs_at, outputs_at) in drafters {
        if let Some(drafter) = drafter {
            let layers: Vec<u32> = (0..drafter.num_hidden_layers).collect();
            Names::default().section(declared(&drafter.inputs, inputs_at), &layers, report);
            Names::default().section(declared(&drafter.outputs, outputs_at), &layers, report);
        }
    }
}

fn decoder(decoder: &Decoder, report: &mut Report) {
    let (mut inputs, mut outputs) = (Names::default(), Names::default());
    let plain = |mut names: Vec<Declared>| {
        names.retain(|(_, key, _)| !is_template(key));
        names
    };
    let declared_inputs = declared(&decoder.inputs, "model.decoder.inputs");
    let declared_outputs = declared(&decoder.outputs, "model.decoder.outputs");
    inputs.section(plain(declared_inputs), &[], report);
    outputs.section(plain(declared_outputs), &[], report);
    for groups::Group { at, group } in groups::known(decoder, report) {
        // Ids that are wrong have been reported; each id counts once.
        let layers: BTreeSet<u32> = group.layer_ids.iter().copied().collect();
        let known = |layer: &u32| *layer < decoder.num_hidden_layers;
        let group = StateGroup {
            layer_ids: layers.into_iter().filter(known).collect(),
            ..group.clone()
        };
        for layer in manifest::paged_layers(decoder, &group) {
            inputs.add(layer.key_input, &at, report);
            inputs.add(layer.value_input, &at, report);
            outputs.add(layer.key_output, &at, report);
            outputs.add(layer.value_output, &at, report);
        }
        for tensor in manifest::fixed_tensors(decoder, &group) {
            inputs.add(tensor.input, &at, report);
            outputs.add(tensor.output, &at, report);
            if let Some(checkpoints) = tensor.checkpoints {
                outputs.add(checkpoints.output, &at, report);
            }
        }
    }
}
