//! The header of a safetensors file, read as strictly as the format is defined: tensors fill the
//! data without overlap or hole, names are unique, and lengths follow from type and shape.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::file;
use super::unique::Unique;
use crate::error::BuildError;
use crate::limits::{HEADER_BYTES, TENSOR_AXES};

/// Bytes before the header: its length, little-endian.
const PREFIX: u64 = 8;

/// A tensor as its header describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    /// First byte, from the start of the file.
    pub(super) begin: u64,
    /// One past the last byte.
    end: u64,
}

/// Reads and checks the header of one file, of which at most `left` bytes are read.
pub(super) fn read(path: &Path, left: &mut u64) -> Result<BTreeMap<String, Entry>, BuildError> {
    let whole = |problem: String| BuildError::input(path, "", problem);
    let file = file::open(path)?;
    let length = file.metadata().map_err(BuildError::read(path))?.len();
    if length < PREFIX {
        return Err(whole(format!(
            "is truncated: {length} bytes, no safetensors header"
        )));
    }
    let mut prefix = [0; 8];
    file::read_exact_at(&file, &mut prefix, 0).map_err(BuildError::read(path))?;
    let header = u64::from_le_bytes(prefix);
    if header > HEADER_BYTES {
        return Err(whole(format!(
            "is not a safetensors file: it announces a header of {header} bytes, more than \
             {HEADER_BYTES}"
        )));
    }
    *left = left.checked_sub(header).ok_or_else(|| {
        whole(format!(
            "has a header of {header} bytes: all headers of a checkpoint have more than {HEADER_BYTES} bytes"
        ))
    })?;
    if header > length - PREFIX {
        return Err(whole(format!(
            "is truncated: a header of {header} bytes is announced, {} follow",
            length - PREFIX
        )));
    }
    let size = usize::try_from(header).map_err(|error| whole(error.to_string()))?;
    let mut json = vec![0; size];
    file::read_exact_at(&file, &mut json, PREFIX).map_err(BuildError::read(path))?;
    parse(&json, PREFIX + header, length)
        .map_err(|fault| BuildError::input(path, fault.key, fault.problem))
}

/// What is wrong with a header, and with which tensor.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    key: String,
    problem: String,
}

/// `data` is where the data begins in the file, `length` the length of the file.
fn parse(json: &[u8], data: u64, length: u64) -> Result<BTreeMap<String, Entry>, Fault> {
    let whole = |problem: String| Fault {
        key: String::new(),
        problem,
    };
    if json.first() != Some(&b'{') {
        return Err(whole(
            "is not a safetensors file: the header is not a JSON object".to_owned(),
        ));
    }
    let invalid =
        |error: &dyn fmt::Display| whole(format!("has an invalid safetensors header: {error}"));
    // As text: of bytes, what nobody asks for would not be looked at.
    let text = std::str::from_utf8(json).map_err(|error| invalid(&error))?;
    let raw: Unique<RawTensor> = serde_json::from_str(text).map_err(|error| invalid(&error))?;
    let mut tensors = BTreeMap::new();
    for (name, raw) in raw.0 {
        let entry = raw.place(data, length).map_err(|problem| Fault {
            key: name.clone(),
            problem,
        })?;
        tensors.insert(name, entry);
    }
    check_cover(&tensors, data, length)?;
    Ok(tensors)
}

/// Every byte of the data belongs to exactly one tensor.
fn check_cover(tensors: &BTreeMap<String, Entry>, data: u64, length: u64) -> Result<(), Fault> {
    let mut order: Vec<_> = tensors.iter().collect();
    order.sort_by_key(|(_, entry)| (entry.begin, entry.end));
    let mut reached = data;
    let mut previous = "";
    for (name, entry) in order {
        let problem = match entry.begin.cmp(&reached) {
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Less => Some(format!("overlaps {previous}")),
            std::cmp::Ordering::Greater => Some(format!(
                "begins {} bytes after the end of what precedes it",
                entry.begin - reached
            )),
        };
        if let Some(problem) = problem {
            return Err(Fault {
                key: name.clone(),
                problem,
            });
        }
        reached = entry.end;
        previous = name;
    }
    if reached != length {
        return Err(Fault {
            key: String::new(),
            problem: format!("holds {} bytes that belong to no tensor", length - reached),
        });
    }
    Ok(())
}

/// The header as JSON. Unknown keys of a tensor are ignored, as the reference reader does.
#[derive(Debug, Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Shape,
    data_offsets: [u64; 2],
}

impl RawTensor {
    fn place(self, data: u64, length: u64) -> Result<Entry, String> {
        let [begin, end] = self.data_offsets;
        if begin > end {
            return Err(format!("data_offsets run backwards: {begin} to {end}"));
        }
        if end > length - data {
            return Err(format!(
                "data_offsets {begin} to {end} are outside of the {} bytes of data: the file is \
                 truncated or the header wrong",
                length - data
            ));
        }
        let overflow = || format!("shape {:?} overflows", self.shape.0);
        let elements = (self.shape.0.iter())
            .try_fold(1_u64, |product, &extent| product.checked_mul(extent))
            .ok_or_else(overflow)?;
        if let Some(bits) = bits(&self.dtype) {
            let expected = elements.checked_mul(bits).ok_or_else(overflow)?;
            if expected != (end - begin) * 8 {
                return Err(format!(
                    "{} {:?} takes {} bytes; data_offsets give {}",
                    self.dtype,
                    self.shape.0,
                    expected.div_ceil(8),
                    end - begin
                ));
            }
        }
        Ok(Entry {
            dtype: self.dtype,
            shape: self.shape.0,
            begin: data + begin,
            end: data + end,
        })
    }
}

/// Bits per element; `None` for a type of a later format, which is refused where it is used.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// Extents of a tensor, at most [`TENSOR_AXES`].
#[derive(Debug)]
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Extents)
    }
}

struct Extents;

impl<'de> Visitor<'de> for Extents {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a shape of at most {TENSOR_AXES} axes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let mut extents = Vec::new();
        while let Some(extent) = seq.next_element()? {
            if extents.len() == TENSOR_AXES {
                return Err(A::Error::invalid_length(TENSOR_AXES + 1, &self));
            }
            extents.push(extent);
        }
        Ok(Shape(extents))
    }
}

#[cfg(test)]
mod tests;
