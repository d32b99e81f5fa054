//! Stopping a build from another thread.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::BuildError;

/// Times a staging folder is removed anew because the build made another file in it meanwhile.
const ATTEMPTS: usize = 100;

/// Stops builds from another thread, for one that waits for signals. Clones stop the same builds.
///
/// ```
/// use pawl_builder::{BuildError, BuildOptions, BuildRequest, build};
///
/// # let folder = tempfile::tempdir()?;
/// let request = BuildRequest::new("checkpoint", folder.path().join("out"), BuildOptions::default());
/// let interrupt = request.interrupt.clone();
/// std::thread::spawn(move || interrupt.stop()).join().unwrap();
/// assert!(matches!(build(&request, &mut ()), Err(BuildError::Interrupted)));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    /// Locked while anything is staged or published, so that neither is half done when it is removed.
    staged: Mutex<Vec<Staged>>,
}

/// What one build has made that it would remove itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Staged {
    folder: PathBuf,
    /// Innermost last.
    parents: Vec<PathBuf>,
}

impl Interrupt {
    /// Removes what builds have staged, and keeps them from publishing: from now on they fail with
    /// [`BuildError::Interrupted`]. Waits for one that is moving its export to its destination; what is there then
    /// stays. When this returns, the process can end and nothing is left behind.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        for Staged { folder, parents } in self.staged().drain(..) {
            remove(&folder, &mut |folder| fs::remove_dir_all(folder));
            remove_empty(&parents);
        }
    }

    /// Whether builds have been stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Fails where builds have been stopped.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        match self.is_stopped() {
            true => Err(BuildError::Interrupted),
            false => Ok(()),
        }
    }

    /// Runs `work`, which stages or publishes, not at the same time as [`stop`](Self::stop), and not after it.
    pub(crate) fn guard<T>(
        &self,
        work: impl FnOnce(&mut Registry<'_>) -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        let mut registry = Registry(self.staged());
        self.check()?;
        work(&mut registry)
    }

    /// Forgets a staging folder that is gone.
    pub(crate) fn forget(&self, folder: &Path) {
        self.staged().retain(|staged| staged.folder != folder);
    }

    fn staged(&self) -> MutexGuard<'_, Vec<Staged>> {
        self.0.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is staged, held still.
pub(crate) struct Registry<'a>(MutexGuard<'a, Vec<Staged>>);

impl Registry<'_> {
    /// Notes a staging folder and the parents made for it, innermost last.
    pub(crate) fn add(&mut self, folder: &Path, parents: &[PathBuf]) {
        self.0.push(Staged {
            folder: folder.to_owned(),
            parents: parents.to_vec(),
        });
    }
}

/// Removes a folder that another thread may still be writing to. It makes a fixed number of files, so this ends.
fn remove(folder: &Path, once: &mut dyn FnMut(&Path) -> io::Result<()>) {
    for _ in 0..ATTEMPTS {
        if once(folder).is_ok() || !folder.exists() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Removes folders from the innermost (the last) outwards, as far as they are empty.
pub(crate) fn remove_empty(folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_forgotten_and_not_removed_when_it_comes_back() {
        let world = tempfile::tempdir().unwrap();
        let folder = world.path().join("staging");
        let interrupt = Interrupt::default();
        let add = |registry: &mut Registry<'_>| {
            registry.add(&folder, &[]);
            Ok(())
        };
        interrupt.guard(add).unwrap();
        interrupt.forget(&folder);
        fs::create_dir(&folder).unwrap();
        interrupt.stop();
        assert!(folder.exists());
    }

    #[test]
    fn a_file_that_comes_while_its_folder_is_removed_goes_too() {
        let world = tempfile::tempdir().unwrap();
        let folder = world.path().join("staging");
        fs::create_dir(&folder).unwrap();
        let mut calls = 0;
        remove(&folder, &mut |folder| {
            calls += 1;
            if calls < 3 {
                fs::write(folder.join(calls.to_string()), "")?;
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            fs::remove_dir_all(folder)
        });
        assert!(!folder.exists());
        remove(&folder, &mut |folder| {
            calls += 1;
            fs::remove_dir_all(folder)
        });
        assert_eq!(calls, 4, "what is gone is not waited for");
    }
}
