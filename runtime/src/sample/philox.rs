//! Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3") and Gumbel noise.

use std::sync::LazyLock;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Blocks of four words in a group.
const BLOCKS: usize = 16;

/// Tokens in a group.
pub(super) const GROUP: usize = 4 * BLOCKS;

/// Four random words for a counter under a key.
#[inline]
pub(super) fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..ROUNDS {
        let (high0, low0) = split(u64::from(MULTIPLIERS[0]) * u64::from(c0));
        let (high1, low1) = split(u64::from(MULTIPLIERS[1]) * u64::from(c2));
        (c0, c1, c2, c3) = (high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0);
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [c0, c1, c2, c3]
}

/// High and low words.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves are what is wanted"
)]
fn split(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// The noise of one draw: a word per token, keyed by seed and position.
///
/// The counter is (token / 4, position low, position high, stream); the token's word is the lane
/// `token % 4`. Stream 0 belongs to token draws; others are free for other uses of the same seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise {
    key: [u32; 2],
    position: (u32, u32),
}

impl Noise {
    pub(super) fn new(seed: u64, position: u64) -> Noise {
        let (seed_high, seed_low) = split(seed);
        let (high, low) = split(position);
        Noise {
            key: [seed_low, seed_high],
            position: (low, high),
        }
    }

    /// The word of one token.
    #[inline]
    pub(super) fn word(&self, token: u32) -> u32 {
        let words = philox4x32([token / 4, self.position.0, self.position.1, 0], self.key);
        let [w0, w1, w2, w3] = words;
        match token % 4 {
            0 => w0,
            1 => w1,
            2 => w2,
            _ => w3,
        }
    }

    /// The words of tokens `first .. first + GROUP`, where `first` is a multiple of [`GROUP`]. Word
    /// `[lane][block]` belongs to token `first + 4 * block + lane`.
    ///
    /// Written over arrays so that the compiler computes several blocks per instruction.
    #[inline]
    pub(super) fn group(&self, first: u32) -> [[u32; BLOCKS]; 4] {
        let mut c0 = [0u32; BLOCKS];
        for (counter, block) in c0.iter_mut().zip(first / 4..) {
            *counter = block;
        }
        let mut c1 = [self.position.0; BLOCKS];
        let mut c2 = [self.position.1; BLOCKS];
        let mut c3 = [0u32; BLOCKS];
        let [mut k0, mut k1] = self.key;
        for _ in 0..ROUNDS {
            let lanes = c0.iter_mut().zip(&mut c1).zip(c2.iter_mut().zip(&mut c3));
            for ((c0, c1), (c2, c3)) in lanes {
                let (high0, low0) = split(u64::from(MULTIPLIERS[0]) * u64::from(*c0));
                let (high1, low1) = split(u64::from(MULTIPLIERS[1]) * u64::from(*c2));
                (*c0, *c1, *c2, *c3) = (high1 ^ *c1 ^ k0, low1, high0 ^ *c3 ^ k1, low0);
            }
            k0 = k0.wrapping_add(WEYL[0]);
            k1 = k1.wrapping_add(WEYL[1]);
        }
        [c0, c1, c2, c3]
    }
}

/// Standard Gumbel noise from a word: strictly increasing in the word, always finite.
///
/// The uniform is `(word + 1/2) / 2^32`, exact in f64 and never 0 or 1.
#[inline]
pub(super) fn gumbel(word: u32) -> f64 {
    const SCALE: f64 = 1.0 / 4_294_967_296.0;
    -(-((f64::from(word) + 0.5) * SCALE).ln()).ln()
}

/// The least word whose noise is at least a value, rounded down to a step: a bound that costs a
/// look-up where the noise itself costs two logarithms. 2^32 where no word reaches the value.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "steps are few")]
#[expect(
    clippy::cast_sign_loss,
    reason = "negative values saturate to the first step"
)]
pub(super) fn least_word(value: f64) -> u64 {
    let step = (value - FIRST_STEP) * STEPS_PER_UNIT;
    LEAST_WORDS.get(step as usize).copied().unwrap_or(1 << 32)
}

/// Below the least noise.
const FIRST_STEP: f64 = -4.0;
const STEPS_PER_UNIT: f64 = 8.0;
/// Steps up to the greatest noise, which is below 23.
const STEPS: u32 = 27 * 8;

static LEAST_WORDS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let reaches =
        |value: f64, word: u64| u32::try_from(word).is_ok_and(|word| gumbel(word) >= value);
    let least = |value: f64| {
        let (mut low, mut high) = (0u64, 1 << 32);
        while low < high {
            let middle = low.midpoint(high);
            if reaches(value, middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    };
    (0..STEPS)
        .map(|step| least(FIRST_STEP + f64::from(step) / STEPS_PER_UNIT))
        .collect()
});
