//! What steps and drafting cost, learnt from how long they took.

use super::Source;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Measurements of a shape that are thrown away: memory is allocated and code is loaded in them.
const WARM_UP: u32 = 1;
/// Measurements before a shape counts as known.
const KNOWN: usize = 3;
/// Measurements whose median is taken.
const WINDOW: usize = 5;
/// Weight of a new median, and of one that is below the estimate.
const WEIGHT: f64 = 0.2;
const SHORTER: f64 = 0.5;
/// How far one median moves an estimate at most, as a factor.
const LEAP: f64 = 2.0;
/// What one more token per request is taken to cost, as a part of the cheapest step known, where nothing else is known. It
/// is on the low side so that more tokens are tried, and measured.
const UNKNOWN_TOKEN: f64 = 0.1;
/// Contexts below this share one cell; then every doubling has its own.
const CONTEXT: usize = 1024;
/// Numbers of requests and contexts, the nearest ones, that costs are taken from.
const NEIGHBOURS: usize = 4;
/// Shapes that are kept, of each kind.
const MOST_CURVES: usize = 256;
const MOST_CELLS: usize = 128;

/// What a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepShape {
    /// Requests that decode.
    pub(crate) requests: usize,
    /// Tokens of all rows, known ones and drafts.
    pub(crate) tokens: usize,
    /// Tokens of the longest request.
    pub(crate) context: usize,
}

/// Seconds of steps by shape, and of drafting by source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Cells", into = "Cells")]
pub(crate) struct CostTable {
    /// By requests and class of context.
    steps: BTreeMap<(usize, u32), Curve>,
    /// By source and requests.
    drafting: BTreeMap<(Source, usize), Curve>,
}

impl CostTable {
    /// Learns from a step that only decoded.
    pub(crate) fn observe_step(&mut self, shape: StepShape, seconds: f64) {
        let key = (shape.requests, context_class(shape.context));
        learn(&mut self.steps, key, shape.tokens, seconds);
    }

    /// Learns from drafting up to `drafts` tokens for each of `requests` requests.
    pub(crate) fn observe_drafting(
        &mut self,
        source: Source,
        drafts: usize,
        requests: usize,
        seconds: f64,
    ) {
        learn(&mut self.drafting, (source, requests), drafts, seconds);
    }

    /// Seconds of steps of so many requests by their tokens; never less for more. `None` while no step was seen.
    ///
    /// What was not measured for these requests and this context is taken from the nearest for which it was, in the
    /// proportion that both have where both were measured. Tokens that were measured nowhere are estimated from others.
    pub(crate) fn steps(&self, requests: usize, context: usize) -> Option<Line> {
        let class = context_class(context);
        let far = |(of, of_class): &(usize, u32)| (of.abs_diff(requests), of_class.abs_diff(class));
        let known = self.steps.iter().filter(|(_, curve)| curve.is_known());
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|(key, _)| far(key));
        let nearest = known.first()?.0.0;
        let mut merged = BTreeMap::new();
        for (_, curve) in known.into_iter().take(NEIGHBOURS) {
            curve.fill_in(&mut merged);
        }
        let points = rising(&merged);
        let unknown = UNKNOWN_TOKEN * points.first()?.1 / nearest.max(1) as f64;
        Some(Line { points, unknown })
    }

    /// Seconds of one step; see [`Self::steps`].
    #[cfg(test)]
    pub(crate) fn step(&self, shape: StepShape) -> Option<f64> {
        let line = self.steps(shape.requests, shape.context)?;
        Some(line.at(shape.tokens))
    }

    /// Whether steps without drafts are known for so many requests, whatever their context.
    pub(crate) fn knows_plain(&self, requests: usize) -> bool {
        let of = self.steps.range((requests, 0)..=(requests, u32::MAX));
        let mut cells = of.filter_map(|(_, curve)| curve.cells.get(&requests));
        cells.any(Cell::is_known)
    }

    /// Whether the very shape was measured `times` times.
    pub(crate) fn is_measured(&self, shape: StepShape, times: u32) -> bool {
        let curve = self
            .steps
            .get(&(shape.requests, context_class(shape.context)));
        let cell = curve.and_then(|curve| curve.cells.get(&shape.tokens));
        cell.is_some_and(|cell| cell.is_known() && cell.count >= times)
    }

    /// Whether the very shape is known from another process alone.
    pub(crate) fn is_from_elsewhere(&self, shape: StepShape) -> bool {
        let key = (shape.requests, context_class(shape.context));
        let cell = self
            .steps
            .get(&key)
            .and_then(|curve| curve.cells.get(&shape.tokens));
        cell.is_some_and(|cell| cell.from_elsewhere)
    }

    /// Seconds of drafting for so many requests by drafts of each; 0 for none, never less for more. `None` while the source
    /// was not seen.
    pub(crate) fn drafting(&self, source: Source, requests: usize) -> Option<Line> {
        let of_source = |key: &(Source, usize)| key.0 == source;
        let known = self
            .drafting
            .iter()
            .filter(|(key, curve)| of_source(key) && curve.is_known());
        let (_, curve) = known.min_by_key(|(key, _)| key.1.abs_diff(requests))?;
        let mut points = curve.points();
        points.insert(0, (0.0, 0.0));
        Some(Line {
            points,
            unknown: 0.0,
        })
    }
}

fn context_class(context: usize) -> u32 {
    (context / CONTEXT)
        .checked_ilog2()
        .map_or(0, |class| class + 1)
}

fn learn<K: Ord>(curves: &mut BTreeMap<K, Curve>, key: K, at: usize, seconds: f64) {
    if !seconds.is_finite() || seconds <= 0.0 {
        return;
    }
    if curves.len() < MOST_CURVES || curves.contains_key(&key) {
        curves.entry(key).or_default().observe(at, seconds);
    }
}

/// Seconds by a count.
#[derive(Clone, Debug, Default, PartialEq)]
struct Curve {
    cells: BTreeMap<usize, Cell>,
}

impl Curve {
    fn observe(&mut self, at: usize, seconds: f64) {
        if self.cells.len() < MOST_CELLS || self.cells.contains_key(&at) {
            self.cells.entry(at).or_default().observe(seconds);
        }
    }

    fn is_known(&self) -> bool {
        self.cells.values().any(Cell::is_known)
    }

    fn known(&self) -> impl Iterator<Item = (usize, &Cell)> {
        let cells = self.cells.iter().filter(|(_, cell)| cell.is_known());
        cells.map(|(at, cell)| (*at, cell))
    }

    fn points(&self) -> Vec<(f64, f64)> {
        let cells = self
            .known()
            .map(|(at, cell)| (at, (cell.estimate, cell.weight())));
        rising(&cells.collect())
    }

    /// Adds what is known here and not there, scaled by how much more is known to take there.
    fn fill_in(&self, merged: &mut BTreeMap<usize, (f64, f64)>) {
        let line = Line {
            points: self.points(),
            unknown: 0.0,
        };
        let own = !merged.is_empty();
        let mut proportions = (0.0, 0.0);
        for (at, (seconds, weight)) in merged.iter() {
            proportions.0 += weight * seconds / line.at(*at).max(f64::MIN_POSITIVE);
            proportions.1 += weight;
        }
        let proportion = if own {
            proportions.0 / proportions.1
        } else {
            1.0
        };
        for (at, cell) in self.known() {
            let weight = if own { 1.0 } else { cell.weight() };
            let cell = (cell.estimate * proportion, weight);
            merged.entry(at).or_insert(cell);
        }
    }
}

/// Points made monotone: neighbours that fall are put at their common mean, by their weights.
fn rising(cells: &BTreeMap<usize, (f64, f64)>) -> Vec<(f64, f64)> {
    let mut pools: Vec<(f64, f64, Vec<usize>)> = Vec::new();
    for (at, (seconds, weight)) in cells {
        let mut pool = (*seconds, *weight, vec![*at]);
        while let Some(before) = pools.pop_if(|before| before.0 > pool.0) {
            let weight = before.1 + pool.1;
            let mean = (before.0 * before.1 + pool.0 * pool.1) / weight;
            pool = (mean, weight, [before.2, pool.2].concat());
        }
        pools.push(pool);
    }
    let of_pool = |(mean, _, members): (f64, f64, Vec<usize>)| {
        members.into_iter().map(move |at| (at as f64, mean))
    };
    pools.into_iter().flat_map(of_pool).collect()
}

/// Seconds by a count, between and beyond what was measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// Rising in both, at least one.
    points: Vec<(f64, f64)>,
    /// Seconds for one more where a single point is known.
    unknown: f64,
}

impl Line {
    /// Seconds for a count.
    pub(crate) fn at(&self, at: usize) -> f64 {
        self.at_mean(at as f64)
    }

    /// Seconds for a count that is a mean.
    pub(crate) fn at_mean(&self, at: f64) -> f64 {
        let first = self.points.first().copied().unwrap_or_default();
        let last = self.points.last().copied().unwrap_or_default();
        if at < first.0 {
            return (first.1 - self.unknown * (first.0 - at)).max(first.1 / 2.0);
        }
        if at > last.0 {
            let slope = if last.0 > first.0 {
                (last.1 - first.1) / (last.0 - first.0)
            } else {
                self.unknown
            };
            return last.1 + slope * (at - last.0);
        }
        between(&self.points, at)
    }
}

impl Line {
    /// The least that costs can be, since they never fall: that of the nearest count below that was measured.
    pub(crate) fn least(&self) -> Self {
        let mut points = Vec::with_capacity(2 * self.points.len());
        for (point, next) in self.points.iter().zip(self.points.iter().skip(1)) {
            points.extend([*point, (next.0 - 0.5, point.1)]);
        }
        let last = self.points.last().copied().unwrap_or_default();
        points.extend([last, (f64::from(u32::MAX), last.1)]);
        Self {
            points,
            unknown: self.unknown,
        }
    }
}

/// Linear between the points around a value; the last value where it is beyond them.
fn between(points: &[(f64, f64)], at: f64) -> f64 {
    let above = points.iter().position(|point| point.0 >= at);
    let above = above.unwrap_or(points.len().saturating_sub(1));
    let high = points.get(above).copied().unwrap_or_default();
    let low = points.get(above.saturating_sub(1)).copied().unwrap_or(high);
    if high.0 <= low.0 {
        return high.1;
    }
    low.1 + (high.1 - low.1) * (at - low.0) / (high.0 - low.0)
}

/// One shape. The estimate follows the median of the last few measurements, so single ones that took long do not count.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cell {
    estimate: f64,
    count: u32,
    recent: Vec<f64>,
    /// Whether the estimate is that of another process, until enough is measured here.
    from_elsewhere: bool,
}

impl Cell {
    fn observe(&mut self, seconds: f64) {
        self.count = self.count.saturating_add(1);
        if self.count <= WARM_UP {
            return;
        }
        if self.recent.len() == WINDOW {
            self.recent.remove(0);
        }
        self.recent.push(seconds);
        let mut sorted = self.recent.clone();
        sorted.sort_by(f64::total_cmp);
        // Of an even number the lower one: what disturbs a measurement makes it longer.
        let median = sorted
            .get((sorted.len() - 1) / 2)
            .copied()
            .unwrap_or(seconds);
        let fresh = self.count <= WARM_UP + u32::try_from(WINDOW).unwrap_or(u32::MAX);
        let settles = self.from_elsewhere && self.recent.len() >= KNOWN;
        if settles || fresh && !self.from_elsewhere {
            self.estimate = median;
            self.from_elsewhere = false;
        } else if self.recent.len() >= KNOWN {
            let bounded = median.clamp(self.estimate / LEAP, self.estimate * LEAP);
            // What disturbs a measurement makes it longer, so shorter ones are believed sooner.
            let weight = if bounded < self.estimate {
                SHORTER
            } else {
                WEIGHT
            };
            self.estimate += weight * (bounded - self.estimate);
        }
    }

    fn weight(&self) -> f64 {
        f64::from(self.count.max(1))
    }

    fn is_known(&self) -> bool {
        self.count as usize >= WARM_UP as usize + KNOWN
    }
}

/// The table as it is written: known cells only.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cells {
    steps: Vec<StepCell>,
    drafting: Vec<DraftingCell>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepCell {
    requests: usize,
    context_class: u32,
    tokens: usize,
    seconds: f64,
    count: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DraftingCell {
    source: Source,
    requests: usize,
    drafts: usize,
    seconds: f64,
    count: u32,
}

impl From<CostTable> for Cells {
    fn from(table: CostTable) -> Self {
        let known = |curve: Curve| curve.cells.into_iter().filter(|(_, cell)| cell.is_known());
        let steps = table.steps.into_iter().flat_map(|(key, curve)| {
            known(curve).map(move |(tokens, cell)| StepCell {
                requests: key.0,
                context_class: key.1,
                tokens,
                seconds: cell.estimate,
                count: cell.count,
            })
        });
        let drafting = table.drafting.into_iter().flat_map(|(key, curve)| {
            known(curve).map(move |(drafts, cell)| DraftingCell {
                source: key.0,
                requests: key.1,
                drafts,
                seconds: cell.estimate,
                count: cell.count,
            })
        });
        Self {
            steps: steps.collect(),
            drafting: drafting.collect(),
        }
    }
}

impl From<Cells> for CostTable {
    /// What is no duration is passed over.
    fn from(cells: Cells) -> Self {
        let mut table = Self::default();
        for cell in cells.steps {
            let key = (cell.requests, cell.context_class);
            place(
                &mut table.steps,
                key,
                cell.tokens,
                (cell.seconds, cell.count),
            );
        }
        for cell in cells.drafting {
            let key = (cell.source, cell.requests);
            place(
                &mut table.drafting,
                key,
                cell.drafts,
                (cell.seconds, cell.count),
            );
        }
        table
    }
}

fn place<K: Ord>(curves: &mut BTreeMap<K, Curve>, key: K, at: usize, (seconds, count): (f64, u32)) {
    let room = curves.len() < MOST_CURVES || curves.contains_key(&key);
    if !room || !seconds.is_finite() || seconds <= 0.0 {
        return;
    }
    let curve = curves.entry(key).or_default();
    if curve.cells.len() < MOST_CELLS {
        // As well known as a cell that was just filled.
        let settled = WARM_UP + u32::try_from(WINDOW).unwrap_or(u32::MAX);
        let cell = Cell {
            estimate: seconds,
            count: count.clamp(WARM_UP, settled),
            recent: Vec::new(),
            from_elsewhere: true,
        };
        curve.cells.insert(at, cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(requests: usize, tokens: usize) -> StepShape {
        StepShape {
            requests,
            tokens,
            context: 100,
        }
    }

    fn table(points: &[(usize, f64)]) -> CostTable {
        let mut table = CostTable::default();
        for (tokens, seconds) in points {
            for _ in 0..4 {
                table.observe_step(shape(1, *tokens), *seconds);
            }
        }
        table
    }

    #[test]
    fn nothing_is_known_before_a_few_measurements() {
        let mut table = CostTable::default();
        assert_eq!(table.step(shape(1, 1)), None);
        for seconds in [9.0, 1.0, 7.0] {
            table.observe_step(shape(1, 1), seconds);
        }
        assert_eq!(table.step(shape(1, 1)), None);
        table.observe_step(shape(1, 1), 0.9);
        assert_eq!(table.step(shape(1, 1)), Some(1.0));
        assert_eq!(table.drafting(Source::Head, 1), None);
    }

    #[test]
    fn single_long_ones_do_not_count_and_a_lasting_change_does() {
        let mut table = CostTable::default();
        for index in 0..60 {
            let seconds = if index % 7 == 0 { 50.0 } else { 1.0 };
            table.observe_step(shape(1, 1), seconds);
        }
        let calm = table.step(shape(1, 1)).unwrap();
        assert!((calm - 1.0).abs() < 1e-9, "{calm}");
        table.observe_step(shape(1, 1), f64::NAN);
        table.observe_step(shape(1, 1), -1.0);
        for _ in 0..30 {
            table.observe_step(shape(1, 1), 3.0);
        }
        let slow = table.step(shape(1, 1)).unwrap();
        assert!((slow - 3.0).abs() < 0.1, "{slow}");
    }

    #[test]
    fn shapes_not_seen_are_estimated() {
        let table = table(&[(1, 1.0), (4, 1.6), (8, 4.0)]);
        let at = |tokens| table.step(shape(1, tokens)).unwrap();
        assert!((at(2) - 1.2).abs() < 1e-9);
        assert!((at(6) - 2.8).abs() < 1e-9);
        assert!(at(10) > at(8));
        let least = table.steps(1, 100).unwrap().least();
        let bounds = [1, 2, 4, 7, 8, 99].map(|tokens| least.at(tokens));
        assert_eq!(bounds, [1.0, 1.0, 1.6, 1.6, 4.0, 4.0]);
        // Another number of requests takes the nearest, another context too.
        assert_eq!(table.step(shape(3, 4)), Some(1.6));
        let far = StepShape {
            context: 1 << 20,
            ..shape(1, 4)
        };
        assert_eq!(table.step(far), Some(1.6));
        assert!(table.is_measured(shape(1, 4), 4) && !table.is_measured(shape(1, 4), 5));
        assert!(!table.is_measured(shape(1, 5), 1) && !table.is_measured(far, 1));
    }

    #[test]
    fn a_shape_that_was_not_seen_costs_in_proportion() {
        let mut table = table(&[(1, 1.0), (2, 1.8)]);
        let long = |tokens| StepShape {
            requests: 1,
            tokens,
            context: 5000,
        };
        for _ in 0..4 {
            table.observe_step(long(2), 3.6);
        }
        let line = table.steps(1, 5000).unwrap();
        assert!((line.at(1) - 2.0).abs() < 1e-9 && (line.at(2) - 3.6).abs() < 1e-9);
    }

    #[test]
    fn drafting_costs_nothing_for_no_drafts_and_goes_on_in_proportion() {
        let mut table = CostTable::default();
        for _ in 0..4 {
            table.observe_drafting(Source::Head, 2, 1, 0.4);
        }
        let line = table.drafting(Source::Head, 2).unwrap();
        let near = |drafts, seconds: f64| (line.at(drafts) - seconds).abs() < 1e-9;
        assert!(near(0, 0.0) && near(1, 0.2) && near(4, 0.8));
        assert_eq!(table.drafting(Source::Lookup, 1), None);
    }

    #[test]
    fn contexts_are_told_apart_by_doublings() {
        let classes = [0, 1023, 1024, 2047, 2048, 4096, 1 << 20].map(context_class);
        assert_eq!(classes, [0, 0, 1, 1, 2, 3, 11]);
    }

    #[test]
    fn a_written_table_is_read_again() {
        let mut table = table(&[(1, 1.0), (4, 1.6)]);
        for _ in 0..40 {
            table.observe_drafting(Source::Lookup, 2, 1, 0.4);
        }
        table.observe_step(shape(1, 7), 1.0);
        let text = serde_json::to_string(&table).unwrap();
        let read: CostTable = serde_json::from_str(&text).unwrap();
        for tokens in 1..9 {
            assert_eq!(read.step(shape(1, tokens)), table.step(shape(1, tokens)));
        }
        assert_eq!(
            read.drafting(Source::Lookup, 1),
            table.drafting(Source::Lookup, 1)
        );
        // One measurement of another machine state does not throw over what was read.
        let mut read = read;
        read.observe_drafting(Source::Lookup, 2, 1, 40.0);
        assert_eq!(
            read.drafting(Source::Lookup, 1),
            table.drafting(Source::Lookup, 1)
        );
        let odd = text.replace("1.6", "-3.0");
        let read: CostTable = serde_json::from_str(&odd).unwrap();
        assert!(!read.is_measured(shape(1, 4), 0));
    }

    proptest! {
        #[test]
        fn more_tokens_never_cost_less(
            points in proptest::collection::vec((1_usize..20, 0.1_f64..9.0), 1..12),
        ) {
            let table = table(&points);
            let costs: Vec<_> = (1..30).map(|n| table.step(shape(1, n)).unwrap()).collect();
            prop_assert!(costs.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9), "{:?}", costs);
            let least = points.iter().map(|point| point.1).fold(f64::MAX, f64::min);
            let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
            prop_assert!(costs[0] >= least / 2.0 - 1e-9 && costs[0] <= most);
        }

        #[test]
        fn a_table_is_bounded(shapes in proptest::collection::vec((0_usize..999, 0_usize..999), 0..2000)) {
            let mut table = CostTable::default();
            for (requests, tokens) in shapes {
                table.observe_step(shape(requests, tokens), 1.0);
            }
            prop_assert!(table.steps.len() <= MOST_CURVES);
            prop_assert!(table.steps.values().all(|curve| curve.cells.len() <= MOST_CELLS));
        }
    }
}
