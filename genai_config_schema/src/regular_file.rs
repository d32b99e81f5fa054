//! Files that come from anywhere: only regular ones are opened, and never more is read than the
//! caller allows.
//!
//! A model folder may hold anything under the name of a file. Opening a pipe waits for a writer, a
//! device such as `/dev/zero` never ends, and a sparse file of 1 TiB takes no room on disk. Every
//! reader of Pawl opens files through this module, so that each of these is an error at once.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Opens a regular file, links followed, and says how many bytes it has.
///
/// # Errors
///
/// What the system says, and `InvalidInput` for a folder, pipe, socket or device.
///
/// ```
/// let refused = genai_config_schema::open_regular(std::path::Path::new("/dev/zero"));
/// assert!(refused.is_err());
/// ```
pub fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    // Before opening: opening a pipe waits. After it: what was opened is what is read.
    regular_size(path)?;
    let file = File::open(path)?;
    let found = file.metadata()?;
    match found.is_file() {
        true => Ok((file, found.len())),
        false => Err(not_regular()),
    }
}

/// Bytes of a regular file, links followed.
///
/// # Errors
///
/// As [`open_regular`].
pub fn regular_size(path: &Path) -> io::Result<u64> {
    let found = std::fs::metadata(path)?;
    match found.is_file() {
        true => Ok(found.len()),
        false => Err(not_regular()),
    }
}

/// The bytes of a regular file of at most `most` bytes.
///
/// # Errors
///
/// As [`open_regular`], and `FileTooLarge`, before anything is read where the file says its size.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, size) = open_regular(path)?;
    if size > most {
        return Err(too_large(most));
    }
    let mut bytes = Vec::new();
    // More than there is would end the process; so it is an error.
    bytes.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX))?;
    // Files of `/proc` say that they are empty, and any file may have grown.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(read) if read <= most => Ok(bytes),
        _ => Err(too_large(most)),
    }
}

/// The text of a regular file of at most `most` bytes.
///
/// # Errors
///
/// As [`read_regular`], and `InvalidData` for bytes that are not UTF-8.
pub fn read_regular_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read_regular(path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let message = format!("is not UTF-8 text: byte {at} begins no character");
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// The path of `relative` below `folder`, if it stays there when all links are followed.
///
/// # Errors
///
/// What the system says, and `InvalidInput` for a link that leads out of the folder.
pub fn confined(folder: &Path, relative: &str) -> io::Result<PathBuf> {
    let path = folder.join(relative);
    let (real, inside) = (path.canonicalize()?, folder.canonicalize()?);
    if real.starts_with(&inside) {
        return Ok(path);
    }
    let message = format!(
        "a link leads out of the model folder, to `{}`",
        real.display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// The folder that a file is to be made in, as it was given.
///
/// # Errors
///
/// `NotFound` and `NotADirectory` with the folder's name, and what the system says.
///
/// ```
/// let missing = genai_config_schema::existing_parent("no/such/folder/file.json".as_ref());
/// assert_eq!(missing.unwrap_err().to_string(), "the folder `no/such/folder` does not exist");
/// ```
pub fn existing_parent(file: &Path) -> io::Result<&Path> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let shown = folder.display();
    let (kind, message) = match std::fs::metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(folder),
        Ok(_) => (
            io::ErrorKind::NotADirectory,
            format!("`{shown}` is not a folder"),
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (error.kind(), format!("the folder `{shown}` does not exist"))
        }
        Err(error) => return Err(error),
    };
    Err(io::Error::new(kind, message))
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")
}

fn too_large(most: u64) -> io::Error {
    let message = format!("is larger than {most} bytes, the most that is read");
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_for_a_new_file_is_there() {
        let parent = |file: &str| existing_parent(file.as_ref()).map(Path::to_path_buf);
        assert_eq!(parent("file").unwrap(), Path::new("."));
        assert_eq!(parent("src/file").unwrap(), Path::new("src"));
        let wrong = |file| parent(file).unwrap_err().to_string();
        assert_eq!(wrong("none/file"), "the folder `none` does not exist");
        assert_eq!(wrong("Cargo.toml/file"), "`Cargo.toml` is not a folder");
    }

    #[test]
    fn a_file_is_read_up_to_the_bound_and_not_beyond() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "text").expect("written");
        assert_eq!(read_regular_text(&path, 4).expect("read"), "text");
        let error = read_regular(&path, 3).expect_err("too large");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let sparse = File::create(&path).expect("created");
        sparse.set_len(1 << 40).expect("sparse");
        assert!(read_regular(&path, 1 << 20).is_err());
        std::fs::write(&path, [b'a', 0xFF]).expect("written");
        let error = read_regular_text(&path, 9).expect_err("not text");
        assert!(error.to_string().contains("byte 1"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let pipe = std::process::Command::new("mkfifo")
            .arg(at("pipe"))
            .status();
        assert!(pipe.expect("mkfifo").success());
        std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        std::os::unix::fs::symlink("/dev/zero", at("zeros")).expect("a link");
        std::os::unix::fs::symlink(at("pipe"), at("link")).expect("a link");
        for name in ["pipe", "socket", "zeros", "link", "."] {
            let error = read_regular(&at(name), 1 << 20).expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}: {error}");
        }
        std::os::unix::fs::symlink(at("loop"), at("loop")).expect("a link");
        assert!(open_regular(&at("loop")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_may_not_lead_out_of_the_folder() {
        let (inside, outside) = (tempfile::tempdir(), tempfile::tempdir());
        let (inside, outside) = (inside.expect("a folder"), outside.expect("a folder"));
        let link = |target: PathBuf, name| {
            std::os::unix::fs::symlink(target, inside.path().join(name)).expect("a link");
        };
        for folder in [inside.path(), outside.path()] {
            std::fs::write(folder.join("file"), "text").expect("written");
        }
        link(PathBuf::from("file"), "near");
        link(outside.path().join("file"), "far");
        link(outside.path().to_owned(), "folder");
        assert!(confined(inside.path(), "file").is_ok());
        assert!(confined(inside.path(), "near").is_ok());
        for name in ["far", "folder/file"] {
            let error = confined(inside.path(), name).expect_err(name);
            assert!(error.to_string().contains("leads out"), "{name}: {error}");
        }
        assert!(confined(inside.path(), "absent").is_err());
    }
}
