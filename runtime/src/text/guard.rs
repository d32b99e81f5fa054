//! Foreign code on input from anywhere: on a thread with a known stack, for a bounded time, its panics caught.
//!
//! A thread cannot be stopped from outside. One that has not finished in time goes on by itself, so whoever starts them
//! must not go on doing so: see [`Patience`].

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Why foreign code gave no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// It panicked: a defect of that code, met by this input.
    #[error("it broke down: {0}")]
    Panicked(String),
    /// It has not finished in time.
    #[error("it was not done after {} s", .0.as_secs_f32())]
    TooSlow(Duration),
    /// It did not finish in time before, and is not tried again.
    #[error("it did not finish an earlier task in time and is not used any more")]
    GivenUp,
    /// The system gives no thread.
    #[error("no thread can be started: {0}")]
    NoThread(std::io::Error),
}

/// Where foreign code runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Name of the thread.
    pub(crate) name: &'static str,
    /// Bytes of its stack.
    pub(crate) stack: usize,
}

/// Whether a piece of foreign code is still worth starting.
#[derive(Debug, Default)]
pub(crate) struct Patience(AtomicBool);

impl Patience {
    /// Runs `work` for at most `time`; after the first time that it is not done by then, never again.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        room: Room,
        time: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Broken> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Broken::GivenUp);
        }
        let done = run(room, time, work);
        if matches!(done, Err(Broken::TooSlow(_))) {
            self.0.store(true, Ordering::Relaxed);
        }
        done
    }
}

/// Runs `work` on a thread of its own for at most `time`.
pub(crate) fn run<T: Send + 'static>(
    room: Room,
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Broken> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name(room.name.to_owned())
        .stack_size(room.stack)
        .spawn(move || {
            let _ = sender.send(caught(work));
        })
        .map_err(Broken::NoThread)?;
    receiver
        .recv_timeout(time)
        .unwrap_or(Err(Broken::TooSlow(time)))
}

/// Runs `work` and turns a panic of it into an error, without the text that a panic prints.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Broken> {
    silence();
    let before = QUIET.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    done.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Broken::Panicked(text.unwrap_or("it panicked").to_owned())
    })
}

thread_local! {
    /// Whether panics of this thread are caught and told of in an error.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Puts a hook before the program's own that drops the report of panics that are caught here.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                report(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        name: "guarded",
        stack: 1 << 20,
    };

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let seconds = Duration::from_secs(60);
        assert_eq!(run(ROOM, seconds, || 5).unwrap(), 5);
        let index = 7;
        let error = run(ROOM, seconds, move || [1, 2].repeat(2)[index]).unwrap_err();
        assert!(error.to_string().contains("index is 7"), "{error}");
        let error = caught(|| panic!("plain")).unwrap_err();
        assert_eq!(error.to_string(), "it broke down: plain");
    }

    #[test]
    fn what_takes_too_long_is_not_tried_again() {
        let patience = Patience::default();
        let (hold, held) = mpsc::channel::<()>();
        let slow = patience.run(ROOM, Duration::from_millis(20), move || {
            let _ = held.recv();
        });
        assert!(matches!(slow, Err(Broken::TooSlow(_))), "{slow:?}");
        let again = patience.run(ROOM, Duration::from_secs(60), || ());
        assert!(matches!(again, Err(Broken::GivenUp)), "{again:?}");
        drop(hold);
    }
}
