//! Whether a disk has room for an export.
//!
//! An hour of writing should not end on a full disk. Other programs may fill it meanwhile, and a quota is not seen here:
//! a write that fails is an error later on, too.

use std::path::Path;

use fs4::FsStats;

use crate::error::BuildError;

/// Refuses `needed` bytes below the staging folder `stage` if its disk says that they do not fit.
pub(crate) fn check(stage: &Path, needed: u64) -> Result<(), BuildError> {
    // A system that cannot tell has not refused.
    let Ok(disk) = fs4::statvfs(stage) else {
        return Ok(());
    };
    // The export's own folder is for no reader of messages.
    let folder = stage.ancestors().nth(2).unwrap_or(stage);
    fits(folder, needed, free(&disk))
}

/// Bytes that may be written; `None` where the file system has no size, as some of networks and memory.
fn free(disk: &FsStats) -> Option<u64> {
    (disk.total_space() > 0).then(|| disk.available_space())
}

fn fits(folder: &Path, needed: u64, free: Option<u64>) -> Result<(), BuildError> {
    match free {
        Some(free) if free < needed => Err(BuildError::NoRoom {
            folder: folder.to_owned(),
            needed,
            free,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_too_little_room_is_refused_with_both_numbers() {
        let folder = Path::new("models");
        fits(folder, 4096, Some(4096)).unwrap();
        fits(folder, 4096, None).unwrap();
        let message = fits(folder, 4097, Some(4096)).unwrap_err().to_string();
        let expected = "models: the model takes 4097 bytes, 4096 bytes are free on its disk";
        assert_eq!(message, expected);
    }

    #[test]
    fn the_disk_of_a_folder_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let stage = folder.path().join(".out.pawl-abcdef").join("model");
        std::fs::create_dir_all(&stage).unwrap();
        check(&stage, 1).unwrap();
        let refused = check(&stage, u64::MAX).unwrap_err().to_string();
        let begin = format!("{}: the model takes", folder.path().display());
        assert!(refused.starts_with(&begin), "{refused}");
    }
}
