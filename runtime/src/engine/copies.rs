//! Copies of states, made between steps: forks, images and what is restored from them.

use super::active::Active;
use super::client::Client;
use super::core::Core;
use super::draft::Cut;
use super::kept::{Kept, KeptError, KeptState};
use crate::ids::RequestId;
use crate::kv::Blocks;
use crate::schedule::RequestView;
use crate::txn::{Reserved, StateImage, Step, StepError};
use genai_config_schema::counted;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// What handles ask to be copied. The answer is sent between two steps.
#[derive(Debug)]
pub(super) enum CopyCommand {
    /// Copy the state of a running request or a kept one.
    Fork {
        from: RequestId,
        client: Arc<Client>,
        reply: SyncSender<Result<Kept, KeptError>>,
    },
    /// Copy the kept state that is nearest to these tokens, and not beyond them.
    Nearest {
        tokens: Arc<[u32]>,
        client: Arc<Client>,
        reply: SyncSender<Option<Kept>>,
    },
    /// Copy a kept state out.
    Image {
        id: RequestId,
        reply: SyncSender<Result<StateImage, KeptError>>,
    },
    /// Keep a state that was copied out.
    Restore {
        tokens: Arc<[u32]>,
        image: Box<StateImage>,
        client: Arc<Client>,
        reply: SyncSender<Result<Kept, KeptError>>,
    },
}

impl Core {
    /// Does what a command asks. Who asked may be gone by now; a copy made for nobody is freed like any other.
    pub(super) fn copy(&mut self, command: CopyCommand) {
        match command {
            CopyCommand::Fork {
                from,
                client,
                reply,
            } => {
                let _ = reply.send(self.fork(from, &client));
            }
            CopyCommand::Nearest {
                tokens,
                client,
                reply,
            } => {
                let _ = reply.send(self.nearest(&tokens, &client));
            }
            CopyCommand::Image { id, reply } => {
                let _ = reply.send(self.image(id));
            }
            CopyCommand::Restore {
                tokens,
                image,
                client,
                reply,
            } => {
                let _ = reply.send(self.restore(tokens, &image, &client));
            }
        }
    }

    /// A copy of what a running request has committed, or of a kept state.
    fn fork(&mut self, from: RequestId, client: &Arc<Client>) -> Result<Kept, KeptError> {
        let (source, tokens) = self.source(from)?;
        self.fork_at(source, tokens, client)
    }

    /// Where the state lies that a request or a handle stands for, and its tokens.
    fn source(&self, id: RequestId) -> Result<(RequestId, Arc<[u32]>), KeptError> {
        if let Some(state) = self.kept.get(id) {
            return Ok((id, Arc::clone(&state.tokens)));
        }
        let active = self.requests.iter().find(|active| active.id == id);
        let active = active.ok_or(KeptError::Gone)?;
        let waiting = active.continues.as_ref().map(Kept::id);
        let source = waiting.filter(|_| !active.resident).unwrap_or(id);
        match active.tokens.get(..active.committed) {
            Some(tokens) if !tokens.is_empty() => Ok((source, tokens.into())),
            _ => Err(KeptError::NothingCommitted),
        }
    }

    /// A copy of the kept state that has seen the most of `tokens` and nothing else; of a part of one where there is no
    /// fixed state. `None` where there is none, or no room.
    fn nearest(&mut self, tokens: &[u32], client: &Arc<Client>) -> Option<Kept> {
        let whole = !self.model.decoder.state().fixed.is_empty();
        let common = |state: &KeptState| {
            let same = state.tokens.iter().zip(tokens);
            same.take_while(|(a, b)| a == b).count()
        };
        let usable = |state: &KeptState| {
            let common = common(state);
            let fits = if whole { state.tokens.len() } else { common };
            (common == fits && common > 0).then_some((common, state.id))
        };
        let (length, source) = self.kept.iter().filter_map(usable).max()?;
        let seen = tokens.get(..length)?;
        self.fork_at(source, seen.into(), client).ok()
    }

    fn fork_at(
        &mut self,
        source: RequestId,
        tokens: Arc<[u32]>,
        client: &Arc<Client>,
    ) -> Result<Kept, KeptError> {
        let id = client.fresh();
        self.require_blocks(self.composite.fork_blocks(source, tokens.len()))?;
        let committed = self.composite.tokens(source).unwrap_or(0);
        let step = self.composite.fork(source, id, tokens.len());
        publish(step)?;
        let cut = Cut {
            tokens: tokens.len(),
            committed,
        };
        self.sources.fork(source, id, cut);
        Ok(self.hold(id, tokens, client))
    }

    /// The state that a handle stands for, copied out.
    fn image(&self, id: RequestId) -> Result<StateImage, KeptError> {
        let (source, _) = self.source(id)?;
        let mut image = self.composite.image(source)?;
        if let Some(head) = &mut image.head {
            head.unread = self.sources.unread(source).to_vec();
        }
        Ok(image)
    }

    /// A state that was copied out, kept again.
    fn restore(
        &mut self,
        tokens: Arc<[u32]>,
        image: &StateImage,
        client: &Arc<Client>,
    ) -> Result<Kept, KeptError> {
        let id = client.fresh();
        self.require_blocks(self.composite.image_blocks(image))?;
        publish(self.composite.restore(id, image))?;
        if let Some(head) = &image.head {
            self.sources.restore(id, &head.unread);
        }
        Ok(self.hold(id, tokens, client))
    }

    fn hold(&mut self, id: RequestId, tokens: Arc<[u32]>, client: &Arc<Client>) -> Kept {
        let (state, kept) = KeptState::new(id, tokens, Arc::clone(client));
        self.kept.push(state);
        kept
    }

    /// Running requests must be able to grow to their ceilings beside what is kept.
    fn require_blocks(&self, needed: Blocks) -> Result<(), KeptError> {
        let views: Vec<RequestView> = self.requests.iter().map(Active::view).collect();
        let free = self.limits_beside(self.held()).unclaimed(&views);
        if needed.fit(free) {
            return Ok(());
        }
        let lack = |cache: &str, needed: usize, free: usize| {
            let needed = counted(needed, "block");
            format!("{needed} of the {cache} needed, {free} free")
        };
        let reason = if needed.decoder > free.decoder {
            lack("cache", needed.decoder, free.decoder)
        } else {
            lack("draft head's cache", needed.head, free.head)
        };
        Err(KeptError::NoRoom { reason })
    }
}

/// Ends a step whose run was a copy.
fn publish(step: Result<Step<'_, Reserved>, StepError>) -> Result<(), KeptError> {
    step?.accept_all().validate()?.prepare()?.publish();
    Ok(())
}

impl From<StepError> for KeptError {
    fn from(error: StepError) -> Self {
        let reason = error.to_string();
        if error.can_wait() {
            Self::NoRoom { reason }
        } else {
            Self::Failed { reason }
        }
    }
}
