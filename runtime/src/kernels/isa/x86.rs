//! Vectors of x86-64.

#![allow(unsafe_code)]

use std::arch::is_x86_feature_detected as has;
use std::arch::x86_64::{
    __m256, __m256i, __m512, _MM_HINT_ET0, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps,
    _mm_prefetch, _mm_shuffle_ps, _mm256_add_ps, _mm256_castps256_ps128, _mm256_extractf128_ps,
    _mm256_fmadd_ps, _mm256_hadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_maskload_ps,
    _mm256_maskstore_ps, _mm256_mul_ps, _mm256_permute2f128_ps, _mm256_set1_ps, _mm256_shuffle_ps,
    _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps, _mm512_add_ps,
    _mm512_castps512_ps256, _mm512_extractf32x8_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
    _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_storeu_ps,
};

use super::Isa;

/// AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

/// AVX-512 (F, VL, BW, DQ), AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(Avx2);

impl Avx2 {
    /// Whether the machine has it.
    pub(super) fn detect() -> Option<Self> {
        (has!("avx2") && has!("fma")).then_some(Self(()))
    }

    /// The first `len` lanes (at most 8) on, the others off.
    #[inline(always)]
    fn mask(self, len: usize) -> __m256i {
        const EDGE: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
        let start = EDGE.as_ptr().wrapping_add(8 - len.min(8));
        // SAFETY: eight integers from one of the first nine on; `self` proves AVX2.
        unsafe { _mm256_loadu_si256(start.cast()) }
    }
}

impl Avx512 {
    /// Whether the machine has it.
    pub(super) fn detect() -> Option<Self> {
        let all = has!("avx512f") && has!("avx512vl") && has!("avx512bw") && has!("avx512dq");
        Avx2::detect().filter(|_| all).map(Self)
    }
}

#[inline(always)]
fn fetch(line: *const f32) {
    // SAFETY: a hint faults nowhere, and a processor that does not know this one takes it for no operation.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.cast()) };
}

impl Isa for Avx2 {
    type Vector = __m256;

    const LANES: usize = 8;

    const WIDE: bool = false;

    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: the caller vouches for the floats; `self` proves AVX2.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, len: usize) -> __m256 {
        let mask = self.mask(len);
        // SAFETY: lanes that are off are not read; the caller vouches for the others.
        unsafe { _mm256_maskload_ps(from, mask) }
    }

    #[inline(always)]
    unsafe fn store(self, vector: __m256, to: *mut f32) {
        // SAFETY: the caller vouches for the floats; `self` proves AVX2.
        unsafe { _mm256_storeu_ps(to, vector) };
    }

    #[inline(always)]
    unsafe fn store_part(self, vector: __m256, to: *mut f32, len: usize) {
        let mask = self.mask(len);
        // SAFETY: lanes that are off are not written; the caller vouches for the others.
        unsafe { _mm256_maskstore_ps(to, mask, vector) };
    }

    #[inline(always)]
    fn fetch(self, line: *const f32) {
        fetch(line);
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: `self` proves FMA.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn sum(self, vector: __m256) -> f32 {
        #[target_feature(enable = "avx2,fma")]
        #[inline]
        fn sum(vector: __m256) -> f32 {
            let low = _mm256_castps256_ps128(vector);
            let four = _mm_add_ps(low, _mm256_extractf128_ps::<1>(vector));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
        // SAFETY: `self` proves AVX2.
        unsafe { sum(vector) }
    }

    #[inline(always)]
    fn sums(self, vectors: [__m256; 4]) -> [f32; 4] {
        // SAFETY: `self` proves AVX2.
        unsafe { sums(vectors) }
    }

    const TURNED: usize = 8;

    #[inline(always)]
    unsafe fn turn(self, (from, from_row): (*const f32, usize), (to, to_row): (*mut f32, usize)) {
        let rows: [__m256; 8] = std::array::from_fn(|row| {
            // SAFETY: the caller vouches for the rows.
            unsafe { self.load(from.wrapping_add(row * from_row)) }
        });
        // SAFETY: `self` proves AVX2.
        let columns = unsafe { turn(rows) };
        for (row, column) in columns.into_iter().enumerate() {
            // SAFETY: the caller vouches for the rows.
            unsafe { self.store(column, to.wrapping_add(row * to_row)) };
        }
    }
}

impl Isa for Avx512 {
    type Vector = __m512;

    const LANES: usize = 16;

    const WIDE: bool = true;

    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the caller vouches for the floats; `self` proves AVX-512.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, len: usize) -> __m512 {
        let mask = mask(len);
        // SAFETY: lanes that are off are not read; the caller vouches for the others.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }

    #[inline(always)]
    unsafe fn store(self, vector: __m512, to: *mut f32) {
        // SAFETY: the caller vouches for the floats; `self` proves AVX-512.
        unsafe { _mm512_storeu_ps(to, vector) };
    }

    #[inline(always)]
    unsafe fn store_part(self, vector: __m512, to: *mut f32, len: usize) {
        let mask = mask(len);
        // SAFETY: lanes that are off are not written; the caller vouches for the others.
        unsafe { _mm512_mask_storeu_ps(to, mask, vector) };
    }

    #[inline(always)]
    fn fetch(self, line: *const f32) {
        fetch(line);
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn sum(self, vector: __m512) -> f32 {
        // SAFETY: `self` proves AVX-512.
        self.0.sum(unsafe { halves(vector) })
    }

    #[inline(always)]
    fn sums(self, vectors: [__m512; 4]) -> [f32; 4] {
        // SAFETY: `self` proves AVX-512.
        self.0.sums(vectors.map(|vector| unsafe { halves(vector) }))
    }

    const TURNED: usize = Avx2::TURNED;

    #[inline(always)]
    unsafe fn turn(self, from: (*const f32, usize), to: (*mut f32, usize)) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.turn(from, to) };
    }
}

/// The sum of both halves.
#[target_feature(enable = "avx2,avx512f,avx512dq")]
#[inline]
fn halves(vector: __m512) -> __m256 {
    let low = _mm512_castps512_ps256(vector);
    _mm256_add_ps(low, _mm512_extractf32x8_ps::<1>(vector))
}

/// The sum of the lanes of each vector.
#[target_feature(enable = "avx2")]
#[inline]
fn sums([a, b, c, d]: [__m256; 4]) -> [f32; 4] {
    let all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    let low = _mm256_castps256_ps128(all);
    let sums = _mm_add_ps(low, _mm256_extractf128_ps::<1>(all));
    [
        _mm_cvtss_f32(sums),
        _mm_cvtss_f32(_mm_shuffle_ps::<1>(sums, sums)),
        _mm_cvtss_f32(_mm_shuffle_ps::<2>(sums, sums)),
        _mm_cvtss_f32(_mm_shuffle_ps::<3>(sums, sums)),
    ]
}

/// Transposes eight rows.
#[target_feature(enable = "avx2")]
#[inline]
fn turn(rows: [__m256; 8]) -> [__m256; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let pairs = [
        _mm256_unpacklo_ps(a, b),
        _mm256_unpackhi_ps(a, b),
        _mm256_unpacklo_ps(c, d),
        _mm256_unpackhi_ps(c, d),
        _mm256_unpacklo_ps(e, f),
        _mm256_unpackhi_ps(e, f),
        _mm256_unpacklo_ps(g, h),
        _mm256_unpackhi_ps(g, h),
    ];
    let [a, b, c, d, e, f, g, h] = pairs;
    let fours = [
        _mm256_shuffle_ps::<0x44>(a, c),
        _mm256_shuffle_ps::<0xee>(a, c),
        _mm256_shuffle_ps::<0x44>(b, d),
        _mm256_shuffle_ps::<0xee>(b, d),
        _mm256_shuffle_ps::<0x44>(e, g),
        _mm256_shuffle_ps::<0xee>(e, g),
        _mm256_shuffle_ps::<0x44>(f, h),
        _mm256_shuffle_ps::<0xee>(f, h),
    ];
    let [a, b, c, d, e, f, g, h] = fours;
    [
        _mm256_permute2f128_ps::<0x20>(a, e),
        _mm256_permute2f128_ps::<0x20>(b, f),
        _mm256_permute2f128_ps::<0x20>(c, g),
        _mm256_permute2f128_ps::<0x20>(d, h),
        _mm256_permute2f128_ps::<0x31>(a, e),
        _mm256_permute2f128_ps::<0x31>(b, f),
        _mm256_permute2f128_ps::<0x31>(c, g),
        _mm256_permute2f128_ps::<0x31>(d, h),
    ]
}

/// The first `len` lanes (at most 16) on.
#[inline(always)]
const fn mask(len: usize) -> u16 {
    if len >= 16 { u16::MAX } else { (1 << len) - 1 }
}
