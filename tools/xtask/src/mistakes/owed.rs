//! Mistakes with states that are committed and made later.

use super::{Mistake, case, unit};

const OWED_STATES: &str = "runtime/src/kernels/owed.rs";
const BUFFERS: &str = "runtime/src/model/fixed_buffers.rs";
const RESERVATION: &str = "runtime/src/state/reservation.rs";
const DEBTS: &str = "runtime/src/exec/debts.rs";
const HOST: &str = "runtime/src/state/commit/host.rs";
const OPERATOR: &str = "runtime/src/kernels/gated_delta_net/operator.rs";

const SCRIPTS: &str = "txn::tests::scripts::random::random_scripts_agree_with_token_by_token_state";
const READS: &str =
    "kernels::gated_delta_net::tests::owed::a_step_reads_the_states_that_it_is_owed";
const COMMITTED: &str = "committed::gated_delta_and_attention";

/// Who makes a state, when, and who may see it before.
pub(super) const OWED: &[Mistake] = &[
    Mistake {
        name: "made-before-it-is-published",
        file: RESERVATION,
        text: "            self.choose_places()?;",
        replacement:
            "            for (buffers, owed) in self.pool.buffers.iter_mut().zip(&mut self.owed) {
                buffers.owed.append(owed);
            }
            self.pool.settle();
            self.choose_places()?;",
        test: unit("txn::tests::phases::leaving_after_prepare_restores_everything"),
    },
    Mistake {
        name: "memory-that-does-not-fit-passes",
        file: HOST,
        text: "buffers.can_make(&states);",
        replacement: "buffers.can_make(&[]);",
        test: unit("state::tests::replay::memory_of_other_extents_is_refused"),
    },
    Mistake {
        name: "two-states-in-one-place",
        file: BUFFERS,
        text: "earlier.all(|other| other.row != state.row);",
        replacement: "earlier.all(|other| other.row != usize::MAX || state.row == 0);",
        test: unit("state::tests::replay::two_rows_are_not_made_in_one_place"),
    },
    Mistake {
        name: "read-before-it-is-made",
        file: BUFFERS,
        text: "Some(state) => self.replayed(state).map(Cow::Owned),",
        replacement: "Some(_) => found,",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "copied-to-a-fork-before-it-is-made",
        file: "runtime/src/state/image.rs",
        text: "let settled = buffers.settle_row(read);",
        replacement: "let settled = buffers.settle_row(usize::MAX.min(read + write));",
        test: unit("engine::tests::kept::scripts_see_everything"),
    },
    Mistake {
        name: "owed-to-a-slot-that-was-released",
        file: BUFFERS,
        text: "self.owed.retain(|state| state.row != row);",
        replacement: "self.owed.retain(|state| state.row != usize::MAX || row == 0);",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "poisoned-although-it-is-owed",
        file: BUFFERS,
        text: "                place.copy_from_slice(&bytes);",
        replacement: "                let _ = (place, bytes);",
        test: unit(SCRIPTS),
    },
    Mistake {
        name: "not-made-by-the-row-that-reads-it",
        file: OPERATOR,
        text: "            deferred: &self.deferred,",
        replacement: "            deferred: &Deferred::default(),",
        test: case("speculation", COMMITTED),
    },
    Mistake {
        name: "made-by-several-readers",
        file: OWED_STATES,
        text: "(Some(row), None) => deferred",
        replacement: "(Some(row), _) => deferred",
        test: unit(READS),
    },
    Mistake {
        name: "transitions-of-another-head",
        file: OWED_STATES,
        text: "replay_delta((heads, decay), transition, kept, (part, state));",
        replacement: "replay_delta((heads, decay), transition, kept, (part.min(0), state));",
        test: unit("state::tests::replay::heads_share_keys_and_have_extents_of_their_own"),
    },
    Mistake {
        name: "last-part-not-made",
        file: OWED_STATES,
        text: "threads.run(states.len() * most, cost, &|item| {",
        replacement: "threads.run((states.len() * most).saturating_sub(1), cost, &|item| {",
        test: unit("kernels::owed::tests::an_operator_makes_what_is_owed_once"),
    },
    Mistake {
        name: "made-twice",
        file: OWED_STATES,
        text: "            self.close(bank, debt);",
        replacement: "            self.accounts().insert(bank.as_ptr().addr(), Account::Owing(debt));",
        test: unit("kernels::owed::tests::an_operator_makes_what_is_owed_once"),
    },
    Mistake {
        name: "lost-states-taken-for-made",
        file: OWED_STATES,
        text: "Some(Account::Underway(rows)) => Collected::Lost(rows),",
        replacement: "Some(Account::Underway(_)) => Collected::Made(Vec::new()),",
        test: unit("kernels::owed::tests::what_an_operator_fails_at_is_lost"),
    },
    Mistake {
        name: "states-that-nobody-made-pass",
        file: DEBTS,
        text: "if done && !made && !states.is_empty() {",
        replacement: "if done && !made && states.len() > 1 {",
        test: unit("exec::debts::tests::what_no_operator_made_in_a_whole_run_is_lost"),
    },
    Mistake {
        name: "lost-states-run-on",
        file: DEBTS,
        text: "reads.contains(&row));",
        replacement: "reads.contains(&row) && row > 1);",
        test: unit("exec::debts::tests::what_no_operator_made_in_a_whole_run_is_lost"),
    },
    Mistake {
        name: "debts-of-an-earlier-run",
        file: DEBTS,
        text: "    ledger.begin();
",
        replacement: "",
        test: unit("exec::debts::tests::an_earlier_run_is_forgotten"),
    },
    Mistake {
        name: "owed-states-dropped-by-a-run-that-failed",
        file: DEBTS,
        text: "        if made {
            states.clear();",
        replacement: "        if made || !done {
            states.clear();",
        test: unit("exec::debts::tests::a_run_that_fails_early_leaves_what_was_owed"),
    },
    Mistake {
        name: "others-read-a-state-that-is-owed",
        file: "runtime/src/model/contract/wiring.rs",
        text: "    wiring.check_other_readers(&read, findings);
",
        replacement: "",
        test: unit("model::contract::wiring_tests::nobody_else_reads_the_state_of_an_operator"),
    },
];
