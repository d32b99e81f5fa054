//! A resident changes hands: the state that one request left goes to the request that continues it.

use super::composite::{Composite, Health};
use super::error::StepError;
use super::participant::Permit;
use crate::ids::RequestId;

impl Composite {
    /// Gives everything that `from` has committed to `to`, which is resident from here on in its place. Nothing is
    /// copied. Between steps only.
    ///
    /// # Errors
    /// A `from` that is not resident and a `to` that is; nothing changes.
    pub(crate) fn transfer(&mut self, from: RequestId, to: RequestId) -> Result<(), StepError> {
        if self.standing.health == Health::Torn {
            return Err(StepError::Torn);
        }
        let residents = &mut self.standing.residents;
        if residents.contains_key(&to) {
            return Err(StepError::Residency {
                request: to,
                resident: true,
            });
        }
        let resident = *residents.get(&from).ok_or(StepError::Unknown(from))?;
        let slot = self.state.as_mut().zip(resident.slot);
        if let Some((state, handle)) = &slot {
            state.validate_release(from, *handle)?;
        }
        let permit = Permit::between_steps();
        if let Some((state, handle)) = slot {
            state.transfer(handle, to, &permit);
        }
        for pool in [&mut self.kv, &mut self.head].into_iter().flatten() {
            pool.transfer(from, to, &permit);
        }
        residents.remove(&from);
        residents.insert(to, resident);
        Ok(())
    }
}
