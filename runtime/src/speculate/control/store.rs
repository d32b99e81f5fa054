//! Costs on disk, so that an engine starts with what earlier ones measured.

use super::cost::CostTable;
use crate::limits::COSTS_BYTES;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Raised when what a file holds changes its meaning.
const VERSION: u32 = 2;

/// Whose costs they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostKey {
    /// Which model.
    pub(crate) model: String,
    /// Which machine: processor, cores, and what the engine was told to use of them.
    pub(crate) machine: String,
    /// Which programs: versions, and how they were built.
    pub(crate) software: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    version: u32,
    key: CostKey,
    costs: CostTable,
}

impl CostKey {
    /// The file of this key in a folder.
    pub(crate) fn file(&self, folder: &Path) -> PathBuf {
        let parts = [&self.model, &self.machine, &self.software];
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let hash = hash.finalize();
        let name: String = hash
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        folder.join(format!("costs-{name}.json"))
    }
}

/// The costs of a key. What cannot be used is not: a warning says why, and the costs are learnt again.
pub(crate) fn load(folder: &Path, key: &CostKey) -> Option<CostTable> {
    let path = key.file(folder);
    match read(&path) {
        Ok(saved) if saved.version != VERSION => {
            ignored(
                &path,
                &format!("version: expected {VERSION}, found {}", saved.version),
            );
            None
        }
        Ok(saved) if saved.key != *key => {
            ignored(&path, "key: of another model, machine or version");
            None
        }
        Ok(saved) => Some(saved.costs),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            ignored(&path, &error.to_string());
            None
        }
    }
}

/// Writes the costs of a key: all of the file, or nothing. The folder is made where it is missing.
///
/// # Errors
/// A folder that cannot be written to.
pub(crate) fn save(folder: &Path, key: &CostKey, costs: &CostTable) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let saved = Saved {
        version: VERSION,
        key: key.clone(),
        costs: costs.clone(),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, &saved)?;
    file.flush()?;
    file.persist(key.file(folder))?;
    Ok(())
}

fn read(path: &Path) -> io::Result<Saved> {
    let text = genai_config_schema::read_regular(path, COSTS_BYTES)?;
    Ok(serde_json::from_slice(&text)?)
}

fn ignored(path: &Path, why: &str) {
    tracing::warn!(
        "{}: costs of steps are measured anew: {why}",
        path.display()
    );
}

#[cfg(test)]
mod tests {
    use super::super::cost::StepShape;
    use super::*;

    fn key(machine: &str) -> CostKey {
        CostKey {
            model: "m".to_owned(),
            machine: machine.to_owned(),
            software: "s".to_owned(),
        }
    }

    fn costs() -> CostTable {
        let mut costs = CostTable::default();
        let shape = StepShape {
            requests: 1,
            tokens: 1,
            context: 1,
        };
        for _ in 0..5 {
            costs.observe_step(shape, 0.25);
        }
        costs
    }

    #[test]
    fn what_was_saved_is_loaded_for_its_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        save(&folder, &key("a"), &costs()).unwrap();
        save(&folder, &key("a"), &costs()).unwrap();
        let line = load(&folder, &key("a")).unwrap().steps(1, 1).unwrap();
        assert!((line.at(1) - 0.25).abs() < 1e-12);
        assert_eq!(load(&folder, &key("b")), None);
        let newer = CostKey {
            software: "t".to_owned(),
            ..key("a")
        };
        assert_eq!(load(&folder, &newer), None);
        assert_eq!(
            std::fs::read_dir(&folder).unwrap().count(),
            1,
            "no temporary file is left"
        );
        // A file of another key under this one's name, as after a collision or a copy by hand.
        std::fs::copy(key("a").file(&folder), key("b").file(&folder)).unwrap();
        assert_eq!(load(&folder, &key("b")), None);
    }

    #[test]
    fn damaged_files_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), &key("a"), &costs()).unwrap();
        let path = key("a").file(folder.path());
        let text = std::fs::read_to_string(&path).unwrap();
        let cut = &text[..text.len() / 2];
        let odd = text.replace("\"version\":2", "\"version\":1");
        let more = text.replace("\"version\":2", "\"version\":2,\"other\":1");
        assert!(odd != text && more != text);
        for damaged in [cut, &odd, &more, "", "[]", "\u{0}"] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(load(folder.path(), &key("a")), None, "{damaged}");
        }
        std::fs::write(&path, text).unwrap();
        assert!(load(folder.path(), &key("a")).is_some());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(load(folder.path(), &key("a")), None);
        assert!(save(&path.join("no").join("\u{0}"), &key("a"), &costs()).is_err());
    }
}
