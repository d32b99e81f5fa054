//! Mistakes of the engine: acceptance, text, drafts, the head.

use super::{Mistake, unit};

const ACCEPT: &str = "runtime/src/engine/accept.rs";
const HEAD: &str = "runtime/src/engine/head.rs";

const RANDOM: &str = "engine::tests::state::random_requests_keep_what_their_tokens_leave";
const FAILURES: &str =
    "engine::tests::failures::a_failed_call_leaves_no_trace_with_transitions_and_a_head";

/// What a row keeps, and what callers are told.
pub(super) const ACCEPTANCE: &[Mistake] = &[
    Mistake {
        name: "rejected-drafts-kept",
        file: ACCEPT,
        text: "NonZeroUsize::new(row.tokens.len() + new.len().saturating_sub(1))?;",
        replacement: "NonZeroUsize::new(row.num_tokens().max(new.len()))?;",
        test: unit(RANDOM),
    },
    Mistake {
        name: "every-position-draws-alike",
        file: ACCEPT,
        text: "u64::try_from(first + index)",
        replacement: "u64::try_from(first + 0 * index)",
        test: unit(RANDOM),
    },
    Mistake {
        name: "position-off-by-one",
        file: ACCEPT,
        text: "u64::try_from(first + index)",
        replacement: "u64::try_from(first + index + 1)",
        test: unit(RANDOM),
    },
    Mistake {
        name: "drafts-accepted-unseen",
        file: "runtime/src/speculate/verify.rs",
        text: "if token != *draft {",
        replacement: "if token > u32::MAX - 1 {",
        test: unit(RANDOM),
    },
    Mistake {
        name: "unverified-drafts-counted",
        file: "runtime/src/speculate/verify.rs",
        text: "evaluated: index + 1,",
        replacement: "evaluated: drafts.len(),",
        test: unit("speculate::verify::tests::drafts_never_change_the_tokens"),
    },
    Mistake {
        name: "text-goes-on-after-the-end",
        file: "runtime/src/request/cursor.rs",
        text: "            if advance.finish.is_some() {
                break;
            }
",
        replacement: "",
        test: unit("request::tests::an_end_token_inside_a_run_cuts_it"),
    },
    Mistake {
        name: "told-before-it-is-published",
        file: "runtime/src/engine/step.rs",
        text: "        let before = self.books();
",
        replacement: "        let before = self.books();
        self.totals.count(1, 1, 1);
",
        test: unit(FAILURES),
    },
    Mistake {
        name: "the-first-failure-ends-everything",
        file: "runtime/src/engine/worker.rs",
        text: "const MAX_FAILURES: usize = 3;",
        replacement: "const MAX_FAILURES: usize = 1;",
        test: unit("engine::tests::stops::failures_that_pass_are_never_seen"),
    },
    Mistake {
        name: "contradictions-ignored",
        file: "runtime/src/engine/audit.rs",
        text: "if broken.is_empty() {",
        replacement: "if broken.len() < 99 {",
        test: unit("engine::tests::stops::an_engine_whose_state_contradicts_itself_stops"),
    },
];

/// Where drafts come from and how many there are.
pub(super) const DRAFTS: &[Mistake] = &[
    Mistake {
        name: "drafts-beyond-capture",
        file: "runtime/src/speculate/mode.rs",
        text: "offer.capture_capacity.saturating_sub(1).min(MOST_DRAFTS)",
        replacement: "offer.capture_capacity.min(MOST_DRAFTS)",
        test: unit("speculate::mode::tests::the_head_is_the_default_where_there_is_one"),
    },
    Mistake {
        name: "drafts-beside-prompts-uncaptured",
        file: "runtime/src/schedule/plan.rs",
        text: "let drafting = wanted == 0 || limits.drafts_beside_prefill;",
        replacement: "let drafting = wanted == 0 || limits.max_drafts > 0;",
        test: unit("schedule::tests::plans::drafts_use_what_rows_leave"),
    },
    Mistake {
        name: "drafts-beyond-the-end",
        file: "runtime/src/schedule/limits.rs",
        text: "view.ceiling.saturating_sub(view.past + view.pending + 1)",
        replacement: "view.ceiling.saturating_sub(view.past + view.pending)",
        test: unit("schedule::tests::plans::drafts_end_with_the_request"),
    },
    Mistake {
        name: "drafts-that-do-not-exist",
        file: "runtime/src/engine/active.rs",
        text: "usize::try_from(*id).is_ok_and(|id| id < vocab)",
        replacement: "usize::try_from(*id).is_ok_and(|id| id < vocab + 999)",
        test: unit(RANDOM),
    },
    Mistake {
        name: "head-keeps-one-too-many",
        file: ACCEPT,
        text: "let head_tokens = if heading { self.kept.get() } else { 0 };",
        replacement: "let head_tokens = if heading { self.kept.get() + 1 } else { 0 };",
        test: unit(RANDOM),
    },
    Mistake {
        name: "head-forgets-one",
        file: ACCEPT,
        text: "let head_tokens = if heading { self.kept.get() } else { 0 };",
        replacement: "let head_tokens = if heading { self.kept.get() - 1 } else { 0 };",
        test: unit(RANDOM),
    },
    Mistake {
        name: "head-reads-hidden-rows-of-row-zero",
        file: HEAD,
        text: "let from = row.start * width;",
        replacement: "let from = row.start.min(0) * width;",
        test: unit(RANDOM),
    },
    Mistake {
        name: "head-draws-for-another-position",
        file: HEAD,
        text: "let position = row.past + row.kept.get() + 1 + row.proposal.len();",
        replacement: "let position = row.past + row.kept.get() + row.proposal.len();",
        test: unit("engine::tests::state::a_head_that_agrees_drafts_what_will_be_drawn"),
    },
    Mistake {
        name: "head-reads-the-token-before",
        file: ACCEPT,
        text: "let after = active.tokens.get(row.past() + 1..).unwrap_or_default();",
        replacement: "let after = active.tokens.get(row.past()..).unwrap_or_default();",
        test: unit(RANDOM),
    },
];
