//! Small matrix products that stay in the nearest caches.
//!
//! Every element of the result is one chain of multiply-adds in the order of the inner index, so its
//! bits depend neither on how the result is tiled nor on the other rows and columns.

#![allow(unsafe_code)]

use std::ops::Range;

use super::isa::{Isa, versioned};

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

versioned!(
    /// `into = keep * into + left * right`.
    pub(super) fn multiply(extents: Extents, left: Left<'_>, right: Right<'_>, into: Into<'_>)
        => multiply_body
);

#[inline(always)]
fn multiply_body<I: Isa>(
    isa: I,
    extents: Extents,
    left: Left<'_>,
    right: Right<'_>,
    into: Into<'_>,
) {
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
    let product = Product {
        isa,
        left: left.data.as_ptr(),
        left_row: left.row,
        left_column: left.column,
        right: right.data.as_ptr(),
        right_row: right.row,
        into: into.data.as_mut_ptr(),
        into_row: into.row,
        keep: into.keep,
        inner,
        columns,
    };
    let mut row = 0;
    while I::WIDE && row + 8 <= rows {
        product.band::<8>(row);
        row += 8;
    }
    while row + 4 <= rows {
        product.band::<4>(row);
        row += 4;
    }
    while row < rows {
        product.band::<1>(row);
        row += 1;
    }
}

/// Operands whose ranges [`multiply`] checked.
#[derive(Clone, Copy)]
struct Product<I> {
    isa: I,
    left: *const f32,
    left_row: usize,
    left_column: usize,
    right: *const f32,
    right_row: usize,
    into: *mut f32,
    into_row: usize,
    keep: f32,
    inner: usize,
    columns: usize,
}

impl<I: Isa> Product<I> {
    /// `M` rows of the result.
    #[inline(always)]
    fn band<const M: usize>(self, row: usize) {
        let mut column = 0;
        while I::WIDE && M <= 4 && column + 4 * I::LANES <= self.columns {
            self.tile::<M, 4>(row, column, 4 * I::LANES);
            column += 4 * I::LANES;
        }
        while column + 2 * I::LANES <= self.columns {
            self.tile::<M, 2>(row, column, 2 * I::LANES);
            column += 2 * I::LANES;
        }
        while column < self.columns {
            let columns = I::LANES.min(self.columns - column);
            self.tile::<M, 1>(row, column, columns);
            column += columns;
        }
    }

    /// `M` rows and `N` vectors of columns of the result, held in registers; `columns` of them exist.
    #[inline(always)]
    fn tile<const M: usize, const N: usize>(self, row: usize, column: usize, columns: usize) {
        let isa = self.isa;
        let whole = columns == N * I::LANES;
        let mut sums = [[isa.splat(0.0); N]; M];
        if self.keep != 0.0 {
            let keep = isa.splat(self.keep);
            for (m, sums) in sums.iter_mut().enumerate() {
                let from = self.into.wrapping_add((row + m) * self.into_row + column);
                *sums = self
                    .read::<N>(from, columns, whole)
                    .map(|x| isa.mul(keep, x));
            }
        }
        for k in 0..self.inner {
            let from = self.right.wrapping_add(k * self.right_row + column);
            let right = self.read::<N>(from, columns, whole);
            for (m, sums) in sums.iter_mut().enumerate() {
                let at = (row + m) * self.left_row + k * self.left_column;
                let left = self.left.wrapping_add(at);
                // SAFETY: inside the left operand, whose extents `multiply` checked.
                let left = isa.splat(unsafe { *left });
                for (sum, &right) in sums.iter_mut().zip(&right) {
                    *sum = isa.mul_add(left, right, *sum);
                }
            }
        }
        for (m, sums) in sums.iter().enumerate() {
            let to = self.into.wrapping_add((row + m) * self.into_row + column);
            self.write::<N>(sums, to, columns, whole);
        }
    }

    #[inline(always)]
    fn read<const N: usize>(self, from: *const f32, columns: usize, whole: bool) -> [I::Vector; N] {
        std::array::from_fn(|n| {
            let from = from.wrapping_add(n * I::LANES);
            if whole {
                // SAFETY: inside an operand, whose extents `multiply` checked.
                unsafe { self.isa.load(from) }
            } else {
                // SAFETY: as above; a tile that is not whole has one vector.
                unsafe { self.isa.load_part(from, columns) }
            }
        })
    }

    #[inline(always)]
    fn write<const N: usize>(
        self,
        sums: &[I::Vector; N],
        to: *mut f32,
        columns: usize,
        whole: bool,
    ) {
        for (n, &sum) in sums.iter().enumerate() {
            let to = to.wrapping_add(n * I::LANES);
            if whole {
                // SAFETY: inside the result, whose extents `multiply` checked.
                unsafe { self.isa.store(sum, to) };
            } else {
                // SAFETY: as above; a tile that is not whole has one vector.
                unsafe { self.isa.store_part(sum, to, columns) };
            }
        }
    }
}

versioned!(
    /// Writes the transpose of a matrix of `extents` (rows, columns): `from` and `to` are elements and
    /// the distance between rows.
    pub(super) fn transpose(extents: (usize, usize), from: (&[f32], usize), to: (&mut [f32], usize))
        => transpose_body
);

#[inline(always)]
fn transpose_body<I: Isa>(
    isa: I,
    (rows, columns): (usize, usize),
    (from, from_row): (&[f32], usize),
    (to, to_row): (&mut [f32], usize),
) {
    if rows == 0 || columns == 0 {
        return;
    }
    assert!((rows - 1) * from_row + columns <= from.len());
    assert!((columns - 1) * to_row + rows <= to.len());
    let turned = (rows - rows % I::TURNED, columns - columns % I::TURNED);
    for row in (0..turned.0).step_by(I::TURNED) {
        for column in (0..turned.1).step_by(I::TURNED) {
            let from = from.as_ptr().wrapping_add(row * from_row + column);
            let to = to.as_mut_ptr().wrapping_add(column * to_row + row);
            // SAFETY: a block inside both matrices, whose extents were checked above.
            unsafe { isa.turn((from, from_row), (to, to_row)) };
        }
    }
    let mut copy = |row: usize, columns: Range<usize>| {
        for column in columns {
            if let (Some(&x), Some(to)) = (
                from.get(row * from_row + column),
                to.get_mut(column * to_row + row),
            ) {
                *to = x;
            }
        }
    };
    (0..turned.0).for_each(|row| copy(row, turned.1..columns));
    (turned.0..rows).for_each(|row| copy(row, 0..columns));
}

#[cfg(test)]
mod tests {
    use super::super::isa::Level;
    use super::super::testing::{Random, assert_close, assert_same};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn products_are_products(
            seed: u64, rows in 0..20usize, columns in 0..70usize, inner in 0..20usize,
            extra in 0..3usize, keep in prop_oneof![Just(0.0_f32), Just(1.0), Just(-0.5)],
        ) {
            let mut random = Random::new(seed);
            let left = random.floats((rows + 1) * (inner + extra + 1), 1.0);
            let right = random.floats((inner + 1) * (columns + extra), 1.0);
            let before = random.floats((rows + 1) * (columns + extra), 1.0);
            let (left_row, row) = (inner + extra + 1, columns + extra);
            for (left_row, column) in [(left_row, 1), (1, rows + 1)] {
                let mut expected: Vec<f64> = before.iter().map(|&x| x.into()).collect();
                for i in 0..rows * columns {
                    let (m, n) = (i / columns, i % columns);
                    let terms = (0..inner).map(|k| {
                        f64::from(left[m * left_row + k * column]) * f64::from(right[k * row + n])
                    });
                    let at = m * row + n;
                    expected[at] = f64::from(keep) * expected[at] + terms.sum::<f64>();
                }
                for level in Level::available() {
                    let mut found = before.clone();
                    multiply(
                        level,
                        Extents { rows, columns, inner },
                        Left { data: &left, row: left_row, column },
                        Right { data: &right, row },
                        Into { data: &mut found, row, keep },
                    );
                    assert_close("product", &found, &expected, 1e-5);
                }
            }
        }

        #[test]
        fn transposes_are_transposes(
            seed: u64, rows in 0..40usize, columns in 0..40usize, extra in 0..3usize,
        ) {
            let (from_row, to_row) = (columns + extra, rows + extra);
            let from = Random::new(seed).floats((rows + 1) * from_row, 1.0);
            let mut expected = vec![0.0; (columns + 1) * to_row];
            for i in 0..rows * columns {
                let (row, column) = (i / columns, i % columns);
                expected[column * to_row + row] = from[row * from_row + column];
            }
            for level in Level::available() {
                let mut found = vec![0.0; expected.len()];
                transpose(level, (rows, columns), (&from, from_row), (&mut found, to_row));
                assert_same("transpose", &found, &expected);
            }
        }
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn a_product_outside_its_operands_is_refused() {
        let extents = Extents {
            rows: 2,
            columns: 4,
            inner: 3,
        };
        let left = Left {
            data: &[0.0; 6],
            row: 3,
            column: 1,
        };
        let right = Right {
            data: &[0.0; 11],
            row: 4,
        };
        let into = Into {
            data: &mut [0.0; 8],
            row: 4,
            keep: 0.0,
        };
        multiply(Level::best(), extents, left, right, into);
    }
}
