//! How well drafts did.

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
    /// By position in the row, from 0: drafts compared there and drafts kept there.
    pub by_position: Vec<(u64, u64)>,
    /// Steps of the engine in which checkpoint outputs were bound; in no other step is anything captured for them. Counted
    /// for an engine only: 0 for one request.
    pub capturing_steps: u64,
}

impl SpeculationStats {
    /// Counts one row that drew tokens.
    pub(crate) fn count(&mut self, proposed: usize, evaluated: usize, accepted: usize) {
        if proposed == 0 {
            add(&mut self.plain_steps, 1);
            return;
        }
        add(&mut self.rounds, 1);
        add(&mut self.proposed, proposed);
        add(&mut self.evaluated, evaluated);
        add(&mut self.accepted, accepted);
        if self.by_position.len() < evaluated {
            self.by_position.resize(evaluated, (0, 0));
        }
        for (position, (seen, kept)) in self.by_position.iter_mut().take(evaluated).enumerate() {
            add(seen, 1);
            add(kept, usize::from(position < accepted));
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
            (&mut self.capturing_steps, other.capturing_steps),
        ] {
            *sum = sum.saturating_add(more);
        }
        let positions = self.by_position.len().max(other.by_position.len());
        self.by_position.resize(positions, (0, 0));
        for ((seen, kept), more) in self.by_position.iter_mut().zip(&other.by_position) {
            *seen = seen.saturating_add(more.0);
            *kept = kept.saturating_add(more.1);
        }
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
}

fn add(counter: &mut u64, by: usize) {
    *counter = counter.saturating_add(u64::try_from(by).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compared_drafts_count_as_evaluated() {
        let mut stats = SpeculationStats::default();
        stats.count(3, 2, 1);
        stats.count(3, 3, 3);
        stats.count(0, 0, 0);
        assert_eq!((stats.rounds, stats.plain_steps), (2, 1));
        assert_eq!((stats.proposed, stats.evaluated, stats.accepted), (6, 5, 4));
        assert_eq!(stats.by_position, [(2, 2), (2, 1), (1, 1)]);
        assert!((stats.acceptance() - 0.8).abs() < 1e-12);
    }
}
