//! Files that commands write: whole, or not at all.

use crate::error::CliError;
use genai_config_schema::existing_parent;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// Where a file goes.
#[derive(Debug)]
pub(crate) struct Target {
    /// As it was given, for messages.
    given: PathBuf,
    /// The file to replace, through a link if it is one.
    file: PathBuf,
}

impl Target {
    /// Looks whether a file can be written there, before the work for it is done. Only regular files are replaced.
    ///
    /// # Errors
    /// A folder, pipe, socket or device of that name, a name that no file can have, a folder that does not exist, and one in
    /// which nothing can be made.
    pub(crate) fn new(given: &Path) -> Result<Self, CliError> {
        let wrong = |error| CliError::file(given, error);
        let file = match std::fs::metadata(given) {
            Ok(found) if found.is_file() => given.canonicalize().map_err(wrong)?,
            Ok(_) => return Err(CliError::file(given, "is not a regular file")),
            Err(error) if is_link(given) => return Err(wrong(error)),
            Err(error) => {
                existing_parent(given).map_err(wrong)?;
                if error.kind() != ErrorKind::NotFound {
                    return Err(wrong(error));
                }
                if names_a_folder(given) {
                    let reason = "is the name of a folder, not of a file";
                    return Err(CliError::file(given, reason));
                }
                std::path::absolute(given).map_err(wrong)?
            }
        };
        let target = Self {
            given: given.to_path_buf(),
            file,
        };
        // Made and let go again: what lies there until the end would stay if the process were killed.
        target.beside()?;
        Ok(target)
    }

    /// Whether it is this file, links followed.
    pub(crate) fn is(&self, other: &Path) -> bool {
        other.canonicalize().is_ok_and(|other| other == self.file)
    }

    /// Refuses a target that the command reads: a file of the model folder, or one that such a file links to.
    ///
    /// # Errors
    /// The target and the folder.
    pub(crate) fn outside_model(&self, folder: &Path) -> Result<(), CliError> {
        // What exists there may be loaded; a new name beside it is none of the model's files.
        let below = |folder: PathBuf| self.file.exists() && self.file.starts_with(folder);
        let below = folder.canonicalize().is_ok_and(below);
        let mut entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        if below || entries.any(|entry| self.is(&entry.path())) {
            let reason = format!("is a file of the model `{}`", folder.display());
            return Err(CliError::file(&self.given, reason));
        }
        Ok(())
    }

    /// Refuses a target that is one of the files that are read; `what` says what they are.
    ///
    /// # Errors
    /// The target and the file.
    pub(crate) fn none_of(&self, files: &[PathBuf], what: &str) -> Result<(), CliError> {
        match files.iter().find(|file| self.is(file)) {
            Some(file) => {
                let reason = format!("is the {what} file `{}`", file.display());
                Err(CliError::file(&self.given, reason))
            }
            None => Ok(()),
        }
    }

    /// Writes beside the target first, so that a failed write leaves an older file whole.
    ///
    /// # Errors
    /// What keeps it from being written.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut partial = self.beside()?;
        let written = partial.write_all(bytes).and_then(|()| partial.flush());
        written.map_err(|error| CliError::file(&self.given, error))?;
        self.keep(partial.into_temp_path())
    }

    /// As [`write`](Self::write), by a function that opens the file itself.
    ///
    /// # Errors
    /// What keeps it from being written.
    pub(crate) fn write_with<E: ToString>(
        &self,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), CliError> {
        let (made, partial) = self.beside()?.into_parts();
        // The function may put a file of its own there, which others could not read.
        let permissions = made.metadata().map(|made| made.permissions());
        drop(made);
        write(&partial).map_err(|error| CliError::file(&self.given, error))?;
        let permitted = permissions.and_then(|like| std::fs::set_permissions(&partial, like));
        permitted.map_err(|error| CliError::file(&self.given, error))?;
        self.keep(partial)
    }

    fn keep(&self, partial: TempPath) -> Result<(), CliError> {
        let kept = partial.persist(&self.file);
        kept.map_err(|error| CliError::file(&self.given, error.error))
    }

    fn beside(&self) -> Result<NamedTempFile, CliError> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new();
        // Made here, not by the library: its errors name the temporary file, which nobody asked for, and its files are for
        // their owner alone.
        let made = file
            .prefix(".pawl-")
            .make_in(folder, |path| File::create_new(path));
        made.map_err(|error| CliError::file(&self.given, error))
    }
}

/// Whether a path ends with a separator, which parsing it into components hides.
fn names_a_folder(path: &Path) -> bool {
    path.to_string_lossy().ends_with(std::path::is_separator)
}

fn is_link(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let target = Target::new(&path).unwrap();
        assert!(!path.exists(), "only looked at");
        target.write(b"old").unwrap();
        let failed = target.write_with(|partial| {
            std::fs::write(partial, "ne").unwrap();
            Err("no more")
        });
        assert!(failed.unwrap_err().to_string().contains("no more"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        Target::new(&path).unwrap().write(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(target.is(&folder.path().join("../").join(&path)));
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_no_file_can_have_is_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["x".repeat(256), "absent/".to_owned()] {
            let path = folder.path().join(name);
            let refused = Target::new(&path).unwrap_err().to_string();
            assert!(refused.contains(&*path.to_string_lossy()), "{refused}");
        }
        Target::new(&folder.path().join("x".repeat(255))).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_nothing_but_files_replaced() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "old").unwrap();
        symlink(at("file"), at("link")).unwrap();
        let target = Target::new(&at("link")).unwrap();
        assert!(target.is(&at("file")) && target.is(&at("link")) && !target.is(folder.path()));
        target.write(b"new").unwrap();
        assert_eq!(std::fs::read(at("file")).unwrap(), b"new");
        assert!(is_link(&at("link")));
        symlink(at("absent"), at("dangling")).unwrap();
        symlink("/dev/null", at("device")).unwrap();
        for name in ["dangling", "device", ".", "file/x", "absent/x"] {
            let refused = Target::new(&at(name)).unwrap_err().to_string();
            assert!(refused.contains(name.trim_matches('.')), "{refused}");
            assert!(!refused.contains(".pawl-"), "{refused}");
        }
        let refused = |name| Target::new(&at(name)).unwrap_err().to_string();
        let absent = format!("the folder `{}` does not exist", at("absent").display());
        assert!(refused("absent/x").ends_with(&absent));
        assert!(refused("file/x").ends_with("file` is not a folder"));
    }

    /// What cannot be made there is told by the name that was given. Nothing can be made below /proc, by whomever.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_temporary_file_is_not_named() {
        let refused = Target::new(Path::new("/proc/page")).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.starts_with("`/proc/page`: "), "{refused}");
        assert!(!refused.contains(".pawl-"), "{refused}");
    }
}
