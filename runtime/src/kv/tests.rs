//! Blocks, tables and what the cache refuses. Commits are tested with the transaction that alone can make them.

use super::error::KvPoolError;
use super::{KvError, KvPool, KvRow, blocks_for};
use crate::device::HostDevice;
use crate::ids::RequestId;
use crate::kv::blocks::BlockPool;
use crate::model::spec::{PagedNames, PagedSpec};
use proptest::prelude::*;

fn spec(block_size: usize) -> PagedSpec {
    let names = PagedNames {
        layer: 1,
        key_input: "key".to_owned(),
        key_output: "present.key".to_owned(),
        value_input: "value".to_owned(),
        value_output: "present.value".to_owned(),
    };
    PagedSpec {
        layers: vec![names; 2],
        block_size,
        kv_heads: 3,
        head_dim: 5,
    }
}

fn pool(blocks: usize) -> KvPool {
    KvPool::new(&spec(4), blocks, &HostDevice).unwrap()
}

fn row(request: u64, tokens: usize, new: bool) -> KvRow {
    KvRow {
        request: RequestId(request),
        tokens,
        new,
    }
}

#[test]
fn every_layer_has_keys_and_values() {
    let pool = pool(6);
    assert_eq!(pool.buffers.len(), 2);
    for layer in &pool.buffers {
        assert_eq!(layer.key.shape(), [6, 4, 3, 5]);
        assert_eq!(layer.value.shape(), [6, 4, 3, 5]);
    }
}

#[test]
fn impossible_extents_are_refused() {
    let too_many = usize::try_from(i32::MAX).unwrap() + 1;
    for (block_size, blocks) in [(4, 0), (0, 4), (usize::MAX, 2), (1, too_many)] {
        let error = KvPool::new(&spec(block_size), blocks, &HostDevice).unwrap_err();
        assert!(matches!(error, KvPoolError::Extent { .. }), "{error}");
    }
}

#[test]
fn rows_get_the_blocks_their_tokens_need() {
    let mut pool = pool(6);
    let step = pool
        .reserve(&[row(1, 9, true), row(2, 4, true), row(3, 0, true)])
        .unwrap();
    let binding = step.binding();
    assert_eq!(binding.max_blocks, 3);
    assert_eq!(binding.past, [0, 0, 0]);
    assert_eq!(binding.block_table, [0, 1, 2, 3, -1, -1, -1, -1, -1]);
    let some = step.binding_of([(2, 0), (1, 0), (7, 0)]);
    assert_eq!((some.max_blocks, some.block_table), (1, vec![-1, 3, -1]));
}

#[test]
fn a_dropped_reservation_restores_the_free_list() {
    let mut pool = pool(6);
    let before = pool.blocks().clone();
    let step = pool.reserve(&[row(1, 9, true), row(2, 4, true)]).unwrap();
    assert_eq!(step.pool().blocks().free().len(), 2);
    drop(step);
    assert_eq!(*pool.blocks(), before);
    assert_eq!(pool.tables().count(), 0);
}

#[test]
fn what_cannot_be_reserved_changes_nothing() {
    let mut pool = pool(4);
    let before = pool.blocks().clone();
    let request = RequestId(1);
    let cases = [
        (
            vec![row(1, 9, true), row(2, 5, true)],
            KvError::OutOfBlocks { needed: 5, free: 4 },
        ),
        (
            vec![row(1, 17, true)],
            KvError::Unserviceable {
                request,
                needed: 5,
                total: 4,
            },
        ),
        (
            vec![row(1, usize::MAX, true)],
            KvError::Unserviceable {
                request,
                needed: usize::MAX / 4 + 1,
                total: 4,
            },
        ),
        (
            vec![row(1, 1, true), row(1, 1, true)],
            KvError::Duplicate(request),
        ),
        (vec![row(1, 1, false)], KvError::Unknown(request)),
    ];
    for (rows, expected) in cases {
        assert_eq!(pool.reserve(&rows).unwrap_err(), expected);
        assert_eq!(*pool.blocks(), before);
    }
}

#[test]
fn the_kept_length_is_decided_once_and_within_the_reservation() {
    let mut pool = pool(4);
    let mut step = pool.reserve(&[row(1, 3, true)]).unwrap();
    assert_eq!(
        step.commit_prefix(1, 0),
        Err(KvError::UnknownRow { row: 1, rows: 1 })
    );
    let too_many = KvError::KeptTooMany {
        row: 0,
        kept: 4,
        tokens: 3,
    };
    assert_eq!(step.commit_prefix(0, 4), Err(too_many));
    assert_eq!(step.commit_prefix(0, 0), Ok(()));
    assert_eq!(step.commit_prefix(0, 1), Err(KvError::Twice(0)));
}

#[test]
fn a_shared_block_is_free_after_its_last_user() {
    let mut pool = BlockPool::new(2).unwrap();
    let taken = pool.take(1).unwrap();
    assert!(pool.share(&taken));
    pool.give_back(&taken);
    assert_eq!((pool.free().len(), pool.references()), (1, &[1, 0][..]));
    pool.give_back(&taken);
    assert_eq!((pool.free().len(), pool.references()), (2, &[0, 0][..]));
    pool.give_back(&taken);
    assert_eq!(
        pool.free().len(),
        2,
        "a block nobody uses is not freed again"
    );
    assert!(!pool.share(&taken), "a free block cannot be shared");
}

proptest! {
    #[test]
    fn blocks_hold_their_tokens(tokens in 0usize..1000, size in 1usize..64) {
        let blocks = blocks_for(tokens, size);
        prop_assert!(blocks * size >= tokens && (blocks == 0 || (blocks - 1) * size < tokens));
    }

    #[test]
    fn taking_and_giving_back_in_reverse_restores_the_pool(
        counts in prop::collection::vec(0usize..5, 0..6),
    ) {
        let mut pool = BlockPool::new(10).unwrap();
        let before = pool.clone();
        let mut taken = Vec::new();
        for count in counts {
            let free = pool.free().len();
            match pool.take(count) {
                Some(blocks) => {
                    prop_assert_eq!(blocks.len(), count);
                    prop_assert!(blocks.iter().all(|block| pool.references()[block.index()] == 1));
                    taken.push(blocks);
                }
                None => prop_assert!(count > free),
            }
        }
        taken.iter().rev().for_each(|blocks| pool.give_back(blocks));
        prop_assert_eq!(pool, before);
    }
}
