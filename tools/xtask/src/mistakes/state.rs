//! Mistakes with fixed state.

use super::{Mistake, unit};

const SELECT: &str = "runtime/src/state/select.rs";
const RESERVATION: &str = "runtime/src/state/reservation.rs";
const COMMIT: &str = "runtime/src/state/commit.rs";
const POOL: &str = "runtime/src/state/pool.rs";
const LAYOUT: &str = "runtime/src/state/layout.rs";

const SCRIPTS: &str = "txn::tests::scripts::random::random_scripts_agree_with_token_by_token_state";
const PARTIAL: &str = "txn::tests::phases::a_partial_prefix_moves_tokens_state_and_cache_together";
const RELEASED: &str = "txn::tests::phases::a_released_slot_reads_zero_and_its_handle_is_stale";

/// Which checkpoint is taken, and how many tokens stay.
pub(super) const SELECTION: &[Mistake] = &[
    Mistake {
        name: "alignment-swapped",
        file: SELECT,
        text: "(CheckpointForm::State, CheckpointAlignment::Left) => Ok(Source::Slot(kept - 1)),
        (CheckpointForm::State, CheckpointAlignment::Right) => {",
        replacement:
            "(CheckpointForm::State, CheckpointAlignment::Right) => Ok(Source::Slot(kept - 1)),
        (CheckpointForm::State, CheckpointAlignment::Left) => {",
        test: unit("state::tests::select::the_worked_table_for_four_slots"),
    },
    Mistake {
        name: "window-without-its-length",
        file: SELECT,
        text: "Ok(Source::Slot(capacity - tokens + kept - 1))",
        replacement: "Ok(Source::Slot(capacity - captured + kept - 1))",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "uncaptured-slot-read",
        file: SELECT,
        text: "    if kept > captured {
        return Err(SelectError::NotCaptured { kept, captured });
    }
",
        replacement: "",
        test: unit("txn::tests::phases::a_prefix_that_was_not_captured_is_refused"),
    },
    Mistake {
        name: "one-transition-too-many",
        file: SELECT,
        text: "Ok(Source::Replay(kept)),",
        replacement: "Ok(Source::Replay((kept + 1).min(capacity))),",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "final-state-that-nobody-wrote",
        file: SELECT,
        text: "if kept == tokens && final_written {",
        replacement: "if kept == tokens {",
        test: unit("state::tests::select::a_candidate_that_keeps_all_replays_all"),
    },
    Mistake {
        name: "convolution-skipped",
        file: RESERVATION,
        text: "let partial = partial_rows(tensor, &self.rows)?;",
        replacement: "let mut partial = partial_rows(tensor, &self.rows)?;
            partial.retain(|_| index != 0);",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "recurrence-skipped",
        file: RESERVATION,
        text: "let partial = partial_rows(tensor, &self.rows)?;",
        replacement: "let mut partial = partial_rows(tensor, &self.rows)?;
            partial.retain(|_| index == 0);",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "recurrence-clamped-to-the-history",
        file: RESERVATION,
        text: "kind.take(source)",
        replacement: "match kind.take(source) {
            Take::Replay(kept) => Take::Replay(kept.min(3)),
            other => other,
        }",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "kept-ignored-by-state",
        file: RESERVATION,
        text: "first += row.runs().count();
        let source = source(tensor, row, row.kept_tokens()?)",
        replacement: "first += row.runs().count();
        let kept = NonZeroUsize::new(row.own.tokens).unwrap_or(NonZeroUsize::MIN);
        let source = source(tensor, row, kept)",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "kept-ignored-by-the-token-count",
        file: RESERVATION,
        text: "tokens: before.0 + row.kept.map_or(row.winning().tokens, NonZeroUsize::get),",
        replacement: "tokens: before.0 + row.winning().tokens,",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "decided-twice",
        file: RESERVATION,
        text: "        if reserved.kept.is_some() {
            return Err(StateError::Twice(row));
        }
",
        replacement: "",
        test: unit("state::tests::pool::the_kept_prefix_is_decided_once_and_must_exist"),
    },
    Mistake {
        name: "stride-from-the-kept-count",
        file: COMMIT,
        text: "SeriesLayout::new(checkpoints.count, step_rows, checkpoints.width)",
        replacement: "SeriesLayout::new(checkpoints.count, row.batch + 1, checkpoints.width)",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "every-row-reads-row-zero",
        file: LAYOUT,
        text: "let start = (slot * self.rows + row) * self.width;",
        replacement: "let start = slot * self.rows * self.width;",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "more-tokens-than-slots",
        file: RESERVATION,
        text: "if captured > tokens || (captured > 0 && tokens > capacity) {",
        replacement: "if captured > tokens {",
        test: unit("txn::tests::phases::what_cannot_be_reserved_changes_nothing"),
    },
    Mistake {
        name: "one-transition-too-few",
        file: "runtime/src/txn/composite.rs",
        text: "self.tokens.saturating_sub(1)",
        replacement: "self.tokens.saturating_sub(2)",
        test: unit(SCRIPTS),
    },
];

/// Slots, banks, handles, memory that may not be read.
pub(super) const BANKS: &[Mistake] = &[
    Mistake {
        name: "banks-not-flipped",
        file: RESERVATION,
        text: "active: row.write_bank,",
        replacement: "active: row.write_bank.other(),",
        test: unit("txn::tests::phases::banks_alternate_and_versions_rise"),
    },
    Mistake {
        name: "replayed-from-the-final-state",
        file: COMMIT,
        text: "let [before, into] = buffers.bank.as_f32_mut()?.get_disjoint_mut(rows).ok()?;",
        replacement: "let [_, into] = buffers.bank.as_f32_mut()?.get_disjoint_mut(rows).ok()?;
            let before = &*into.to_vec();",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "zero-row-overwritten",
        file: RESERVATION,
        text: "write: pool.layout.row(write_bank, handle.index),",
        replacement: "write: pool.layout.zero_row(),",
        test: unit("state::tests::pool::a_fresh_request_reads_the_zero_row_and_writes_its_own"),
    },
    Mistake {
        name: "slot-reused-with-its-state",
        file: RESERVATION,
        text: "(None, pool.layout.zero_row(), Bank::Zero),",
        replacement: "(None, pool.layout.row(Bank::One, index), Bank::Zero),",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "slot-released-twice",
        file: POOL,
        text: "if let Some(entry) = entry.filter(|e| e.generation == handle.generation) {",
        replacement: "if let Some(entry) = entry {",
        test: unit(RELEASED),
    },
    Mistake {
        name: "generation-not-raised",
        file: POOL,
        text: "entry.generation = entry.generation.wrapping_add(1);",
        replacement: "",
        test: unit(RELEASED),
    },
    Mistake {
        name: "stale-handle-accepted",
        file: POOL,
        text: ".filter(|e| e.generation == handle.generation && e.slot.owner() == Some(request))",
        replacement: ".filter(|e| e.slot.owner() == Some(request))",
        test: unit(RELEASED),
    },
    Mistake {
        name: "foreign-handle-accepted",
        file: POOL,
        text: "        if handle.pool != self.id {
            return Err(StateError::Foreign(request));
        }
",
        replacement: "",
        test: unit("txn::tests::phases::the_handle_of_another_pool_is_foreign"),
    },
    Mistake {
        name: "nothing-poisoned",
        file: RESERVATION,
        text: "if !cfg!(debug_assertions) {",
        replacement: "if cfg!(debug_assertions) {",
        test: unit("txn::tests::phases::an_unwritten_final_state_shows_as_nan"),
    },
    Mistake {
        name: "changed-slot-committed",
        file: RESERVATION,
        text: "        if now != row.before {
            return Err(StateError::Changed(row.request));
        }
",
        replacement: "        let _ = now;
",
        test: unit("txn::tests::phases::an_outdated_step_is_refused"),
    },
];
