//! Blocks of both caches beside kept states: forks of whole blocks share them in the decoder's cache, but a head that is
//! behind its decoder has to copy one for each.

use super::kept::copy;
use super::stand_in::{Bench, Law};
use crate::engine::copies::CopyCommand;
use crate::engine::{EngineOptions, Kept, KeptError};
use crate::ids::RequestId;
use crate::request::{Event, Request, Reuse};
use crate::sample::SamplingParams;
use crate::speculate::{DraftPolicy, Speculation};
use crate::txn::tests::fixture::{BLOCK, Form};
use std::sync::Arc;

const BLOCKS: usize = 10;
const PROMPT: [u32; 3] = [1, 2, 3];

fn bench() -> Bench {
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(Speculation::Mtp)
        .max_drafts(3);
    Bench::sized(Form::Update(4), Law::Everything, &options, (6, BLOCKS))
}

fn fork(bench: &mut Bench, from: RequestId) -> Result<Kept, KeptError> {
    let client = Arc::clone(&bench.client);
    copy(bench, |reply| CopyCommand::Fork {
        from,
        client,
        reply,
    })
}

/// A state of four whole blocks, of which the head has read fewer.
fn keep(bench: &mut Bench) -> Kept {
    let id = bench.submit(
        &Request::from_ids(PROMPT)
            .max_new_tokens(14)
            .keep_state(true),
    );
    bench.drain();
    let kept = bench.events(id).pop();
    let Some(Event::Finished {
        kept: Some(kept), ..
    }) = kept
    else {
        panic!("no state was kept: {kept:?}");
    };
    let read = bench.core.composite.head_tokens(kept.id()).unwrap();
    assert_eq!(kept.tokens().len(), 4 * BLOCK);
    assert!(read > 3 * BLOCK && read < 4 * BLOCK, "{read}");
    kept
}

/// Runs a request to its end, every step of which must be published, and compares its text.
fn complete(bench: &mut Bench, prompt: &[u32], count: u64, from: Option<Kept>) -> Reuse {
    let request = Request::from_ids(prompt.to_vec())
        .max_new_tokens(count)
        .continue_from(from);
    let id = bench.submit(&request);
    finish(bench, id, prompt, count)
}

fn finish(bench: &mut Bench, id: RequestId, prompt: &[u32], count: u64) -> Reuse {
    for _ in 0..100 {
        if bench.core.requests.is_empty() {
            break;
        }
        bench.core.step().unwrap();
        bench.compare();
    }
    let (mut told, mut reuse) = (Vec::new(), None);
    for event in bench.events(id) {
        match event {
            Event::Tokens { tokens, .. } => told.extend(tokens),
            Event::Finished { usage, error, .. } => {
                assert_eq!(error, None);
                reuse = Some(usage.reuse);
            }
        }
    }
    let count = usize::try_from(count).unwrap();
    let expected = Law::Everything.decode(prompt, &SamplingParams::greedy(), count);
    assert_eq!(told, expected);
    reuse.unwrap()
}

/// 24 tokens need 6 of the 10 blocks of either cache: as many states are evicted as the head's blocks of them ask for.
#[test]
fn a_request_that_needs_what_forks_hold_of_the_heads_cache_evicts_them() {
    let mut bench = bench();
    let kept = keep(&mut bench);
    let _forks: Vec<Kept> = (0..3)
        .map(|_| fork(&mut bench, kept.id()).unwrap())
        .collect();
    let usage = bench.core.pool_usage();
    assert_eq!((usage.free_blocks, usage.free_head_blocks), (6, 3));
    complete(&mut bench, &[5, 6, 7, 8, 9, 10, 11, 12, 13, 14], 14, None);
    let stats = bench.core.counters.read();
    assert_eq!((stats.held, stats.evicted), (1, 3));
}

/// What runs keeps the room to grow, and what is refused is told which cache is full.
#[test]
fn forks_leave_room_to_grow_in_both_caches() {
    let mut bench = bench();
    let kept = keep(&mut bench);
    let prompt = [4, 5, 6, 7];
    let id = bench.submit(&Request::from_ids(prompt).max_new_tokens(12));
    bench.core.step().unwrap();
    // 4 blocks are kept and 4 the request's: two more forks.
    let forks = [(); 2].map(|()| fork(&mut bench, kept.id()).unwrap());
    let full = fork(&mut bench, kept.id()).unwrap_err();
    assert!(
        matches!(&full, KeptError::NoRoom { reason } if reason.contains("draft head's cache")),
        "{full}"
    );
    finish(&mut bench, id, &prompt, 12);
    assert_eq!(bench.core.counters.read().evicted, 0);
    // Both of them go on: each brings its own block and needs two more.
    for fork in forks {
        let longer = [fork.tokens(), &[9, 9]].concat();
        let reuse = complete(&mut bench, &longer, 6, Some(fork));
        assert_eq!(reuse, Reuse::Continued);
    }
}
