//! Looking up tensors of the checkpoint: every mismatch is collected, and what nobody asked for is reported.

use std::collections::{BTreeMap, BTreeSet};

use crate::description::{Norm, Skipped, Transform, Weight, WeightPart};
use crate::error::{DescribeError, TensorProblem};

/// The tensors of a checkpoint, and what became of them.
#[derive(Debug)]
pub(crate) struct Tensors<'a> {
    shapes: &'a BTreeMap<String, Vec<u64>>,
    used: BTreeSet<String>,
    /// What the names of the model's own tensors start with.
    owned: Vec<String>,
    problems: Vec<TensorProblem>,
}

/// Unused tensors with this prefix are left out for this reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skip {
    pub(crate) prefix: &'static str,
    pub(crate) reason: &'static str,
}

impl<'a> Tensors<'a> {
    pub(crate) fn new(shapes: &'a BTreeMap<String, Vec<u64>>) -> Self {
        Self {
            shapes,
            used: BTreeSet::new(),
            // The output projection has nothing beside it, whether it is used or tied to the embedding.
            owned: vec!["lm_head.".to_owned()],
            problems: Vec::new(),
        }
    }

    /// Says that everything below `prefix` is part of the model: what is not used there is refused.
    pub(crate) fn own(&mut self, prefix: impl Into<String>) {
        self.owned.push(prefix.into());
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.shapes.contains_key(name)
    }

    pub(crate) fn shape(&self, name: &str) -> Option<&'a [u64]> {
        self.shapes.get(name).map(Vec::as_slice)
    }

    /// The whole tensor `name`. A mismatch is kept for [`finish`](Self::finish).
    pub(crate) fn weight(&mut self, name: impl Into<String>, shape: &[u64]) -> Weight {
        let name = name.into();
        self.check(&name, shape, None);
        Weight::whole(name, shape)
    }

    /// The whole tensor `name`; `note` says why it is asked for if it is absent.
    pub(crate) fn weight_because(
        &mut self,
        name: &str,
        shape: &[u64],
        note: &'static str,
    ) -> Weight {
        self.check(name, shape, Some(note));
        Weight::whole(name, shape)
    }

    /// A depthwise convolution `[channels, 1, kernel]`, as `[channels, kernel]`.
    pub(crate) fn convolution(&mut self, name: String, channels: u64, kernel: u64) -> Weight {
        let mut weight = self.weight(name, &[channels, 1, kernel]);
        weight.shape = vec![channels, kernel];
        weight
    }

    /// A projection whose rows alternate between blocks of `block` rows of a first and of a second weight.
    pub(crate) fn interleaved(
        &mut self,
        name: &str,
        pairs: u64,
        block: u64,
        columns: u64,
    ) -> [Weight; 2] {
        let shape = vec![pairs * 2 * block, columns];
        let fits = self.check(name, &shape, None);
        // A tensor that is not there is not cut up: its description is never used.
        let pairs_cut = if fits { pairs } else { 0 };
        let half = |offset: u64| Weight {
            parts: (0..pairs_cut)
                .map(|pair| {
                    let first = (2 * pair + offset) * block;
                    WeightPart {
                        tensor: name.to_owned(),
                        shape: shape.clone(),
                        rows: first..first + block,
                    }
                })
                .collect(),
            shape: vec![pairs * block, columns],
            transform: Transform::None,
        };
        [half(0), half(1)]
    }

    pub(crate) fn norm(&mut self, name: impl Into<String>, width: u64, epsilon: f32) -> Norm {
        Norm {
            weight: self.weight(name, &[width]),
            epsilon,
        }
    }

    /// A norm stored as its distance from 1.
    pub(crate) fn offset_norm(
        &mut self,
        name: impl Into<String>,
        width: u64,
        epsilon: f32,
    ) -> Norm {
        let mut norm = self.norm(name, width, epsilon);
        norm.weight.transform = Transform::AddOne;
        norm
    }

    fn check(&mut self, name: &str, expected: &[u64], note: Option<&'static str>) -> bool {
        let found = self.shape(name);
        if found == Some(expected) {
            self.used.insert(name.to_owned());
            return true;
        }
        self.problems.push(TensorProblem {
            tensor: name.to_owned(),
            expected: expected.to_vec(),
            found: found.map(<[u64]>::to_vec),
            note,
        });
        false
    }

    /// What is left over, every mismatch so far, or every tensor that is part of the model and not used.
    pub(crate) fn finish(self, skips: &[Skip]) -> Result<Vec<Skipped>, DescribeError> {
        if !self.problems.is_empty() {
            return Err(DescribeError::Tensors {
                problems: self.problems,
            });
        }
        let modules: BTreeSet<&str> = self.used.iter().map(|name| module(name)).collect();
        let names = self.shapes.keys().map(String::as_str);
        let mut unknown = Vec::new();
        let mut groups = Groups::new();
        for name in names.filter(|name| !self.used.contains(*name)) {
            let owned = self
                .owned
                .iter()
                .any(|prefix| name.starts_with(prefix.as_str()));
            match harmless(name, skips, owned) {
                Some(group) => groups.entry(group).or_default().push(name),
                None if owned || modules.contains(module(name)) => unknown.push(name.to_owned()),
                None => groups
                    .entry((first_components(name), UNKNOWN))
                    .or_default()
                    .push(name),
            }
        }
        match unknown.is_empty() {
            true => Ok(skipped(groups)),
            false => Err(DescribeError::Unused { tensors: unknown }),
        }
    }
}

const ROTARY: &str = "rotary frequencies: computed from config.json";
const UNKNOWN: &str = "not part of this architecture";

/// Names left out, by what they have in common and why.
type Groups<'n> = BTreeMap<(&'n str, &'static str), Vec<&'n str>>;

/// Why a tensor can be left out without a change of what is computed, if it can. A reason that an architecture gives
/// does not hold for tensors of the model itself, such as those of a head that is declared.
fn harmless(name: &str, skips: &[Skip], owned: bool) -> Option<(&'static str, &'static str)> {
    if name.ends_with(".inv_freq") || name.contains(".rotary_emb.") {
        return Some(("", ROTARY));
    }
    let mut skips = skips.iter().filter(|_| !owned);
    let skip = skips.find(|skip| name.starts_with(skip.prefix))?;
    Some((skip.prefix, skip.reason))
}

/// The module that a tensor belongs to: its name up to the last dot, dot included.
fn module(name: &str) -> &str {
    let end = name.rfind('.').map_or(0, |at| at + 1);
    name.get(..end).unwrap_or_default()
}

fn skipped(groups: Groups<'_>) -> Vec<Skipped> {
    /// What is told of on its own; a file may have as many groups as tensors.
    const LISTED: usize = 64;
    let mut all: Vec<_> = groups.into_iter().collect();
    if all.len() > LISTED {
        all.sort_by_key(|((_, reason), _)| *reason == UNKNOWN);
    }
    let rest = all.split_off(all.len().min(LISTED));
    let skipped = all.into_iter().map(|((_, reason), names)| Skipped {
        prefix: common_prefix(&names).to_owned(),
        tensors: names.len() as u64,
        reason,
    });
    let mut skipped: Vec<_> = skipped.collect();
    if !rest.is_empty() {
        let tensors = rest.iter().map(|(_, names)| names.len() as u64);
        skipped.push(Skipped {
            prefix: String::new(),
            tensors: tensors.sum(),
            reason: UNKNOWN,
        });
    }
    skipped
}

/// The first two components of a name, dots included.
fn first_components(name: &str) -> &str {
    let end = name.match_indices('.').nth(1).map(|(at, _)| at + 1);
    end.and_then(|end| name.get(..end)).unwrap_or(name)
}

/// The longest start, in whole components, that all names share; the name itself if there is only one.
fn common_prefix<'n>(names: &[&'n str]) -> &'n str {
    let (Some(first), Some(last)) = (names.first(), names.last()) else {
        return "";
    };
    if first == last {
        return first;
    }
    // The names are sorted: what the first and the last share, all share.
    let shared = first
        .bytes()
        .zip(last.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let whole = first.get(..shared).and_then(|start| start.rfind('.'));
    whole.and_then(|at| first.get(..=at)).unwrap_or("")
}
