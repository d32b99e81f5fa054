//! Whole workloads: random requests, planned and committed step by step on a real paged cache until all are done.

use super::plans::cache;
use crate::device::HostDevice;
use crate::ids::RequestId;
use crate::kv::KvPool;
use crate::model::spec::PagedSpec;
use crate::schedule;
use crate::schedule::{Deferral, Held, Limits, RequestView, RowPlan, StepPlan, plan};
use crate::state::audit::audit;
use crate::txn::{Composite, Keep, StepRow};
use proptest::prelude::*;
use std::num::NonZeroUsize;

#[derive(Clone, Debug)]
struct Job {
    prompt: usize,
    generate: usize,
    drafts: usize,
    branches: Vec<usize>,
    /// The step it arrives in.
    arrives: usize,
}

fn job() -> impl Strategy<Value = Job> {
    let branches = prop::collection::vec(0usize..5, 0..4);
    (1usize..30, 1usize..12, 0usize..5, branches, 0usize..20).prop_map(
        |(prompt, generate, drafts, branches, arrives)| Job {
            prompt,
            generate,
            drafts,
            branches,
            arrives,
        },
    )
}

fn limits() -> impl Strategy<Value = Limits> {
    (
        1usize..5,
        1usize..20,
        1usize..9,
        1usize..5,
        any::<bool>(),
        11usize..20,
        0usize..6,
    )
        .prop_map(
            |(
                max_batch_size,
                max_scheduled_tokens,
                max_chunk,
                slots,
                drafts_beside_prefill,
                blocks,
                spare_rows,
            )| {
                Limits {
                    max_batch_size,
                    step_rows: max_batch_size + spare_rows,
                    max_scheduled_tokens,
                    max_chunk,
                    max_drafts: 3,
                    drafts_beside_prefill,
                    slots,
                    blocks: cache(blocks),
                    free_blocks: blocks,
                    block_size: 4,
                    max_overtakes: 3,
                    held: Held::default(),
                }
            },
        )
}

struct Engine {
    composite: Composite,
    limits: Limits,
    live: Vec<(Job, RequestView)>,
    /// Steps in a row without a prefill token while a resident prefill waited.
    starved: usize,
}

impl Engine {
    fn new(limits: Limits) -> Self {
        let (blocks, block_size) = (limits.blocks.decoder, limits.block_size);
        let spec = PagedSpec {
            layers: Vec::new(),
            block_size,
            kv_heads: 1,
            head_dim: 1,
        };
        let kv = KvPool::new(&spec, blocks, &HostDevice).unwrap();
        Self {
            composite: Composite::new(limits.slots, None, Some(kv), None),
            limits,
            live: vec![],
            starved: 0,
        }
    }

    fn submit(&mut self, number: usize, job: Job) {
        let view = RequestView {
            request: RequestId(number as u64),
            resident: false,
            past: 0,
            pending: job.prompt,
            ceiling: job.prompt + job.generate,
            drafts: job.drafts,
            branches: job.branches.clone(),
            waited: 0,
            overtaken: 0,
            brings: None,
        };
        self.live.push((job, view));
    }

    fn step(&mut self, accept: usize) {
        let views: Vec<RequestView> = self.live.iter().map(|(_, view)| view.clone()).collect();
        self.limits.free_blocks = self.composite.free_blocks();
        let plan = plan(&views, &self.limits);
        check(&views, &self.limits, &plan);
        if views.is_empty() {
            return;
        }
        assert!(
            !plan.rows.is_empty(),
            "work waits and nothing runs: {views:?}"
        );
        self.watch_prefill(&views, &plan);
        let rows: Vec<StepRow> = plan.rows.iter().map(|row| row.step_row(0)).collect();
        // The rows of a tree take turns in winning.
        let keep = |row: &RowPlan| {
            let winner = (accept + row.tokens.start) % (row.branches.len() + 1);
            let drafts = winner
                .checked_sub(1)
                .map_or(row.drafts, |i| row.branches[i]);
            Keep {
                row: winner,
                tokens: NonZeroUsize::new(row.tokens.len() + drafts.min(accept)).unwrap(),
                head_tokens: 0,
            }
        };
        let kept: Vec<Keep> = plan.rows.iter().map(keep).collect();
        let step = self.composite.reserve(&rows).expect("growth never fails");
        step.accept(&kept)
            .unwrap()
            .validate()
            .unwrap()
            .prepare()
            .unwrap()
            .publish();
        assert_eq!(audit(&self.composite.snapshot()), Vec::new());
        self.apply(&plan, &kept);
    }

    fn apply(&mut self, plan: &StepPlan, kept: &[Keep]) {
        for (_, view) in &mut self.live {
            view.waited += 1;
            let deferred = plan.deferred.iter().find(|d| d.request == view.request);
            view.overtaken += deferred.map_or(0, |d| d.overtaken);
        }
        for (row, keep) in plan.rows.iter().zip(kept) {
            let (job, view) = self
                .live
                .iter_mut()
                .find(|(_, v)| v.request == row.request)
                .unwrap();
            view.waited = 0;
            view.resident = true;
            view.past += keep.tokens.get();
            view.pending = view.pending.saturating_sub(keep.tokens.get());
            if row.wants_logits {
                view.pending = 1;
                assert!(
                    view.past < job.prompt + job.generate,
                    "a generated token too many was run"
                );
            }
        }
        let done = |(job, view): &(Job, RequestView)| view.past + 1 >= job.prompt + job.generate;
        for (_, view) in self.live.iter().filter(|entry| done(entry)) {
            self.composite.release(view.request).unwrap();
        }
        self.live.retain(|entry| !done(entry));
    }

    /// A resident prefill gets its share of every step but those that have room for one row or token only.
    fn watch_prefill(&mut self, views: &[RequestView], plan: &StepPlan) {
        let waits = views.iter().any(|view| view.resident && view.is_prefill());
        let got: usize = plan
            .rows
            .iter()
            .filter(|row| row.is_prefill)
            .map(|row| row.tokens.len())
            .sum();
        let narrow = self.limits.max_batch_size == 1 || self.limits.max_scheduled_tokens == 1;
        if !waits || got > 0 {
            self.starved = 0;
        } else {
            self.starved += 1;
            assert!(narrow, "a prefill got nothing");
            assert!(self.starved <= self.limits.slots, "a prefill starves");
        }
        let longest = views
            .iter()
            .filter(|view| view.resident)
            .map(|view| view.waited)
            .max();
        assert!(
            longest.unwrap_or(0) <= self.longest_wait(),
            "a resident starves"
        );
        let first = views.iter().find(|view| view.resident && view.is_prefill());
        if let (Some(first), false) = (first, narrow) {
            let share = self
                .limits
                .prefill_share()
                .min(first.pending)
                .min(self.limits.max_chunk);
            assert!(got >= share, "prefill got {got} of {share} tokens");
        }
    }
}

impl Engine {
    /// Steps a resident may wait: for its turn among the others, twice over where rows and prefills alternate, and
    /// behind the whole prompts of earlier residents.
    fn longest_wait(&self) -> usize {
        let prompts: usize = self.live.iter().map(|(job, _)| job.prompt).sum();
        2 * (self.limits.slots + prompts)
    }
}

/// Nothing but branches is different where none are wanted.
fn without_branches(views: &[RequestView], limits: &Limits, plan: &StepPlan) {
    let bare = |view: &RequestView| RequestView {
        branches: Vec::new(),
        ..view.clone()
    };
    let views: Vec<RequestView> = views.iter().map(bare).collect();
    let mut stripped = plan.clone();
    for row in &mut stripped.rows {
        row.branches.clear();
    }
    assert_eq!(schedule::plan(&views, limits), stripped);
}

/// What holds for every plan.
fn check(views: &[RequestView], limits: &Limits, plan: &StepPlan) {
    assert!(plan.rows.len() <= limits.max_batch_size);
    assert!(plan.batch_rows() <= limits.step_rows);
    assert!(plan.num_tokens() <= limits.max_scheduled_tokens);
    without_branches(views, limits, plan);
    for row in &plan.rows {
        let view = views
            .iter()
            .find(|view| view.request == row.request)
            .unwrap();
        assert!(!row.tokens.is_empty() && row.tokens.start == view.past);
        assert!(row.tokens.len() <= if row.is_prefill { limits.max_chunk } else { 1 });
        assert!(row.drafts <= view.drafts.min(limits.max_drafts));
        assert!(row.drafts == 0 || !row.is_prefill);
        assert!(row.tokens.end + row.drafts <= view.ceiling);
        for (granted, wanted) in row.branches.iter().zip(&view.branches) {
            assert!(*granted > 0 && granted <= wanted && *granted <= limits.max_drafts);
            assert!(!row.is_prefill && row.tokens.end + granted <= view.ceiling);
        }
        assert!(row.branches.len() <= view.branches.len());
        assert_eq!(row.new, !view.resident);
        assert_eq!(
            plan.rows
                .iter()
                .filter(|other| other.request == row.request)
                .count(),
            1
        );
    }
    let admitted = plan.rows.iter().filter(|row| row.new).count();
    let waiting = views.iter().filter(|view| !view.resident).count();
    assert_eq!(
        admitted + plan.deferred.len() + plan.unserviceable.len(),
        waiting
    );
    for deferred in &plan.deferred {
        let view = views
            .iter()
            .find(|view| view.request == deferred.request)
            .unwrap();
        let closed = deferred.reason == Deferral::Blocks && view.overtaken >= limits.max_overtakes;
        assert!(
            !closed || deferred.overtaken == 0,
            "overtaken beyond the bound"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_workload_ends_and_never_runs_out_of_blocks(
        limits in limits(),
        jobs in prop::collection::vec(job(), 1..12),
        accept in prop::collection::vec(0usize..5, 8),
    ) {
        let mut engine = Engine::new(limits);
        let work: usize = jobs.iter().map(|job| job.prompt + job.generate + job.arrives).sum();
        for now in 0..2 * work + 50 {
            for (number, job) in jobs.iter().enumerate().filter(|(_, job)| job.arrives == now) {
                engine.submit(number, job.clone());
            }
            engine.step(accept[now % accept.len()]);
        }
        prop_assert!(engine.live.is_empty(), "unfinished: {:?}", engine.live);
        let (blocks, _) = engine.composite.cache_extent();
        prop_assert_eq!(engine.composite.snapshot().paged.unwrap().free.len(), blocks.decoder);
    }
}
