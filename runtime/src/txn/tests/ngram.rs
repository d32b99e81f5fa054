//! Histories of token ids as operators of ONNX Runtime keep them: in every row of a step n-grams are hashed over the row's
//! own path, and what stays is the history of the path that won.

use super::fixture::{assert_sound, id, keep};
use crate::engine::pack::{LogitsOf, clear, push_row};
use crate::exec::{StepInputs, StepOutputs};
use crate::model::test_ngram::{EOS, HEADS, folder, hashes, history};
use crate::model::{LoadOptions, Model};
use crate::state::StatePool;
use crate::txn::{Composite, Keep, StepRow};

const SLOTS: usize = 2;
const MAX_ROWS: usize = 6;

/// The model and the pool that its steps work on.
struct Toy {
    model: Model,
    composite: Composite,
}

impl Toy {
    fn new() -> Self {
        let model = Model::load(folder().path(), &LoadOptions::new()).unwrap();
        let state = model.decoder.state();
        let pool = StatePool::new(state, SLOTS, MAX_ROWS, model.device.as_ref()).unwrap();
        let composite = Composite::new(SLOTS, Some(pool), None, None);
        Self { model, composite }
    }

    /// Runs rows of tokens and keeps what `kept` says. The hashes of every token of every row.
    fn step(
        &mut self,
        rows: &[StepRow],
        tokens: &[Vec<u32>],
        kept: &[Keep],
    ) -> Vec<Vec<[i64; HEADS]>> {
        let mut step = self.composite.reserve(rows).unwrap();
        let mut inputs = StepInputs::default();
        clear(&mut inputs);
        for row in tokens {
            push_row(&mut inputs, 0, row.iter().copied(), LogitsOf::Nothing);
        }
        step.fill(&mut inputs);
        let (capture, mut outputs) = (step.capture(), StepOutputs::default());
        let buffers = step.buffers();
        let (decoder, fixed) = (&mut self.model.decoder, buffers.fixed);
        let run = decoder.run(&inputs, &mut [], fixed, capture, &mut outputs, true);
        run.unwrap();
        let step = step.accept(kept).unwrap().validate().unwrap();
        step.prepare().unwrap().publish();
        assert_sound(&self.composite);
        let (all, _) = outputs.hidden.as_chunks::<HEADS>();
        let mut all = all.iter().map(|row| row.map(whole));
        tokens
            .iter()
            .map(|row| all.by_ref().take(row.len()).collect())
            .collect()
    }

    /// Admits a request with these tokens, one step for all of them or one for each.
    fn admit(&mut self, request: u64, tokens: &[u32], one_by_one: bool) -> Vec<[i64; HEADS]> {
        let size = if one_by_one { 1 } else { tokens.len() };
        let mut found = Vec::new();
        for (at, part) in tokens.chunks(size).enumerate() {
            let row = StepRow::plain(id(request), part.len(), at == 0);
            let hashes = self.step(&[row], &[part.to_vec()], &[keep(part.len())]);
            found.extend(hashes.into_iter().flatten());
        }
        found
    }

    fn history(&self, request: u64) -> Vec<f32> {
        let rows = self.composite.committed_rows(id(request)).unwrap();
        rows[0].numbers()
    }
}

/// A hash as it was given, which is exact.
#[expect(clippy::cast_possible_truncation, reason = "hashes are below 200")]
fn whole(hash: f32) -> i64 {
    hash as i64
}

/// The hashes of the last tokens of a text.
fn last(text: &[u32], count: usize) -> Vec<[i64; HEADS]> {
    hashes(text).split_off(text.len() - count)
}

const E: u32 = EOS;

/// A prompt in one step, token by token, and in steps that end within an n-gram: the same hashes as over the whole text.
#[test]
fn prompts_are_hashed_alike_in_steps_of_any_size() {
    let text = [3, 4, E, 5, 6, 7, E, E, 8, 2, 9, 1];
    for one_by_one in [false, true] {
        let mut toy = Toy::new();
        assert_eq!(toy.admit(1, &text, one_by_one), hashes(&text));
        assert_eq!(toy.history(1), history(&text));
    }
    let mut toy = Toy::new();
    // One token alone: what lies before it is not there.
    assert_eq!(toy.admit(1, &text[..1], false), hashes(&text[..1]));
    assert_eq!(toy.history(1), [2.0, 3.0]);
    assert_ne!(hashes(&[0, 0, 3])[2], hashes(&[3])[0], "0 is a token");
}

/// The own row of a request and its branches. Siblings, ends of the text within a row, and rows that end early.
const TREES: [&[&[u32]]; 3] = [
    &[&[7, 8, 9, 10]],
    &[&[7, 8, 9, 10, 11], &[7, 5, 9, 10], &[7, 8, 3], &[7, 5]],
    &[&[7, E, 9, 10], &[7, 9, E, 10, 11, 1], &[7, E, E, 10]],
];

/// Every row that can win with every number of tokens: hashes are those of the path, not of the rows beside it, and the
/// next step goes on from the path that won.
#[test]
fn every_row_is_hashed_over_its_own_path_and_the_winner_goes_on() {
    let mut siblings_differ = false;
    for (before, tree) in [[4, 5], [E, 6]].iter().flat_map(|b| TREES.map(|t| (b, t))) {
        for winner in 0..tree.len() {
            for kept in 1..=tree[winner].len() {
                let mut toy = Toy::new();
                toy.admit(2, &[9, 9, 9], false);
                toy.admit(1, before, false);
                let rows = [
                    StepRow {
                        drafts: tree[0].len() - 1,
                        branches: tree[1..].iter().map(|row| row.len()).collect(),
                        ..StepRow::plain(id(1), tree[0].len(), false)
                    },
                    StepRow::plain(id(2), 1, false),
                ];
                let mut tokens: Vec<Vec<u32>> = tree.iter().map(|row| row.to_vec()).collect();
                tokens.push(vec![5]);
                let keeps = [
                    Keep {
                        row: winner,
                        ..keep(kept)
                    },
                    keep(1),
                ];
                let found = toy.step(&rows, &tokens, &keeps);
                for (row, found) in tree.iter().zip(&found) {
                    let path = [before.as_slice(), row].concat();
                    assert_eq!(*found, last(&path, row.len()), "{path:?}");
                }
                assert_eq!(found[tree.len()], last(&[9, 9, 9, 5], 1));
                siblings_differ |= tree.len() > 1 && found[0][1] != found[1][1];
                let text = [before.as_slice(), &tree[winner][..kept]].concat();
                assert_eq!(toy.history(1), history(&text), "{kept} of row {winner}");
                assert_eq!(toy.history(2), [9.0, 5.0]);
                // A step without drafts after any number of kept ones.
                let next = StepRow::plain(id(1), 1, false);
                let found = toy.step(&[next], &[vec![12]], &[keep(1)]);
                let text = [text.as_slice(), &[12]].concat();
                assert_eq!(found[0], last(&text, 1), "after {text:?}");
            }
        }
    }
    assert!(siblings_differ, "no two siblings had hashes of their own");
}

#[test]
fn forks_images_and_dropped_steps_keep_ids_whole() {
    let mut toy = Toy::new();
    let text = [3, 4, E, 11];
    toy.admit(1, &text, false);
    // A step that is dropped leaves what was.
    let row = StepRow {
        drafts: 2,
        ..StepRow::plain(id(1), 3, false)
    };
    drop(toy.composite.reserve(&[row]).unwrap());
    assert_eq!(toy.history(1), history(&text));

    let image = toy.composite.image(id(1)).unwrap();
    let copy = toy.composite.fork(id(1), id(2), text.len()).unwrap();
    let copy = copy.accept_all().validate().unwrap().prepare().unwrap();
    copy.publish();
    let row = StepRow::plain(id(2), 1, false);
    let found = toy.step(&[row], &[vec![6]], &[keep(1)]);
    assert_eq!(found[0], last(&[3, 4, E, 11, 6], 1));
    assert_eq!(toy.history(1), history(&text), "the source stays");
    toy.composite.release(id(2)).unwrap();

    let back = toy.composite.restore(id(3), &image).unwrap();
    let back = back.accept_all().validate().unwrap().prepare().unwrap();
    back.publish();
    assert_sound(&toy.composite);
    assert_eq!(toy.history(3), history(&text));
    // A released slot is fresh again for whoever takes it.
    toy.composite.release(id(3)).unwrap();
    assert_eq!(toy.admit(4, &[8], false), hashes(&[8]));
}
