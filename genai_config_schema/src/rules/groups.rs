//! State groups, what both spellings have in common.

use std::collections::{BTreeMap, HashSet};

use crate::report::Report;
use crate::{ConfigCode, Decoder, GenaiConfig, Spelling, StateGroup, StateKind, path};

use super::{genai, pawl};

/// Where the groups are.
pub(super) const AT: &str = "model.decoder.state_groups";

/// A group whose kind is known, and its path.
pub(super) struct Group<'c> {
    pub(super) at: String,
    pub(super) group: &'c StateGroup,
}

impl Group<'_> {
    /// The path of one of its keys.
    pub(super) fn key(&self, key: &str) -> String {
        path::key(&self.at, key)
    }

    pub(super) fn is_paged(&self) -> bool {
        self.group.kind == StateKind::PagedKv
    }
}

/// What a fixed group says about checkpoints, in either spelling.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Declared {
    pub(super) count: u32,
    pub(super) enabled: bool,
}

/// The groups whose kind is known.
pub(super) fn known<'c>(decoder: &'c Decoder, report: &Report) -> Vec<Group<'c>> {
    let groups = decoder.state_groups.iter().enumerate();
    groups
        .map(|(index, group)| Group {
            at: path::index(AT, index),
            group,
        })
        .filter(|group| !report.damaged_near(&group.key("kind")))
        .collect()
}

pub(super) fn check(config: &GenaiConfig, report: &mut Report) {
    let decoder = &config.model.decoder;
    let groups = known(decoder, report);
    for group in &groups {
        layers(group, decoder.num_hidden_layers, report);
    }
    if groups.is_empty() {
        return;
    }
    let spelling = Spelling::of(decoder);
    match spelling {
        Spelling::Pawl => pawl::check(decoder, &groups, report),
        Spelling::Genai018 => genai::check(decoder, &groups, report),
    }
    captures(decoder, spelling, &groups, report);
    paged(config, spelling, &groups, report);
    let batched = config.engine.dynamic_batching.is_some();
    if !batched && groups.iter().any(|group| !group.is_paged()) {
        let message = "fixed state groups need dynamic batching";
        report.rule(ConfigCode::C29, "engine.dynamic_batching", message);
    }
}

fn layers(group: &Group<'_>, count: u32, report: &mut Report) {
    let mut seen = HashSet::new();
    for (index, &layer) in group.group.layer_ids.iter().enumerate() {
        let at = path::index(&group.key("layer_ids"), index);
        if count > 0 && layer >= count {
            let message = format!("layer {layer} of {count} layers");
            report.rule(ConfigCode::C7, &at, message);
        }
        if !seen.insert(layer) {
            report.rule(ConfigCode::C8, &at, format!("layer {layer} appears twice"));
        }
    }
}

/// All fixed groups capture alike, or none does; the count input exists when they do.
fn captures(decoder: &Decoder, spelling: Spelling, groups: &[Group<'_>], report: &mut Report) {
    let declared = match spelling {
        Spelling::Pawl => pawl::declared,
        Spelling::Genai018 => genai::declared,
    };
    let count_key = match spelling {
        Spelling::Pawl => "checkpoint_count",
        Spelling::Genai018 => "state_update",
    };
    let fixed = || groups.iter().filter(|group| !group.is_paged());
    let Some(first) = fixed().find_map(|group| declared(group.group)) else {
        return;
    };
    for group in fixed() {
        let at = group.key(count_key);
        match declared(group.group) {
            None => report.rule(ConfigCode::C28, &at, "other fixed groups declare it"),
            Some(own) if own != first => {
                report.rule(
                    ConfigCode::C27,
                    &at,
                    "other fixed groups declare it differently",
                );
            }
            Some(_) => {}
        }
    }
    if decoder.inputs.state_update_capture_count.is_none() {
        let at = "model.decoder.inputs.state_update_capture_count";
        report.rule(
            ConfigCode::C22,
            at,
            "the key is required: states are captured",
        );
    }
}

fn paged(config: &GenaiConfig, spelling: Spelling, groups: &[Group<'_>], report: &mut Report) {
    let decoder = &config.model.decoder;
    let mut owner: BTreeMap<u32, usize> = BTreeMap::new();
    let paged = groups.iter().filter(|group| group.is_paged());
    for (number, group) in paged.enumerate() {
        if number > 0 {
            report.rule(ConfigCode::C30, &group.at, "there is already a paged group");
        }
        for (index, &layer) in group.group.layer_ids.iter().enumerate() {
            if *owner.entry(layer).or_insert(number) != number {
                let at = path::index(&group.key("layer_ids"), index);
                report.rule(
                    ConfigCode::C9,
                    &at,
                    format!("layer {layer} is in two paged groups"),
                );
            }
        }
    }
    let batched = config.engine.dynamic_batching.is_some();
    if batched && spelling == Spelling::Genai018 && !groups.iter().any(Group::is_paged) {
        report.rule(ConfigCode::C30, AT, "dynamic batching needs a paged group");
    }
    let window = decoder.sliding_window.as_ref();
    let windowed = window.map_or(&[][..], |window| &window.layers);
    for (index, layer) in windowed.iter().enumerate() {
        if !owner.contains_key(layer) && !report.damaged_near(AT) {
            let at = path::index("model.decoder.sliding_window.layers", index);
            report.rule(
                ConfigCode::C31,
                &at,
                format!("layer {layer} is not in the paged group"),
            );
        }
    }
}
