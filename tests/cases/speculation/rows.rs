//! Candidate rows of one step compute what each path computes alone.

use super::{BOTH, MOST, mix};
use pawl::{EvaluateOptions, LoadOptions};
use pawl_builder::CheckpointOption;
use pawl_tests::compare::largest_difference;
use pawl_tests::export::Export;
use pawl_tests::golden;

/// How far logits may be off.
const BOUND: f32 = 1e-4;

/// Paths behind a prefix: of every length, some with a beginning in common.
fn paths(seed: usize, vocab: usize) -> Vec<Vec<u32>> {
    let token = |at: usize| (mix(seed * 1000 + at) % vocab) as u32;
    let spine: Vec<u32> = (0..MOST).map(token).collect();
    let mut paths = vec![spine.clone()];
    for (row, shared) in [0, 1, 3, 6].into_iter().enumerate() {
        let own = (shared..MOST - row % 3).map(|at| token(100 * (row + 1) + at));
        paths.push(spine[..shared].iter().copied().chain(own).collect());
    }
    // The same as another, and a single draft.
    paths.push(paths[2].clone());
    paths.push(vec![token(999)]);
    paths
}

fn check(name: &str, forms: &[CheckpointOption]) {
    let ids = golden::load(name).into_iter().map(|golden| golden.ids);
    let ids = ids.max_by_key(Vec::len).unwrap();
    for form in forms {
        let export = Export::of(name, *form);
        let mut model = export.load(&LoadOptions::default().threads(1));
        let mut worst = 0.0_f32;
        // Within a block of the cache, at its end, and behind one.
        for (seed, length) in [7, 15, 16, 17, 40].into_iter().enumerate() {
            let prefix = &ids[..length.min(ids.len())];
            let vocab = model.info().vocab_size as usize;
            let paths = paths(seed, vocab);
            let rows: Vec<&[u32]> = paths.iter().map(Vec::as_slice).collect();
            let found = model.evaluate_paths(prefix, &rows).unwrap();
            let again = model.evaluate_paths(prefix, &rows).unwrap();
            assert_eq!(found, again, "{name}, {form:?}: nothing of a row stays");
            for (path, found) in paths.iter().zip(&found) {
                let whole = [prefix, path].concat();
                let one_by_one = EvaluateOptions::default().chunk(1);
                let alone = model.evaluate(&[&whole], &one_by_one).unwrap().remove(0);
                let expected = &alone.logits[(prefix.len() - 1) * vocab..];
                let off = largest_difference(found, expected);
                worst = worst.max(off);
                assert!(
                    off <= BOUND,
                    "{name}, {form:?}: {path:?} behind {length} is off by {off:e}"
                );
            }
            // Rows that begin alike agree as long as they do, and siblings part.
            assert_eq!(found[2][..2 * vocab], found[0][..2 * vocab]);
            assert_eq!(found[5], found[2]);
            assert!(
                largest_difference(&found[1][vocab..2 * vocab], &found[0][vocab..2 * vocab]) > 0.01
            );
        }
        println!("{name}, {form:?}: logits of rows differ by at most {worst:e}");
    }
}

#[test]
fn gated_delta_and_attention() {
    check("qwen3_5-odd", &BOTH);
}

#[test]
fn the_shipped_checkpoint() {
    check("tiny-python", &BOTH);
}

#[test]
fn short_convolution_and_attention() {
    check("lfm2-odd", &BOTH[..1]);
}

#[test]
fn attention_only() {
    check("qwen3-odd", &[CheckpointOption::None]);
}

#[test]
fn paths_that_cannot_be_run_are_refused() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(3));
    let mut model = export.load(&LoadOptions::default());
    let mut refused = |prefix: &[u32], paths: &[&[u32]]| {
        let error = model.evaluate_paths(prefix, paths).unwrap_err();
        error.to_string()
    };
    assert!(refused(&[5], &[&[6]]).contains("at least 2 tokens"));
    assert!(refused(&[5, 6], &[&[7], &[]]).contains("sequence 1: is an empty path"));
    assert!(refused(&[5, 6], &[&[u32::MAX]]).contains("outside the vocabulary"));
    assert!(refused(&[5, 6], &[&[7, 8, 9, 10]]).contains("discarded"));
    assert!(refused(&[5, 6], &[&[7], &[7, 8, 9]]).contains("discarded"));
    let none = model.evaluate_paths(&[5, 6], &[]).unwrap();
    assert!(none.is_empty());
    assert_eq!(model.evaluate_paths(&[5, 6], &[&[7, 8]]).unwrap().len(), 1);
}
