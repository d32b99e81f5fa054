//! A Hugging Face checkpoint folder: settings, tensor headers, and positioned reads of tensor data.
//!
//! Nothing is mapped into memory: a mapped file that shrinks ends the process, while a read that
//! finds too little is an error.

mod companions;
pub(crate) mod convert;
mod file;
mod header;
mod index;
#[cfg(test)]
pub(crate) mod testing;
mod unique;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use pawl_models::{CheckpointInfo, Weight};
use serde_json::Value;

use crate::error::BuildError;
use crate::limits::{HEADER_BYTES, TENSORS};

pub(crate) use companions::{Companion, companions};

/// Element types that weights can have in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightDtype {
    F32,
    F16,
    Bf16,
}

impl WeightDtype {
    /// Bytes per element.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// Where a tensor lies.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tensor {
    /// Index into `Checkpoint::shards`.
    shard: usize,
    /// As the file spells it.
    dtype: String,
    shape: Vec<u64>,
    /// First byte, from the start of the file.
    begin: u64,
}

/// Consecutive elements of one tensor of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) tensor: String,
    pub(crate) dtype: WeightDtype,
    shard: usize,
    /// First byte, from the start of the file.
    begin: u64,
    pub(crate) elements: u64,
}

/// An opened checkpoint folder: every header has been read and checked.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    folder: PathBuf,
    config: Value,
    generation_config: Option<Value>,
    shards: Vec<PathBuf>,
    tensors: BTreeMap<String, Tensor>,
    warnings: Vec<String>,
    /// Bytes of headers that may still be read.
    headers_left: u64,
    /// The shard read last. One handle at a time, however many shards there are.
    open: RefCell<Option<(usize, File)>>,
}

impl Checkpoint {
    /// Reads the settings and every tensor header of a folder.
    pub(crate) fn open(folder: &Path) -> Result<Self, BuildError> {
        if !std::fs::metadata(folder)
            .map_err(BuildError::read(folder))?
            .is_dir()
        {
            return Err(BuildError::input(folder, "", "is not a folder"));
        }
        let config = file::read_object(&folder.join("config.json"))?;
        let generation_path = folder.join("generation_config.json");
        let generation_config = match file::exists(&generation_path)? {
            true => Some(file::read_object(&generation_path)?),
            false => None,
        };
        let mut checkpoint = Self {
            folder: folder.to_owned(),
            config,
            generation_config,
            shards: Vec::new(),
            tensors: BTreeMap::new(),
            warnings: Vec::new(),
            headers_left: HEADER_BYTES,
            open: RefCell::new(None),
        };
        checkpoint.read_headers()?;
        Ok(checkpoint)
    }

    /// What a description is made from.
    pub(crate) fn info(&self) -> CheckpointInfo {
        CheckpointInfo {
            config: self.config.clone(),
            generation_config: self.generation_config.clone(),
            tensors: self
                .tensors
                .iter()
                .map(|(name, tensor)| (name.clone(), tensor.shape.clone()))
                .collect(),
        }
    }

    /// `generation_config.json`, if there is one.
    pub(crate) fn generation_config(&self) -> Option<&Value> {
        self.generation_config.as_ref()
    }

    /// Things about the folder its user should know.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The parts of a weight as runs of elements, in order.
    ///
    /// Fails on a part that is not in the checkpoint as described, or has a type that holds no
    /// weights.
    pub(crate) fn segments(&self, weight: &Weight) -> Result<Vec<Segment>, BuildError> {
        weight.parts.iter().map(|part| self.segment(part)).collect()
    }

    fn segment(&self, part: &pawl_models::WeightPart) -> Result<Segment, BuildError> {
        let Some(tensor) = self.tensors.get(&part.tensor) else {
            return Err(BuildError::input(
                &self.folder,
                &*part.tensor,
                "no such tensor",
            ));
        };
        let file = self.shard(tensor.shard)?;
        let refuse = |problem: String| BuildError::input(file, &*part.tensor, problem);
        if tensor.shape != part.shape {
            return Err(refuse(format!(
                "has shape {:?}, expected {:?}",
                tensor.shape, part.shape
            )));
        }
        let dtype = match tensor.dtype.as_str() {
            "F32" => WeightDtype::F32,
            "F16" => WeightDtype::F16,
            "BF16" => WeightDtype::Bf16,
            other => {
                return Err(refuse(format!(
                    "is {other}; weights must be F32, F16 or BF16"
                )));
            }
        };
        let (rows, trailing) = tensor.shape.split_first().unwrap_or((&1, &[]));
        let width = (trailing.iter())
            .try_fold(1_u64, |width, &extent| width.checked_mul(extent))
            .ok_or_else(|| refuse(format!("shape {:?} overflows", tensor.shape)))?;
        if part.rows.start > part.rows.end || part.rows.end > *rows {
            return Err(refuse(format!(
                "has {rows} rows; rows {:?} were asked for",
                part.rows
            )));
        }
        // Within the tensor, whose extent in bytes was checked against the file.
        let begin = tensor.begin + part.rows.start * width * dtype.size() as u64;
        Ok(Segment {
            tensor: part.tensor.clone(),
            dtype,
            shard: tensor.shard,
            begin,
            elements: (part.rows.end - part.rows.start) * width,
        })
    }

    /// Fills `buffer` with the bytes of a segment from element `first` on.
    pub(crate) fn read(
        &self,
        segment: &Segment,
        first: u64,
        buffer: &mut [u8],
    ) -> Result<(), BuildError> {
        let path = self.shard(segment.shard)?;
        let mut open = self.open.borrow_mut();
        let file = match open.take() {
            Some((shard, file)) if shard == segment.shard => file,
            _ => file::open(path)?,
        };
        let offset = segment.begin + first * segment.dtype.size() as u64;
        file::read_exact_at(&file, buffer, offset).map_err(|source| {
            BuildError::input(path, &*segment.tensor, format!("cannot be read: {source}"))
        })?;
        *open = Some((segment.shard, file));
        Ok(())
    }

    /// The file that holds a tensor; the folder, where there is no such tensor.
    pub(crate) fn file_of(&self, tensor: &str) -> &Path {
        let tensor = self.tensors.get(tensor);
        let file = tensor.and_then(|tensor| self.shards.get(tensor.shard));
        file.unwrap_or(&self.folder)
    }

    fn shard(&self, shard: usize) -> Result<&Path, BuildError> {
        let missing = || BuildError::defect("checkpoint", "shards", format!("no shard {shard}"));
        self.shards
            .get(shard)
            .map(PathBuf::as_path)
            .ok_or_else(missing)
    }

    fn read_headers(&mut self) -> Result<(), BuildError> {
        let single = self.folder.join("model.safetensors");
        let index = self.folder.join("model.safetensors.index.json");
        match (file::exists(&single)?, file::exists(&index)?) {
            (true, indexed) => {
                if indexed {
                    self.warnings.push(format!(
                        "{}: not used, since there is a model.safetensors",
                        index.display()
                    ));
                }
                self.add_shard(single)
            }
            (false, true) => self.read_index(&index),
            (false, false) => Err(index::no_weights(&self.folder)),
        }
    }

    fn read_index(&mut self, path: &Path) -> Result<(), BuildError> {
        let index = index::Index::read(path)?;
        index.require_shards(&self.folder)?;
        for shard in index.shards() {
            self.add_shard(self.folder.join(shard))?;
        }
        self.warnings.extend(index.strangers(path, &self.folder));
        let extra = index.check(path, &self.located())?;
        if extra > 0 {
            self.warnings.push(format!(
                "{}: does not list {extra} tensors that its files hold; they are not used",
                path.display()
            ));
            self.tensors.retain(|name, _| index.lists(name));
        }
        Ok(())
    }

    fn located(&self) -> BTreeMap<&str, &Path> {
        let place = |(name, tensor): (_, &Tensor)| {
            Some((
                String::as_str(name),
                self.shards.get(tensor.shard)?.as_path(),
            ))
        };
        self.tensors.iter().filter_map(place).collect()
    }

    fn add_shard(&mut self, path: PathBuf) -> Result<(), BuildError> {
        let shard = self.shards.len();
        for (name, entry) in header::read(&path, &mut self.headers_left)? {
            let tensor = Tensor {
                shard,
                dtype: entry.dtype,
                shape: entry.shape,
                begin: entry.begin,
            };
            if let Some(other) = self.tensors.get(&name) {
                let other = self.shard(other.shard)?.display();
                return Err(BuildError::input(&path, name, format!("is in {other} too")));
            }
            self.tensors.insert(name, tensor);
        }
        if self.tensors.len() > TENSORS {
            let problem = format!("the checkpoint has more than {TENSORS} tensors up to here");
            return Err(BuildError::input(&path, "", problem));
        }
        self.shards.push(path);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
