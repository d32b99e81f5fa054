//! Signals that end the process: what is staged goes first.

use pawl_builder::Interrupt;
use std::sync::{Arc, Mutex};
#[cfg(unix)]
use std::sync::{PoisonError, atomic::AtomicBool};

/// Whether the model is at its destination. Locked while it is moved there, so that a signal never reads it half done.
pub(crate) type Published = Arc<Mutex<bool>>;

/// Removes what is staged and ends the process with 128 plus the number of the signal, once one of SIGHUP, SIGINT and
/// SIGTERM comes. Those that were ignored when the process started stay ignored: `nohup` and shells that start
/// background work set them so. Once the model is published, the first signal lets the report be printed and a second one
/// ends the process as the success it is.
#[cfg(unix)]
pub(crate) fn watch(interrupt: &Interrupt, published: &Published) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    let ignored = ignored();
    let watched = [SIGHUP, SIGINT, SIGTERM];
    let watched = watched
        .into_iter()
        .filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(watched)?;
    let (interrupt, published) = (interrupt.clone(), Published::clone(published));
    let end = move || {
        let mut reporting = false;
        for signal in signals.forever() {
            interrupt.stop();
            let published = *published.lock().unwrap_or_else(PoisonError::into_inner);
            if published && !reporting {
                reporting = true;
                continue;
            }
            // Destructors of libraries must not run while another thread is inside of them.
            signal_hook::low_level::exit(if published { 0 } else { 128 + signal });
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(end)?;
    Ok(())
}

/// Makes a write beyond the bound on file sizes fail, as on a full disk, instead of ending the process with what it staged
/// left behind.
pub(crate) fn fail_large_writes() {
    // Where no handler can be set, the signal ends the process as before.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::<AtomicBool>::default());
}

/// Where there are no such signals, the next build to the same output removes what was staged.
#[cfg(not(unix))]
pub(crate) fn watch(_: &Interrupt, _: &Published) -> std::io::Result<()> {
    Ok(())
}

/// The signals that this process ignores, signal 1 in the lowest bit, where the system says it in a file.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
