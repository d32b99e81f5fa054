//! Mistakes with histories of token ids, and what only whole models show.

use super::{Mistake, case, unit};

const POOL: &str = "runtime/src/state/pool.rs";
const CAPTURE: &str = "runtime/src/state/capture/mod.rs";
const HEAD: &str = "runtime/src/engine/draft/head.rs";

const PROMPTS: &str = "txn::tests::ngram::prompts_are_hashed_alike_in_steps_of_any_size";
const PATHS: &str =
    "txn::tests::ngram::every_row_is_hashed_over_its_own_path_and_the_winner_goes_on";
const COPIES: &str = "txn::tests::ngram::forks_images_and_dropped_steps_keep_ids_whole";

/// Ids in the pool.
pub(super) const HISTORIES: &[Mistake] = &[
    Mistake {
        name: "fresh-history-of-zeros",
        file: POOL,
        text: "    if spec.fresh != 0 {",
        replacement: "    if spec.fresh == u32::MAX {",
        test: unit(PROMPTS),
    },
    Mistake {
        name: "fresh-row-never-looked-at",
        file: POOL,
        text: ".is_some_and(|row| row == fresh_row(&tensor.spec, bank.row_elements()))",
        replacement: ".is_some_and(|row| row.len() == fresh_row(&tensor.spec, bank.row_elements()).len())",
        test: unit("state::tests::pool::fresh_histories_are_full_of_their_id"),
    },
    Mistake {
        name: "history-of-the-token-before",
        file: CAPTURE,
        text: "Take::Copy(kept.saturating_sub(1))",
        replacement: "Take::Copy(kept.saturating_sub(2))",
        test: unit(PATHS),
    },
    Mistake {
        name: "forked-without-the-latest-id",
        file: "runtime/src/device/buffer.rs",
        text: "all.copy_within(from, to.start);",
        replacement: "all.copy_within(from.start..from.end - 8, to.start);",
        test: unit(COPIES),
    },
    Mistake {
        name: "saved-ids-called-floats",
        file: "runtime/src/saved/layout.rs",
        text: "ElementType::I64 => Dtype::I64,",
        replacement: "ElementType::I64 => Dtype::F64,",
        test: unit("saved::tests::ids_are_saved_as_ids"),
    },
];

/// Long texts, exported heads, and paths side by side.
pub(super) const WHOLE_MODELS: &[Mistake] = &[
    Mistake {
        name: "positions-of-the-head-stop",
        file: HEAD,
        text: "pack::push_row(&mut self.inputs, first, tokens, logits);",
        replacement: "pack::push_row(&mut self.inputs, first.min(3968), tokens, logits);",
        test: case(
            "speculation",
            "far::drafts_far_out_are_those_of_a_head_that_reads_the_whole_text",
        ),
    },
    Mistake {
        name: "head-wired-one-way-only",
        file: "builder/src/blocks/mtp_head.rs",
        text: "HeadOrder::HiddenFirst => (&hidden, &embedded),",
        replacement: "HeadOrder::HiddenFirst => (&embedded, &hidden),",
        test: case(
            "speculation",
            "wiring::the_right_wiring_agrees_most_and_the_wrong_order_is_given_up",
        ),
    },
    Mistake {
        name: "paths-behind-the-whole-prefix",
        file: "runtime/src/evaluate/paths.rs",
        text: "pack::push_row(&mut inputs, before.len(), ids, wanted);",
        replacement: "pack::push_row(&mut inputs, prefix.len(), ids, wanted);",
        test: case("speculation", "rows::gated_delta_and_attention"),
    },
];
