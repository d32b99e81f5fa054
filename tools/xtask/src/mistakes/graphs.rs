//! Mistakes in kernels and exports, which only real graphs show or which real graphs must show, too.

use super::{Mistake, speculation, unit};

const ATTENTION: &str = "runtime/src/kernels/paged_attention/kernel.rs";
const DELTA: &str = "runtime/src/kernels/gated_delta_net/kernel.rs";
const CONVOLUTION: &str = "runtime/src/kernels/causal_conv/kernel.rs";

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
        test: speculation(COMMITTED),
    },
    Mistake {
        name: "captured-samples-one-early",
        file: CONVOLUTION,
        text: "slot.copy_from_slice(padded.at(before + t));",
        replacement: "slot.copy_from_slice(padded.at(before + t - 1));",
        test: speculation("committed::short_convolution_and_attention"),
    },
    Mistake {
        name: "captured-history-one-early",
        file: CONVOLUTION,
        text: "padded.store(t + 1, slot);",
        replacement: "padded.store(t, slot);",
        test: speculation("committed::short_convolution_and_attention"),
    },
    Mistake {
        name: "rejected-drafts-kept-on-real-graphs",
        file: "runtime/src/state/reservation.rs",
        text: "first += row.runs().count();
        let source = source(tensor, row, row.kept_tokens()?)",
        replacement: "first += row.runs().count();
        let kept = NonZeroUsize::new(row.own.tokens).unwrap_or(NonZeroUsize::MIN);
        let source = source(tensor, row, kept)",
        test: speculation("equality::gated_delta_attention_and_a_head"),
    },
    Mistake {
        name: "conv-skipped-on-real-graphs",
        file: "runtime/src/state/reservation.rs",
        text: "let partial = partial_rows(tensor, &self.rows)?;",
        replacement: "let mut partial = partial_rows(tensor, &self.rows)?;
            partial.retain(|_| index != 0);",
        test: speculation(COMMITTED),
    },
    Mistake {
        name: "no-drafts-after-many-kept",
        file: "runtime/src/state/reservation.rs",
        text: "active: row.write_bank,",
        replacement: "active: if row.own.captured > 0 { row.write_bank.other() } else { row.write_bank },",
        test: speculation("kept::gated_delta_and_attention"),
    },
    Mistake {
        name: "prompts-hide-drafts",
        file: "runtime/src/engine/core.rs",
        text: "drafts_beside_prefill: state.captures_in_mixed_steps || state.fixed.is_empty(),",
        replacement: "drafts_beside_prefill: state.captures_in_mixed_steps,",
        test: speculation("kept::attention_only"),
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
    test: speculation(COMMITTED),
}];
