//! Small matrix products that stay in the nearest caches.
//!
//! Every element of the result is one chain of multiply-adds in the order of the inner index, so its
//! bits depend neither on how the result is tiled nor on the other rows and columns.

#![allow(unsafe_code)]

use super::isa::Isa;

/// A matrix read element by element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left<'a> {
    /// Elements.
    pub(super) data: &'a [f32],
    /// Distance between rows.
    pub(super) row: usize,
    /// Distance between columns.
    pub(super) column: usize,
}

/// A matrix read in runs of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Right<'a> {
    /// Elements.
    pub(super) data: &'a [f32],
    /// Distance between rows; columns are adjacent.
    pub(super) row: usize,
}

/// Extents of a product: `[rows, columns] = [rows, inner] * [inner, columns]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    /// Rows of the result.
    pub(super) rows: usize,
    /// Columns of the result.
    pub(super) columns: usize,
    /// Terms of each sum.
    pub(super) inner: usize,
}

/// The result, whose previous elements are multiplied with `keep` first (0 ignores them).
#[derive(Debug)]
pub(super) struct Into<'a> {
    /// Elements.
    pub(super) data: &'a mut [f32],
    /// Distance between rows; columns are adjacent.
    pub(super) row: usize,
    /// What remains of the previous elements.
    pub(super) keep: f32,
}

/// `into = keep * into + left * right`.
#[inline(always)]
pub(super) fn multiply<I: Isa>(extents: Extents, left: Left<'_>, right: Right<'_>, into: Into<'_>) {
    let Extents {
        rows,
        columns,
        inner,
    } = extents;
    if rows == 0 || columns == 0 {
        return;
    }
    if inner > 0 {
        let last_left = (rows - 1) * left.row + (inner - 1) * left.column;
        let last_right = (inner - 1) * right.row + columns - 1;
        assert!(last_left < left.data.len() && last_right < right.data.len());
    }
    assert!((rows - 1) * into.row + columns - 1 < into.data.len());
    let operands = Operands {
        left: left.data.as_ptr(),
        left_row: left.row,
        left_column: left.column,
        right: right.data.as_ptr(),
        right_row: right.row,
        into: into.data.as_mut_ptr(),
        into_row: into.row,
        keep: into.keep,
        inner,
    };
    let mut row = 0;
    let (tall, low) = if I::WIDE { (8, 4) } else { (4, 4) };
    while row + tall <= rows {
        if I::WIDE {
            band::<I, 8>(operands, row, columns);
        } else {
            band::<I, 4>(operands, row, columns);
        }
        row += tall;
    }
    if row + low <= rows {
        band::<I, 4>(operands, row, columns);
        row += low;
    }
    while row < rows {
        band::<I, 1>(operands, row, columns);
        row += 1;
    }
}

/// Pointers whose ranges [`multiply`] checked.
#[derive(Clone, Copy)]
struct Operands {
    left: *const f32,
    left_row: usize,
    left_column: usize,
    right: *const f32,
    right_row: usize,
    into: *mut f32,
    into_row: usize,
    keep: f32,
    inner: usize,
}

/// `M` rows of the result.
#[inline(always)]
fn band<I: Isa, const M: usize>(operands: Operands, row: usize, columns: usize) {
    let mut column = 0;
    while I::WIDE && column + 32 <= columns {
        tile::<I, M, 32>(operands, row, column);
        column += 32;
    }
    while column + 16 <= columns {
        tile::<I, M, 16>(operands, row, column);
        column += 16;
    }
    while column + 4 <= columns {
        tile::<I, M, 4>(operands, row, column);
        column += 4;
    }
    while column < columns {
        tile::<I, M, 1>(operands, row, column);
        column += 1;
    }
}

/// `M` rows and `N` columns of the result, held in registers.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "loops run over the arrays' own extents"
)]
fn tile<I: Isa, const M: usize, const N: usize>(operands: Operands, row: usize, column: usize) {
    let mut sums = [[0.0_f32; N]; M];
    if operands.keep != 0.0 {
        for (m, sums) in sums.iter_mut().enumerate() {
            for (n, sum) in sums.iter_mut().enumerate() {
                let at = (row + m) * operands.into_row + column + n;
                // SAFETY: inside the result, whose extents `multiply` checked.
                *sum = operands.keep * unsafe { *operands.into.add(at) };
            }
        }
    }
    for k in 0..operands.inner {
        let mut right = [0.0_f32; N];
        for (n, r) in right.iter_mut().enumerate() {
            let at = k * operands.right_row + column + n;
            // SAFETY: inside the right operand, whose extents `multiply` checked.
            *r = unsafe { *operands.right.add(at) };
        }
        for (m, sums) in sums.iter_mut().enumerate() {
            let at = (row + m) * operands.left_row + k * operands.left_column;
            // SAFETY: inside the left operand, whose extents `multiply` checked.
            let l = unsafe { *operands.left.add(at) };
            for n in 0..N {
                sums[n] = I::fma(l, right[n], sums[n]);
            }
        }
    }
    for (m, sums) in sums.iter().enumerate() {
        for (n, &sum) in sums.iter().enumerate() {
            let at = (row + m) * operands.into_row + column + n;
            // SAFETY: inside the result, whose extents `multiply` checked.
            unsafe { *operands.into.add(at) = sum };
        }
    }
}

/// Writes the transpose of `from` (`[rows, columns]`, rows `from_row` apart) to `to`
/// (`[columns, rows]`, rows `to_row` apart).
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "loops run over checked extents")]
pub(super) fn transpose(
    (rows, columns): (usize, usize),
    (from, from_row): (&[f32], usize),
    (to, to_row): (&mut [f32], usize),
) {
    for r in 0..rows {
        let from = &from[r * from_row..r * from_row + columns];
        for (c, &x) in from.iter().enumerate() {
            to[c * to_row + r] = x;
        }
    }
}
