//! A source of drafts that a caller brings. It is the caller's code: whatever it does, the engine goes on.

use super::{DraftSource, DraftTree};
use crate::limits::SUPPLIED_NODES;
use genai_config_schema::{MAX_TOLD, shortened};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A shared [`DraftSource`].
#[derive(Clone)]
pub(crate) struct Drafts(Arc<Held>);

/// Until it is dropped.
struct Held(Option<Box<dyn DraftSource>>);

impl Drafts {
    pub(crate) fn new(source: impl DraftSource + 'static) -> Self {
        Self(Arc::new(Held(Some(Box::new(source)))))
    }

    /// What it proposes after `tokens`: paths of at most `most` tokens, and no more nodes than are looked at.
    ///
    /// # Errors
    /// What its error says, and panics.
    pub(crate) fn ask(&self, tokens: &[u32], most: usize) -> Result<DraftTree, String> {
        let Some(source) = &self.0.0 else {
            return Ok(DraftTree::default());
        };
        let told = tame(|| match source.propose_tree(tokens, most) {
            Ok(mut tree) => {
                tree.cut(most, SUPPLIED_NODES);
                Ok(tree)
            }
            Err(error) => {
                let reason = error.to_string();
                let reason = shortened(&reason, MAX_TOLD);
                Err(format!("the request's source of drafts failed: {reason}"))
            }
        });
        told.unwrap_or_else(|| Err("the request's source of drafts panicked".to_owned()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let source = self.0.take();
        if tame(|| drop(source)).is_none() {
            tracing::warn!("a request's source of drafts panicked when it was dropped");
        }
    }
}

impl fmt::Debug for Drafts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drafts")
    }
}

/// Runs the caller's code; `None` when it panicked.
#[expect(
    clippy::mem_forget,
    reason = "what panics whenever it is dropped cannot be dropped"
)]
fn tame<T>(work: impl FnOnce() -> T) -> Option<T> {
    let payload = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => return Some(done),
        Err(payload) => payload,
    };
    if let Err(more) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(more);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;
    use std::panic::panic_any;

    /// Panics in one of the ways in which the caller's code runs.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Way {
        Asked,
        Carried,
        Told,
        Dropped,
    }

    struct Source(Way);

    struct Payload;

    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("as what a panic carries");
        }
    }

    #[derive(Debug)]
    struct Untellable;

    impl fmt::Display for Untellable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("as it is told");
        }
    }

    impl Error for Untellable {}

    impl DraftSource for Source {
        fn propose(&self, _: &[u32], _: usize) -> Vec<u32> {
            Vec::new()
        }

        fn propose_tree(
            &self,
            _: &[u32],
            _: usize,
        ) -> Result<DraftTree, Box<dyn Error + Send + Sync>> {
            match self.0 {
                Way::Asked => panic!("as it is asked"),
                Way::Carried => panic_any(Payload),
                Way::Told => Err(Box::new(Untellable)),
                Way::Dropped => Ok(DraftTree::chain(0..100_000)),
            }
        }
    }

    impl Drop for Source {
        fn drop(&mut self) {
            assert!(self.0 != Way::Dropped, "as it is dropped");
        }
    }

    #[test]
    fn whatever_a_source_does_is_an_answer() {
        for way in [Way::Asked, Way::Carried, Way::Told, Way::Dropped] {
            let drafts = Drafts::new(Source(way));
            match drafts.ask(&[1], 7) {
                Ok(tree) => assert_eq!((way, tree.len()), (Way::Dropped, 7)),
                Err(reason) => assert!(reason.ends_with("panicked"), "{way:?}: {reason}"),
            }
            drop(drafts);
        }
    }

    #[test]
    fn what_it_says_is_short_and_what_it_proposes_is_bounded() {
        struct Much;
        impl DraftSource for Much {
            fn propose(&self, _: &[u32], _: usize) -> Vec<u32> {
                Vec::new()
            }

            fn propose_tree(
                &self,
                tokens: &[u32],
                _: usize,
            ) -> Result<DraftTree, Box<dyn Error + Send + Sync>> {
                if tokens.is_empty() {
                    return Err("much ".repeat(1 << 20).into());
                }
                let mut tree = DraftTree::default();
                for token in 0..10_000 {
                    tree.push(None, token)?;
                }
                Ok(tree)
            }
        }
        let drafts = Drafts::new(Much);
        assert!(drafts.ask(&[], 7).unwrap_err().len() < 2 * MAX_TOLD);
        assert_eq!(drafts.ask(&[1], 7).unwrap().len(), SUPPLIED_NODES);
    }
}
