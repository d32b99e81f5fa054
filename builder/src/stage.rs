//! An export is written beside its destination and moved there when it is complete.
//!
//! The staging folder is `.<name>.pawl-<random>` in the destination's parent, so that moving is a
//! rename on one file system. `<random>` is six letters and digits. It holds `lock` (locked while its process lives), `model` (the export)
//! and, for an instant while an old output is replaced, `old`. Dropping it removes it. What a killed
//! process left is removed by the next export to the same destination: its lock is free. If it was
//! killed between the two renames of a replacement, the old output is put back first.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::BuildError;
use crate::interrupt::{Interrupt, remove_empty};

/// A file that marks a folder as an export, which may be replaced.
const MARK: &str = "genai_config.json";
const LOCK: &str = "lock";
const MODEL: &str = "model";
const OLD: &str = "old";
/// Letters and digits of the random part of a staging folder's name.
const RANDOM: usize = 6;
/// Times a staging folder is made anew because another process took it for abandoned.
const ATTEMPTS: usize = 8;
/// Times it is made anew because another export removed the parents.
const PARENT_ATTEMPTS: usize = 100;

/// A staging folder of a living export. The fields are dropped in order.
#[derive(Debug)]
pub(crate) struct Stage {
    output: PathBuf,
    force: bool,
    /// Locked until dropped. An open file cannot be removed on every system, so it goes first.
    lock: File,
    folder: TempDir,
    made: Made,
    interrupt: Forget,
}

impl Stage {
    /// Checks the destination and makes a staging folder beside it.
    ///
    /// `input` is never replaced, nor anything that contains it or a file it links to.
    pub(crate) fn create(
        output: &Path,
        input: &Path,
        force: bool,
        interrupt: &Interrupt,
    ) -> Result<Self, BuildError> {
        let output = destination(output)?;
        interrupt.guard(|registry| {
            let (made, folder, lock) = claim(&output, input, force, &mut make_parents)?;
            registry.add(folder.path(), &made.0);
            let interrupt = Forget(interrupt.clone(), folder.path().to_owned());
            Ok(Self {
                output,
                force,
                lock,
                folder,
                made,
                interrupt,
            })
        })
    }

    /// Where the export is written, and lies until it is published.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(MODEL)
    }

    /// Moves the export to its destination. After an error the destination is as it was.
    pub(crate) fn publish(self) -> Result<PathBuf, BuildError> {
        let Self {
            output,
            force,
            lock,
            folder,
            mut made,
            interrupt,
        } = self;
        let published = interrupt.0.guard(|_| place(&folder, &output, force));
        if published.is_ok() {
            made.0.clear();
        }
        // In this order: an open file cannot be removed everywhere, and parents go only when empty.
        drop(lock);
        drop(folder);
        drop(made);
        drop(interrupt);
        published?;
        // The export is in place; a crash of the machine now could at worst undo that.
        let _ = sync_folder(split(&output)?.0);
        Ok(output)
    }
}

/// Forgets the staging folder once it is gone.
#[derive(Debug)]
struct Forget(Interrupt, PathBuf);

impl Drop for Forget {
    fn drop(&mut self) {
        self.0.forget(&self.1);
    }
}

/// Makes the parents that are missing and a locked staging folder in them.
///
/// Another export that fails may remove parents it made between any two steps of this, before it sees that they are
/// used; then everything is done again.
fn claim(
    output: &Path,
    input: &Path,
    force: bool,
    make_parents: &mut dyn FnMut(&Path) -> Result<Made, BuildError>,
) -> Result<(Made, TempDir, File), BuildError> {
    let (parent, _) = split(output)?;
    let mut attempt = || {
        let made = make_parents(parent)?;
        sweep(output)?;
        check_free(output, force)?;
        protect(output, input)?;
        check_files(output)?;
        let (folder, lock) = new_folder(output)?;
        Ok((made, folder, lock))
    };
    let mut claimed = attempt();
    for _ in 1..PARENT_ATTEMPTS {
        match &claimed {
            Err(error) if is_gone(error, parent, input) => claimed = attempt(),
            _ => break,
        }
    }
    claimed
}

/// Whether something failed because `parent` or a folder above it is gone.
fn is_gone(error: &BuildError, parent: &Path, input: &Path) -> bool {
    let (BuildError::Read { file, source } | BuildError::Write { file, source }) = error else {
        return false;
    };
    let staged = parent.starts_with(file) || file.starts_with(parent);
    source.kind() == io::ErrorKind::NotFound && staged && file != input
}

/// Refuses to replace the input, or files that it consists of.
fn protect(output: &Path, input: &Path) -> Result<(), BuildError> {
    let folder = fs::canonicalize(input).map_err(BuildError::read(input))?;
    let refuse = |problem: String| BuildError::OutputPath {
        path: output.to_owned(),
        problem,
    };
    if folder.starts_with(output) {
        return Err(refuse("is the input folder or contains it".to_owned()));
    }
    // An input that is no folder is refused when it is opened.
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let linked = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        let target = linked
            .then(|| fs::canonicalize(entry.path()).ok())
            .flatten();
        if target.is_some_and(|target| target != output && target.starts_with(output)) {
            let name = entry.path();
            return Err(refuse(format!("holds what {} links to", name.display())));
        }
    }
    Ok(())
}

/// Moves the export out of its staging folder.
fn place(folder: &TempDir, output: &Path, force: bool) -> Result<(), BuildError> {
    let (model, old) = (folder.path().join(MODEL), folder.path().join(OLD));
    sync_folder(&model).map_err(BuildError::write(&model))?;
    let old = check_free(output, force)?.then_some(old);
    put_in_place(&model, output, old.as_deref(), &mut |from, to| {
        fs::rename(from, to)
    })
    .map_err(BuildError::write(output))
}

/// Moves `model` to `output`; what is there goes to `old` first, and comes back if the move fails.
fn put_in_place(
    model: &Path,
    output: &Path,
    old: Option<&Path>,
    rename: &mut dyn FnMut(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    if let Some(old) = old {
        rename(output, old)?;
    }
    let moved = rename(model, output);
    if let (Err(_), Some(old)) = (&moved, old) {
        rename(old, output)?;
    }
    moved
}

/// Folders made on the way, innermost last; those still empty are removed when this is dropped.
#[derive(Debug)]
struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        remove_empty(&self.0);
    }
}

/// The absolute destination, through a symbolic link if it is one.
fn destination(output: &Path) -> Result<PathBuf, BuildError> {
    match fs::symlink_metadata(output) {
        Ok(_) => fs::canonicalize(output).map_err(BuildError::read(output)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::path::absolute(output).map_err(BuildError::write(output))
        }
        Err(error) => Err(BuildError::write(output)(error)),
    }
}

fn split(output: &Path) -> Result<(&Path, &str), BuildError> {
    let name = output.file_name().and_then(|name| name.to_str());
    match (output.parent(), name) {
        (Some(parent), Some(name)) => Ok((parent, name)),
        _ => Err(BuildError::OutputPath {
            path: output.to_owned(),
            problem: "cannot be the name of an output folder".to_owned(),
        }),
    }
}

fn make_parents(parent: &Path) -> Result<Made, BuildError> {
    let mut missing: Vec<_> = (parent.ancestors())
        .take_while(|folder| !folder.exists())
        .collect();
    missing.reverse();
    let mut made = Made(Vec::new());
    for folder in missing {
        match fs::create_dir(folder) {
            Ok(()) => made.0.push(folder.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(BuildError::write(folder)(error)),
        }
    }
    Ok(made)
}

/// Whether there is an old output, which `force` allows to replace.
fn check_free(output: &Path, force: bool) -> Result<bool, BuildError> {
    let metadata = match fs::symlink_metadata(output) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(BuildError::write(output)(error)),
    };
    let path = output.to_owned();
    if !force {
        return Err(BuildError::OutputExists { path });
    }
    let problem = if !metadata.is_dir() {
        "is not a folder, so it is not replaced"
    } else if !output.join(MARK).is_file() && !is_empty(output)? {
        "is not an exported model (it has no genai_config.json), so it is not replaced"
    } else {
        return Ok(true);
    };
    Err(BuildError::OutputPath {
        path,
        problem: problem.to_owned(),
    })
}

/// An export is files alone: whoever keeps a folder among them keeps something else there.
fn check_files(output: &Path) -> Result<(), BuildError> {
    let failed = |error| BuildError::read(output)(error);
    let entries = match fs::read_dir(output) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let kind = entry.and_then(|entry| entry.file_type());
        if kind.map_err(failed)?.is_dir() {
            return Err(BuildError::OutputPath {
                path: output.to_owned(),
                problem: "holds a folder, which no export does, so it is not replaced".to_owned(),
            });
        }
    }
    Ok(())
}

fn is_empty(folder: &Path) -> Result<bool, BuildError> {
    Ok(fs::read_dir(folder)
        .map_err(BuildError::read(folder))?
        .next()
        .is_none())
}

/// What comes before the random part of a staging folder's name.
fn prefix(name: &str) -> String {
    format!(".{name}.pawl-")
}

/// Whether `hidden` is the name of a staging folder of the output `name`, and of no other output: that of
/// `name.pawl-x` is `.name.pawl-x.pawl-<random>`, and the random part holds neither point nor hyphen.
fn is_staging(hidden: &str, name: &str) -> bool {
    hidden.strip_prefix(&prefix(name)).is_some_and(|random| {
        random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn new_folder(output: &Path) -> Result<(TempDir, File), BuildError> {
    let (parent, name) = split(output)?;
    for _ in 0..ATTEMPTS {
        let folder = tempfile::Builder::new()
            .prefix(&prefix(name))
            .rand_bytes(RANDOM)
            .tempdir_in(parent)
            .map_err(BuildError::write(parent))?;
        let path = folder.path().join(LOCK);
        let lock = File::create(&path).map_err(BuildError::write(&path))?;
        match lock.try_lock() {
            // Another export took the folder for abandoned and is removing it.
            Err(TryLockError::WouldBlock) => continue,
            // Without locks nothing is ever taken for abandoned.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let model = folder.path().join(MODEL);
        fs::create_dir(&model).map_err(BuildError::write(&model))?;
        return Ok((folder, lock));
    }
    Err(BuildError::defect(
        "stage",
        name,
        "no staging folder could be locked",
    ))
}

/// Removes what killed exports to the same destination left, and puts back an old output that one
/// had moved away. Whatever cannot be read or removed is left alone.
fn sweep(output: &Path) -> Result<(), BuildError> {
    let (parent, name) = split(output)?;
    for entry in fs::read_dir(parent)
        .map_err(BuildError::read(parent))?
        .flatten()
    {
        let hidden = entry.file_name();
        if !hidden
            .to_str()
            .is_some_and(|hidden| is_staging(hidden, name))
        {
            continue;
        }
        let folder = entry.path();
        let Some(lock) = abandoned(&folder) else {
            continue;
        };
        let old = folder.join(OLD);
        if old.exists() && !output.exists() {
            fs::rename(&old, output).map_err(BuildError::write(output))?;
        }
        // The lock is held while the folder goes, or another export could do the same.
        let _ = fs::remove_dir_all(&folder);
        drop(lock);
    }
    Ok(())
}

/// The lock of a staging folder whose process is gone.
fn abandoned(folder: &Path) -> Option<File> {
    let lock = File::options().write(true).open(folder.join(LOCK)).ok()?;
    lock.try_lock().ok()?;
    Some(lock)
}

/// Makes the entries of a folder durable, where the system offers it.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests;
