//! Doors for fuzzing. Not part of the interface.

#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "a finding is a panic, and so is a machine without a temporary folder"
)]

use crate::limits::GRAPH_ITEMS;
use crate::model::graph_io::{Allowance, GraphIo};
use crate::saved::{self, Layout};
use std::cell::OnceCell;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Plays the script of admissions, steps, drafts, discards, releases and transfers that `bytes` stand for on real pools,
/// and compares with token-by-token state and with the invariants after each turn. Panics where they disagree.
pub fn step_script(bytes: &[u8]) {
    crate::txn::play(bytes);
}

/// Reads what an ONNX file of these bytes declares. Panics where a refusal does not say where, and where more is read than
/// may be.
pub fn onnx_graph(bytes: &[u8]) {
    let path = file("model.onnx", bytes);
    match GraphIo::read(&path, &mut Allowance::default()) {
        Ok(graph) => {
            let values = graph.inputs.len() + graph.outputs.len() + graph.nodes.len();
            assert!(values + graph.weights().count() <= GRAPH_ITEMS, "too many");
            let _ = graph.weight_bytes();
        }
        Err(error) => assert!(error.to_string().contains("(at byte "), "{error}"),
    }
}

/// Restores a file of these bytes as the state of a small model, also if its checksum were right. Panics where a refusal
/// does not name the file, and where what is restored is something else once it was saved.
pub fn saved_state(bytes: &[u8]) {
    let layout = Layout::small();
    let path = file("a.state", bytes);
    let mut found = saved::read(&path, &layout);
    if let Err(error) = &found
        && let Some(bytes) = summed(bytes, &error.to_string())
    {
        file("a.state", &bytes);
        found = saved::read(&path, &layout);
    }
    match found {
        Ok((tokens, image)) => {
            let written = saved::write(&path, &layout, &tokens, &image);
            written.unwrap_or_else(|error| panic!("restored, and then: {error}"));
            let again = saved::read(&path, &layout);
            let again = again.unwrap_or_else(|error| panic!("saved, and then: {error}"));
            // As text: NaN is not equal to itself.
            assert_eq!(format!("{again:?}"), format!("{:?}", (tokens, image)));
        }
        Err(error) => assert!(error.to_string().contains("a.state"), "{error}"),
    }
}

/// The bytes with the checksum that a refusal says they have.
fn summed(bytes: &[u8], refusal: &str) -> Option<Vec<u8>> {
    let (_, sums) = refusal.split_once("its checksum is ")?;
    let (found, told) = sums.split_once(", sha256 says ")?;
    let entry = format!("\"sha256\":\"{told}");
    let mut parts = bytes.windows(entry.len());
    let place = parts.position(|part| part == entry.as_bytes())? + entry.len();
    let mut bytes = bytes.to_vec();
    let sum = bytes
        .get_mut(place.checked_sub(64)?..)?
        .first_chunk_mut::<64>()?;
    sum.copy_from_slice(found.as_bytes().first_chunk::<64>()?);
    Some(bytes)
}

/// A file of this thread. It is not emptied first, after which some file systems write it out at once.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    thread_local! {
        static FOLDER: OnceCell<TempDir> = const { OnceCell::new() };
    }
    let written = |path: &Path| {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)
    };
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| tempfile::tempdir().expect("a temporary folder"));
        let path = folder.path().join(name);
        written(&path).expect("a temporary file");
        path
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn replay(target: &str, run: fn(&[u8])) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus");
        let inputs = std::fs::read_dir(root.join(target)).unwrap();
        let count = inputs
            .map(|input| run(&std::fs::read(input.unwrap().path()).unwrap()))
            .count();
        assert!(count >= 8, "{count} inputs of {target}");
    }

    #[test]
    fn step_script() {
        replay("step_script", super::step_script);
    }

    #[test]
    fn onnx_graph() {
        replay("onnx_graph", super::onnx_graph);
    }

    #[test]
    fn saved_state() {
        replay("saved_state", super::saved_state);
    }

    /// The corpus has a state that is restored, and one that only its checksum is wrong of.
    #[test]
    fn a_wrong_checksum_is_put_right() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus/saved_state");
        let bytes = std::fs::read(root.join("whole")).unwrap();
        let path = super::file("a.state", &bytes);
        let layout = super::Layout::small();
        let refusal = super::saved::read(&path, &layout).unwrap_err();
        let bytes = super::summed(&bytes, &refusal.to_string()).unwrap();
        super::file("a.state", &bytes);
        let (tokens, _) = super::saved::read(&path, &layout).unwrap();
        assert_eq!(tokens, [7, 0, 49, 7]);
    }
}
