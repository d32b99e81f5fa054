//! A copy of the tree that mistakes are made in.

use crate::ChoreError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The copy. It lies under the target folder and is kept: only files that differ are written again, so that the next run
/// builds only what has changed.
#[derive(Debug)]
pub(super) struct Copy {
    /// Its root.
    pub(super) tree: PathBuf,
    /// Where it is built, apart from the workspace's own builds.
    pub(super) target: PathBuf,
}

impl Copy {
    /// Makes the copy equal to the tree at `root`.
    pub(super) fn of(root: &Path, target: &Path) -> Result<Self, ChoreError> {
        let folder = target.join("mistakes");
        let copy = Self {
            tree: folder.join("tree"),
            target: folder.join("target"),
        };
        let (mut files, mut stale) = (BTreeSet::new(), BTreeSet::new());
        collect(root, root, &mut files)?;
        std::fs::create_dir_all(&copy.tree).map_err(ChoreError::io(&copy.tree))?;
        collect(&copy.tree, &copy.tree, &mut stale)?;
        for file in stale.difference(&files) {
            let path = copy.tree.join(file);
            std::fs::remove_file(&path).map_err(ChoreError::io(&path))?;
        }
        for file in &files {
            let path = root.join(file);
            let bytes = std::fs::read(&path).map_err(ChoreError::io(&path))?;
            copy.write(file, &bytes)?;
        }
        Ok(copy)
    }

    /// Writes one file, unless it is so already.
    pub(super) fn write(&self, file: &Path, bytes: &[u8]) -> Result<(), ChoreError> {
        let path = self.tree.join(file);
        if std::fs::read(&path).is_ok_and(|found| found == bytes) {
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(ChoreError::io(folder))?;
        }
        std::fs::write(&path, bytes).map_err(ChoreError::io(&path))
    }

    /// Reads one file.
    pub(super) fn read(&self, file: &str) -> Result<String, ChoreError> {
        let path = self.tree.join(file);
        std::fs::read_to_string(&path).map_err(ChoreError::io(&path))
    }
}

/// Every file below `folder`, relative to `root`; hidden ones and build outputs are left out.
fn collect(root: &Path, folder: &Path, files: &mut BTreeSet<PathBuf>) -> Result<(), ChoreError> {
    for entry in std::fs::read_dir(folder).map_err(ChoreError::io(folder))? {
        let path = entry.map_err(ChoreError::io(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || (folder == root && (name == "target" || name == "demo")) {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, files)?;
        } else {
            files.insert(path.strip_prefix(root).unwrap_or(&path).to_path_buf());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_the_tree_and_leaves_equal_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (root, target) = (folder.path().join("root"), folder.path().join("target"));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a/one.rs", "1");
        write("two.rs", "2");
        write("target/built", "x");
        write(".git/head", "x");
        let copy = Copy::of(&root, &target).unwrap();
        assert!(!copy.tree.join("target").exists() && !copy.tree.join(".git").exists());
        // A time that a copy of now would not have.
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let age = |file: &str| {
            let file = std::fs::File::options()
                .write(true)
                .open(copy.tree.join(file));
            file.unwrap().set_modified(old).unwrap();
        };
        let is_old = |file: &str| {
            let metadata = std::fs::metadata(copy.tree.join(file)).unwrap();
            metadata.modified().unwrap() == old
        };
        write("a/one.rs", "changed");
        std::fs::remove_file(root.join("two.rs")).unwrap();
        write("a/three.rs", "3");
        Copy::of(&root, &target).unwrap();
        assert_eq!(copy.read("a/one.rs").unwrap(), "changed");
        assert!(!copy.tree.join("two.rs").exists());
        age("a/one.rs");
        age("a/three.rs");
        write("a/one.rs", "changed again");
        Copy::of(&root, &target).unwrap();
        assert!(!is_old("a/one.rs") && is_old("a/three.rs"));
    }
}
