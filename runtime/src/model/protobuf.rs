//! The fields of a protobuf message in a file, within bounds.
//!
//! ONNX Runtime reads the same bytes with another reader, and what one of the two takes for something else was not
//! checked. So whatever readers understand in different ways is refused.

use crate::limits::{
    GRAPH_BYTES, GRAPH_FIELDS, GRAPH_ITEMS, GRAPH_NAME_BYTES, GRAPH_SHAPE_BYTES, GRAPH_TEXT_BYTES,
};
use genai_config_schema::open_regular;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::Path;

/// What may still be read of the graphs of one model, all of them together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    fields: usize,
    /// Nodes, tensors, inputs and outputs.
    items: usize,
    /// Bytes of names.
    text: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            fields: GRAPH_FIELDS,
            items: GRAPH_ITEMS,
            text: GRAPH_TEXT_BYTES,
        }
    }
}

/// The value of one field.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Number(u64),
    /// Where a string, message or packed list lies in the file.
    Bytes(Range<u64>),
    /// A fixed-size value, skipped: nothing that is read here has one.
    Fixed,
}

pub(super) type Field = (u64, Value);

/// A reader over a file: every length is checked against the message that holds it.
pub(super) struct Reader<'a> {
    file: BufReader<File>,
    position: u64,
    left: &'a mut Allowance,
    /// Graphs inside each other, here.
    pub(super) depth: usize,
}

pub(super) fn malformed(at: u64, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} (at byte {at})"))
}

/// Puts a message where there may be only one: protobuf readers make one message of two, field by field.
pub(super) fn only<T>(place: &mut Option<T>, value: T, at: u64, what: &str) -> io::Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(malformed(at, &format!("a second {what} in one message"))),
    }
}

impl<'a> Reader<'a> {
    /// Opens a file. Returns its length as well.
    pub(super) fn open(path: &Path, left: &'a mut Allowance) -> io::Result<(Self, u64)> {
        let (file, end) = open_regular(path)?;
        if end > GRAPH_BYTES {
            let what = format!("more than the {GRAPH_BYTES} bytes that an ONNX file can have");
            return Err(malformed(GRAPH_BYTES, &what));
        }
        let reader = Self {
            file: BufReader::new(file),
            position: 0,
            left,
            depth: 0,
        };
        Ok((reader, end))
    }

    /// Calls `visit` for each field of the message at `range`, in order.
    pub(super) fn each_field(
        &mut self,
        range: Range<u64>,
        mut visit: impl FnMut(&mut Self, Field) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            self.go_to(at)?;
            let field = self.field(range.end)?;
            at = match &field.1 {
                Value::Bytes(bytes) => bytes.end,
                Value::Number(_) | Value::Fixed => self.position,
            };
            visit(self, field)?;
        }
        Ok(())
    }

    fn field(&mut self, end: u64) -> io::Result<Field> {
        let left = self.left.fields.checked_sub(1);
        self.left.fields = left.ok_or_else(|| malformed(self.position, "too many fields"))?;
        let tag = self.varint(end)?;
        let refused = |what| Err(malformed(self.position, what));
        // Others cut a longer number to 32 bits.
        if tag > u64::from(u32::MAX) {
            return refused("not an ONNX file: a field with too large a number");
        }
        if tag >> 3 == 0 {
            return refused("not an ONNX file: a field without a number");
        }
        let value = match tag & 7 {
            0 => Value::Number(self.varint(end)?),
            1 => self.fixed(8, end)?,
            2 => {
                let length = self.varint(end)?;
                Value::Bytes(self.position..self.bounded(length, end)?)
            }
            5 => self.fixed(4, end)?,
            _ => return refused("not an ONNX file: unknown field type"),
        };
        Ok((tag >> 3, value))
    }

    fn fixed(&mut self, length: u64, end: u64) -> io::Result<Value> {
        let next = self.bounded(length, end)?;
        self.go_to(next)?;
        Ok(Value::Fixed)
    }

    fn bounded(&self, length: u64, end: u64) -> io::Result<u64> {
        self.position
            .checked_add(length)
            .filter(|next| *next <= end)
            .ok_or_else(|| malformed(self.position, "a field is longer than what holds it"))
    }

    fn varint(&mut self, end: u64) -> io::Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let next = self.bounded(1, end)?;
            let mut byte = [0u8];
            self.file.read_exact(&mut byte)?;
            self.position = next;
            let [byte] = byte;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed(self.position, "a number of more than 64 bits"))
    }

    fn go_to(&mut self, position: u64) -> io::Result<()> {
        let distance = i64::try_from(i128::from(position) - i128::from(self.position))
            .map_err(|_| malformed(position, "a position outside of the file"))?;
        self.file.seek_relative(distance)?;
        self.position = position;
        Ok(())
    }

    pub(super) fn text(&mut self, range: Range<u64>) -> io::Result<String> {
        let start = range.start;
        let bytes = self.bytes(range, GRAPH_NAME_BYTES)?;
        String::from_utf8(bytes).map_err(|_| malformed(start, "a name that is not UTF-8"))
    }

    pub(super) fn bytes(&mut self, range: Range<u64>, longest: u64) -> io::Result<Vec<u8>> {
        let length = range.end.saturating_sub(range.start);
        self.left.text = self.left.text.saturating_sub(length);
        if length > longest || self.left.text == 0 {
            return Err(malformed(range.start, "names or shapes that are too long"));
        }
        self.go_to(range.start)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.file.read_exact(&mut bytes)?;
        self.position = range.end;
        Ok(bytes)
    }

    /// Adds the numbers of a packed list.
    pub(super) fn packed(&mut self, range: Range<u64>, numbers: &mut Vec<u64>) -> io::Result<()> {
        if range.end.saturating_sub(range.start) > GRAPH_SHAPE_BYTES {
            return Err(malformed(range.start, "a name or shape that is too long"));
        }
        self.go_to(range.start)?;
        while self.position < range.end {
            let number = self.varint(range.end)?;
            numbers.push(number);
        }
        Ok(())
    }

    /// Adds one more item, within the bound.
    pub(super) fn put<T>(&mut self, items: &mut Vec<T>, item: T) -> io::Result<()> {
        let too_many = || {
            let what = format!("more than {GRAPH_ITEMS} nodes, tensors, inputs and outputs");
            malformed(self.position, &what)
        };
        self.left.items = self.left.items.checked_sub(1).ok_or_else(too_many)?;
        items.push(item);
        Ok(())
    }
}
