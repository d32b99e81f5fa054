//! Mistakes in kernels and exports, which only real graphs show or which real graphs must show, too.

use super::{Mistake, case, unit};

const ATTENTION: &str = "runtime/src/kernels/paged_attention/kernel.rs";
const DELTA: &str = "runtime/src/kernels/gated_delta_net/kernel.rs";
const CONVOLUTION: &str = "runtime/src/kernels/causal_conv/kernel.rs";

const GRAPH_OF_DELTA: &str = "builder/src/commit/delta.rs";

const COMMITTED: &str = "committed::gated_delta_and_attention";

/// Checkpoints that hold something else than they should; verification that computes something else than decoding.
pub(super) const KERNELS: &[Mistake] = &[
    Mistake {
        name: "short-rows-scored-together",
        file: ATTENTION,
        text: "                alone: true,
                partial,",
        replacement: "                alone: false,
                partial,",
        test: unit("kernels::paged_attention::tests::a_short_row_equals_its_tokens_one_by_one"),
    },
    Mistake {
        name: "captured-states-one-late",
        file: DELTA,
        text: "self.checkpoints.slots + t - self.batch.range(row).len(),",
        replacement: "(self.checkpoints.slots + t + 1 - self.batch.range(row).len()) % self.checkpoints.slots,",
        test: case("speculation", COMMITTED),
    },
    Mistake {
        name: "captured-samples-one-early",
        file: CONVOLUTION,
        text: "slot.copy_from_slice(padded.at(before + t));",
        replacement: "slot.copy_from_slice(padded.at(before + t - 1));",
        test: case("speculation", "committed::short_convolution_and_attention"),
    },
    Mistake {
        name: "captured-history-one-early",
        file: CONVOLUTION,
        text: "padded.store(t + 1, slot);",
        replacement: "padded.store(t, slot);",
        test: case("speculation", "committed::short_convolution_and_attention"),
    },
    Mistake {
        name: "rejected-drafts-kept-on-real-graphs",
        file: "runtime/src/state/partial.rs",
        text: "first += row.runs().count();
        let source = source(tensor, row, row.kept_tokens()?)",
        replacement: "first += row.runs().count();
        let kept = NonZeroUsize::new(row.own.tokens).unwrap_or(NonZeroUsize::MIN);
        let source = source(tensor, row, kept)",
        test: case("speculation", "equality::gated_delta_attention_and_a_head"),
    },
    Mistake {
        name: "conv-skipped-on-real-graphs",
        file: "runtime/src/state/reservation.rs",
        text: "let partial: Vec<_> = pool.tensors.iter().map(partial).collect::<Result<_, _>>()?;",
        replacement: "let mut partial: Vec<Vec<_>> = pool.tensors.iter().map(partial).collect::<Result<_, _>>()?;
        partial.iter_mut().take(1).for_each(Vec::clear);",
        test: case("speculation", COMMITTED),
    },
    Mistake {
        name: "no-drafts-after-many-kept",
        file: "runtime/src/state/reservation.rs",
        text: "active: row.next,",
        replacement: "active: if row.own.captured > 0 { row.next.other() } else { row.next },",
        test: case("speculation", "kept::gated_delta_and_attention"),
    },
    Mistake {
        name: "prompts-hide-drafts",
        file: "runtime/src/engine/core.rs",
        text: "drafts_beside_prefill: state.captures_in_mixed_steps || state.fixed.is_empty(),",
        replacement: "drafts_beside_prefill: state.captures_in_mixed_steps,",
        test: case("speculation", "kept::attention_only"),
    },
];

/// Files that say something else than the graph does.
pub(super) const EXPORTS: &[Mistake] = &[Mistake {
    name: "alignment-declared-wrong",
    file: "builder/src/checkpoints.rs",
    text: "(CheckpointForm::State, StateOperator::GatedDeltaNet) => CheckpointAlignment::Right,
            (CheckpointForm::State | CheckpointForm::Update, _) => CheckpointAlignment::Left,",
    replacement: "(CheckpointForm::State, StateOperator::CausalConv) => CheckpointAlignment::Right,
            (CheckpointForm::State | CheckpointForm::Update, _) => CheckpointAlignment::Left,",
    test: case("speculation", COMMITTED),
}];

const EXPORTED: &str = "the_graphs_of_exports_leave_what_the_host_leaves";

/// Commit graphs, as they are written and as they are run.
pub(super) const COMMITS: &[Mistake] = &[
    Mistake {
        name: "graph-computes-with-what-is-not-kept",
        file: GRAPH_OF_DELTA,
        text: "ops::choose(g, \"kept\", &used, &part, &zero)",
        replacement: "let mask = ops::choose(g, \"mask\", &used, &one, &zero)?;
            ops::mul(g, \"kept\", &part, &mask)",
        test: case("commit_graphs", EXPORTED),
    },
    Mistake {
        name: "graph-decays-by-its-own-token",
        file: GRAPH_OF_DELTA,
        text: "let after: Vec<u64> = (1..=x.capacity).collect();",
        replacement: "let after: Vec<u64> = (0..x.capacity).collect();",
        test: case("commit_graphs", EXPORTED),
    },
    Mistake {
        name: "graph-appends-the-past",
        file: "builder/src/commit/append.rs",
        text: "ops::concat_columns(g, \"samples\", &past, &transitions)?",
        replacement: "ops::concat_columns(g, \"samples\", &transitions, &past)?",
        test: case("commit_graphs", EXPORTED),
    },
    Mistake {
        name: "graph-writes-into-neighbours",
        file: "builder/src/commit/mod.rs",
        text: "batch: commits(g, names::BATCH_ROWS)?,
            write: commits(g, names::WRITE_ROWS)?,",
        replacement: "batch: commits(g, names::WRITE_ROWS)?,
            write: commits(g, names::BATCH_ROWS)?,",
        test: case("commit_graphs", EXPORTED),
    },
    Mistake {
        name: "graph-reads-the-wrong-rows",
        file: "builder/src/commit/mod.rs",
        text: "before: ops::gather_rows(g, \"before\", &rows.bank, &read)?,
            transitions: ops::gather_rows(g, \"transitions\", &checkpoints, &rows.batch)?,",
        replacement: "before: ops::gather_rows(g, \"before\", &rows.bank, &rows.batch)?,
            transitions: ops::gather_rows(g, \"transitions\", &checkpoints, &read)?,",
        test: case("commit_graphs", EXPORTED),
    },
    Mistake {
        name: "graph-told-to-read-what-it-writes",
        file: "runtime/src/state/commit/mod.rs",
        text: "read_rows: list(|row| row.read),",
        replacement: "read_rows: list(|row| row.write),",
        test: unit("state::tests::commit::graphs_leave_recurrent_states_as_the_host_does"),
    },
    Mistake {
        name: "graph-given-other-strides",
        file: "runtime/src/exec/commit.rs",
        text: "let shape = spec.checkpoint_shape(step_rows).ok_or_else(missing)?;",
        replacement: "let shape = spec.checkpoint_shape(rows.taken.len()).ok_or_else(missing)?;",
        test: unit("state::tests::commit::graphs_copy_the_slots_that_the_host_copies"),
    },
    Mistake {
        name: "graph-is-not-run-to-verify-it",
        file: "runtime/src/model/verify.rs",
        text: "let replayed = trial(&mut graphs, state).map_err(failed)?;",
        replacement: "let replayed = trial(&mut graphs, state).unwrap_or(8);",
        test: case(
            "commit_graphs",
            "a_graph_that_leaves_something_else_is_refused",
        ),
    },
];
