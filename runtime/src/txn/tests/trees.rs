//! Trees as candidate rows: whichever row wins, what is left is what running its path one by one would have left, and
//! nothing of the others.

use super::fixture::*;
use crate::device::HostDevice;
use crate::kv::{BlockId, KvPool};
use crate::state::audit::{audit, audit_step};
use crate::txn::{Composite, Faults, Keep, Reserved, Step, StepError, StepRow};
use proptest::prelude::*;
use std::num::NonZeroUsize;

/// Tokens of every row of one request in a step: its own, then its branches.
#[derive(Clone, Debug)]
struct Paths {
    request: u64,
    new: bool,
    /// Tokens that are known; every path begins with them.
    known: usize,
    rows: Vec<Vec<u32>>,
}

impl Paths {
    /// A decoding request: a pending token, then drafts per row. Tokens differ between rows after the first.
    fn tree(request: u64, drafts: &[usize]) -> Self {
        let row = |(row, drafts): (u32, &usize)| {
            let drafts = u32::try_from(*drafts).unwrap();
            let path = (0..drafts).map(move |at| 1000 + 100 * row + at);
            std::iter::once(900).chain(path).collect()
        };
        Self {
            request,
            new: false,
            known: 1,
            rows: (0..).zip(drafts).map(row).collect(),
        }
    }

    /// A row that keeps all of its tokens.
    fn plain(request: u64, new: bool, tokens: &[u32]) -> Self {
        Self {
            request,
            new,
            known: tokens.len(),
            rows: vec![tokens.to_vec()],
        }
    }

    fn step_row(&self) -> StepRow {
        let lengths: Vec<usize> = self.rows.iter().map(Vec::len).collect();
        StepRow {
            drafts: lengths[0] - self.known,
            branches: lengths[1..].to_vec(),
            ..StepRow::plain(id(self.request), lengths[0], self.new)
        }
    }

    fn keep(row: usize, tokens: usize) -> Keep {
        Keep {
            row,
            ..keep(tokens)
        }
    }
}

/// Runs a step of trees, and checks that every row reads the committed tokens and its own.
fn run_paths(step: &mut Step<'_, Reserved>, form: Form, paths: &[Paths], before: &[Vec<u32>]) {
    let tokens: Vec<Vec<u32>> = paths.iter().flat_map(|paths| paths.rows.clone()).collect();
    let histories = run(step, form, &tokens);
    let before = paths
        .iter()
        .zip(before)
        .flat_map(|(paths, before)| paths.rows.iter().map(move |_| before));
    for ((history, new), old) in histories.iter().zip(&tokens).zip(before) {
        assert_eq!(*history, [old.as_slice(), new].concat());
    }
}

fn publish(step: Step<'_, Reserved>, kept: &[Keep]) {
    let step = step.accept(kept).unwrap().validate().unwrap();
    let step = step.prepare().unwrap();
    assert_eq!(audit(&step.snapshot()), Vec::new());
    step.publish();
}

/// Admits a request with so many tokens, 1, 2, ...
fn admit(composite: &mut Composite, form: Form, request: u64, tokens: u32) -> Vec<u32> {
    let paths = Paths::plain(request, true, &(1..=tokens).collect::<Vec<_>>());
    let mut step = composite.reserve(&[paths.step_row()]).unwrap();
    run(&mut step, form, &paths.rows);
    publish(step, &[keep(paths.rows[0].len())]);
    paths.rows[0].clone()
}

/// State, cache and books of a request are those of its tokens, run one by one.
fn assert_tokens(composite: &Composite, request: u64, tokens: &[u32]) {
    assert_eq!(composite.tokens(id(request)), Some(tokens.len()));
    assert_rows(&composite.committed_rows(id(request)).unwrap(), tokens);
    let cache = composite.committed_cache(id(request)).unwrap();
    let expected: Vec<f32> = tokens.iter().map(|token| *token as f32).collect();
    assert_eq!(cache[0].keys, expected);
}

const FORMS: [Form; 3] = [Form::State(5), Form::Update(5), Form::Distant(8)];
const BLOCKS: usize = 24;

/// One case of [`whoever_wins`]: what was committed, a tree between a prefill and a row of drafts some of which are
/// rejected, and which row wins how much.
fn win(form: Form, past: u32, drafts: &[usize], winner: usize, kept: usize) {
    let mut composite = composite(form, 4, BLOCKS, false);
    let neighbour = admit(&mut composite, form, 2, 3);
    let before = admit(&mut composite, form, 1, past);
    let books = composite.snapshot();
    let paths = [
        Paths::plain(2, false, &[70, 71, 72, 73, 74, 75]),
        Paths::tree(1, drafts),
        Paths {
            known: 2,
            ..Paths::plain(3, true, &[80, 81, 82, 83, 84])
        },
    ];
    let rows: Vec<StepRow> = paths.iter().map(Paths::step_row).collect();
    let mut step = composite.reserve(&rows).unwrap();
    assert_eq!(audit(&step.snapshot()), Vec::new());
    assert_batch(&step, &paths);
    run_paths(
        &mut step,
        form,
        &paths,
        &[neighbour.clone(), before.clone(), vec![]],
    );
    publish(step, &[keep(6), Paths::keep(winner, kept), keep(4)]);

    let tokens = |old: &[u32], new: &[u32]| [old, new].concat();
    let path = &paths[1].rows[winner][..kept];
    assert_tokens(&composite, 1, &tokens(&before, path));
    assert_tokens(&composite, 2, &tokens(&neighbour, &paths[0].rows[0]));
    assert_tokens(&composite, 3, &paths[2].rows[0][..4]);
    let after = composite.snapshot();
    assert_eq!(audit(&after), Vec::new());
    assert_eq!(audit_step(&books, &after), Vec::new());
    let used: usize = (1..=3)
        .map(|request| composite.blocks(id(request))[0].len())
        .sum();
    assert_eq!(
        composite.free_blocks(),
        BLOCKS - used,
        "losers' blocks are free"
    );

    // The request goes on, and everybody leaves.
    let next = Paths::plain(1, false, &[95, 96]);
    let mut step = composite.reserve(&[next.step_row()]).unwrap();
    run_paths(&mut step, form, &[next], &[tokens(&before, path)]);
    publish(step, &[keep(2)]);
    assert_tokens(&composite, 1, &tokens(&tokens(&before, path), &[95, 96]));
    (1..=3).for_each(|request| composite.release(id(request)).unwrap());
    assert_eq!(composite.free_blocks(), BLOCKS);
}

/// Every row is followed by its branches, which read what it reads, write no state and capture every token.
fn assert_batch(step: &Step<'_, Reserved>, paths: &[Paths]) {
    let (fixed, paged) = (step.fixed_binding(), step.paged_binding());
    let mut batch = 0;
    for paths in paths {
        let own = batch;
        for (candidate, tokens) in paths.rows.iter().enumerate() {
            assert_eq!(fixed.read_rows[batch], fixed.read_rows[own]);
            assert_eq!(paged.past[batch], paged.past[own]);
            assert_eq!(fixed.write_rows[batch] == -1, candidate > 0);
            if candidate > 0 {
                let captured = usize::try_from(fixed.capture_counts[batch]).unwrap();
                assert_eq!(captured, tokens.len());
            }
            batch += 1;
        }
    }
    assert_eq!(batch, fixed.write_rows.len());
    assert_eq!(paged.block_table.len(), batch * paged.max_blocks);
}

#[test]
fn whoever_wins() {
    let drafts = [3, 4, 1, 2];
    for form in FORMS {
        // No tail to copy, a tail, and one that the tree crosses.
        for past in [4, 5, 7] {
            for (winner, drafts_of) in drafts.iter().enumerate() {
                for kept in 1..=drafts_of + 1 {
                    win(form, past, &drafts, winner, kept);
                }
            }
        }
    }
}

#[test]
fn a_fresh_request_may_branch() {
    for form in FORMS {
        let mut composite = composite(form, 2, 6, false);
        let paths = Paths {
            request: 1,
            new: true,
            known: 2,
            rows: vec![vec![5, 6, 7], vec![5, 6, 8, 9, 10], vec![5, 6, 11]],
        };
        let mut step = composite.reserve(&[paths.step_row()]).unwrap();
        run_paths(&mut step, form, &[paths], &[vec![]]);
        publish(step, &[Paths::keep(1, 4)]);
        assert_tokens(&composite, 1, &[5, 6, 8, 9]);
        assert_eq!(composite.free_blocks(), 5);
    }
}

#[test]
fn a_model_of_attention_only_branches() {
    let kv = KvPool::new(&paged_spec(), 8, &HostDevice).unwrap();
    let mut composite = Composite::new(2, None, Some(kv), None);
    let first = Paths::plain(1, true, &[1, 2, 3, 4, 5]);
    let mut step = composite.reserve(&[first.step_row()]).unwrap();
    run(&mut step, Form::Absent, &first.rows);
    publish(step, &[keep(5)]);
    let tree = Paths::tree(1, &[1, 9]);
    let mut step = composite.reserve(&[tree.step_row()]).unwrap();
    assert_eq!(step.fixed_binding().capture_counts, [0, 0]);
    run_paths(
        &mut step,
        Form::Absent,
        std::slice::from_ref(&tree),
        &first.rows,
    );
    publish(step, &[Paths::keep(1, 8)]);
    let cache = composite.committed_cache(id(1)).unwrap();
    let kept: Vec<u32> = [&first.rows[0][..], &tree.rows[1][..8]].concat();
    assert_eq!(
        cache[0].keys,
        kept.iter().map(|t| *t as f32).collect::<Vec<_>>()
    );
    assert_eq!(audit(&composite.snapshot()), Vec::new());
}

#[test]
fn a_model_of_fixed_state_only_branches() {
    let form = Form::Update(4);
    let state = composite(form, 2, 8, false).state;
    let mut composite = Composite::new(2, state, None, None);
    let step = composite
        .reserve(&[StepRow::plain(id(1), 3, true)])
        .unwrap();
    publish(step, &[keep(3)]);
    let step = composite
        .reserve(&[Paths::tree(1, &[1, 2]).step_row()])
        .unwrap();
    assert_eq!(step.paged_binding().past, [3, 3]);
    publish(step, &[Paths::keep(1, 2)]);
    assert_eq!(composite.tokens(id(1)), Some(5));
}

/// A full block of the committed part is used by several tables at once, and is not written.
#[test]
fn full_blocks_are_shared_and_the_tail_is_copied() {
    let form = Form::Update(5);
    let mut composite = composite(form, 2, 12, false);
    admit(&mut composite, form, 1, 10);
    let own = composite.blocks(id(1))[0].to_vec();
    let step = composite
        .reserve(&[Paths::tree(1, &[2, 2, 3]).step_row()])
        .unwrap();
    let binding = step.paged_binding();
    let tables: Vec<&[i32]> = binding.block_table.chunks(binding.max_blocks).collect();
    let columns: Vec<i32> = own.iter().map(|block| BlockId::column(*block)).collect();
    assert_eq!(&tables[0][..3], &columns[..]);
    for table in &tables[1..] {
        assert_eq!(table[..2], columns[..2]);
        assert_ne!(table[2], columns[2]);
    }
    assert_ne!(tables[1][2], tables[2][2]);
    let paged = step.snapshot().paged.unwrap();
    assert_eq!(paged.references[own[0].index()], 3);
    assert_eq!(paged.references[own[2].index()], 1);
}

/// As [`rows_of`], walked to a phase and dropped there.
fn leave(composite: &mut Composite, form: Form, phase: usize) {
    let paths = [Paths::tree(1, &[3, 2, 4]), Paths::plain(3, true, &[80, 81])];
    let rows = paths.each_ref().map(Paths::step_row);
    let mut step = composite.reserve(&rows).unwrap();
    if phase == 0 {
        return;
    }
    run_paths(&mut step, form, &paths, &[(1..=6).collect(), vec![]]);
    if phase == 1 {
        return;
    }
    let step = step.accept(&[Paths::keep(2, 3), keep(2)]).unwrap();
    if phase == 2 {
        return;
    }
    let step = step.validate().unwrap();
    if phase == 3 {
        return;
    }
    step.prepare().unwrap().discard();
}

#[test]
fn a_tree_that_is_dropped_in_any_phase_leaves_nothing() {
    for form in FORMS {
        for phase in 0..=4 {
            let mut composite = composite(form, 3, 12, false);
            let before = admit(&mut composite, form, 1, 6);
            let (books, bytes) = (composite.snapshot(), bits(&composite));
            leave(&mut composite, form, phase);
            assert_eq!(composite.snapshot(), books, "phase {phase}");
            assert_eq!(bits(&composite), bytes);
            assert_tokens(&composite, 1, &before);
        }
    }
}

/// One step of a tree of both caches, up to the end.
fn whole(composite: &mut Composite, form: Form) -> Result<(), StepError> {
    let paths = [Paths::tree(1, &[3, 2, 4])];
    let row = StepRow {
        head_tokens: 6,
        head_branches: vec![6, 6],
        ..paths[0].step_row()
    };
    let mut step = composite.reserve(&[row])?;
    run_paths(&mut step, form, &paths, &[(1..=6).collect()]);
    step.branch_head(0, 1, 3)?;
    let kept = Keep {
        head_tokens: 3,
        ..Paths::keep(2, 3)
    };
    step.accept(&[kept])?.validate()?.prepare()?.publish();
    Ok(())
}

#[test]
fn every_call_of_a_tree_may_fail_once() {
    let form = Form::Update(5);
    let mut expected = None;
    for failing in 0.. {
        let mut composite = composite(form, 3, 12, true);
        let before = admit(&mut composite, form, 1, 6);
        let (books, bytes) = (composite.snapshot(), bits(&composite));
        let faults = Faults::default();
        faults.arm(failing..failing + 1);
        composite.set_faults(faults.clone());
        if whole(&mut composite, form).is_ok() {
            expected = Some(faults.calls());
            break;
        }
        assert_eq!(composite.snapshot(), books, "{:?}", faults.calls().last());
        assert_eq!(bits(&composite), bytes);
        whole(&mut composite, form).unwrap();
        let path = &Paths::tree(1, &[3, 2, 4]).rows[2][..3];
        assert_tokens(&composite, 1, &[&before, path].concat());
    }
    let calls = expected.unwrap();
    let count = |name| calls.iter().filter(|call| **call == name).count();
    for (name, calls) in [
        ("reserve branch", 2),
        ("copy tail", 2),
        ("reserve head branch", 2),
        ("copy head tail", 1),
    ] {
        assert_eq!(count(name), calls, "{name}");
    }
}

#[test]
fn branches_that_cannot_be_reserved_change_nothing() {
    let form = Form::Update(5);
    let mut composite = composite(form, 3, 12, false);
    admit(&mut composite, form, 1, 6);
    let before = composite.snapshot();
    let cases = [
        (Paths::tree(1, &[1, 5]), "outputs hold 5", false),
        (
            Paths::tree(1, &[1, 0]),
            "a branch of 1 tokens, 1 of them",
            false,
        ),
        (Paths::tree(1, &[1; 9]), "rows, planned for", false),
        // The row itself needs no block more; each branch copies a tail, the long ones take another.
        (
            Paths::tree(1, &[1, 4, 4, 4, 4, 4, 1]),
            "1 cache blocks needed, 0 are free",
            true,
        ),
    ];
    for (paths, expected, can_wait) in cases {
        let error = composite.reserve(&[paths.step_row()]).unwrap_err();
        assert!(
            error.to_string().contains(expected),
            "{error} should say {expected}"
        );
        assert_eq!(error.can_wait(), can_wait);
        assert_eq!(composite.snapshot(), before);
    }
    let without_head = StepRow {
        head_branches: vec![1],
        ..Paths::tree(1, &[1]).step_row()
    };
    let error = composite.reserve(&[without_head]).unwrap_err();
    assert!(matches!(error, StepError::NoHead(_)));
}

#[test]
fn decisions_about_rows_that_are_not_there_discard_the_step() {
    let form = Form::Update(5);
    let mut composite = composite(form, 3, 12, false);
    admit(&mut composite, form, 1, 6);
    let before = composite.snapshot();
    for (kept, expected) in [
        (Paths::keep(3, 1), "candidate 3 of 3 is kept"),
        (Paths::keep(1, 4), "4 of 3 tokens kept, at least 1 must be"),
        (Paths::keep(0, 5), "5 of 4 tokens kept"),
    ] {
        let step = composite
            .reserve(&[Paths::tree(1, &[3, 2, 4]).step_row()])
            .unwrap();
        let message = step.accept(&[kept]).unwrap_err().to_string();
        assert!(
            message.contains(expected),
            "{message} should say {expected}"
        );
        assert_eq!(composite.snapshot(), before);
    }
}

/// What a table of the head reads at its first positions.
fn head_reads(step: &mut Step<'_, Reserved>, branch: Option<usize>, positions: usize) -> Vec<f32> {
    let binding = step.head_binding_of(&[(0, branch)]).unwrap();
    let keys = step.head_buffers()[0].key.as_f32().unwrap();
    let slot = |position: usize| {
        let block = usize::try_from(binding.block_table[position / BLOCK]).unwrap();
        block * BLOCK + position % BLOCK
    };
    (0..positions)
        .map(|position| keys[slot(position)])
        .collect()
}

/// Writes positions of the head from its committed length on, through the table of the row or of a branch.
fn head_writes(step: &mut Step<'_, Reserved>, branch: Option<usize>, from: usize, values: &[f32]) {
    let binding = step.head_binding_of(&[(0, branch)]).unwrap();
    let past = usize::try_from(binding.past[0]).unwrap();
    let keys = step.head_buffers()[0].key.as_f32_mut().unwrap();
    for (position, value) in (past + from..).zip(values) {
        let block = usize::try_from(binding.block_table[position / BLOCK]).unwrap();
        keys[block * BLOCK + position % BLOCK] = *value;
    }
}

#[test]
fn branches_of_the_head_go_on_from_its_own_positions() {
    let form = Form::Update(5);
    for committed in [0usize, 3, 4, 6] {
        let mut composite = composite(form, 2, 16, true);
        let row = |new, head_branches: &[usize]| StepRow {
            head_tokens: 6,
            head_branches: head_branches.to_vec(),
            ..StepRow::plain(id(1), 1, new)
        };
        let old: Vec<f32> = (1..=6u8).map(f32::from).collect();
        let mut step = composite.reserve(&[row(true, &[])]).unwrap();
        head_writes(&mut step, None, 0, &old);
        let keep_head = |head_tokens| Keep {
            head_tokens,
            ..keep(1)
        };
        publish(step, &[keep_head(committed)]);

        let mut step = composite.reserve(&[row(false, &[6, 5])]).unwrap();
        assert_eq!(step.head_branches(0), 2);
        let new = [20.0, 21.0, 22.0, 23.0, 24.0, 25.0];
        head_writes(&mut step, None, 0, &new);
        for written in 0..=5 {
            for branch in 0..2 {
                step.branch_head(0, branch, written).unwrap();
                let length = committed + written;
                let expected = [&old[..committed], &new[..written]].concat();
                assert_eq!(head_reads(&mut step, Some(branch), length), expected);
                // What the branch writes is nobody else's.
                head_writes(
                    &mut step,
                    Some(branch),
                    written,
                    &[99.0][..usize::from(written < 5)],
                );
            }
            assert_eq!(
                head_reads(&mut step, None, committed + 6),
                [&old[..committed], &new].concat()
            );
        }
        assert!(step.branch_head(0, 2, 0).is_err(), "no such branch");
        assert!(
            step.branch_head(0, 1, 6).is_err(),
            "more than the branch may write"
        );
        assert!(step.branch_head(1, 0, 0).is_err(), "no such row");
        let absent = step.head_binding_of(&[(0, Some(2)), (0, None)]).unwrap();
        assert_eq!((absent.past[0], absent.block_table[0]), (0, -1));
        assert_eq!(audit(&step.snapshot()), Vec::new());
        publish(step, &[keep_head(2)]);
        let kept = [&old[..committed], &new[..2]].concat();
        assert_eq!(composite.committed_head(id(1))[0].keys, kept);
        assert_eq!(audit(&composite.snapshot()), Vec::new());
        composite.release(id(1)).unwrap();
        assert_eq!(composite.snapshot().head.unwrap().free.len(), 16);
    }
}

#[test]
fn branches_of_the_head_get_what_its_rows_leave() {
    let form = Form::Update(5);
    let mut composite = composite(form, 2, 4, true);
    let row = |request, head_tokens, head_branches: &[usize]| StepRow {
        head_tokens,
        head_branches: head_branches.to_vec(),
        ..StepRow::plain(id(request), 1, true)
    };
    // 2 blocks of the rows, 2 of the first branch; nothing is left for the others.
    let rows = [row(1, 4, &[8, 1]), row(2, 3, &[1])];
    let step = composite.reserve(&rows).unwrap();
    assert_eq!((step.head_branches(0), step.head_branches(1)), (1, 0));
    assert_eq!(audit(&step.snapshot()), Vec::new());
    drop(step);
    assert_eq!(composite.snapshot().head.unwrap().free.len(), 4);
}

/// A row of a random tree step.
#[derive(Clone, Debug)]
struct Pick {
    request: u64,
    known: usize,
    drafts: usize,
    branches: Vec<usize>,
    winner: usize,
    accepted: usize,
}

fn pick() -> impl Strategy<Value = Pick> {
    let branches = prop::collection::vec(1usize..4, 0..4);
    (
        0u64..4,
        1usize..4,
        0usize..4,
        branches,
        0usize..8,
        0usize..8,
    )
        .prop_map(
            |(request, known, drafts, branches, winner, accepted)| Pick {
                request,
                known,
                drafts,
                branches,
                winner,
                accepted,
            },
        )
}

/// Residents by what they have committed, beside the composite.
struct Script {
    composite: Composite,
    form: Form,
    window: usize,
    known: std::collections::BTreeMap<u64, Vec<u32>>,
    next: u32,
}

impl Script {
    fn paths(&mut self, pick: &Pick) -> Paths {
        let mut draw = |count: usize| {
            let start = self.next;
            self.next += u32::try_from(count).unwrap();
            (start..self.next).collect::<Vec<u32>>()
        };
        let known = draw(pick.known);
        let drafts = std::iter::once(pick.drafts).chain(pick.branches.iter().copied());
        let room = self.window.saturating_sub(pick.known);
        let rows = drafts.map(|drafts| [known.clone(), draw(drafts.min(room))].concat());
        let mut rows: Vec<Vec<u32>> = rows.collect();
        rows.dedup_by(|row, _| row.len() == pick.known);
        Paths {
            request: pick.request,
            new: !self.known.contains_key(&pick.request),
            known: pick.known,
            rows,
        }
    }

    fn turn(&mut self, picks: &[Pick], phase: usize) {
        let mut paths: Vec<Paths> = Vec::new();
        let mut kept = Vec::new();
        for pick in picks {
            if paths.iter().any(|paths| paths.request == pick.request) {
                continue;
            }
            let tree = self.paths(pick);
            let winner = pick.winner % tree.rows.len();
            let most = tree.rows[winner].len() - tree.known;
            let tokens = NonZeroUsize::new(tree.known + pick.accepted.min(most)).unwrap();
            kept.push(Keep {
                row: winner,
                tokens,
                head_tokens: 0,
            });
            paths.push(tree);
        }
        let rows: Vec<StepRow> = paths.iter().map(Paths::step_row).collect();
        let (books, bytes) = (self.composite.snapshot(), bits(&self.composite));
        let of = |paths: &Paths| self.known.get(&paths.request).cloned().unwrap_or_default();
        let before: Vec<Vec<u32>> = paths.iter().map(of).collect();
        let published = match self.composite.reserve(&rows) {
            Ok(mut step) => {
                assert_eq!(audit(&step.snapshot()), Vec::new());
                run_paths(&mut step, self.form, &paths, &before);
                if phase > 0 {
                    publish(step, &kept);
                }
                phase > 0
            }
            Err(error) => {
                let rows = error.to_string().contains("rows, planned for");
                assert!(error.can_wait() || rows, "{error}");
                false
            }
        };
        if published {
            for ((paths, keep), before) in paths.iter().zip(&kept).zip(&before) {
                let path = &paths.rows[keep.row][..keep.tokens.get()];
                self.known
                    .insert(paths.request, [before.as_slice(), path].concat());
            }
            assert_eq!(audit_step(&books, &self.composite.snapshot()), Vec::new());
        } else {
            assert_eq!(self.composite.snapshot(), books);
            assert_eq!(bits(&self.composite), bytes);
        }
        assert_eq!(audit(&self.composite.snapshot()), Vec::new());
        for (request, tokens) in &self.known {
            assert_tokens(&self.composite, *request, tokens);
        }
    }

    /// Whoever has grown long leaves.
    fn leave(&mut self) {
        let long = |(request, tokens): (&u64, &Vec<u32>)| (tokens.len() > 24).then_some(*request);
        let long: Vec<u64> = self.known.iter().filter_map(long).collect();
        for request in long {
            self.known.remove(&request);
            self.composite.release(id(request)).unwrap();
        }
        let used: usize = self
            .known
            .values()
            .map(|tokens| tokens.len().div_ceil(BLOCK))
            .sum();
        assert_eq!(self.composite.free_blocks(), BLOCKS - used);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_trees_agree_with_the_paths_that_win(
        form in prop::sample::select(vec![
            Form::State(4), Form::State(8), Form::Update(4), Form::Update(8), Form::Distant(8),
        ]),
        turns in prop::collection::vec(
            (prop::collection::vec(pick(), 1..4), 0usize..5),
            1..25,
        ),
    ) {
        let window = match form {
            Form::State(window) | Form::Update(window) | Form::Distant(window) => window,
            Form::Absent => 0,
        };
        let mut script = Script {
            composite: composite(form, 3, BLOCKS, false),
            form,
            window,
            known: std::collections::BTreeMap::new(),
            next: 0,
        };
        for (picks, phase) in &turns {
            script.turn(picks, *phase);
            script.leave();
        }
    }
}
