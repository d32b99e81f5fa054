//! Scripts that proptest draws.

use super::{Between, Form, Pick, SAVED, Script, Turn};
use crate::settings::effort;
use proptest::prelude::*;

fn pick() -> impl Strategy<Value = Pick> {
    (0u64..5, 1usize..7, 0usize..8, 0usize..8, 0usize..6).prop_map(
        |(request, tokens, drafts, accepted, head)| Pick {
            request,
            tokens,
            drafts,
            accepted,
            head,
        },
    )
}

fn between() -> impl Strategy<Value = Between> {
    let request = || 0u64..5;
    let (less, leave) = (prop_oneof![2 => Just(0), 1 => 1usize..9], || 0usize..12);
    prop_oneof![
        4 => Just(Between::Nothing),
        2 => request().prop_map(Between::Release),
        1 => (request(), request()).prop_map(|(from, to)| Between::Transfer(from, to)),
        3 => (request(), request(), less, leave())
            .prop_map(|(from, to, less, leave)| Between::Fork(from, to, less, leave)),
        1 => request().prop_map(Between::Save),
        1 => (request(), 0..SAVED, leave())
            .prop_map(|(to, which, leave)| Between::Restore(to, which, leave)),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    (prop::collection::vec(pick(), 1..5), 0usize..12, between()).prop_map(
        |(picks, leave, between)| Turn {
            picks,
            leave,
            between,
        },
    )
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![
        1 => Just(Form::Absent),
        1 => (1usize..=8).prop_map(Form::State),
        1 => (1usize..=8).prop_map(Form::Update),
        1 => prop::sample::select(vec![1, 3, 8]).prop_map(Form::Distant),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400 * effort()))]

    #[test]
    fn random_scripts_agree_with_token_by_token_state(
        form in form(),
        fixed in prop::bool::weighted(0.8),
        head: bool,
        turns in prop::collection::vec(turn(), 1..40),
    ) {
        let mut script = Script::new(form, fixed, head);
        for turn in &turns {
            script.turn(turn);
        }
    }
}
