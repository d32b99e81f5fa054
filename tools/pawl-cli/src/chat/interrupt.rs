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
    answer: Option<Canceller>,
    /// Whether Ctrl-C was pressed since the last line was typed.
    pressed: bool,
    /// Whether somebody sees the prompt that has to be repeated.
    person: bool,
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

    /// A line was typed.
    pub(super) fn typed(&self) {
        self.state().pressed = false;
    }

    /// An answer begins.
    pub(super) fn answering(&self, canceller: Canceller) {
        self.state().answer = Some(canceller);
    }

    /// The answer has ended.
    pub(super) fn answered(&self) {
        self.state().answer = None;
    }

    fn press(&self) {
        let mut state = self.state();
        let again = std::mem::replace(&mut state.pressed, true);
        match &state.answer {
            Some(answer) => answer.cancel(),
            None if again => std::process::exit(INTERRUPTED),
            None => {
                let mark = if state.person { "> " } else { "" };
                let hint = "Ctrl-C again or Ctrl-D to leave";
                let _ = write!(std::io::stderr(), "\n({hint})\n{mark}");
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
