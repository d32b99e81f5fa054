//! Weights that several graphs use, mapped once.
//!
//! ONNX Runtime maps external data by itself, but prepares a private copy of each weight per session. A tensor that
//! is given by the caller, together with a container for prepared weights, is prepared once for all sessions.

#![allow(unsafe_code)]

use super::tensor_value::TensorValue;
use crate::device::host_memory;
use crate::model::tensor_spec::DataType;
use genai_config_schema::open_regular;
use memmap2::Mmap;
use ort::session::builder::{PrepackedWeights, SessionBuilder};
use ort::{AsPointer, ortsys};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// One weight of one graph, by its place in a data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedTensor {
    /// Graph that has the weight, as messages name it.
    pub(crate) graph: String,
    /// Initializer of that graph.
    pub(crate) name: String,
    /// The data file.
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) data_type: DataType,
    pub(crate) shape: Vec<u64>,
}

/// Why a weight could not be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WeightsError {
    /// The file cannot be opened or mapped.
    #[error("`{file}` cannot be mapped: {source}")]
    File {
        file: PathBuf,
        source: std::io::Error,
    },
    /// The declared place is not one that such a tensor can have.
    #[error("{graph}: initializer `{name}` in `{file}`: {reason}")]
    Place {
        graph: String,
        name: String,
        file: PathBuf,
        reason: String,
    },
}

/// Mapped weights and what ONNX Runtime prepared from them.
pub(crate) struct SharedWeights {
    tensors: Vec<(SharedTensor, TensorValue<'static>)>,
    prepared: PrepackedWeights,
    // Behind the values: it is released after them.
    files: BTreeMap<PathBuf, Mmap>,
}

impl std::fmt::Debug for SharedWeights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self
            .tensors
            .iter()
            .map(|(t, _)| (&t.graph, &t.name))
            .collect();
        f.debug_struct("SharedWeights")
            .field("tensors", &names)
            .field("files", &self.files.keys())
            .finish_non_exhaustive()
    }
}

impl SharedWeights {
    /// Maps the files that `tensors` lie in, each once. ONNX Runtime must be loaded.
    pub(crate) fn map(tensors: Vec<SharedTensor>) -> Result<Self, WeightsError> {
        let mut files = BTreeMap::new();
        for tensor in &tensors {
            if !files.contains_key(&tensor.file) {
                files.insert(tensor.file.clone(), map_file(&tensor.file)?);
            }
        }
        let tensors = tensors
            .into_iter()
            .map(|tensor| {
                let value = value(&tensor, files.get(&tensor.file)).map_err(|reason| {
                    WeightsError::Place {
                        graph: tensor.graph.clone(),
                        name: tensor.name.clone(),
                        file: tensor.file.clone(),
                        reason,
                    }
                })?;
                Ok((tensor, value))
            })
            .collect::<Result<_, WeightsError>>()?;
        Ok(Self {
            tensors,
            prepared: PrepackedWeights::new(),
            files,
        })
    }

    /// Gives a session the weights of `graph`. The session must not outlive `self`.
    pub(super) fn give(&self, builder: SessionBuilder, graph: &str) -> ort::Result<SessionBuilder> {
        let mut builder = builder.with_prepacked_weights(&self.prepared)?;
        for (tensor, value) in self
            .tensors
            .iter()
            .filter(|(tensor, _)| tensor.graph == graph)
        {
            let name = CString::new(tensor.name.as_str())?;
            // ONNX Runtime copies the name and keeps the value's pointer: `Session` holds `self` for as long.
            ortsys![unsafe AddInitializer(builder.ptr_mut(), name.as_ptr(), value.as_input())?];
        }
        Ok(builder)
    }
}

fn map_file(path: &Path) -> Result<Mmap, WeightsError> {
    let failed = |source| WeightsError::File {
        file: path.to_path_buf(),
        source,
    };
    let (file, _) = open_regular(path).map_err(failed)?;
    // SAFETY: the mapping is private and read-only. A file that another process truncates meanwhile would end this
    // process, as it would with ONNX Runtime's own mapping; a built model is not written again.
    unsafe { Mmap::map(&file) }.map_err(failed)
}

fn value(tensor: &SharedTensor, map: Option<&Mmap>) -> Result<TensorValue<'static>, String> {
    let count = tensor.shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
    let needed = count.and_then(|count| tensor.data_type.bytes(count));
    if needed != Some(tensor.length) {
        return Err(format!(
            "{} {:?} does not have {} bytes",
            tensor.data_type, tensor.shape, tensor.length
        ));
    }
    let bytes = map
        .and_then(|map| {
            let start = usize::try_from(tensor.offset).ok()?;
            let end = start.checked_add(usize::try_from(tensor.length).ok()?)?;
            map.get(start..end)
        })
        .ok_or_else(|| {
            format!(
                "bytes {}..+{} lie beyond the end of the file ({} bytes)",
                tensor.offset,
                tensor.length,
                map.map_or(0, |map| map.len())
            )
        })?;
    let alignment = tensor
        .data_type
        .element()
        .map_or(1, crate::device::ElementType::size);
    if bytes.as_ptr().align_offset(alignment) != 0 {
        return Err(format!(
            "offset {} is not a multiple of {alignment}",
            tensor.offset
        ));
    }
    let shape: Option<Vec<usize>> = tensor
        .shape
        .iter()
        .map(|d| usize::try_from(*d).ok())
        .collect();
    let shape = shape.ok_or("the shape is larger than the address space")?;
    let place = host_memory().map_err(|error| error.to_string())?;
    let pointer = bytes.as_ptr().cast_mut();
    // SAFETY: the memory belongs to the mapping, which `SharedWeights` holds longer than the values; an initializer
    // is only read, and the value cannot be bound as an output.
    unsafe { TensorValue::over(place, pointer, bytes.len(), tensor.data_type, &shape, false) }
        .map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "shared_weights_tests.rs"]
mod tests;
