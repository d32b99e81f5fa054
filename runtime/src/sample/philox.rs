//! Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3") and Gumbel noise.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

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

    /// Words of tokens `4 * block .. 4 * block + 4`.
    #[inline]
    pub(super) fn block(&self, block: u32) -> [u32; 4] {
        philox4x32([block, self.position.0, self.position.1, 0], self.key)
    }

    /// The word of one token.
    #[inline]
    pub(super) fn word(&self, token: u32) -> u32 {
        let [w0, w1, w2, w3] = self.block(token / 4);
        match token % 4 {
            0 => w0,
            1 => w1,
            2 => w2,
            _ => w3,
        }
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

/// Upper bound of [`gumbel`].
pub(super) const GUMBEL_MAX: f64 = 22.9;
