//! Which tokens survive the filters, without sorting the vocabulary.
//!
//! Every filter keeps a prefix of the ranking (higher logit first, then lower id), so the survivors
//! of all of them are one prefix: the shortest.

use super::cut::{Cut, Mass};
use super::scan::sum_of_weights;

/// Cuts closer than this, in logit units, are resolved token by token. A margin below it is a bound
/// on the true distance; one above it says only that the decision was at least this far from a cut.
pub(super) const NEAR: f64 = 1e-3;

/// Tokens looked at first when only `top_p` filters.
const FIRST_LOOK: usize = 256;

/// Slices up to this long are sorted instead of partitioned again.
const SMALL: usize = 512;

/// A token's place in the ranking as a number: lower is better.
pub(super) type Rank = u64;

/// Packs a logit and a token id. Both zeros rank alike.
#[inline]
pub(super) fn rank(logit: f32, token: u32) -> Rank {
    let bits = (logit + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 0x8000_0000
    };
    (u64::from(!ordered) << 32) | u64::from(token)
}

/// The token id of a rank.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low word is the token")]
pub(super) fn token_of(rank: Rank) -> u32 {
    rank as u32
}

/// The logit of a rank.
#[inline]
pub(super) fn logit_of(rank: Rank) -> f64 {
    let ordered = !((rank >> 32) as u32);
    let bits = if ordered >> 31 == 1 {
        ordered & 0x7FFF_FFFF
    } else {
        !ordered
    };
    f64::from(f32::from_bits(bits))
}

/// The filters of one sampler; at least one is active.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filters {
    pub(super) temperature: f64,
    /// 0 keeps all.
    pub(super) top_k: usize,
    /// In `0 < top_p <= 1`; 1 keeps all.
    pub(super) top_p: f64,
    /// 0 keeps all.
    pub(super) min_p: f64,
}

/// What survived: `ranked[..kept]`, and close by `ranked[kept..near]`, the dropped tokens that a
/// change of less than [`NEAR`] could have kept. In no order.
#[derive(Debug)]
pub(super) struct Survivors {
    pub(super) kept: usize,
    pub(super) near: usize,
    pub(super) cuts: [Option<Cut>; 3],
    /// The cut that dropped every token that is not kept.
    pub(super) binding: Option<Cut>,
}

impl Filters {
    /// Whether any filter does anything.
    pub(super) fn active(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }

    /// Applies the filters. `highest` is the highest logit; `ranked` is scratch and holds the result.
    pub(super) fn apply(&self, logits: &[f32], highest: f32, ranked: &mut Vec<Rank>) -> Survivors {
        let highest = f64::from(highest);
        let floor = self.collect(logits, highest, ranked);
        let top_k = self.cut_top_k(ranked);
        let mut kept = if self.top_k > 0 {
            self.top_k.min(ranked.len())
        } else {
            ranked.len()
        };
        let mut binding = top_k;
        let mut top_p = None;
        if self.top_p < 1.0 {
            let found = self.cut_top_p(logits, highest, floor, ranked);
            if self.top_k == 0 || found.kept < kept {
                (kept, binding) = (found.kept, Some(found.cut));
            }
            top_p = Some(found.cut);
        }
        let mut min_p = None;
        if self.min_p > 0.0 {
            let threshold = self.threshold(highest);
            let runner_up = runner_up(ranked).unwrap_or(f64::from(floor));
            min_p = Some(Cut::MinP {
                threshold,
                highest,
                runner_up,
            });
            let surviving = partition(ranked.get_mut(..kept).unwrap_or_default(), threshold);
            if surviving < kept || binding.is_none() {
                (kept, binding) = (surviving, min_p);
            }
        }
        let near = binding.map_or(kept, |cut| {
            kept + partition(ranked.get_mut(kept..).unwrap_or_default(), cut.floor())
        });
        Survivors {
            kept,
            near,
            cuts: [top_k, top_p, min_p],
            binding,
        }
    }

    /// Fills `ranked` with every token at or above the returned logit: enough for `top_k` and
    /// `min_p` and what is near their cuts, probably enough for `top_p`.
    fn collect(&self, logits: &[f32], highest: f64, ranked: &mut Vec<Rank>) -> f32 {
        let lowest_kept = if self.top_k > 0 {
            nth_logit(logits, self.top_k, ranked)
        } else if self.top_p < 1.0 {
            nth_logit(logits, FIRST_LOOK, ranked)
        } else {
            self.threshold(highest)
        };
        let floor = narrow_down(lowest_kept - NEAR);
        collect_from(logits, floor, ranked);
        floor
    }

    /// The logit at which `min_p` cuts.
    fn threshold(&self, highest: f64) -> f64 {
        highest + self.temperature * self.min_p.ln()
    }

    /// Moves the `top_k` best to the front. `None` when nothing near is dropped.
    fn cut_top_k(&self, ranked: &mut [Rank]) -> Option<Cut> {
        if self.top_k == 0 || self.top_k >= ranked.len() {
            return None;
        }
        let (_, last, dropped) = ranked.select_nth_unstable(self.top_k - 1);
        let next = dropped
            .iter()
            .copied()
            .min()
            .map_or(f64::NEG_INFINITY, logit_of);
        Some(Cut::TopK {
            last: logit_of(*last),
            next,
        })
    }

    /// Moves the tokens that `top_p` keeps to the front, of those that `top_k` kept.
    fn cut_top_p(&self, logits: &[f32], highest: f64, floor: f32, ranked: &mut Vec<Rank>) -> TopP {
        let mut mass = Mass {
            kept: 0.0,
            total: 0.0,
            target: (self.top_p / (1.0 - self.top_p)).ln(),
            temperature: self.temperature,
            highest,
        };
        if self.top_k > 0 {
            let within = self.top_k.min(ranked.len());
            let seen = ranked.get_mut(..within).unwrap_or_default();
            mass.total = seen.iter().map(|&rank| mass.weight(logit_of(rank))).sum();
            return find_top_p(seen, floor, mass, self.top_p);
        }
        mass.total = sum_of_weights(logits, highest, self.temperature);
        let found = find_top_p(ranked, floor, mass, self.top_p);
        // The reach must lie inside what was collected, or tokens near the cut could be missing.
        if found.cut.floor() >= f64::from(floor) {
            return found;
        }
        collect_from(logits, f32::MIN, ranked);
        find_top_p(ranked, f32::MIN, mass, self.top_p)
    }
}

/// Where `top_p` cut.
struct TopP {
    kept: usize,
    cut: Cut,
}

/// Finds the cut among `ranked`, which holds every token at or above `floor`, and moves what it
/// keeps to the front. Where `ranked` ends too early, the cut's reach lies below `floor`.
fn find_top_p(ranked: &mut [Rank], floor: f32, mut mass: Mass, top_p: f64) -> TopP {
    let (kept, kept_mass) = take_mass(ranked, 0.0, &mass, top_p * mass.total);
    mass.kept = kept_mass;
    let (front, rest) = ranked.split_at_mut(kept);
    let last = front.iter().copied().max().map_or(mass.highest, logit_of);
    let next = rest
        .iter()
        .copied()
        .min()
        .map_or(f64::from(floor), logit_of);
    // Log-odds that cumulative probability must reach for the cut to be NEAR away.
    let odds = (mass.target + NEAR / mass.temperature).exp();
    let target = if odds.is_finite() {
        odds / (1.0 + odds)
    } else {
        1.0
    };
    let (further, reached) = take_mass(rest, kept_mass, &mass, target * mass.total);
    let complete = reached >= target * mass.total * (1.0 - 1e-12);
    let reach = match rest
        .get(..further)
        .unwrap_or_default()
        .iter()
        .copied()
        .max()
    {
        _ if !complete => f64::NEG_INFINITY,
        Some(worst) => logit_of(worst),
        None => last,
    };
    TopP {
        kept,
        cut: Cut::TopP {
            last,
            next,
            reach,
            mass,
        },
    }
}

/// Moves the best tokens to the front until `mass` and theirs reach `target`; all of them if it is
/// never reached. Returns how many, and the mass then.
fn take_mass(ranked: &mut [Rank], mut mass: f64, scale: &Mass, target: f64) -> (usize, f64) {
    let weight = |rank: &Rank| scale.weight(logit_of(*rank));
    if mass >= target {
        return (0, mass);
    }
    let (mut low, mut high) = (0, ranked.len());
    while high - low > SMALL {
        let middle = low + (high - low) / 2;
        let open = ranked.get_mut(low..high).unwrap_or_default();
        open.select_nth_unstable(middle - low);
        let better: f64 = open.iter().take(middle - low).map(weight).sum();
        if mass + better >= target {
            high = middle;
        } else {
            mass += better;
            low = middle;
        }
    }
    let open = ranked.get_mut(low..high).unwrap_or_default();
    open.sort_unstable();
    for (index, rank) in open.iter().enumerate() {
        if mass >= target {
            return (low + index, mass);
        }
        mass += weight(rank);
    }
    (high, mass)
}

/// The second highest logit.
fn runner_up(ranked: &[Rank]) -> Option<f64> {
    let (mut best, mut second) = (Rank::MAX, Rank::MAX);
    for &rank in ranked {
        second = second.min(rank.max(best));
        best = best.min(rank);
    }
    (second < Rank::MAX).then(|| logit_of(second))
}

/// Moves ranks with a logit of at least `threshold` to the front; returns how many.
fn partition(ranked: &mut [Rank], threshold: f64) -> usize {
    let mut kept = 0;
    for index in 0..ranked.len() {
        if ranked
            .get(index)
            .is_some_and(|&rank| logit_of(rank) >= threshold)
        {
            ranked.swap(kept, index);
            kept += 1;
        }
    }
    kept
}

/// Collects every token with a logit of at least `floor`.
fn collect_from(logits: &[f32], floor: f32, ranked: &mut Vec<Rank>) {
    ranked.clear();
    for (token, &logit) in (0u32..).zip(logits) {
        if logit >= floor {
            ranked.push(rank(logit, token));
        }
    }
}

/// The `n`-th highest logit, or the lowest finite number when there are fewer. Overwrites `ranked`.
fn nth_logit(logits: &[f32], n: usize, ranked: &mut Vec<Rank>) -> f64 {
    ranked.clear();
    let room = n.saturating_mul(2).max(1024);
    let mut floor = f32::MIN;
    for (token, &logit) in (0u32..).zip(logits) {
        if logit < floor {
            continue;
        }
        ranked.push(rank(logit, token));
        if ranked.len() >= room {
            let (_, nth, _) = ranked.select_nth_unstable(n - 1);
            floor = narrow_down(logit_of(*nth));
            ranked.truncate(n);
        }
    }
    if ranked.len() < n {
        return f64::from(f32::MIN);
    }
    let (_, nth, _) = ranked.select_nth_unstable(n - 1);
    logit_of(*nth)
}

/// The closest finite f32 that is not above `value`, or one step further down.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding is compensated by one step down"
)]
fn narrow_down(value: f64) -> f32 {
    let near = value as f32;
    let below = if f64::from(near) > value {
        near.next_down()
    } else {
        near
    };
    below.max(f32::MIN)
}
