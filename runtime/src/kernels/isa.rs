//! Choosing instructions at run time.
//!
//! A kernel is written once, as an `#[inline(always)]` body over an [`Isa`], in loops that LLVM
//! turns into vector code; [`versioned!`] compiles it once per instruction set. Which one runs
//! depends on the machine only, never on the data, so results do not vary within a machine.

#![allow(unsafe_code)]

/// An instruction set that bodies are compiled for.
pub(crate) trait Isa: Copy {
    /// Whether vectors hold 16 floats and there are 32 of them.
    const WIDE: bool;

    /// `a * b + c`, fused where the machine does that at full speed.
    fn fma(a: f32, b: f32, c: f32) -> f32;
}

/// Whatever the compiler may assume of every machine of the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Baseline;

impl Isa for Baseline {
    const WIDE: bool = false;

    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        if cfg!(target_arch = "aarch64") {
            a.mul_add(b, c)
        } else {
            a * b + c
        }
    }
}

/// x86-64 with AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Isa for Avx2 {
    const WIDE: bool = false;

    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// x86-64 with AVX-512 (F, VL, BW, DQ).
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Isa for Avx512 {
    const WIDE: bool = true;

    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// An instruction set this machine has: only [`Level::best`] and [`Level::available`] make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The widest.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn best() -> Self {
        use std::arch::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("fma");
        let avx512 = has!("avx512f") && has!("avx512vl") && has!("avx512bw") && has!("avx512dq");
        Self(match (avx2, avx512) {
            (true, true) => Kind::Avx512,
            (true, false) => Kind::Avx2,
            (false, _) => Kind::Baseline,
        })
    }

    /// The widest.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn best() -> Self {
        Self(Kind::Baseline)
    }

    /// All, narrowest first.
    #[cfg(test)]
    pub(crate) fn available() -> Vec<Self> {
        let mut levels = vec![Self(Kind::Baseline)];
        #[cfg(target_arch = "x86_64")]
        match Self::best().0 {
            Kind::Baseline => {}
            Kind::Avx2 => levels.push(Self(Kind::Avx2)),
            Kind::Avx512 => levels.extend([Self(Kind::Avx2), Self(Kind::Avx512)]),
        }
        levels
    }

    pub(super) const fn kind(self) -> Kind {
        self.0
    }
}

/// Defines `fn name(level, args..)`, which runs `body::<Isa>(args..)` compiled for `level`.
macro_rules! versioned {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) => $body:ident) => {
        $(#[$meta])*
        $vis fn $name(level: $crate::kernels::isa::Level, $($arg: $ty),*) {
            use $crate::kernels::isa::{Baseline, Kind};
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $ty),*) {
                $body::<$crate::kernels::isa::Avx2>($($arg),*);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
            fn avx512($($arg: $ty),*) {
                $body::<$crate::kernels::isa::Avx512>($($arg),*);
            }
            match level.kind() {
                Kind::Baseline => $body::<Baseline>($($arg),*),
                // SAFETY: a `Level` of this kind exists only where the machine has the features.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use versioned;
