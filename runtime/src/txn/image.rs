//! The state of a resident as values: what is saved, and what a restored one begins with.

use super::composite::{Composite, StepRow};
use super::error::StepError;
use super::phase::Reserved;
use super::step::Step;
use crate::ids::RequestId;
use crate::kv::{Blocks, KeysValues, KvPool, blocks_for};

/// Everything committed of one resident.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StateImage {
    /// Tokens committed.
    pub(crate) tokens: usize,
    /// The row of every fixed tensor, in manifest order, as the bytes of its elements.
    pub(crate) fixed: Vec<Vec<u8>>,
    /// Keys and values of every layer, in manifest order.
    pub(crate) cache: Vec<KeysValues>,
    /// Those of the draft head, where there is one.
    pub(crate) head: Option<HeadImage>,
}

/// What a draft head has committed; it may be behind the decoder.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeadImage {
    /// Positions committed.
    pub(crate) tokens: usize,
    /// Keys and values of every layer, in manifest order.
    pub(crate) cache: Vec<KeysValues>,
    /// The decoder's hidden rows of the tokens after these positions, as far as they are kept: `[n, width]`.
    pub(crate) unread: Vec<f32>,
}

impl Composite {
    /// The state of a resident, copied.
    ///
    /// # Errors
    /// Requests that are not resident, and memory the host cannot read.
    pub(crate) fn image(&self, request: RequestId) -> Result<StateImage, StepError> {
        let tokens = self.tokens(request).ok_or(StepError::Unknown(request))?;
        let rows = self.committed_rows(request)?;
        let cache = self.kv.as_ref().map(|kv| kv.committed_rows(request));
        let head = match (&self.head, self.head_tokens(request)) {
            (Some(head), Some(tokens)) => {
                let cache = head.committed_rows(request).map_err(StepError::Head)?;
                Some(HeadImage {
                    tokens,
                    cache,
                    unread: Vec::new(),
                })
            }
            _ => None,
        };
        Ok(StateImage {
            tokens,
            fixed: rows.iter().map(|row| row.bytes.to_vec()).collect(),
            cache: cache.transpose()?.unwrap_or_default(),
            head,
        })
    }

    /// Blocks that [`Composite::restore`] takes of the caches.
    pub(crate) fn image_blocks(&self, image: &StateImage) -> Blocks {
        let of = |pool: &Option<KvPool>, tokens| {
            let pool = pool.as_ref();
            pool.map_or(0, |pool| blocks_for(tokens, pool.block_size()))
        };
        let read = image.head.as_ref().map_or(0, |head| head.tokens);
        Blocks {
            decoder: of(&self.kv, image.tokens),
            head: of(&self.head, read),
        }
    }

    /// Admits `to` with a state that was made elsewhere: a step of one row whose run is a copy.
    ///
    /// # Errors
    /// As [`Composite::reserve`], and images of another geometry. Nothing changes on error.
    pub(crate) fn restore(
        &mut self,
        to: RequestId,
        image: &StateImage,
    ) -> Result<Step<'_, Reserved>, StepError> {
        let head = image.head.as_ref().filter(|_| self.head.is_some());
        let row = StepRow {
            head_tokens: head.map_or(0, |head| head.tokens),
            ..StepRow::plain(to, image.tokens, true)
        };
        let mut step = self.reserve(&[row])?;
        step.write(image)?;
        Ok(step)
    }
}

impl Step<'_, Reserved> {
    /// Writes an image where the graph of a step would write its results.
    fn write(&mut self, image: &StateImage) -> Result<(), StepError> {
        let (state, kv, head) = self.seats_mut();
        if let Some(state) = state {
            state.write_rows(0, &image.fixed)?;
        }
        if let Some(kv) = kv {
            kv.write_rows(0, &image.cache)?;
        }
        if let (Some(head), Some(image)) = (head, &image.head) {
            head.write_rows(0, &image.cache).map_err(StepError::Head)?;
        }
        Ok(())
    }
}
