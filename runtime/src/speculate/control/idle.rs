//! When drafts that did not pay are tried again.

/// Tokens without drafts before the first trial, and before any.
const FIRST_WAIT: usize = 64;
const LONGEST_WAIT: usize = 512;
/// Rounds of a trial, and of one in which three of four rounds have a right draft.
const ROUNDS: usize = 4;
const MOST_ROUNDS: usize = 16;
/// Accepted drafts with which drafting was worth it: the next wait is short again.
const WORTH_IT: usize = 128;

/// How long a request has not drafted. Waits double from trial to trial while nothing comes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Idle {
    tokens: usize,
    /// Trials that failed in a row.
    failed: u32,
    /// Trials begun.
    count: usize,
    /// Rounds of the trial, and those with a right draft.
    trial: Option<(usize, usize)>,
    /// Drafts accepted since it last did not draft.
    accepted: usize,
    /// Whether it drafts, in a trial or because it pays.
    drafting: bool,
}

/// What a request does that would not draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It does not.
    Rest,
    /// It begins a trial, with its number.
    Begin(usize),
    /// It goes on with the trial.
    Go(usize),
}

/// What came of one round of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was to decode without drafts.
    Plain,
    /// Drafts were asked for, and there were none: a trial says no more.
    Nothing,
    /// So many drafts were accepted.
    Accepted(usize),
}

impl Idle {
    /// It drafts because that pays.
    pub(super) fn drafts(&mut self) {
        self.trial = None;
        self.drafting = true;
    }

    /// It would not draft in this step.
    pub(super) fn turn(&mut self) -> Turn {
        if self.trial.is_some() {
            return Turn::Go(self.count);
        }
        if self.drafting {
            self.rests();
        }
        if self.tokens < self.wait() {
            return Turn::Rest;
        }
        self.count = self.count.wrapping_add(1);
        self.trial = Some((0, 0));
        self.drafting = true;
        Turn::Begin(self.count)
    }

    /// A request began a trial: those who come later need not, and wait as long as it does.
    pub(super) fn begun(&mut self, request: Self) {
        (self.tokens, self.failed, self.count) = (0, request.failed, request.count);
    }

    /// What came of a round, beside its one token.
    pub(super) fn observe(&mut self, outcome: Outcome) {
        let accepted = match outcome {
            Outcome::Plain => {
                self.tokens = self.tokens.saturating_add(1);
                return;
            }
            Outcome::Nothing => {
                self.trial = None;
                return;
            }
            Outcome::Accepted(accepted) => accepted,
        };
        self.accepted = self.accepted.saturating_add(accepted);
        let counted = |(rounds, right)| (rounds + 1, right + usize::from(accepted > 0));
        let goes_on = |(rounds, right): &(usize, usize)| {
            *rounds < ROUNDS || (4 * right >= 3 * rounds && *rounds < MOST_ROUNDS)
        };
        self.trial = self.trial.map(counted).filter(goes_on);
    }

    fn rests(&mut self) {
        self.failed = match self.accepted >= WORTH_IT {
            true => 0,
            false => self.failed.saturating_add(1),
        };
        (self.tokens, self.accepted, self.drafting) = (0, 0, false);
    }

    fn wait(&self) -> usize {
        let doublings = self.failed.saturating_sub(1).min(8);
        (FIRST_WAIT << doublings).min(LONGEST_WAIT)
    }
}
