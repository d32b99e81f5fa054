//! What callers of an engine can rely on: events, ends, cancellation, bounds.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail, and prints what excuses it"
)]

use pawl::{
    Engine, EngineOptions, ErrorCode, Event, FinishReason, LoadOptions, Request, SamplingParams,
    SubmitError,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;

fn engine(options: &EngineOptions) -> Engine {
    let export = Export::of("tiny-python", CheckpointOption::Update(8));
    Engine::new(export.load(&LoadOptions::default()), options).unwrap()
}

fn request(text: &str) -> Request {
    Request::from_text(text).sampling(SamplingParams::greedy())
}

#[test]
fn pieces_of_text_add_up_to_the_whole() {
    let engine = engine(&EngineOptions::default());
    let whole = engine
        .generate(request("def main():").max_new_tokens(48).ignore_eos(true))
        .unwrap();
    let (mut tokens, mut text, mut finished) = (Vec::new(), String::new(), 0);
    for event in engine
        .submit(request("def main():").max_new_tokens(48).ignore_eos(true))
        .unwrap()
    {
        match event {
            Event::Tokens {
                tokens: new,
                text: piece,
                ..
            } => {
                assert_eq!(finished, 0, "tokens after the end");
                tokens.extend(new);
                text.push_str(&piece);
            }
            Event::Finished {
                reason,
                usage,
                stats,
                error,
                ..
            } => {
                finished += 1;
                assert_eq!((reason, error), (FinishReason::MaxNewTokens, None));
                assert_eq!(usage.generated_tokens, 48);
                assert!(stats.steps > 0 && stats.steps <= 48);
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(
        (tokens, text.as_str(), finished),
        (whole.tokens, whole.text.as_str(), 1)
    );
    assert!(!text.is_empty());
}

#[test]
fn a_stop_string_ends_before_itself() {
    let engine = engine(&EngineOptions::default());
    let whole = engine
        .generate(request("def main():").max_new_tokens(48).ignore_eos(true))
        .unwrap();
    let stop = whole
        .text
        .char_indices()
        .nth(20)
        .map(|(at, _)| &whole.text[at..at + 5])
        .unwrap();
    let at = whole.text.find(stop).unwrap();
    let stopped = engine
        .generate(request("def main():").max_new_tokens(48).stop(stop))
        .unwrap();
    assert_eq!(stopped.reason, FinishReason::StopString);
    assert_eq!(stopped.stop.as_deref(), Some(stop));
    assert_eq!(stopped.text, whole.text[..at]);
}

#[test]
fn cancelling_ends_one_request_and_spares_the_others() {
    let engine = engine(&EngineOptions::default());
    let long = |text| request(text).max_new_tokens(2000).ignore_eos(true);
    let mut cancelled = engine.submit(long("import os")).unwrap();
    let spared = engine
        .submit(request("class A:").max_new_tokens(64).ignore_eos(true))
        .unwrap();
    assert!(matches!(cancelled.next_event(), Some(Event::Tokens { .. })));
    cancelled.cancel();
    cancelled.cancel();
    let last = cancelled.by_ref().last().unwrap();
    assert!(
        matches!(
            last,
            Event::Finished {
                reason: FinishReason::Cancelled,
                ..
            }
        ),
        "{last:?}"
    );
    assert_eq!(spared.wait().unwrap().tokens.len(), 64);
    drop(engine.submit(long("dropped")).unwrap());
    let after = engine
        .generate(request("class A:").max_new_tokens(4).ignore_eos(true))
        .unwrap();
    assert_eq!(after.tokens.len(), 4);
    assert_eq!(engine.unfinished(), 0);
}

#[test]
fn the_queue_is_bounded_and_drains() {
    let engine = engine(&EngineOptions::default().max_unfinished(20));
    let submit = |tokens| engine.submit(request("import").max_new_tokens(tokens).ignore_eos(true));
    let handles: Vec<_> = (0..20).map(|_| submit(4000).unwrap()).collect();
    let refused = submit(1).unwrap_err();
    assert!(matches!(refused, SubmitError::QueueFull));
    assert_eq!(refused.code(), ErrorCode::QueueFull);
    for handle in handles {
        handle.cancel();
        assert_eq!(handle.wait().unwrap().reason, FinishReason::Cancelled);
    }
    assert_eq!(submit(5).unwrap().wait().unwrap().tokens.len(), 5);
}

#[test]
fn thousands_of_requests_queue_up_to_the_bound_and_cancel_before_start_and_after_end() {
    let engine = engine(&EngineOptions::default());
    let endless = || Request::from_ids([5, 6]).ignore_eos(true);
    let submitted: Vec<_> = (0..3000).map(|_| engine.submit(endless())).collect();
    let (accepted, refused): (Vec<_>, Vec<_>) = submitted.into_iter().partition(Result::is_ok);
    assert_eq!((accepted.len(), refused.len()), (1024, 1976));
    for error in refused.into_iter().filter_map(Result::err) {
        assert_eq!(error.code(), ErrorCode::QueueFull);
    }
    let mut handles: Vec<_> = accepted.into_iter().flatten().collect();
    for handle in &handles {
        handle.cancel();
    }
    for handle in &mut handles {
        let last = handle.by_ref().last();
        let cancelled = |event: &Event| {
            matches!(
                event,
                Event::Finished {
                    reason: FinishReason::Cancelled,
                    ..
                }
            )
        };
        assert!(last.as_ref().is_some_and(cancelled), "{last:?}");
        handle.cancel();
    }
    assert_eq!(engine.unfinished(), 0);
    let after = engine.generate(request("import os").max_new_tokens(2));
    assert_eq!(after.unwrap().tokens.len(), 2);
}

#[test]
fn more_requests_than_slots_all_finish_with_the_same_tokens() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::None);
    let model = export.load(&LoadOptions::default().max_batch_size(3).kv_blocks(12));
    let engine = Engine::new(model, &EngineOptions::default().max_scheduled_tokens(10)).unwrap();
    let request = |n: u32| {
        let ids: Vec<u32> = (0..20 + n).map(|i| 3 + (i * 7 + n) % 300).collect();
        Request::from_ids(ids)
            .sampling(SamplingParams::greedy())
            .max_new_tokens(20)
            .ignore_eos(true)
    };
    let together = engine.generate_all((0..9).map(request)).unwrap();
    for (n, found) in (0..9).zip(together) {
        assert_eq!(
            found.tokens,
            engine.generate(request(n)).unwrap().tokens,
            "request {n}"
        );
    }
}

#[test]
fn what_cannot_run_is_refused_or_ends_with_a_reason() {
    let export = Export::of("tiny-python", CheckpointOption::Update(8));
    let model = export.load(&LoadOptions::default().max_sequence(100));
    let engine = Engine::new(model, &EngineOptions::default()).unwrap();
    let refused = |request: Request| engine.submit(request).unwrap_err();
    assert!(matches!(
        refused(Request::from_ids(Vec::new())),
        SubmitError::EmptyPrompt
    ));
    assert!(matches!(
        refused(Request::from_ids([5000])),
        SubmitError::UnknownToken { .. }
    ));
    assert!(matches!(
        refused(Request::from_ids(vec![1; 100])),
        SubmitError::PromptTooLong { .. }
    ));
    assert!(matches!(
        refused(request("x").max_new_tokens(0)),
        SubmitError::NothingToGenerate
    ));
    let hot = Request::from_ids([1]).sampling(SamplingParams::sampled(f32::NAN));
    assert!(matches!(refused(hot), SubmitError::Sampling(_)));
    let full = Request::from_ids(vec![1; 94]).ignore_eos(true);
    let found = engine
        .generate(full.sampling(SamplingParams::greedy()))
        .unwrap();
    assert_eq!(
        (found.reason, found.tokens.len()),
        (FinishReason::ContextLength, 6)
    );
}

#[test]
fn a_seed_repeats_and_a_missing_seed_is_told() {
    let engine = engine(&EngineOptions::default());
    let request = |params: SamplingParams| {
        Request::from_text("class Stack:")
            .sampling(params)
            .max_new_tokens(32)
            .ignore_eos(true)
    };
    let first = engine
        .generate(request(SamplingParams::sampled(1.0)))
        .unwrap();
    let again = engine
        .generate(request(SamplingParams::sampled(1.0).seed(first.seed)))
        .unwrap();
    assert_eq!(first.tokens, again.tokens);
    let other = engine
        .generate(request(SamplingParams::sampled(1.0)))
        .unwrap();
    assert_ne!((first.seed, &first.tokens), (other.seed, &other.tokens));
}

#[test]
fn dropping_the_engine_ends_its_requests() {
    let engine = engine(&EngineOptions::default());
    let handle = engine
        .submit(request("import").max_new_tokens(3000).ignore_eos(true))
        .unwrap();
    drop(engine);
    let error = handle.wait().unwrap_err();
    assert_eq!(error.code(), ErrorCode::EngineStopped);
}

#[test]
fn what_requests_and_kept_states_hold_shows_and_comes_back() {
    let engine = engine(&EngineOptions::default());
    let empty = engine.pool_usage().unwrap();
    let free = (empty.slots, empty.blocks, empty.head_blocks);
    assert_eq!(empty.residents, 0);
    assert_eq!(
        (empty.free_slots, empty.free_blocks, empty.free_head_blocks),
        free
    );
    assert!(free.0 > 0 && free.1 > 0 && free.2 > 0, "{empty:?}");

    let long = request("import os").max_new_tokens(2000).ignore_eos(true);
    let mut running = engine.submit(long).unwrap();
    assert!(matches!(running.next_event(), Some(Event::Tokens { .. })));
    let kept = engine
        .generate(request("class A:").max_new_tokens(9).keep_state(true))
        .unwrap()
        .kept;
    let usage = engine.pool_usage().unwrap();
    assert_eq!((usage.residents, usage.free_slots), (2, free.0 - 2));
    assert!(usage.free_blocks <= free.1 - 2, "{usage:?}");
    assert!(usage.free_head_blocks <= free.2 - 2, "{usage:?}");

    running.cancel();
    running.wait().unwrap();
    assert_eq!(engine.pool_usage().unwrap().residents, 1);
    drop(kept);
    assert_eq!(engine.pool_usage(), Some(empty));
}
