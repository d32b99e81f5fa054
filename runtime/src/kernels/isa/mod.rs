//! Choosing instructions at run time.
//!
//! A kernel is written once, as an `#[inline(always)]` body over an [`Isa`]; [`versioned!`] compiles it
//! once per instruction set. Element-wise loops are left to the compiler, sums use [`Isa::Vector`].
//! Which version runs depends on the machine only, never on the data, so results do not vary within a
//! machine.
//!
//! A body must not hand closures with arithmetic to functions that are not inlined: those would be
//! compiled for the baseline, where a fused multiply-add is a call into the C library.

#![allow(unsafe_code)]

mod baseline;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use baseline::Baseline;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// An instruction set that bodies are compiled for. A value of the type proves that the machine has it.
pub(crate) trait Isa: Copy {
    /// Some floats in a register.
    type Vector: Copy;

    /// Floats of a vector.
    const LANES: usize;

    /// Whether there are 32 vector registers.
    const WIDE: bool;

    /// `a * b + c`, fused where the machine does that at full speed.
    fn fma(self, a: f32, b: f32, c: f32) -> f32;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::Vector;

    /// The floats from `from` on.
    ///
    /// # Safety
    /// `from` must be valid for reads of [`Isa::LANES`] floats.
    unsafe fn load(self, from: *const f32) -> Self::Vector;

    /// The first `len` lanes from `from` on, and zeros.
    ///
    /// # Safety
    /// `from` must be valid for reads of `len` floats, at most [`Isa::LANES`].
    unsafe fn load_part(self, from: *const f32, len: usize) -> Self::Vector;

    /// Writes all lanes.
    ///
    /// # Safety
    /// `to` must be valid for writes of [`Isa::LANES`] floats.
    unsafe fn store(self, vector: Self::Vector, to: *mut f32);

    /// Writes the first `len` lanes.
    ///
    /// # Safety
    /// `to` must be valid for writes of `len` floats, at most [`Isa::LANES`].
    unsafe fn store_part(self, vector: Self::Vector, to: *mut f32, len: usize);

    /// `a * b`, lane by lane.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a + b`, lane by lane.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// As [`Isa::fma`], lane by lane.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// The sum of the lanes, always in the same order.
    fn sum(self, vector: Self::Vector) -> f32;

    /// As [`Isa::sum`], of four vectors at once and in another order.
    #[inline(always)]
    fn sums(self, vectors: [Self::Vector; 4]) -> [f32; 4] {
        vectors.map(|vector| self.sum(vector))
    }

    /// Rows and columns of the block that [`Isa::turn`] transposes.
    const TURNED: usize;

    /// Transposes a block of [`Isa::TURNED`] rows and columns, rows `from.1` and `to.1` floats apart.
    ///
    /// # Safety
    /// All rows must be valid, for reads from `from` and for writes to `to`.
    unsafe fn turn(self, from: (*const f32, usize), to: (*mut f32, usize));

    /// Asks for a cache line that will be written: a hint, which reads and writes nothing and may point anywhere.
    #[inline(always)]
    fn fetch(self, line: *const f32) {
        let _ = line;
    }

    /// The first [`Isa::LANES`] floats of a slice, or all of a shorter one and zeros.
    #[inline(always)]
    fn get(self, from: &[f32]) -> Self::Vector {
        if from.len() >= Self::LANES {
            // SAFETY: there are enough.
            unsafe { self.load(from.as_ptr()) }
        } else {
            // SAFETY: no more than there are.
            unsafe { self.load_part(from.as_ptr(), from.len()) }
        }
    }

    /// Replaces the first [`Isa::LANES`] floats of a slice, or all of a shorter one.
    #[inline(always)]
    fn set(self, to: &mut [f32], vector: Self::Vector) {
        if to.len() >= Self::LANES {
            // SAFETY: there are enough.
            unsafe { self.store(vector, to.as_mut_ptr()) }
        } else {
            // SAFETY: no more than there are.
            unsafe { self.store_part(vector, to.as_mut_ptr(), to.len()) }
        }
    }
}

/// An instruction set this machine has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    /// What every machine of the target has.
    Baseline(Baseline),
    /// x86-64 with AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// x86-64 with AVX-512 (F, VL, BW, DQ).
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Level {
    /// The widest.
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx512) = Avx512::detect() {
            return Self::Avx512(avx512);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Avx2::detect() {
            return Self::Avx2(avx2);
        }
        Self::Baseline(Baseline)
    }

    /// All, narrowest first.
    #[cfg(test)]
    pub(crate) fn available() -> Vec<Self> {
        let mut levels = vec![Self::Baseline(Baseline)];
        #[cfg(target_arch = "x86_64")]
        levels.extend(Avx2::detect().map(Self::Avx2));
        #[cfg(target_arch = "x86_64")]
        levels.extend(Avx512::detect().map(Self::Avx512));
        levels
    }
}

/// Defines `fn name(level, args..)`, which runs `body(isa, args..)` compiled for `level`.
macro_rules! versioned {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) => $body:ident) => {
        $(#[$meta])*
        $vis fn $name(level: $crate::kernels::isa::Level, $($arg: $ty),*) {
            use $crate::kernels::isa;
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2(isa: isa::Avx2, $($arg: $ty),*) {
                $body(isa, $($arg),*);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
            fn avx512(isa: isa::Avx512, $($arg: $ty),*) {
                $body(isa, $($arg),*);
            }
            match level {
                isa::Level::Baseline(isa) => $body(isa, $($arg),*),
                // SAFETY: `isa` proves that the machine has these features.
                #[cfg(target_arch = "x86_64")]
                isa::Level::Avx2(isa) => unsafe { avx2(isa, $($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                isa::Level::Avx512(isa) => unsafe { avx512(isa, $($arg),*) },
            }
        }
    };
}
pub(crate) use versioned;

#[cfg(test)]
mod tests {
    use super::*;

    fn check<I: Isa>(isa: I) {
        let from: Vec<f32> = (1..=40_u8).map(f32::from).collect();
        let lanes = |vector: I::Vector| {
            let mut to = vec![0.0; I::LANES];
            isa.set(&mut to, vector);
            to
        };
        for len in 0..=I::LANES {
            let mut expected = from[..len].to_vec();
            let vector = isa.get(&from[..len]);
            let total: f32 = expected.iter().sum();
            assert_eq!(isa.sum(vector), total);
            let mut part = vec![-1.0; I::LANES + 1];
            isa.set(&mut part[..len], isa.get(&from));
            assert_eq!(part[..len], from[..len]);
            assert!(part[len..].iter().all(|&x| x == -1.0));
            expected.resize(I::LANES, 0.0);
            assert_eq!(lanes(vector), expected);
        }
        let four = [0, 1, 2, 3].map(|at| isa.get(&from[at..]));
        assert_eq!(isa.sums(four), four.map(|vector| isa.sum(vector)));
        let (a, b) = (isa.get(&from[3..]), isa.splat(2.0));
        for lane in 0..I::LANES {
            let x = from[3 + lane];
            assert_eq!(lanes(isa.mul(a, b))[lane], x * 2.0);
            assert_eq!(lanes(isa.add(a, b))[lane], x + 2.0);
            assert_eq!(lanes(isa.mul_add(a, b, a))[lane], x * 3.0);
        }
        assert_eq!(isa.fma(2.0, 3.0, 4.0), 10.0);
    }

    #[test]
    fn vectors_do_what_they_say() {
        for level in Level::available() {
            match level {
                Level::Baseline(isa) => check(isa),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2(isa) => check(isa),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512(isa) => check(isa),
            }
        }
    }
}
