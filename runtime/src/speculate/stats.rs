//! How well drafts did.

use super::source::Source;
use std::time::Duration;

/// Counts of drafting, for one request or for an engine. They saturate.
///
/// ```
/// let stats = pawl::SpeculationStats::default();
/// assert_eq!((stats.rounds, stats.proposed), (0, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpeculationStats {
    /// Steps of a request that carried drafts.
    pub rounds: u64,
    /// Steps of a request that drew tokens without drafts.
    pub plain_steps: u64,
    /// Drafts that the decoder ran.
    pub proposed: u64,
    /// Drafts that were compared with the target's token.
    pub evaluated: u64,
    /// Drafts that were kept.
    pub accepted: u64,
    /// Drafts that a grammar did not allow: dropped before they were run, and not counted otherwise.
    pub forbidden: u64,
    /// Rounds in which the target's own token took the place of a draft.
    pub corrections: u64,
    /// Rounds in which every draft of a path was kept, and one more token came with them.
    pub bonus: u64,
    /// By position in the row, from 0: drafts compared there and drafts kept there.
    pub by_position: Vec<(u64, u64)>,
    /// By number of drafts kept, from 0: rounds that kept so many.
    pub by_accepted: Vec<u64>,
    /// By source: rounds that it proposed for, drafts that were run, compared and kept. A draft counts for the source that
    /// proposed it, a round for every source that has drafts in it.
    pub by_source: Vec<SourceStats>,
    /// Rounds that ran more than one row: trees with branches.
    pub branched: u64,
    /// Rounds in which another row than the first was kept.
    pub branch_wins: u64,
    /// Steps of the engine in which checkpoint outputs were bound; in no other step is anything captured for them. Counted
    /// for an engine only: 0 for one request.
    pub capturing_steps: u64,
    /// Runs of the decoder; for one request, those that it took part in.
    pub target_passes: u64,
    /// Runs of a draft head; for one request, those in steps that it took part in.
    pub draft_passes: u64,
    /// Time of these runs of the decoder.
    pub run_time: Duration,
    /// Time of making drafts in these steps, the head's runs included.
    pub draft_time: Duration,
    /// Time of committing these steps.
    pub commit_time: Duration,
    /// Bytes that sources of drafts hold beside the pools. Of an engine only: 0 for one request.
    pub held_bytes: u64,
    /// Why drafts were not made as asked, and how often that began.
    pub fallbacks: Vec<Fallback>,
    /// What was decided last where drafts could be used; of an engine, for the request that was decided for last.
    pub policy: Option<Policy>,
}

/// Counts of one source; see [`SpeculationStats::by_source`].
///
/// ```
/// let busiest = |stats: &pawl::SpeculationStats| stats.by_source.iter().map(|of| of.proposed).max();
/// # let _ = busiest;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStats {
    /// Which one.
    pub source: Source,
    /// Rounds that it proposed for.
    pub rounds: u64,
    /// Drafts that the decoder ran.
    pub proposed: u64,
    /// Drafts that were compared with the target's token.
    pub evaluated: u64,
    /// Drafts that were kept.
    pub accepted: u64,
}

/// A departure from what was asked for; see [`SpeculationStats::fallbacks`].
///
/// ```
/// for fallback in pawl::SpeculationStats::default().fallbacks {
///     println!("{} times: {}", fallback.count, fallback.reason);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fallback {
    /// Why.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// How drafts are made at the moment; see [`SpeculationStats::policy`].
///
/// ```
/// let drafting = |stats: &pawl::SpeculationStats| stats.policy.as_ref().is_some_and(|now| now.drafts > 0);
/// # let _ = drafting;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// From where; `None` when nothing is drafted.
    pub source: Option<Source>,
    /// Drafts along one path, at most.
    pub drafts: usize,
    /// Rows of one tree, at most; 1 without branches.
    pub width: usize,
    /// Why.
    pub why: String,
}

/// One row that drew tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Who proposed; the first one where a second has added to it.
    pub(crate) source: Option<Source>,
    /// Who added drafts, and behind how many of them.
    pub(crate) tail: Option<(Source, usize)>,
    /// Drafts that were run, those of branches included.
    pub(crate) proposed: usize,
    /// Drafts that were compared.
    pub(crate) evaluated: usize,
    /// Drafts that were kept.
    pub(crate) accepted: usize,
    /// Rows that were run.
    pub(crate) rows: usize,
    /// Which of them is kept.
    pub(crate) winner: usize,
    /// Drafts that were dropped because a grammar did not allow them.
    pub(crate) forbidden: usize,
}

impl Round {
    /// What every source has of it.
    fn by_source(&self) -> impl Iterator<Item = SourceStats> {
        let own = self.tail.map_or(usize::MAX, |(_, own)| own);
        let first = self.source.map(|source| self.share(source, 0, own));
        let tail = self.tail;
        let tail = tail.map(|(source, own)| self.share(source, own, usize::MAX));
        let shares = first.into_iter().chain(tail);
        shares.filter(|share| share.proposed > 0)
    }

    /// The drafts of one source: of a row those between two positions, since only rows without branches are added to.
    fn share(&self, source: Source, from: usize, to: usize) -> SourceStats {
        let within = |count: usize| {
            let within = count.min(to).saturating_sub(from);
            u64::try_from(within).unwrap_or(u64::MAX)
        };
        SourceStats {
            source,
            rounds: 1,
            proposed: within(self.proposed),
            evaluated: within(self.evaluated),
            accepted: within(self.accepted),
        }
    }
}

/// What one step cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) run: Duration,
    pub(crate) draft: Duration,
    pub(crate) commit: Duration,
    /// Runs of a draft head.
    pub(crate) draft_passes: u64,
}

impl SpeculationStats {
    /// Counts one row that drew tokens.
    pub(crate) fn count(&mut self, round: &Round) {
        let &Round {
            proposed,
            evaluated,
            accepted,
            rows,
            winner,
            forbidden,
            ..
        } = round;
        add(&mut self.forbidden, forbidden);
        if proposed == 0 {
            add(&mut self.plain_steps, 1);
            return;
        }
        add(&mut self.rounds, 1);
        add(&mut self.proposed, proposed);
        add(&mut self.evaluated, evaluated);
        add(&mut self.accepted, accepted);
        let corrected = evaluated > accepted;
        add(&mut self.corrections, usize::from(corrected));
        add(&mut self.bonus, usize::from(!corrected));
        add(&mut self.branched, usize::from(rows > 1));
        add(&mut self.branch_wins, usize::from(winner > 0));
        if self.by_position.len() < evaluated {
            self.by_position.resize(evaluated, (0, 0));
        }
        for (position, (seen, kept)) in self.by_position.iter_mut().take(evaluated).enumerate() {
            add(seen, 1);
            add(kept, usize::from(position < accepted));
        }
        if self.by_accepted.len() <= accepted {
            self.by_accepted.resize(accepted + 1, 0);
        }
        if let Some(rounds) = self.by_accepted.get_mut(accepted) {
            add(rounds, 1);
        }
        for share in round.by_source() {
            self.add_to_source(&share);
        }
    }

    /// Counts what a step cost.
    pub(crate) fn spend(&mut self, spent: &Spent) {
        add(&mut self.target_passes, 1);
        self.draft_passes = self.draft_passes.saturating_add(spent.draft_passes);
        self.run_time = self.run_time.saturating_add(spent.run);
        self.draft_time = self.draft_time.saturating_add(spent.draft);
        self.commit_time = self.commit_time.saturating_add(spent.commit);
    }

    /// Notes a departure from what was asked for.
    pub(crate) fn fall_back(&mut self, reason: &str, count: u64) {
        let known = self.fallbacks.iter_mut().find(|f| f.reason == reason);
        match known {
            Some(known) => known.count = known.count.saturating_add(count),
            None => self.fallbacks.push(Fallback {
                reason: reason.to_owned(),
                count,
            }),
        }
    }

    fn add_to_source(&mut self, more: &SourceStats) {
        let known = self.by_source.iter_mut();
        match known.into_iter().find(|of| of.source == more.source) {
            Some(of) => {
                of.rounds = of.rounds.saturating_add(more.rounds);
                of.proposed = of.proposed.saturating_add(more.proposed);
                of.evaluated = of.evaluated.saturating_add(more.evaluated);
                of.accepted = of.accepted.saturating_add(more.accepted);
            }
            None => self.by_source.push(*more),
        }
    }

    /// Adds the counts of another request.
    ///
    /// ```
    /// let (mut sum, mut one) = (pawl::SpeculationStats::default(), pawl::SpeculationStats::default());
    /// (one.rounds, one.by_position) = (1, vec![(1, 1), (1, 0)]);
    /// sum.merge(&one);
    /// sum.merge(&one);
    /// assert_eq!((sum.rounds, sum.by_position), (2, vec![(2, 2), (2, 0)]));
    /// ```
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.rounds, other.rounds),
            (&mut self.plain_steps, other.plain_steps),
            (&mut self.proposed, other.proposed),
            (&mut self.evaluated, other.evaluated),
            (&mut self.accepted, other.accepted),
            (&mut self.forbidden, other.forbidden),
            (&mut self.corrections, other.corrections),
            (&mut self.bonus, other.bonus),
            (&mut self.branched, other.branched),
            (&mut self.branch_wins, other.branch_wins),
            (&mut self.capturing_steps, other.capturing_steps),
            (&mut self.target_passes, other.target_passes),
            (&mut self.draft_passes, other.draft_passes),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.held_bytes = self.held_bytes.max(other.held_bytes);
        for (sum, more) in [
            (&mut self.run_time, other.run_time),
            (&mut self.draft_time, other.draft_time),
            (&mut self.commit_time, other.commit_time),
        ] {
            *sum = sum.saturating_add(more);
        }
        let positions = self.by_position.len().max(other.by_position.len());
        self.by_position.resize(positions, (0, 0));
        for ((seen, kept), more) in self.by_position.iter_mut().zip(&other.by_position) {
            *seen = seen.saturating_add(more.0);
            *kept = kept.saturating_add(more.1);
        }
        let kept = self.by_accepted.len().max(other.by_accepted.len());
        self.by_accepted.resize(kept, 0);
        for (rounds, more) in self.by_accepted.iter_mut().zip(&other.by_accepted) {
            *rounds = rounds.saturating_add(*more);
        }
        for more in &other.by_source {
            self.add_to_source(more);
        }
        for Fallback { reason, count } in &other.fallbacks {
            self.fall_back(reason, *count);
        }
        self.policy = other.policy.clone().or(self.policy.take());
    }

    /// Kept drafts per compared one; 0 before any.
    ///
    /// ```
    /// let mut stats = pawl::SpeculationStats::default();
    /// (stats.evaluated, stats.accepted) = (8, 6);
    /// assert_eq!(stats.acceptance(), 0.75);
    /// ```
    #[must_use]
    pub fn acceptance(&self) -> f64 {
        if self.evaluated == 0 {
            0.0
        } else {
            self.accepted as f64 / self.evaluated as f64
        }
    }

    /// The same without what no two runs have alike.
    #[cfg(test)]
    pub(crate) fn without_times(mut self) -> Self {
        for time in [
            &mut self.run_time,
            &mut self.draft_time,
            &mut self.commit_time,
        ] {
            *time = Duration::ZERO;
        }
        self
    }
}

fn add(counter: &mut u64, by: usize) {
    *counter = counter.saturating_add(u64::try_from(by).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(proposed: usize, evaluated: usize, accepted: usize) -> Round {
        Round {
            source: Some(Source::Head),
            tail: None,
            proposed,
            evaluated,
            accepted,
            rows: 1,
            winner: 0,
            forbidden: 1,
        }
    }

    #[test]
    fn only_compared_drafts_count_as_evaluated() {
        let mut stats = SpeculationStats::default();
        stats.count(&round(3, 2, 1));
        stats.count(&round(3, 3, 3));
        stats.count(&round(0, 0, 0));
        assert_eq!((stats.rounds, stats.plain_steps), (2, 1));
        assert_eq!((stats.proposed, stats.evaluated, stats.accepted), (6, 5, 4));
        assert_eq!((stats.corrections, stats.bonus), (1, 1));
        assert_eq!(stats.forbidden, 3);
        assert_eq!(stats.by_position, [(2, 2), (2, 1), (1, 1)]);
        assert_eq!(stats.by_accepted, [0, 1, 0, 1]);
        let [of] = stats.by_source[..] else { panic!() };
        assert_eq!((of.rounds, of.proposed), (2, 6));
        assert_eq!((of.evaluated, of.accepted), (5, 4));
        assert!((stats.acceptance() - 0.8).abs() < 1e-12);
    }

    /// Drafts count for who made them, whatever part of both is run, compared and kept.
    #[test]
    fn what_a_second_source_adds_is_its_own() {
        let of = |own, [proposed, evaluated, accepted]: [usize; 3]| {
            let mut stats = SpeculationStats::default();
            stats.count(&Round {
                tail: Some((Source::Lookup, own)),
                ..round(proposed, evaluated, accepted)
            });
            let shares = stats.by_source.iter();
            let shares = shares.map(|of| {
                (
                    of.source,
                    [of.rounds, of.proposed, of.evaluated, of.accepted],
                )
            });
            shares.collect::<Vec<_>>()
        };
        let (head, lookup) = (Source::Head, Source::Lookup);
        let both = of(2, [5, 4, 3]);
        assert_eq!(both, [(head, [1, 2, 2, 2]), (lookup, [1, 3, 2, 1])]);
        let unseen = of(2, [5, 1, 0]);
        assert_eq!(unseen, [(head, [1, 2, 1, 0]), (lookup, [1, 3, 0, 0])]);
        assert_eq!(of(0, [3, 3, 3]), [(lookup, [1, 3, 3, 3])]);
        assert_eq!(of(3, [2, 2, 1]), [(head, [1, 2, 2, 1])]);
    }

    #[test]
    fn sums_are_those_of_one_count_over_everything() {
        let rounds = [
            round(3, 2, 1),
            round(3, 3, 3),
            round(0, 0, 0),
            round(7, 6, 5),
        ];
        let mut whole = SpeculationStats::default();
        let mut sum = SpeculationStats::default();
        for round in rounds {
            let mut one = SpeculationStats::default();
            one.count(&round);
            one.fall_back("because", 1);
            sum.merge(&one);
            whole.count(&round);
            whole.fall_back("because", 1);
        }
        assert_eq!(sum, whole);
        assert_eq!(sum.fallbacks[0].count, 4);
    }
}
