//! Mistakes with fixed state.

use super::{Mistake, unit};

const SELECT: &str = "runtime/src/state/select.rs";
const RESERVATION: &str = "runtime/src/state/reservation.rs";
const PARTIAL_ROWS: &str = "runtime/src/state/partial.rs";
const COMMIT: &str = "runtime/src/state/commit/host.rs";
const POOL: &str = "runtime/src/state/pool.rs";
const LAYOUT: &str = "runtime/src/state/layout.rs";
const IMAGE: &str = "runtime/src/state/image.rs";
const REPLAY: &str = "runtime/src/kernels/gated_delta_net/replay.rs";

const SAME_PATH: &str =
    "kernels::gated_delta_net::replay::tests::every_element_takes_the_same_path";
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
        text: "let partial: Vec<_> = pool.tensors.iter().map(partial).collect::<Result<_, _>>()?;",
        replacement: "let mut partial: Vec<Vec<_>> = pool.tensors.iter().map(partial).collect::<Result<_, _>>()?;
        partial.iter_mut().take(1).for_each(Vec::clear);",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "recurrence-skipped",
        file: RESERVATION,
        text: "let partial: Vec<_> = pool.tensors.iter().map(partial).collect::<Result<_, _>>()?;",
        replacement: "let mut partial: Vec<Vec<_>> = pool.tensors.iter().map(partial).collect::<Result<_, _>>()?;
        partial.iter_mut().skip(1).for_each(Vec::clear);",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "recurrence-clamped-to-the-history",
        file: PARTIAL_ROWS,
        text: "kind.take(source)",
        replacement: "match kind.take(source) {
            Take::Replay(kept) => Take::Replay(kept.min(3)),
            other => other,
        }",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "kept-ignored-by-state",
        file: PARTIAL_ROWS,
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
        text: "SeriesLayout::new(spec.count, step_rows, spec.width);",
        replacement: "SeriesLayout::new(spec.count, row.batch + 1, spec.width);",
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
        text: "active: row.next,",
        replacement: "active: row.next.other(),",
        test: unit("txn::tests::phases::banks_alternate_and_versions_rise"),
    },
    Mistake {
        name: "made-over-the-final-state",
        file: PARTIAL_ROWS,
        text: "                    true => row.read,",
        replacement: "                    true => row.write,",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "bank-flipped-away-from-a-kept-prefix",
        file: PARTIAL_ROWS,
        text: "row.next = before.active;",
        replacement: "let _ = before.active;",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "admission-made-over-what-was-there",
        file: PARTIAL_ROWS,
        text: "buffers.bank.copy_row(row.read, row.write);",
        replacement: "buffers.bank.copy_row(row.write, row.write);",
        test: unit("txn::tests::trees::a_fresh_request_may_branch"),
    },
    Mistake {
        name: "zero-row-overwritten",
        file: RESERVATION,
        text: "write: pool.layout.row(next, handle.index),",
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
        name: "several-tokens-start-afresh",
        file: RESERVATION,
        text: "let read = pool.layout.row(active, handle.index);",
        replacement: "let read = match row.tokens.get() {
        1 => pool.layout.row(active, handle.index),
        _ => pool.layout.zero_row(),
    };",
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
        file: "runtime/src/model/fixed_buffers.rs",
        text: "        if cfg!(debug_assertions) {",
        replacement: "        if !cfg!(debug_assertions) {",
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

/// States as kernels replay them.
pub(super) const REPLAYS: &[Mistake] = &[
    Mistake {
        name: "earliest-samples-appended",
        file: "runtime/src/kernels/causal_conv/kernel.rs",
        text: "&samples(kept - FRESH + index)[..state.len()]",
        replacement: "&samples(kept.min(FRESH) - FRESH + index)[..state.len()]",
        test: unit("state::tests::replay::convolution_replay_is_a_window_over_the_samples"),
    },
    Mistake {
        name: "transitions-in-the-other-order",
        file: REPLAY,
        text: "for step in steps {
        let keys",
        replacement: "for step in steps.iter().rev() {
        let keys",
        test: unit("kernels::gated_delta_net::tests::replay_applies_transitions_in_order"),
    },
    Mistake {
        name: "transitions-in-the-other-order-in-blocks",
        file: REPLAY,
        text: "for step in steps {
        let mut deltas",
        replacement: "for step in steps.iter().rev() {
        let mut deltas",
        test: unit(SAME_PATH),
    },
    Mistake {
        name: "decay-of-the-first-columns",
        file: REPLAY,
        text: "true => isa.get(&step.decay[columns]),",
        replacement: "true => isa.get(&step.decay[..columns.len()]),",
        test: unit(SAME_PATH),
    },
    Mistake {
        name: "rows-after-whole-blocks-taken-for-the-first",
        file: REPLAY,
        text: "(first - first % ROWS, rest)",
        replacement: "(first % ROWS - first % ROWS, rest)",
        test: unit(SAME_PATH),
    },
    Mistake {
        name: "columns-beyond-whole-vectors-left-out",
        file: REPLAY,
        text: "if vectors * lanes < dim {",
        replacement: "if vectors * lanes < dim && state.is_empty() {",
        test: unit(SAME_PATH),
    },
    Mistake {
        name: "vectors-beyond-whole-groups-left-out",
        file: REPLAY,
        text: "for vector in together..vectors {",
        replacement: "for vector in vectors..vectors {",
        test: unit(SAME_PATH),
    },
    Mistake {
        name: "one-decay-for-all-keys",
        file: REPLAY,
        text: "true => isa.get(&step.decay[columns]),",
        replacement: "true => isa.splat(step.decay[0]),",
        test: unit("state::tests::replay::heads_share_keys_and_have_extents_of_their_own"),
    },
    Mistake {
        name: "fork-without-the-first-tensor",
        file: IMAGE,
        text: "in self.pool.buffers.iter_mut().enumerate() {",
        replacement: "in self.pool.buffers.iter_mut().enumerate().skip(1) {",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "row-outside-becomes-row-zero",
        file: LAYOUT,
        text: ".unwrap_or(-1)",
        replacement: ".unwrap_or(0)",
        test: unit("state::tests::pool::a_row_outside_is_no_row"),
    },
];
