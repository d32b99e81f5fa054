//! Fetches the pinned ONNX Runtime library.
//!
//! The library comes out of the published Python wheel: pip is the ordinary client of that registry and honours
//! mirrors and proxies. Nothing else in the project touches the network.

use crate::ChoreError;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release that is fetched.
const VERSION: &str = "1.32.0";

/// One wheel: the machine it is for, its platform tag, its hash, and the library inside.
struct Wheel {
    os: &'static str,
    arch: &'static str,
    platform: &'static str,
    sha256: &'static str,
    member: &'static str,
    library: &'static str,
}

const WHEELS: &[Wheel] = &[
    Wheel {
        os: "linux",
        arch: "x86_64",
        platform: "manylinux_2_28_x86_64",
        sha256: "5a34fc4dfeb5a7b4a74c95dcba1e773d722abda720b474edf1b0c419dc6d163d",
        member: "onnxruntime/capi/libonnxruntime.so.1.32.0",
        library: "libonnxruntime.so",
    },
    Wheel {
        os: "linux",
        arch: "aarch64",
        platform: "manylinux_2_28_aarch64",
        sha256: "2303372a85299b6757b0e11e1cbf13e410ddf7e10c37f4b37e99d1c90e7daf7c",
        member: "onnxruntime/capi/libonnxruntime.so.1.32.0",
        library: "libonnxruntime.so",
    },
    Wheel {
        os: "windows",
        arch: "x86_64",
        platform: "win_amd64",
        sha256: "d7e0c45cc5f456ad7805e6dd256a7662736cda9c2fd17becae194eb3c2f6df72",
        member: "onnxruntime/capi/onnxruntime.dll",
        library: "onnxruntime.dll",
    },
    Wheel {
        os: "windows",
        arch: "aarch64",
        platform: "win_arm64",
        sha256: "23361cdf98afac352d10aa7d9e0a10ceaeb02d38430fb693c6eff370196db62d",
        member: "onnxruntime/capi/onnxruntime.dll",
        library: "onnxruntime.dll",
    },
    Wheel {
        os: "macos",
        arch: "aarch64",
        platform: "macosx_14_0_arm64",
        sha256: "366b9e53d07812cc5c92822cecf7563b76a8a0f32ba3bb8dd232a206ac3bcb6c",
        member: "onnxruntime/capi/libonnxruntime.1.32.0.dylib",
        library: "libonnxruntime.dylib",
    },
];

/// Returns the library's path: the one `ORT_DYLIB_PATH` names, else the pinned one, fetched first where it is not there yet.
pub(crate) fn ensure(root: &Path) -> Result<PathBuf, ChoreError> {
    if let Some(library) = given_library() {
        return Ok(library);
    }
    let wheel = this_machine()?;
    let folder = root.join(".ort").join(VERSION);
    let library = folder.join(wheel.library);
    if library.is_file() {
        return Ok(library);
    }
    std::fs::create_dir_all(&folder).map_err(ChoreError::io(&folder))?;
    let scratch = tempfile::tempdir_in(&folder).map_err(ChoreError::io(&folder))?;
    let bytes = fetch(wheel, scratch.path())?;
    verify(wheel, &bytes)?;
    let unpacked = scratch.path().join(wheel.library);
    unpack(wheel, bytes, &unpacked)?;
    std::fs::rename(&unpacked, &library).map_err(ChoreError::io(&library))?;
    Ok(library)
}

/// A library that the user chose.
#[expect(
    clippy::disallowed_methods,
    reason = "the chores are not the runtime, whose settings are read in one place"
)]
fn given_library() -> Option<PathBuf> {
    std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from)
}

fn this_machine() -> Result<&'static Wheel, ChoreError> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    WHEELS
        .iter()
        .find(|w| w.os == os && w.arch == arch)
        .ok_or_else(|| {
            ChoreError::Setup(format!(
                "no ONNX Runtime {VERSION} wheel is known for {os} {arch}; \
             set ORT_DYLIB_PATH to a library of {VERSION} or later"
            ))
        })
}

/// Downloads the wheel with pip, which checks the hash too.
fn fetch(wheel: &Wheel, folder: &Path) -> Result<Vec<u8>, ChoreError> {
    let requirement = folder.join("requirement.txt");
    let line = format!("onnxruntime=={VERSION} --hash=sha256:{}\n", wheel.sha256);
    std::fs::write(&requirement, line).map_err(ChoreError::io(&requirement))?;
    let python = if cfg!(windows) { "python" } else { "python3" };
    let status = Command::new(python)
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ])
        .args([
            "--require-hashes",
            "--python-version",
            "3.11",
            "--implementation",
            "cp",
        ])
        .args(["--abi", "cp311", "--platform", wheel.platform, "--dest"])
        .arg(folder)
        .arg("--requirement")
        .arg(&requirement)
        .status()
        .map_err(|e| ChoreError::Setup(format!("cannot run {python} -m pip: {e}")))?;
    if !status.success() {
        return Err(ChoreError::Setup(format!(
            "pip could not fetch onnxruntime {VERSION}"
        )));
    }
    read_wheel(folder)
}

fn read_wheel(folder: &Path) -> Result<Vec<u8>, ChoreError> {
    let entries = std::fs::read_dir(folder).map_err(ChoreError::io(folder))?;
    let wheel = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| ChoreError::Setup("pip left no wheel".to_owned()))?;
    std::fs::read(&wheel).map_err(ChoreError::io(&wheel))
}

fn verify(wheel: &Wheel, bytes: &[u8]) -> Result<(), ChoreError> {
    let found: String = Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    if found == wheel.sha256 {
        return Ok(());
    }
    Err(ChoreError::Setup(format!(
        "hash of the wheel is {found}, expected {}",
        wheel.sha256
    )))
}

fn unpack(wheel: &Wheel, bytes: Vec<u8>, to: &Path) -> Result<(), ChoreError> {
    let broken = |e: &dyn std::fmt::Display| ChoreError::Setup(format!("{}: {e}", wheel.member));
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).map_err(|e| broken(&e))?;
    let mut member = archive.by_name(wheel.member).map_err(|e| broken(&e))?;
    let mut library = Vec::new();
    member.read_to_end(&mut library).map_err(|e| broken(&e))?;
    std::fs::write(to, library).map_err(ChoreError::io(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_wheel_is_refused() {
        let Some(wheel) = WHEELS.first() else {
            panic!("no wheels")
        };
        let error = verify(wheel, b"not the wheel").unwrap_err().to_string();
        assert!(error.contains(wheel.sha256), "{error}");
    }

    #[test]
    fn a_broken_archive_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let Some(wheel) = WHEELS.first() else {
            panic!("no wheels")
        };
        let target = folder.path().join("library");
        assert!(unpack(wheel, b"PK nonsense".to_vec(), &target).is_err());
        assert!(!target.exists());
    }
}
