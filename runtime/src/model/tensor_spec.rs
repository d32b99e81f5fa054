//! What a graph or a session declares about one of its inputs or outputs.

use crate::device::ElementType;
use std::fmt;

/// An ONNX element type, by its number in the ONNX format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DataType(pub(crate) i32);

/// Number, name and bits of every numeric ONNX element type.
const TABLE: [(i32, &str, u64); 24] = [
    (1, "float32", 32),
    (2, "uint8", 8),
    (3, "int8", 8),
    (4, "uint16", 16),
    (5, "int16", 16),
    (6, "int32", 32),
    (7, "int64", 64),
    (9, "bool", 8),
    (10, "float16", 16),
    (11, "float64", 64),
    (12, "uint32", 32),
    (13, "uint64", 64),
    (14, "complex64", 64),
    (15, "complex128", 128),
    (16, "bfloat16", 16),
    (17, "float8e4m3fn", 8),
    (18, "float8e4m3fnuz", 8),
    (19, "float8e5m2", 8),
    (20, "float8e5m2fnuz", 8),
    (21, "uint4", 4),
    (22, "int4", 4),
    (23, "float4e2m1", 4),
    (25, "uint2", 2),
    (26, "int2", 2),
];

impl DataType {
    pub(crate) const F32: Self = Self(1);
    pub(crate) const I32: Self = Self(6);
    pub(crate) const I64: Self = Self(7);
    pub(crate) const F16: Self = Self(10);
    pub(crate) const BF16: Self = Self(16);
    pub(crate) const I8: Self = Self(3);

    /// The type of a persistent buffer with these elements; `None` for one that no buffer holds.
    pub(crate) fn element(self) -> Option<ElementType> {
        Some(match self {
            Self::F32 => ElementType::F32,
            Self::F16 => ElementType::F16,
            Self::BF16 => ElementType::Bf16,
            Self::I64 => ElementType::I64,
            Self::I32 => ElementType::I32,
            Self::I8 => ElementType::I8,
            _ => return None,
        })
    }

    /// Bytes of `count` elements; `None` for strings, unknown types and overflow.
    pub(crate) fn bytes(self, count: u64) -> Option<u64> {
        let (_, _, bits) = TABLE.iter().find(|(number, ..)| *number == self.0)?;
        Some(count.checked_mul(*bits)?.div_ceil(8))
    }
}

impl From<ElementType> for DataType {
    fn from(element: ElementType) -> Self {
        match element {
            ElementType::F32 => Self::F32,
            ElementType::F16 => Self::F16,
            ElementType::Bf16 => Self::BF16,
            ElementType::I64 => Self::I64,
            ElementType::I32 => Self::I32,
            ElementType::I8 => Self::I8,
        }
    }
}

impl From<genai_config_schema::ElementType> for DataType {
    fn from(element: genai_config_schema::ElementType) -> Self {
        use genai_config_schema::ElementType as Word;
        match element {
            Word::Float32 => Self::F32,
            Word::Float16 => Self::F16,
            Word::Bfloat16 => Self::BF16,
            Word::Int8 => Self::I8,
            Word::Int32 => Self::I32,
            Word::Int64 => Self::I64,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TABLE.iter().find(|(number, ..)| *number == self.0) {
            Some((_, name, _)) => f.write_str(name),
            None => write!(f, "ONNX type {}", self.0),
        }
    }
}

/// One extent of a declared shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dim {
    /// Known when the graph was made.
    Fixed(u64),
    /// Known at run time; the symbol may be empty.
    Symbol(String),
}

impl Dim {
    /// The extent, if it is fixed.
    pub(crate) fn fixed(&self) -> Option<u64> {
        match self {
            Self::Fixed(extent) => Some(*extent),
            Self::Symbol(_) => None,
        }
    }

    /// Whether both may be the same extent: a symbol may be any.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        match (self.fixed(), other.fixed()) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(extent) => write!(f, "{extent}"),
            Self::Symbol(name) if name.is_empty() => f.write_str("?"),
            Self::Symbol(name) => f.write_str(name),
        }
    }
}

/// Name, element type and shape of one graph input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorSpec {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    /// `None` when the graph declares no shape: then any rank is possible.
    pub(crate) dims: Option<Vec<Dim>>,
}

impl TensorSpec {
    /// The extent of axis `axis`, if it is declared and fixed.
    pub(crate) fn fixed(&self, axis: usize) -> Option<u64> {
        self.dims.as_ref()?.get(axis)?.fixed()
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.data_type)?;
        match &self.dims {
            Some(dims) => {
                let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", dims.join(", "))
            }
            None => f.write_str("of undeclared shape"),
        }
    }
}
