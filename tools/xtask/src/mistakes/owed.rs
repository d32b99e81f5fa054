//! Mistakes with states that are committed and made later.

use super::{Mistake, case, unit};

const OWED_STATES: &str = "runtime/src/kernels/owed.rs";
const BUFFERS: &str = "runtime/src/model/fixed_buffers.rs";
const POOL: &str = "runtime/src/state/pool.rs";
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
        text: "            self.settle_places()?;",
        replacement:
            "            for (buffers, owed) in self.pool.buffers.iter_mut().zip(&mut self.owed) {
                buffers.owed.append(owed);
            }
            self.pool.settle()?;
            self.settle_places()?;",
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
        text: "earlier.clone().all(|other| other.row != state.row);",
        replacement: "earlier.clone().all(|other| other.row != usize::MAX || state.row == 0);",
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
        text: "        self.pool.settle()?;
",
        replacement: "",
        test: unit("engine::tests::kept::scripts_see_everything"),
    },
    Mistake {
        name: "owed-to-a-slot-that-was-released",
        file: POOL,
        text: "buffers.owed.retain(|state| !rows.contains(&state.row));",
        replacement: "buffers.owed.retain(|_| !rows.is_empty());",
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
        text: "            put_off: &self.put_off,",
        replacement: "            put_off: &PutOff::default(),",
        test: case("speculation", COMMITTED),
    },
    Mistake {
        name: "made-by-several-readers",
        file: OWED_STATES,
        text: "(Some(row), None) => !put_off",
        replacement: "(Some(row), _) => !put_off",
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
        text: "threads.run(self.states.len() * most, cost, &|item| {",
        replacement: "threads.run((self.states.len() * most).saturating_sub(1), cost, &|item| {",
        test: unit("kernels::owed::tests::an_operator_makes_what_is_owed_once"),
    },
    Mistake {
        name: "made-twice",
        file: OWED_STATES,
        text: "            self.close(bank);",
        replacement: "            self.accounts().insert(bank.as_ptr().addr(), Account::Owing(debt));",
        test: unit("kernels::owed::tests::an_operator_makes_what_is_owed_once"),
    },
    Mistake {
        name: "lost-states-taken-for-made",
        file: OWED_STATES,
        text: "Some(Account::Open) => Collected::Lost,",
        replacement: "Some(Account::Open) => Collected::Made,",
        test: unit("kernels::owed::tests::what_an_operator_fails_at_is_lost"),
    },
    Mistake {
        name: "states-that-nobody-made-pass",
        file: DEBTS,
        text: "result = result.and(Err(NOT_MADE.to_owned()));",
        replacement: "result = result.and(Ok(()));",
        test: unit(
            "exec::debts::tests::what_no_operator_made_fails_the_step_and_is_made_by_the_host",
        ),
    },
    Mistake {
        name: "lost-states-run-on",
        file: DEBTS,
        text: "buffers.lost || (!buffers.owed",
        replacement: "(!buffers.owed",
        test: unit("exec::debts::tests::what_is_lost_is_neither_run_nor_read"),
    },
];
