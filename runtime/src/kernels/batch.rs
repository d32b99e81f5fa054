//! The rows of a packed batch, checked before any kernel touches memory.

#![expect(
    clippy::indexing_slicing,
    reason = "indices are rows, checked when the batch was read"
)]

use std::ops::Range;

use super::error::KernelError;

/// Which packed tokens belong to which row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    starts: Vec<usize>,
}

impl Batch {
    /// Reads `cumulative_sequence_lengths`, `[rows + 1]`, rising strictly from 0 to `tokens`.
    pub(crate) fn read(&mut self, cumulative: &[i32], tokens: usize) -> Result<(), KernelError> {
        let refuse = |index, found| {
            Err(KernelError::Cumulative {
                tokens,
                index,
                found,
            })
        };
        self.starts.clear();
        for (index, &value) in cumulative.iter().enumerate() {
            let Ok(start) = usize::try_from(value) else {
                return refuse(index, value);
            };
            let fits = self.starts.last().map_or(start == 0, |&last| start > last);
            if !fits || start > tokens {
                return refuse(index, value);
            }
            self.starts.push(start);
        }
        match self.starts.last() {
            Some(&last) if last == tokens => Ok(()),
            Some(_) => refuse(cumulative.len() - 1, cumulative[cumulative.len() - 1]),
            None => refuse(0, 0),
        }
    }

    /// Rows of the batch.
    pub(crate) fn rows(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Packed tokens of a row.
    pub(crate) fn range(&self, row: usize) -> Range<usize> {
        self.starts[row]..self.starts[row + 1]
    }
}

/// The bank row each batch row starts from and the one it leaves its final state in.
#[derive(Clone, Debug, Default)]
pub(crate) struct BankRows {
    read: Vec<usize>,
    write: Vec<Option<usize>>,
    written: Vec<bool>,
}

impl BankRows {
    /// Reads `read_rows` (in `[0, bank_rows)`) and `write_rows` (-1, or in `[0, bank_rows - 1)`: the
    /// last row stays zero). A written row is written by one batch row and read by none.
    pub(crate) fn read(
        &mut self,
        read: &[i32],
        write: &[i32],
        bank_rows: usize,
    ) -> Result<(), KernelError> {
        self.read.clear();
        self.write.clear();
        for (row, &value) in read.iter().enumerate() {
            let at = in_range("read_rows", row, value, 0, bank_rows.saturating_sub(1))?;
            self.read.push(at.unsigned_abs() as usize);
        }
        for (row, &value) in write.iter().enumerate() {
            let high = bank_rows.saturating_sub(2);
            let low = if bank_rows > 1 { 0 } else { -1 };
            let at = if value == -1 {
                -1
            } else {
                in_range("write_rows", row, value, low, high)?
            };
            self.write.push(usize::try_from(at).ok());
        }
        self.refuse_conflicts(bank_rows)
    }

    fn refuse_conflicts(&mut self, bank_rows: usize) -> Result<(), KernelError> {
        self.written.clear();
        self.written.resize(bank_rows, false);
        for (row, bank_row) in self.write.iter().enumerate() {
            let Some(bank_row) = *bank_row else { continue };
            if std::mem::replace(&mut self.written[bank_row], true) {
                return Err(KernelError::BankConflict {
                    bank_row,
                    row,
                    other: "by another row",
                });
            }
        }
        for &bank_row in &self.read {
            if self.written[bank_row] {
                let row = self
                    .write
                    .iter()
                    .position(|&w| w == Some(bank_row))
                    .unwrap_or_default();
                return Err(KernelError::BankConflict {
                    bank_row,
                    row,
                    other: "read in this step",
                });
            }
        }
        Ok(())
    }

    /// Rows of the batch.
    pub(crate) fn len(&self) -> usize {
        self.read.len()
    }

    /// Bank row that batch row `row` starts from.
    pub(crate) fn source(&self, row: usize) -> usize {
        self.read[row]
    }

    /// Bank row that batch row `row` leaves its final state in, if any.
    pub(crate) fn target(&self, row: usize) -> Option<usize> {
        self.write[row]
    }
}

/// What a checkpoint slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointForm {
    /// Nothing: the node has no checkpoints.
    None,
    /// The transition of one token.
    Update,
    /// The whole state after one token.
    State,
}

impl CheckpointForm {
    /// Reads the attribute `checkpoint_form`; absent is none.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, KernelError> {
        match text {
            None | Some("none") => Ok(Self::None),
            Some("update") => Ok(Self::Update),
            Some("state") => Ok(Self::State),
            Some(other) => Err(KernelError::Attribute {
                name: "checkpoint_form",
                expected: "\"state\", \"update\" or \"none\"",
                found: format!("{other:?}"),
            }),
        }
    }
}

/// Most slots a node may have.
const MAX_SLOTS: i64 = 8;

/// The checkpoint attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoints {
    /// What a slot holds.
    pub(crate) form: CheckpointForm,
    /// Slots on a step that captures; 0 when `form` is none.
    pub(crate) slots: usize,
}

impl Checkpoints {
    /// Reads the attributes `checkpoint_form` and `checkpoint_count` (0..=8).
    pub(crate) fn parse(form: Option<&str>, count: Option<i64>) -> Result<Self, KernelError> {
        let form = CheckpointForm::parse(form)?;
        let count = count.unwrap_or(0);
        if !(0..=MAX_SLOTS).contains(&count) {
            return Err(KernelError::Attribute {
                name: "checkpoint_count",
                expected: "in 0..=8",
                found: count.to_string(),
            });
        }
        let slots = if form == CheckpointForm::None {
            0
        } else {
            usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX)
        };
        Ok(Self { form, slots })
    }
}

/// How many leading tokens of each row are captured in this step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Captures {
    counts: Vec<usize>,
    any: bool,
}

impl Captures {
    /// Reads `capture_counts`, `[rows]`, each in `0..=min(slots, tokens of the row)`; absent captures
    /// nothing. A row that is captured in state form has at most as many tokens as there are slots.
    pub(crate) fn read(
        &mut self,
        counts: Option<&[i32]>,
        batch: &Batch,
        checkpoints: Checkpoints,
    ) -> Result<(), KernelError> {
        self.counts.clear();
        self.counts.resize(batch.rows(), 0);
        self.any = false;
        let slots = checkpoints.slots;
        for (row, &count) in counts.unwrap_or_default().iter().enumerate() {
            let tokens = batch.range(row).len();
            let at = in_range("capture_counts", row, count, 0, slots.min(tokens))?;
            if at > 0 && checkpoints.form == CheckpointForm::State && tokens > slots {
                let (high, found) = (signed(slots), signed(tokens));
                let name = "tokens of a captured row";
                return Err(KernelError::Range {
                    name,
                    row,
                    low: 1,
                    high,
                    found,
                });
            }
            self.counts[row] = at.unsigned_abs() as usize;
            self.any |= at > 0;
        }
        Ok(())
    }

    /// Whether any row is captured.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Leading tokens of `row` that are captured.
    pub(crate) fn count(&self, row: usize) -> usize {
        self.counts[row]
    }
}

/// Checks one value of a per-row input.
pub(crate) fn in_range(
    name: &'static str,
    row: usize,
    found: i32,
    low: i32,
    high: usize,
) -> Result<i32, KernelError> {
    if found >= low && i64::from(found) <= signed(high) {
        return Ok(found);
    }
    let (low, found) = (i64::from(low), i64::from(found));
    Err(KernelError::Range {
        name,
        row,
        low,
        high: signed(high),
        found,
    })
}

fn signed(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
