//! Checkpoints made for tests.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::Checkpoint;

/// A tensor of a file made by hand: name, type, shape, bytes.
pub(crate) type Tensor<'a> = (&'a str, &'a str, Vec<u64>, &'a [u8]);

/// A safetensors file with any header, however wrong.
pub(crate) fn raw(path: &Path, header: &str, data: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.write_all(data).unwrap();
}

/// A sound safetensors file, written without the crate that others read it with.
pub(crate) fn safetensors(path: &Path, tensors: &[Tensor<'_>]) {
    let mut header = serde_json::json!({"__metadata__": {"format": "pt"}});
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let begin = data.len();
        data.extend_from_slice(bytes);
        header[*name] = serde_json::json!({
            "dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()],
        });
    }
    raw(path, &header.to_string(), &data);
}

/// A folder with settings and one file of tensors, opened.
pub(crate) fn checkpoint(folder: &Path, tensors: &[Tensor<'_>]) -> Checkpoint {
    std::fs::write(folder.join("config.json"), "{}").unwrap();
    safetensors(&folder.join("model.safetensors"), tensors);
    Checkpoint::open(folder).unwrap()
}

pub(crate) fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
