//! Vectors in plain Rust, for whatever the compiler may assume of every machine of the target.

#![allow(unsafe_code)]

use super::Isa;

/// No instruction set in particular.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Baseline;

const LANES: usize = 4;

impl Isa for Baseline {
    type Vector = [f32; LANES];

    const LANES: usize = LANES;

    const WIDE: bool = cfg!(target_arch = "aarch64");

    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        if cfg!(target_arch = "aarch64") {
            a.mul_add(b, c)
        } else {
            a * b + c
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Vector {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::Vector {
        // SAFETY: the caller vouches for the floats; the read may be unaligned.
        unsafe { from.cast::<Self::Vector>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, len: usize) -> Self::Vector {
        let mut vector = [0.0; LANES];
        // SAFETY: the caller vouches for `len` floats, which fit the vector.
        unsafe { std::ptr::copy_nonoverlapping(from, vector.as_mut_ptr(), len) };
        vector
    }

    #[inline(always)]
    unsafe fn store(self, vector: Self::Vector, to: *mut f32) {
        // SAFETY: the caller vouches for the floats; the write may be unaligned.
        unsafe { to.cast::<Self::Vector>().write_unaligned(vector) };
    }

    #[inline(always)]
    unsafe fn store_part(self, vector: Self::Vector, to: *mut f32, len: usize) {
        // SAFETY: the caller vouches for `len` floats, which the vector has.
        unsafe { std::ptr::copy_nonoverlapping(vector.as_ptr(), to, len) };
    }

    #[inline(always)]
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        let ([a, b, c, d], [e, f, g, h]) = (a, b);
        [a * e, b * f, c * g, d * h]
    }

    #[inline(always)]
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        let ([a, b, c, d], [e, f, g, h]) = (a, b);
        [a + e, b + f, c + g, d + h]
    }

    #[inline(always)]
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        let ([a, b, c, d], [e, f, g, h], [i, j, k, l]) = (a, b, c);
        [
            self.fma(a, e, i),
            self.fma(b, f, j),
            self.fma(c, g, k),
            self.fma(d, h, l),
        ]
    }

    #[inline(always)]
    fn sum(self, vector: Self::Vector) -> f32 {
        let [a, b, c, d] = vector;
        (a + c) + (b + d)
    }

    const TURNED: usize = LANES;

    #[inline(always)]
    unsafe fn turn(self, (from, from_row): (*const f32, usize), (to, to_row): (*mut f32, usize)) {
        let rows: [Self::Vector; LANES] = std::array::from_fn(|row| {
            // SAFETY: the caller vouches for the rows.
            unsafe { self.load(from.wrapping_add(row * from_row)) }
        });
        let [[a, b, c, d], [e, f, g, h], [i, j, k, l], [m, n, o, p]] = rows;
        let columns = [[a, e, i, m], [b, f, j, n], [c, g, k, o], [d, h, l, p]];
        for (row, column) in columns.into_iter().enumerate() {
            // SAFETY: the caller vouches for the rows.
            unsafe { self.store(column, to.wrapping_add(row * to_row)) };
        }
    }
}
