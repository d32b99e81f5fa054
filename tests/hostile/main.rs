//! Hostile input: whatever the tools are fed, they answer with a clear message and an exit code, lose nothing, leave
//! nothing behind, and never panic, abort, hang or eat the machine.
//!
//! Every case is a small folder made by code, a command, the exit code it must have and words that its message must
//! hold: the file, key or option that is to blame. Each runs in a process of its own under bounds of memory and time.
//! The cases of one file run in one test, which lists all that went wrong.
//!
//! The commands are those beside this program: `cargo xtask test` builds them, and so does
//! `cargo build -p build-model -p pawl-cli`.

#![cfg(target_os = "linux")]
#![allow(
    missing_docs,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a case stops where its set-up fails"
)]
#![allow(
    clippy::too_many_lines,
    reason = "most functions here are tables of cases"
)]

mod case;
mod chats;
mod checkpoints;
mod configs;
mod grammars;
mod graphs;
mod libraries;
mod library;
mod links;
mod onnx;
mod plans;
mod programs;
mod requests;
mod run;
mod settings;
mod streams;
mod templates;
mod tokenizers;
mod traces;
mod world;

use case::{Case, Output};
use pawl::ErrorCode;

/// Runs the cases of one file, two at a time.
fn all_hold(cases: &[Case]) {
    let wrong = run::all(cases);
    let count = wrong.len();
    assert!(
        wrong.is_empty(),
        "{count} of {} cases are wrong:\n{}",
        cases.len(),
        wrong.join("\n")
    );
}

macro_rules! tables {
    ($($module:ident)*) => {
        $(
            #[test]
            fn $module() {
                all_hold(&$module::cases());
            }
        )*

        /// Every case.
        fn all() -> Vec<Case> {
            [$($module::cases()),*].concat()
        }

        #[test]
        fn names_are_unique_and_the_collection_is_large() {
            let all = all();
            let mut names: Vec<&str> = all.iter().map(|case| case.name.as_str()).collect();
            names.sort_unstable();
            let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
            assert_eq!(twice, None);
            let before = names.len();
            assert!(before >= 200, "{before} cases");
        }
    };
}

tables! { checkpoints settings configs grammars graphs programs libraries links tokenizers templates requests streams chats plans traces }

#[test]
fn every_code_of_a_graph_that_does_not_fit_has_a_case() {
    let mut all = all();
    all.retain(|case| {
        case.error
            .is_none_or(|error| error == ErrorCode::ContractMismatch)
    });
    let words: Vec<&str> = (all.iter())
        .flat_map(|case| case.words.iter().map(String::as_str))
        .collect();
    let codes = pawl::ContractCode::ALL.iter().map(|code| code.as_str());
    let missing: Vec<&str> = codes.filter(|code| !words.contains(code)).collect();
    assert!(missing.is_empty(), "no case has {missing:?}");
}

#[test]
fn the_codes_of_loads_and_requests_have_cases() {
    let all = all();
    for code in [
        ErrorCode::ProviderUnavailable,
        ErrorCode::OptionInvalid,
        ErrorCode::FileUnreadable,
        ErrorCode::ConfigInvalid,
        ErrorCode::GraphInvalid,
        ErrorCode::ContractMismatch,
        ErrorCode::Unsupported,
        ErrorCode::OutOfMemory,
        ErrorCode::StepFailed,
        ErrorCode::RequestInvalid,
    ] {
        let coded = all.iter().any(|case| case.error == Some(code));
        assert!(coded, "no case expects {code:?}");
    }
}

/// A word that every message holds says nothing.
#[test]
fn every_refusal_has_a_culprit() {
    for case in all() {
        let mute = [Output::ErrorsFull, Output::Gone, Output::Closed].contains(&case.output);
        let said = case.words.iter().any(|word| !word.is_empty());
        assert!(said || mute || case.code == 0, "{}", case.name);
        assert!(
            case.words.iter().all(|word| !word.is_empty()),
            "{}",
            case.name
        );
    }
}
