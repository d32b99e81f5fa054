//! A model whose only state is a history of token ids, hashed by ONNX Runtime, through the whole engine.

use crate::engine::{Completion, Engine, EngineOptions, ObservedStep};
use crate::model::test_ngram::{EOS, VOCAB, folder, follow, history, params};
use crate::model::{LoadOptions, Model};
use crate::request::Request;
use crate::speculate::{DraftPolicy, DraftSource, DraftTree, Speculation, SpeculationStats};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PROMPT: [u32; 4] = [3, 1, 4, 1];
const TOKENS: usize = 48;

/// Proposes three ways to go on, one of which is right as far as it goes; which one, and how far, changes.
struct Ways {
    text: Vec<u32>,
}

impl DraftSource for Ways {
    fn propose(&self, _: &[u32], _: usize) -> Vec<u32> {
        unreachable!("the engine asks for trees")
    }

    fn propose_tree(
        &self,
        tokens: &[u32],
        most: usize,
    ) -> Result<DraftTree, Box<dyn Error + Send + Sync>> {
        let done = tokens.len();
        let mut tree = DraftTree::default();
        let vocab = u32::try_from(VOCAB)?;
        for way in 0..3 {
            let mut parent = None;
            for depth in 0..most.min(4) {
                let next = self.text.get(done + depth).copied().unwrap_or(EOS);
                let right = way == u32::try_from(done % 3)? && depth < done % 5;
                let wrong = (next + 1 + way) % vocab;
                parent = Some(tree.push(parent, if right { next } else { wrong })?);
            }
        }
        Ok(tree)
    }
}

/// An engine that looks at the history after every step, and how many steps it has seen.
fn engine(mode: Speculation) -> (Engine, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let steps = Arc::clone(&seen);
    let observe = move |step: &ObservedStep<'_>| {
        steps.fetch_add(1, Ordering::Relaxed);
        for row in step.rows() {
            let text = &row.tokens()[..row.past() + row.kept()];
            assert_eq!(row.states().unwrap()[0].values, history(text), "{row:?}");
        }
    };
    let model = Model::load(folder().path(), &LoadOptions::new()).unwrap();
    let options = EngineOptions::default()
        .speculation(mode)
        .draft_policy(DraftPolicy::Fixed)
        .audit(true)
        .observe_steps(observe);
    let options = match mode {
        Speculation::Off => options,
        Speculation::Tree | Speculation::Auto => options.max_drafts(5).tree_nodes(12),
        Speculation::Ngram | Speculation::Mtp => options.max_drafts(5),
    };
    (Engine::new(model, &options).unwrap(), seen)
}

fn request(prompt: &[u32]) -> Request {
    let request = Request::from_ids(prompt).sampling(params());
    request.max_new_tokens(TOKENS as u64).ignore_eos(true)
}

fn decode(engine: &Engine, request: Request) -> (Completion, SpeculationStats) {
    let answer = engine.generate(request).unwrap();
    let stats = answer.stats.speculation.clone();
    (answer, stats)
}

#[test]
fn text_hangs_on_ids_and_no_draft_changes_it() {
    let text = [PROMPT.to_vec(), follow(&PROMPT, TOKENS)].concat();
    assert!(text[PROMPT.len()..].contains(&EOS), "{text:?}");
    for mode in [Speculation::Off, Speculation::Ngram, Speculation::Tree] {
        let (engine, seen) = engine(mode);
        let (answer, _) = decode(&engine, request(&PROMPT));
        assert_eq!(answer.tokens, text[PROMPT.len()..], "{mode}");
        assert!(seen.load(Ordering::Relaxed) > 0);
        let drafts = Ways { text: text.clone() };
        let (answer, stats) = decode(&engine, request(&PROMPT).drafts(drafts));
        assert_eq!(answer.tokens, text[PROMPT.len()..], "{mode}");
        if mode == Speculation::Tree {
            assert!(stats.branched > 5 && stats.accepted > 5, "{stats:?}");
            assert!(stats.accepted < stats.proposed, "{stats:?}");
        }
    }
}

#[test]
fn kept_forked_rewound_and_saved_histories_go_on() {
    let (engine, _) = engine(Speculation::Ngram);
    let whole = [PROMPT.to_vec(), follow(&PROMPT, 2 * TOKENS)].concat();
    let (first, _) = decode(&engine, request(&PROMPT).keep_state(true));
    let kept = first.kept.unwrap();
    let file = tempfile::tempdir().unwrap();
    let file = file.path().join("ids.state");
    kept.save(&file).unwrap();
    let back = kept.rewind(kept.tokens().len() - 7).unwrap();
    let length = back.tokens().len();
    for state in [kept.fork().unwrap(), engine.restore(&file).unwrap(), back] {
        // What a request continues begins with what its state has seen.
        let prompt = &whole[..=state.tokens().len()];
        assert!(state.tokens().len() >= length);
        let (answer, _) = decode(&engine, request(prompt).continue_from(state));
        assert_eq!(answer.tokens, whole[prompt.len()..][..TOKENS]);
        assert!(answer.usage.reused_tokens > 0, "{:?}", answer.usage);
    }
}
