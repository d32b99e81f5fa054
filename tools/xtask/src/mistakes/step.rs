//! Mistakes with the paged cache, the transaction, and the invariants.

use super::{Mistake, unit};

const KV: &str = "runtime/src/kv/reservation.rs";
const KV_BRANCHES: &str = "runtime/src/kv/branches.rs";
const CANDIDATE: &str = "runtime/src/kv/candidate.rs";
const PARTIAL_ROWS: &str = "runtime/src/state/partial.rs";
const BLOCKS: &str = "runtime/src/kv/blocks.rs";
const COMPOSITE: &str = "runtime/src/txn/composite.rs";
const STEP: &str = "runtime/src/txn/step.rs";
const SEAT: &str = "runtime/src/txn/participant.rs";
const AUDIT: &str = "runtime/src/state/audit.rs";

const SCRIPTS: &str = "txn::tests::scripts::random::random_scripts_agree_with_token_by_token_state";
const WINS: &str = "txn::tests::trees::whoever_wins";
const PARTIAL: &str = "txn::tests::phases::a_partial_prefix_moves_tokens_state_and_cache_together";

/// Blocks and committed lengths.
pub(super) const CACHE: &[Mistake] = &[
    Mistake {
        name: "cache-not-cut-to-kept",
        file: KV,
        text: "let committed = row.past + row.kept.unwrap_or(row.winning_tokens());",
        replacement: "let committed = row.past + row.winning_tokens();",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "cache-length-decided-twice",
        file: KV,
        text: "        if reserved.kept.is_some() {
            return Err(KvError::Twice(row));
        }
",
        replacement: "",
        test: unit("kv::tests::the_kept_length_is_decided_once_and_within_the_reservation"),
    },
    Mistake {
        name: "surplus-blocks-lost",
        file: KV,
        text: "self.pool.blocks.give_back(&surplus);",
        replacement: "drop(surplus);",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "surplus-blocks-kept",
        file: KV,
        text: "let surplus = row.taken.split_off(kept.min(row.taken.len()));",
        replacement: "let surplus = row.taken.split_off(row.taken.len().max(kept));",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "taken-blocks-not-given-back",
        file: KV,
        text: "            self.pool.blocks.give_back(&taken);
        }
    }
}",
        replacement: "            drop(taken);
        }
    }
}",
        test: unit("kv::tests::a_dropped_reservation_restores_the_free_list"),
    },
    Mistake {
        name: "free-list-in-another-order",
        file: BLOCKS,
        text: "for block in blocks.iter().rev() {",
        replacement: "for block in blocks {",
        test: unit("kv::tests::a_dropped_reservation_restores_the_free_list"),
    },
    Mistake {
        name: "shared-block-freed",
        file: BLOCKS,
        text: "if *references == 0 {
                    self.free.push(*block);",
        replacement: "if *references < u32::MAX {
                    self.free.push(*block);",
        test: unit("kv::tests::a_shared_block_is_free_after_its_last_user"),
    },
];

/// Rows that branch off, which of them wins, and what the others held.
pub(super) const BRANCHES: &[Mistake] = &[
    Mistake {
        name: "state-of-the-row-beside-the-winner",
        file: PARTIAL_ROWS,
        text: "let batch = first + row.winner;",
        replacement: "let batch = first + row.winner.saturating_sub(1);",
        test: unit(WINS),
    },
    Mistake {
        name: "branches-not-counted-before-a-row",
        file: PARTIAL_ROWS,
        text: "first += row.runs().count();",
        replacement: "first += 1;",
        test: unit(WINS),
    },
    Mistake {
        name: "final-state-taken-for-a-branch",
        file: "runtime/src/state/branches.rs",
        text: "final_written: false,",
        replacement: "final_written: true,",
        test: unit(WINS),
    },
    Mistake {
        name: "spine-committed-for-a-branch",
        file: STEP,
        text: "state.elect(index, keep.row)?;",
        replacement: "state.elect(index, 0)?;",
        test: unit(WINS),
    },
    Mistake {
        name: "tail-not-copied",
        file: "runtime/src/txn/branches.rs",
        text: "kv.copy_tail(index, branch, 0)?;",
        replacement: "let _ = branch;",
        test: unit(WINS),
    },
    Mistake {
        name: "tail-of-a-later-position-copied",
        file: KV_BRANCHES,
        text: "let left = (reserved.past + positions).saturating_sub(shared * size);",
        replacement: "let left = (reserved.past + positions).saturating_sub(shared * size + 1);",
        test: unit(WINS),
    },
    Mistake {
        name: "tail-block-shared",
        file: CANDIDATE,
        text: "let shared = past / pool.block_size;",
        replacement: "let shared = past.div_ceil(pool.block_size);",
        test: unit("txn::tests::trees::full_blocks_are_shared_and_the_tail_is_copied"),
    },
    Mistake {
        name: "losers-not-freed",
        file: KV_BRANCHES,
        text: "                candidate.discard(blocks);",
        replacement: "                std::mem::forget(candidate);",
        test: unit(WINS),
    },
    Mistake {
        name: "spine-not-freed",
        file: KV_BRANCHES,
        text: "            blocks.give_back(&self.taken);
            self.taken.clear();",
        replacement: "            self.taken.clear();",
        test: unit(WINS),
    },
    Mistake {
        name: "former-tail-not-freed",
        file: CANDIDATE,
        text: "pool.blocks.give_back(&before);",
        replacement: "drop(before);",
        test: unit(WINS),
    },
    Mistake {
        name: "branches-kept-by-a-dropped-step",
        file: KV,
        text: "                branch.discard(&mut self.pool.blocks);",
        replacement: "                std::mem::forget(branch);",
        test: unit("txn::tests::trees::a_tree_that_is_dropped_in_any_phase_leaves_nothing"),
    },
    Mistake {
        name: "branches-beyond-the-free-blocks",
        file: "runtime/src/schedule/branches.rs",
        text: "|| blocks > self.blocks {",
        replacement: "{",
        test: unit("schedule::tests::workloads::every_workload_ends_and_never_runs_out_of_blocks"),
    },
    Mistake {
        name: "blocks-of-rows-not-left-to-them",
        file: "runtime/src/schedule/branches.rs",
        text: "blocks: limits.free_blocks.saturating_sub(own.sum()),",
        replacement: "blocks: limits.free_blocks.max(own.sum()),",
        test: unit("schedule::tests::workloads::every_workload_ends_and_never_runs_out_of_blocks"),
    },
];

/// Participants, exits, phases.
pub(super) const TRANSACTION: &[Mistake] = &[
    Mistake {
        name: "dropped-but-not-discarded",
        file: SEAT,
        text: "if !self.published {",
        replacement: "if self.published {",
        test: unit("txn::tests::guests::a_refusal_discards_everybody"),
    },
    Mistake {
        name: "published-and-discarded",
        file: SEAT,
        text: "self.published = true;",
        replacement: "",
        test: unit("txn::tests::guests::guests_walk_through_every_phase"),
    },
    Mistake {
        name: "guests-not-asked",
        file: STEP,
        text: "state.chain(paged).chain(guests)
    }

    fn participants_mut",
        replacement: "state.chain(paged).chain(guests.take(0))
    }

    fn participants_mut",
        test: unit("txn::tests::guests::a_refusal_discards_everybody"),
    },
    Mistake {
        name: "state-published-alone",
        file: STEP,
        text: "for kv in [kv, head].into_iter().flatten() {",
        replacement: "for kv in [kv, head].into_iter().flatten().take(0) {",
        test: unit("txn::tests::phases::a_published_step_is_visible"),
    },
    Mistake {
        name: "one-length-for-all-rows",
        file: STEP,
        text: "state.commit_prefix(index, keep.tokens)?;",
        replacement: "let first = kept.first().map_or(keep.tokens, |first| first.tokens);
                state.commit_prefix(index, keep.tokens.min(first))?;",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "less-than-the-state-forked",
        file: "runtime/src/txn/fork.rs",
        text: "if tokens > committed || (fixed && tokens != committed) {",
        replacement: "if tokens > committed || (fixed && tokens == 0) {",
        test: unit("txn::tests::phases::what_cannot_be_forked_changes_nothing"),
    },
    Mistake {
        name: "head-not-forked",
        file: "runtime/src/txn/fork.rs",
        text: "let head = self.head.as_mut().map(|head| {",
        replacement: "let head = self.head.as_mut().filter(|_| to == from).map(|head| {",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "known-tokens-dropped",
        file: STEP,
        text: "if kept > tokens || kept < least {",
        replacement: "if kept > tokens {",
        test: unit("txn::tests::phases::decisions_that_do_not_fit_discard_the_step"),
    },
    Mistake {
        name: "released-in-part",
        file: COMPOSITE,
        text: "        if let Some((state, handle)) = &slot {
            state.validate_release(request, *handle)?;
        }
        let permit = Permit::between_steps();
",
        replacement: "        let permit = Permit::between_steps();
        if let Some(kv) = &mut self.kv {
            kv.release(request, &permit);
        }
        if let Some((state, handle)) = &slot {
            state.validate_release(request, *handle)?;
        }
",
        test: unit("txn::tests::phases::the_handle_of_another_pool_is_foreign"),
    },
    Mistake {
        name: "torn-step-after-step",
        file: COMPOSITE,
        text: "Health::Torn => Err(StepError::Torn),",
        replacement: "Health::Torn => Ok(()),",
        test: unit("txn::tests::phases::a_torn_composite_refuses_steps_but_releases"),
    },
];

/// Each invariant broken in the code, and each check of it left out of the audit.
pub(super) const INVARIANTS: &[Mistake] = &[
    Mistake {
        name: "i1-more-residents-than-places",
        file: COMPOSITE,
        text: "        if needed > free {
            return Err(StepError::Full { needed, free });
        }
",
        replacement: "",
        test: unit("txn::tests::phases::models_without_a_kind_of_state_work"),
    },
    Mistake {
        name: "i1-unseen",
        file: AUDIT,
        text: "residents <= capacity, ||",
        replacement: "residents <= capacity + 9, ||",
        test: unit("txn::tests::audit::i1_places_and_slots_add_up"),
    },
    Mistake {
        name: "i2-slot-not-freed",
        file: "runtime/src/state/reservation.rs",
        text: "for row in self.rows.iter().filter(|row| row.before.is_none()) {",
        replacement: "for row in self.rows.iter().filter(|row| row.before.is_some()) {",
        test: unit("state::tests::pool::dropping_a_reservation_frees_its_slots"),
    },
    Mistake {
        name: "i2-unseen",
        file: AUDIT,
        text: "fixed.zero_rows_clean, ||",
        replacement: "fixed.zero_rows_clean || slots > 0, ||",
        test: unit("txn::tests::audit::i2_one_slot_per_request_and_clean_zero_rows"),
    },
    Mistake {
        name: "i3-head-not-released",
        file: COMPOSITE,
        text: "for pool in [&mut self.kv, &mut self.head].into_iter().flatten() {",
        replacement: "for pool in [&mut self.kv].into_iter().flatten() {",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "i3-unseen",
        file: AUDIT,
        text: "found == residents, ||",
        replacement: "found.len() < 9 || found == residents, ||",
        test: unit("txn::tests::audit::i3_the_same_requests_own_state_and_blocks"),
    },
    Mistake {
        name: "i4-cache-keeps-drafts",
        file: STEP,
        text: "kv.commit_prefix(index, row.kept)?;",
        replacement: "let _ = row.kept;",
        test: unit(PARTIAL),
    },
    Mistake {
        name: "i4-unseen",
        file: AUDIT,
        text: "known == tokens, ||",
        replacement: "known == tokens || *known > 0, ||",
        test: unit("txn::tests::audit::i4_the_same_tokens_everywhere"),
    },
    Mistake {
        name: "i5-released-blocks-lost",
        file: "runtime/src/kv/pool.rs",
        text: "self.blocks.give_back(&table.blocks);",
        replacement: "drop(table);",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "i5-unseen",
        file: AUDIT,
        text: "uses == counted, ||",
        replacement: "uses == counted || free <= 1, ||",
        test: unit("txn::tests::audit::i5_every_block_is_accounted_for"),
    },
    Mistake {
        name: "i6-length-starts-over",
        file: STEP,
        text: "let committed = row.before + row.kept;",
        replacement: "let committed = row.kept;",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "i6-unseen",
        file: AUDIT,
        text: "*now >= tokens, ||",
        replacement: "*now > 0 || tokens > 0, ||",
        test: unit("txn::tests::audit::i6_committed_tokens_never_fall"),
    },
    Mistake {
        name: "i7-half-a-publication-unnoticed",
        file: STEP,
        text: "standing.health = Health::Torn;",
        replacement: "",
        test: unit("txn::tests::guests::a_panic_in_publish_leaves_a_composite_that_says_so"),
    },
    Mistake {
        name: "i7-unseen",
        file: AUDIT,
        text: "snapshot.healthy, ||",
        replacement: "snapshot.healthy || snapshot.capacity > 0, ||",
        test: unit("txn::tests::audit::i7_a_torn_composite_is_reported"),
    },
    Mistake {
        name: "i8-half-a-block-shared",
        file: "runtime/src/kv/fork.rs",
        text: "let shared = tokens / self.block_size;",
        replacement: "let shared = tokens.div_ceil(self.block_size);",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "i8-unseen",
        file: AUDIT,
        text: "users.is_none_or(|users| *users <= 1), ||",
        replacement: "users.is_none_or(|users| *users < 9), ||",
        test: unit("txn::tests::audit::i8_shared_blocks_are_full"),
    },
];
