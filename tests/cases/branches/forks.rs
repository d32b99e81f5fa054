//! Forks of kept states and of running requests.

use super::{compare, each_setup, engine, greedy, keep, options, words};
use pawl::{Engine, ErrorCode, Event, Kept, LoadOptions, RequestHandle, Reuse};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;

#[test]
fn forks_go_their_own_ways() {
    each_setup(|what, work, fresh| {
        // Lengths around the end of a block of 32.
        for length in [20, 22, 23, 24, 55] {
            let (kept, text) = keep(work, &words(length, length));
            let fork = kept.fork().unwrap();
            let again = fork.fork().unwrap();
            assert_eq!(fork.tokens(), kept.tokens());
            assert_ne!(fork, kept);
            // Three requests side by side, one of them another way.
            let prompts = [
                text.clone(),
                [&text[..], &[5, 6, 7]].concat(),
                [fork.tokens(), &words(9, 40)].concat(),
            ];
            let expected = fresh.generate_all(prompts.iter().map(|ids| greedy(ids)));
            let states = [kept, fork, again];
            let found = prompts.iter().zip(&states);
            let found = found.map(|(ids, kept)| greedy(ids).continue_from(kept.clone()));
            let found = work.generate_all(found).unwrap();
            for (found, expected) in found.iter().zip(expected.unwrap()) {
                assert_eq!(found.tokens, expected.tokens, "{what}, {length}");
                assert_eq!(found.usage.reuse, Reuse::Continued);
            }
            assert!(states.iter().all(|kept| !kept.is_held()));
        }
    });
}

#[test]
fn a_running_request_is_forked_and_goes_on() {
    each_setup(|what, work, fresh| {
        let ids = words(2, 30);
        let (mut found, mut branches) = (Vec::new(), Vec::new());
        // A request may end before it is forked, but not each time.
        for _ in 0..50 {
            (found, branches) = fork_while_running(work, &ids);
            if !branches.is_empty() {
                break;
            }
        }
        assert!(!branches.is_empty(), "{what}");
        let whole = greedy(&ids).max_new_tokens(found.len() as u64);
        assert_eq!(found, fresh.generate(whole).unwrap().tokens, "{what}");
        for branch in branches {
            compare(what, work, fresh, branch, &[11, 12]);
        }
    });
}

/// Tokens of a request, and its state at some of them.
fn fork_while_running(engine: &Engine, ids: &[u32]) -> (Vec<u32>, Vec<Kept>) {
    let mut running = engine.submit(greedy(ids).max_new_tokens(1000)).unwrap();
    let (mut found, mut branches) = (Vec::new(), Vec::new());
    while let Some(event) = running.next_event() {
        let Event::Tokens { tokens, .. } = event else {
            continue;
        };
        found.extend(tokens);
        branches.extend(running.fork().ok());
        if branches.len() == 3 {
            running.cancel();
        }
    }
    let ended = running.fork().unwrap_err();
    assert_eq!(ended.code(), ErrorCode::StateGone, "{ended}");
    let text = [ids, &found].concat();
    assert!(
        branches
            .iter()
            .all(|branch| text.starts_with(branch.tokens()))
    );
    (found, branches)
}

/// The engine's thread would wait for itself.
#[test]
fn a_draft_source_cannot_copy_states() {
    let export = Export::of("llama-odd", CheckpointOption::None);
    let work = engine(&export, &LoadOptions::default(), &options());
    let (kept, text) = keep(&work, &words(1, 9));
    let (told, answer) = std::sync::mpsc::channel();
    let (told, inside) = (std::sync::Mutex::new(told), kept.clone());
    let asking = greedy(&text).drafts(move |_: &[u32], _: usize| {
        let error = inside.fork().unwrap_err();
        let _ = told.lock().unwrap().send(error.code());
        Vec::new()
    });
    assert_eq!(work.generate(asking).unwrap().tokens.len(), 9);
    assert_eq!(answer.recv().unwrap(), ErrorCode::StepDiscarded);
    assert!(kept.fork().is_ok());
}

/// Blocks that forks share are counted once, and running requests can always grow.
#[test]
fn forks_share_blocks_and_leave_room_to_grow() {
    let export = Export::of("llama-odd", CheckpointOption::None);
    let work = engine(&export, &LoadOptions::default().kv_blocks(10), &options());
    let (kept, _) = keep(&work, &words(1, 121));
    // 129 tokens: 4 shared blocks, and one of its own for each; 2 blocks are left after three forks.
    let forks: Vec<Kept> = (0..3).map(|_| kept.fork().unwrap()).collect();
    let (reached, go, busy) = gated(&work, &words(2, 30), 34);
    reached.recv().unwrap();
    // The two are for the request that runs: 30 + 34 tokens.
    let full = kept.fork().unwrap_err();
    assert_eq!(full.code(), ErrorCode::NoRoom, "{full}");
    let short = kept.rewind(128).unwrap();
    assert_eq!(short.tokens().len(), 128, "whole blocks take no room");
    drop(go);
    assert_eq!(busy.wait().unwrap().tokens.len(), 34);
    let fresh = engine(&export, &LoadOptions::default(), &options());
    for (n, fork) in forks.into_iter().chain([kept, short]).enumerate() {
        let prompt = [fork.tokens(), &words(n as u32, 3)].concat();
        let found = work.generate(greedy(&prompt).continue_from(fork)).unwrap();
        assert_eq!(found.usage.reuse, Reuse::Continued);
        assert_eq!(
            found.tokens,
            fresh.generate(greedy(&prompt)).unwrap().tokens
        );
    }
    assert_eq!(work.kept_states().evicted, 0);
}

type Gate = std::sync::mpsc::Sender<()>;

/// A request that stops the engine when it first asks for drafts, until the gate is dropped.
fn gated(
    engine: &Engine,
    ids: &[u32],
    tokens: u64,
) -> (std::sync::mpsc::Receiver<()>, Gate, RequestHandle) {
    let (reached, arrival) = std::sync::mpsc::channel();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let (reached, gate) = (std::sync::Mutex::new(reached), std::sync::Mutex::new(gate));
    let request = greedy(ids)
        .max_new_tokens(tokens)
        .drafts(move |_: &[u32], _: usize| {
            let _ = reached.lock().unwrap().send(());
            let _ = gate
                .lock()
                .unwrap()
                .recv_timeout(std::time::Duration::from_millis(300));
            Vec::new()
        });
    (arrival, go, engine.submit(request).unwrap())
}
