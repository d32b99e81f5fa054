//! What a model offers to drafts.

use super::plan::Limits;
use super::spec::StateSpec;
use crate::speculate::Offer;
use genai_config_schema::GenaiConfig;

impl Limits {
    /// What a model of these limits offers: with the decoder's state, with or without a head, where the host can copy rows of
    /// the cache or not.
    pub(crate) fn offer(
        &self,
        config: &GenaiConfig,
        state: &StateSpec,
        (head, in_reach): (bool, bool),
    ) -> Offer {
        let configured = config.speculative.max_draft_tokens;
        Offer {
            head,
            capture_capacity: state.capture_capacity(),
            rows: self.checkpoint_rows,
            in_reach,
            configured: configured.and_then(|count| usize::try_from(count).ok()),
        }
    }
}
