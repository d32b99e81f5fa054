//! Mistakes of the engine: acceptance, text, drafts, the head.

use super::{Mistake, case, unit};

const ACCEPT: &str = "runtime/src/engine/accept.rs";
const HEAD: &str = "runtime/src/engine/draft/head.rs";
const SOURCES: &str = "runtime/src/engine/draft/sources.rs";
const TREE: &str = "engine::tests::trees::every_node_can_end_the_winning_path_with_transitions";
const RANDOM: &str = "engine::tests::state::random_requests_keep_what_their_tokens_leave";
const NO_NUMBERS: &str =
    "engine::tests::policies::requests_without_numbers_do_not_take_the_head_from_others";
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
        text: "u64::try_from(first + draws.len())",
        replacement: "u64::try_from(first + 0 * draws.len())",
        test: unit(RANDOM),
    },
    Mistake {
        name: "position-off-by-one",
        file: ACCEPT,
        text: "u64::try_from(first + draws.len())",
        replacement: "u64::try_from(first + draws.len() + 1)",
        test: unit(RANDOM),
    },
    Mistake {
        name: "drafts-accepted-unseen",
        file: "runtime/src/speculate/verify.rs",
        text: "let child = tree.child(at, token);",
        replacement: "let next = || tree.nodes().position(|(parent, _)| parent == at);
        let child = tree.child(at, token).or_else(next);",
        test: unit(RANDOM),
    },
    Mistake {
        name: "unverified-drafts-counted",
        file: "runtime/src/speculate/verify.rs",
        text: "evaluated: accepted + usize::from(!cut && rows.has_below(tree, at)),",
        replacement: "evaluated: tree.len(),",
        test: unit("speculate::verify::tests::drafts_never_change_the_tokens"),
    },
    Mistake {
        name: "text-goes-on-after-the-end",
        file: "runtime/src/request/cursor.rs",
        text: "if self.finish.is_some() || advance.finish.is_some() {",
        replacement: "if self.finish.is_some() {",
        test: unit("request::tests::an_end_token_inside_a_run_cuts_it"),
    },
    Mistake {
        name: "end-token-not-retained",
        file: "runtime/src/request/cursor.rs",
        text: "advance.tokens.push(token);",
        replacement: "if advance.finish.is_none() {
            advance.tokens.push(token);
        }",
        test: unit("request::tests::an_end_token_inside_a_run_cuts_it"),
    },
    Mistake {
        name: "one-token-beyond-the-limit",
        file: "runtime/src/request/cursor.rs",
        text: "if generated >= self.max_new_tokens {",
        replacement: "if generated > self.max_new_tokens {",
        test: unit("request::tests::limits_end_inside_a_run_and_release_held_text"),
    },
    Mistake {
        name: "told-before-it-is-published",
        file: "runtime/src/engine/step.rs",
        text: "        let before = self.books();
",
        replacement: "        let before = self.books();
        self.totals.count(&crate::speculate::Round {
            proposed: 1,
            ..Default::default()
        });
",
        test: unit(FAILURES),
    },
    Mistake {
        name: "totals-shown-after-the-end-is-told",
        file: "runtime/src/engine/step.rs",
        text: "        self.show_totals();
        self.deliver(&plan, delivered);
",
        replacement: "        self.deliver(&plan, delivered);
        self.show_totals();
",
        test: unit("engine::tests::ends::totals_are_shown_before_the_end_is_told"),
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
    Mistake {
        name: "state-of-the-whole-prompt-continued",
        file: "runtime/src/request/request.rs",
        text: "            Some([]) => (None, Reuse::NothingLeft),
",
        replacement: "",
        test: unit("engine::tests::kept::a_state_of_the_whole_prompt_is_not_continued"),
    },
    Mistake {
        name: "unusable-state-preferred",
        file: "runtime/src/engine/copies.rs",
        text: "(common == fits && common > 0).then_some((common, state.id))",
        replacement: "(common <= fits && common > 0).then_some((common, state.id))",
        test: case("branches", "positions::going_back_runs_what_lies_between"),
    },
];

/// Trees of drafts, and sources that fail.
pub(super) const TREES: &[Mistake] = &[
    Mistake {
        name: "first-row-always-wins",
        file: ACCEPT,
        text: "candidate: round.winner,",
        replacement: "candidate: round.winner.min(0),",
        test: unit(TREE),
    },
    Mistake {
        name: "hidden-rows-of-the-first-row",
        file: ACCEPT,
        text: "start: start + run.tokens(row, round.winner),",
        replacement: "start: start + run.tokens(row, 0),",
        test: unit("engine::tests::trees::a_head_grows_trees"),
    },
    Mistake {
        name: "logits-of-a-node-one-off",
        file: ACCEPT,
        text: "Some(1 + before + index - shared)",
        replacement: "Some(before + index - shared)",
        test: unit(TREE),
    },
    Mistake {
        name: "head-branches-do-not-know-what-was-read",
        file: "runtime/src/engine/draft/branching.rs",
        text: "written.push(tree.read);",
        replacement: "written.push(tree.read.min(1));",
        test: unit("engine::tests::trees::the_spine_of_a_tree_is_what_a_chain_drafts"),
    },
    Mistake {
        name: "a-failed-source-is-asked-again",
        file: "runtime/src/engine/active.rs",
        text: "active.drafts = None;",
        replacement: "active.drafts = active.drafts.take();",
        test: unit("engine::tests::sources::a_source_that_fails_is_left_alone_with_its_reason"),
    },
    Mistake {
        name: "a-callers-branches-cut-unsaid",
        file: SOURCES,
        text: "let branches = !trees && !tree.is_chain();",
        replacement: "let branches = trees && !tree.is_chain();",
        test: unit("engine::tests::policies::without_trees_a_callers_branches_are_cut"),
    },
    Mistake {
        name: "unknown-tokens-cut-unsaid",
        file: SOURCES,
        text: "row.departures.extend(unknown);",
        replacement: "row.departures.extend(unknown.filter(|_| trees));",
        test: unit("engine::tests::sources::tokens_that_do_not_exist_are_cut_off"),
    },
    Mistake {
        name: "a-failing-head-is-asked-for-ever",
        file: SOURCES,
        text: "const MAX_FAILURES: usize = 2;",
        replacement: "const MAX_FAILURES: usize = 99;",
        test: unit("engine::tests::sources::a_head_that_keeps_failing_is_left_alone"),
    },
    Mistake {
        name: "a-head-judged-by-what-it-cannot-read",
        file: HEAD,
        text: "(drafts, row.choice.arm) = (0, None);",
        replacement: "drafts = drafts.min(usize::MAX);",
        test: unit(NO_NUMBERS),
    },
    Mistake {
        name: "a-head-judged-by-rows-that-failed",
        file: SOURCES,
        text: "let Some(arm) = of_head.filter(|_| told.told.is_ok()) else {",
        replacement: "let Some(arm) = of_head else {",
        test: unit(NO_NUMBERS),
    },
    Mistake {
        name: "a-head-silenced-by-one-request",
        file: SOURCES,
        text: "self.spoke |= drafted;",
        replacement: "self.spoke &= drafted;",
        test: unit(
            "engine::draft::sources::tests::a_head_that_has_drafted_is_not_taken_for_silent",
        ),
    },
    Mistake {
        name: "texts-are-shared-with-everybody",
        file: "runtime/src/request/request.rs",
        text: "scope: self.scope.clone(),",
        replacement: "scope: self.scope.as_ref().map(|_| String::new()),",
        test: unit("engine::tests::sources::texts_are_shared_within_a_scope_only"),
    },
    Mistake {
        name: "lookups-counted-for-the-head",
        file: "runtime/src/engine/draft/lookup.rs",
        text: "row.proposal.tail = Some((Source::Lookup, spine.len()));",
        replacement: "row.proposal.tail = Some((Source::Lookup, spine.len() + 99));",
        test: unit("engine::tests::policies::lookups_go_on_behind_a_head"),
    },
    Mistake {
        name: "unread-rows-are-lost",
        file: HEAD,
        text: "hidden.extend_from_slice(waiting);",
        replacement: "hidden.extend_from_slice(waiting.get(..0).unwrap_or_default());",
        test: unit("engine::tests::sources::a_head_catches_up_with_what_it_did_not_read"),
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
        file: SOURCES,
        text: "usize::try_from(token).is_ok_and(|token| token < vocab)",
        replacement: "usize::try_from(token).is_ok_and(|token| token < vocab + 999)",
        test: unit(RANDOM),
    },
    Mistake {
        name: "head-keeps-one-too-many",
        file: HEAD,
        text: "row.head_kept = if read { count } else { 0 };",
        replacement: "row.head_kept = if read { count + 1 } else { 0 };",
        test: unit(RANDOM),
    },
    Mistake {
        name: "head-forgets-one",
        file: HEAD,
        text: "row.head_kept = if read { count } else { 0 };",
        replacement: "row.head_kept = if read { count - 1 } else { 0 };",
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
        text: "let position = row.past + row.kept.get() + 1 + row.proposal.tree.len();",
        replacement: "let position = row.past + row.kept.get() + row.proposal.tree.len();",
        test: unit("engine::tests::state::a_head_that_agrees_drafts_what_will_be_drawn"),
    },
    Mistake {
        name: "head-reads-the-token-before",
        file: HEAD,
        text: "let after = known.get(first + 1..).unwrap_or_default();",
        replacement: "let after = known.get(first..).unwrap_or_default();",
        test: unit(RANDOM),
    },
];
