//! Memory that several threads write at once, each its own part.

#![allow(unsafe_code)]

use std::marker::PhantomData;

/// A run of `f32` of which threads hold disjoint parts.
///
/// It is a pointer, never a slice: a state bank is read and written in the same step, and a shared
/// and an exclusive slice of the whole must not exist together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cells<'a> {
    start: *mut f32,
    len: usize,
    memory: PhantomData<&'a mut [f32]>,
}

// SAFETY: the parts handed out by `part` and `part_mut` are disjoint by their contracts, and `f32`
// may be used from any thread.
unsafe impl Send for Cells<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Cells<'_> {}

impl<'a> Cells<'a> {
    /// Shares out a slice.
    pub(crate) fn new(memory: &'a mut [f32]) -> Self {
        Self {
            start: memory.as_mut_ptr(),
            len: memory.len(),
            memory: PhantomData,
        }
    }

    /// Shares out foreign memory.
    ///
    /// # Safety
    /// `start` must be valid for reads and writes of `len` elements for `'a`, initialised, and
    /// reached by nothing else meanwhile.
    pub(crate) const unsafe fn from_raw(start: *mut f32, len: usize) -> Self {
        Self {
            start,
            len,
            memory: PhantomData,
        }
    }

    /// Elements in all.
    pub(crate) const fn len(self) -> usize {
        self.len
    }

    /// Address of the first element.
    pub(crate) const fn as_ptr(self) -> *const f32 {
        self.start.cast_const()
    }

    /// Elements `start .. start + len`, for reading.
    ///
    /// # Safety
    /// No [`Cells::part_mut`] that overlaps may be alive or made while the result is.
    pub(crate) unsafe fn part(self, start: usize, len: usize) -> &'a [f32] {
        let from = self.offset(start, len);
        // SAFETY: `offset` checked the bounds; the caller rules out writers.
        unsafe { std::slice::from_raw_parts(from, len) }
    }

    /// Elements `start .. start + len`, for writing.
    ///
    /// # Safety
    /// No other part that overlaps may be alive or made while the result is.
    pub(crate) unsafe fn part_mut(self, start: usize, len: usize) -> &'a mut [f32] {
        let from = self.offset(start, len);
        // SAFETY: `offset` checked the bounds; the caller rules out other users.
        unsafe { std::slice::from_raw_parts_mut(from, len) }
    }

    fn offset(self, start: usize, len: usize) -> *mut f32 {
        let fits = start.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "{start} + {len} elements of {}", self.len);
        // SAFETY: `start <= self.len`, so the result is inside the allocation or one past it.
        unsafe { self.start.add(start) }
    }
}
