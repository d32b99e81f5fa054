//! Earlier positions of a state, and states of prompts alone.

use super::{compare, each_setup, engine, greedy, keep, options, setups, words};
use pawl::{ErrorCode, Kept, LoadOptions, ObservedStep};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;

#[test]
fn rewound_to_every_position() {
    for (name, form, modes) in setups() {
        let export = Export::of(name, form);
        let options = options().speculation(*modes.last().unwrap());
        let work = engine(&export, &LoadOptions::default(), &options);
        let fresh = engine(&export, &LoadOptions::default(), &options);
        let (first, text) = keep(&work, &words(4, 13));
        let branch = first.fork().unwrap();
        let text = [&text[..], &words(5, 20)].concat();
        let last = greedy(&text).keep_state(true).continue_from(branch);
        let last = work.generate(last).unwrap().kept.unwrap();
        for length in 1..=last.tokens().len() {
            let back = last.rewind(length).unwrap();
            assert_eq!(back.tokens(), &last.tokens()[..length]);
            compare(
                &format!("{name}, {form:?}, {length}"),
                &work,
                &fresh,
                back,
                &[8, 9],
            );
        }
        assert!(first.is_held() && last.is_held());
        for wrong in [0, last.tokens().len() + 1] {
            let error = last.rewind(wrong).unwrap_err();
            assert_eq!(error.code(), ErrorCode::RequestInvalid, "{error}");
        }
        // What was dropped is freed before the next request runs.
        work.generate(greedy(&[5])).unwrap();
        assert_eq!(work.kept_states().held, 2);
    }
}

/// Going back runs the tokens between the nearest state and the position, and nothing else.
#[test]
fn going_back_runs_what_lies_between() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    for (name, form, between) in [
        ("qwen3_5-odd", CheckpointOption::Update(8), 9),
        ("llama-odd", CheckpointOption::None, 0),
    ] {
        let export = Export::of(name, form);
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let options = options().observe_steps(move |step: &ObservedStep<'_>| {
            let run = step.rows().iter().map(pawl::ObservedRow::run);
            counted.fetch_add(run.sum(), Ordering::Relaxed);
        });
        let work = engine(&export, &LoadOptions::default(), &options);
        // 21 tokens are kept twice, then 60 of the same text and 25 of another.
        let (first, text) = keep(&work, &words(4, 13));
        let other = first.fork().unwrap();
        let read = |ids: Vec<u32>, from: &Kept| {
            let read = greedy(&ids).max_new_tokens(0).keep_state(true);
            work.generate(read.continue_from(from.fork().unwrap()))
        };
        let long = read([&text[..], &words(5, 38)].concat(), &first);
        let long = long.unwrap().kept.unwrap();
        let aside = read([&text[..], &words(6, 3)].concat(), &other).unwrap();
        let before = count.load(Ordering::Relaxed);
        let back = long.rewind(30).unwrap();
        assert_eq!(back.tokens().len(), 30);
        let run = count.load(Ordering::Relaxed) - before;
        assert_eq!(run, between, "{name}");
        assert!(aside.kept.unwrap().is_held());
    }
}

/// A state that is gone is rewound all the same: its tokens are known. Room is made as for any request.
#[test]
fn a_state_that_is_gone_is_computed_again() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let one = LoadOptions::default().max_batch_size(1);
    let work = engine(&export, &one, &options());
    let fresh = engine(&export, &LoadOptions::default(), &options());
    let (kept, _) = keep(&work, &words(1, 30));
    let full = kept.fork().unwrap_err();
    assert_eq!(full.code(), ErrorCode::NoRoom, "{full}");
    assert!(kept.is_held(), "a fork evicts nothing");
    let back = kept.rewind(20).unwrap();
    assert!(!kept.is_held() && back.is_held());
    assert_eq!(work.kept_states().evicted, 1);
    let gone = kept.fork().unwrap_err();
    assert_eq!(gone.code(), ErrorCode::StateGone, "{gone}");
    let file = tempfile::tempdir().unwrap().path().join("x");
    assert_eq!(kept.save(&file).unwrap_err().code(), ErrorCode::StateGone);
    let prompt = [back.tokens(), &[4]].concat();
    let found = work.generate(greedy(&prompt).continue_from(back)).unwrap();
    assert_eq!(found.usage.reused_tokens, 20);
    assert_eq!(
        found.tokens,
        fresh.generate(greedy(&prompt)).unwrap().tokens
    );
    drop(work);
    let stopped = kept.rewind(3).unwrap_err();
    assert_eq!(stopped.code(), ErrorCode::EngineStopped, "{stopped}");
}

#[test]
fn a_prompt_is_read_without_generating() {
    each_setup(|what, work, fresh| {
        let ids = words(3, 70);
        let read = greedy(&ids).max_new_tokens(0).keep_state(true);
        let read = work.generate(read).unwrap();
        assert_eq!((read.tokens.len(), read.usage.generated_tokens), (0, 0));
        assert!(read.stats.prefill_seconds > 0.0 && read.stats.decode_seconds == 0.0);
        let kept = read.kept.unwrap();
        assert_eq!(kept.tokens(), ids, "{what}");
        compare(what, work, fresh, kept, &[5]);
    });
}
