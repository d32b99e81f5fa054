//! Ctrl-C ends an answer, not the program.

use crate::error::CliError;
use pawl::Canceller;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Exit code of a program that was interrupted.
const INTERRUPTED: i32 = 130;

/// What Ctrl-C does at the moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupts(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    doing: Doing,
    /// Whether somebody sees the prompt that has to be repeated.
    person: bool,
}

#[derive(Debug)]
enum Doing {
    /// A line is waited for.
    Waiting {
        /// Whether Ctrl-C was pressed since then: the next press leaves.
        pressed: bool,
    },
    /// A line is followed. No press leaves, however many there are.
    Answering {
        /// What has begun and not ended.
        request: Option<Canceller>,
        /// Whether Ctrl-C was pressed: whatever else the line asks for ends as it begins.
        cancelled: bool,
        /// Whether that has ended anything.
        ended: bool,
    },
}

impl Default for Doing {
    fn default() -> Self {
        Self::Waiting { pressed: false }
    }
}

impl State {
    /// Says what the next press does.
    fn hint(&self) {
        let mark = if self.person { "> " } else { "" };
        let hint = "Ctrl-C again or Ctrl-D to leave";
        let _ = write!(std::io::stderr(), "\n({hint})\n{mark}");
    }
}

impl Interrupts {
    /// Listens from here on.
    pub(super) fn install(person: bool) -> Result<Self, CliError> {
        let interrupts = Self::default();
        interrupts.state().person = person;
        let listening = interrupts.clone();
        ctrlc::set_handler(move || listening.press())
            .map_err(|error| CliError::Usage(format!("cannot listen for Ctrl-C: {error}")))?;
        Ok(interrupts)
    }

    /// A line is waited for. A press that came too late to end anything counts as one that comes now.
    pub(super) fn waiting(&self) {
        let mut state = self.state();
        let late = matches!(
            state.doing,
            Doing::Answering {
                cancelled: true,
                ended: false,
                ..
            }
        );
        state.doing = Doing::Waiting { pressed: late };
        if late {
            state.hint();
        }
    }

    /// A line was typed.
    pub(super) fn typed(&self) {
        self.state().doing = Doing::Answering {
            request: None,
            cancelled: false,
            ended: false,
        };
    }

    /// A request of the line begins.
    pub(super) fn answering(&self, canceller: Canceller) {
        if let Doing::Answering {
            request,
            cancelled,
            ended,
        } = &mut self.state().doing
        {
            if *cancelled {
                canceller.cancel();
                *ended = true;
            }
            *request = Some(canceller);
        }
    }

    /// The request has ended.
    pub(super) fn answered(&self) {
        if let Doing::Answering { request, .. } = &mut self.state().doing {
            *request = None;
        }
    }

    fn press(&self) {
        let mut state = self.state();
        match &mut state.doing {
            Doing::Answering {
                request,
                cancelled,
                ended,
            } => {
                *cancelled = true;
                *ended |= request.is_some();
                request.iter().for_each(Canceller::cancel);
            }
            Doing::Waiting { pressed: true } => std::process::exit(INTERRUPTED),
            Doing::Waiting { pressed } => {
                *pressed = true;
                state.hint();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A press while a line is followed that begins nothing is not lost: the next one leaves.
    #[test]
    fn a_press_that_ends_nothing_counts_at_the_prompt() {
        let pressed = |interrupts: &Interrupts| match interrupts.state().doing {
            Doing::Waiting { pressed } => pressed,
            Doing::Answering { .. } => unreachable!("a line is waited for"),
        };
        let interrupts = Interrupts::default();
        interrupts.typed();
        interrupts.press();
        interrupts.waiting();
        assert!(pressed(&interrupts));
        interrupts.typed();
        interrupts.waiting();
        assert!(!pressed(&interrupts));
    }
}
