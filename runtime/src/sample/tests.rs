use super::draw::{DrawError, Drawn};
use super::filter::{logit_of, rank, token_of};
use super::philox::{GROUP, Noise, gumbel, least_word, philox4x32};
use super::race::Race;
use super::*;
use proptest::prelude::*;

fn draw(params: &SamplingParams, logits: &[f32], position: u64) -> Drawn {
    let sampler = Sampler::new(params, 99).unwrap();
    sampler
        .draw(logits, position, &mut Scratch::default())
        .unwrap()
}

/// The rank-ordered survivors, by full sorting in f64 and the filters' definitions one by one.
fn reference(params: &SamplingParams, logits: &[f32]) -> Vec<(u32, f64)> {
    let temperature = f64::from(params.temperature);
    let mut kept: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|&l| f64::from(l))).collect();
    kept.retain(|(_, logit)| logit.is_finite());
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if params.top_k > 0 {
        kept.truncate(params.top_k as usize);
    }
    let highest = kept[0].1;
    let weight = |logit: f64| ((logit - highest) / temperature).exp();
    if params.top_p < 1.0 {
        let total: f64 = kept.iter().map(|&(_, logit)| weight(logit)).sum();
        let mut above = 0.0;
        let mut survivors = Vec::new();
        for (index, &(token, logit)) in kept.iter().enumerate() {
            if index == 0 || above / total < f64::from(params.top_p) {
                survivors.push((token, logit));
            }
            above += weight(logit);
        }
        kept = survivors;
    }
    kept.retain(|&(_, logit)| weight(logit) >= f64::from(params.min_p));
    kept
}

/// The reference's winner and the gap to its runner-up.
fn reference_draw(params: &SamplingParams, logits: &[f32], position: u64) -> (u32, f64) {
    let noise = Noise::new(params.seed.unwrap(), position);
    let temperature = f64::from(params.temperature);
    let mut scores: Vec<(u32, f64)> = reference(params, logits)
        .into_iter()
        .map(|(token, logit)| (token, logit / temperature + gumbel(noise.word(token))))
        .collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let second = scores.get(1).map_or(f64::NEG_INFINITY, |score| score.1);
    (scores[0].0, (scores[0].1 - second) * temperature)
}

#[test]
fn philox_matches_the_published_vectors() {
    let vectors = [
        (
            [0; 4],
            [0; 2],
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        ),
        (
            [u32::MAX; 4],
            [u32::MAX; 2],
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        ),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, expected) in vectors {
        assert_eq!(philox4x32(counter, key), expected);
    }
}

#[test]
fn gumbel_is_finite_and_increasing() {
    let words = [0, 1, 2, 1 << 20, 1 << 31, u32::MAX - 1, u32::MAX];
    let noise: Vec<f64> = words.iter().map(|&word| gumbel(word)).collect();
    assert!(noise.is_sorted_by(|a, b| a < b));
    assert!(noise[0] > -3.2 && noise[6] < 23.0);
}

#[test]
fn every_bit_of_seed_position_and_token_counts() {
    let word = |seed, position, token| Noise::new(seed, position).word(token);
    let base = word(0, 0, 0);
    for bit in 0..64 {
        assert_ne!(word(1 << bit, 0, 0), base);
        assert_ne!(word(0, 1 << bit, 0), base);
        assert!(bit >= 32 || word(0, 0, 1 << bit) != base);
    }
}

#[test]
fn groups_hold_the_words_of_their_tokens() {
    let noise = Noise::new(0x0123_4567_89AB_CDEF, u64::MAX - 5);
    for first in [0, 64, 248_320 - 64] {
        let words = noise.group(first);
        for offset in 0..GROUP {
            let token = first + u32::try_from(offset).unwrap();
            assert_eq!(words[offset % 4][offset / 4], noise.word(token));
        }
    }
}

#[test]
fn least_words_are_lower_bounds() {
    let bound = |value| u32::try_from(least_word(value)).unwrap();
    for step in -60..362 {
        let value = f64::from(step) / 16.0 + 0.01;
        let word = bound(value);
        assert!(word == 0 || gumbel(word - 1) < value);
        assert!(word == 0 || gumbel(word) > value - 0.126);
    }
    assert_eq!(least_word(f64::NEG_INFINITY), 0);
    assert_eq!(least_word(f64::INFINITY), 1 << 32);
    assert_eq!(least_word(23.0), 1 << 32);
}

#[test]
fn ranks_order_by_logit_then_token() {
    let ordered = [
        rank(f32::MAX, 5),
        rank(1.5, 0),
        rank(1.0, 3),
        rank(1.0, 4),
        rank(-0.0, 1),
        rank(0.0, 2),
        rank(-1.0, 0),
        rank(f32::MIN, 0),
    ];
    assert!(ordered.is_sorted());
    assert_eq!((token_of(ordered[2]), logit_of(ordered[2])), (3, 1.0));
    assert_eq!((token_of(ordered[6]), logit_of(ordered[6])), (0, -1.0));
}

#[test]
fn unusable_logits_are_errors() {
    let sampler = Sampler::new(&SamplingParams::sampled(1.0), 0).unwrap();
    let mut scratch = Scratch::default();
    let mut draw = |logits: &[f32]| sampler.draw(logits, 0, &mut scratch);
    let infinity = f32::INFINITY;
    assert_eq!(draw(&[]), Err(DrawError::NothingToDraw { vocabulary: 0 }));
    assert_eq!(
        draw(&[-infinity; 3]),
        Err(DrawError::NothingToDraw { vocabulary: 3 })
    );
    assert_eq!(
        draw(&[0.0, f32::NAN, infinity]),
        Err(DrawError::NotANumber { token: 1 })
    );
    assert_eq!(
        draw(&[0.0, infinity, f32::NAN]),
        Err(DrawError::Infinite { token: 1 })
    );
    assert_eq!(draw(&[-infinity, 3.0, -infinity]).unwrap().token, 1);
}

#[test]
fn greedy_takes_the_lowest_id_of_a_tie() {
    let params = SamplingParams::greedy();
    assert_eq!(
        draw(&params, &[1.0, 3.0, 2.5, 3.0], 0),
        Drawn {
            token: 1,
            margin: 0.0
        }
    );
    assert_eq!(
        draw(&params, &[1.0, 3.0, 2.5], 0),
        Drawn {
            token: 1,
            margin: 0.5
        }
    );
    assert_eq!(
        draw(&params, &[-4.0], 0),
        Drawn {
            token: 0,
            margin: f32::INFINITY
        }
    );
    let off = SamplingParams::sampled(0.9).do_sample(false);
    assert_eq!(draw(&off, &[-0.0, 0.0], 3).token, 0);
}

#[test]
fn out_of_range_fields_are_named() {
    let base = SamplingParams::sampled(1.0);
    let cases = [
        (base.clone().temperature(f32::NAN), "temperature"),
        (base.clone().temperature(f32::INFINITY), "temperature"),
        (base.clone().temperature(-0.5), "temperature"),
        (base.clone().top_p(-0.1), "top_p"),
        (base.clone().top_p(f32::NAN), "top_p"),
        (base.clone().min_p(1.01), "min_p"),
        (base.clone().temperature(0.0).do_sample(true), "temperature"),
    ];
    for (params, field) in cases {
        assert_eq!(
            Sampler::new(&params, 0).unwrap_err().field(),
            field,
            "{params:?}"
        );
    }
    assert!(base.top_p(0.0).validate().is_ok());
}

#[test]
fn draws_follow_the_filtered_distribution() {
    let logits = [2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, 1.5];
    for params in [
        SamplingParams::sampled(1.0),
        SamplingParams::sampled(0.6).top_k(4),
        SamplingParams::sampled(1.3).top_p(0.8),
        SamplingParams::sampled(2.0).min_p(0.3),
    ] {
        let params = params.seed(1234);
        let kept = reference(&params, &logits);
        let temperature = f64::from(params.temperature);
        let weights: Vec<f64> = kept.iter().map(|k| (k.1 / temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        let draws = 40_000;
        let mut counts = [0u32; 8];
        for position in 0..draws {
            counts[draw(&params, &logits, position).token as usize] += 1;
        }
        let expected = |weight: f64| weight / total * draws as f64;
        let chi: f64 = kept
            .iter()
            .zip(&weights)
            .map(|(&(token, _), &weight)| {
                let off = f64::from(counts[token as usize]) - expected(weight);
                off * off / expected(weight)
            })
            .sum();
        // The 99.99 % quantile at seven degrees of freedom is below 30.
        assert!(chi < 30.0, "{params:?}: chi squared {chi}, {counts:?}");
        assert_eq!(
            counts.iter().filter(|&&count| count > 0).count(),
            kept.len()
        );
    }
}

#[test]
fn order_of_draws_and_scratch_do_not_matter() {
    let logits: Vec<f32> = (0..500).map(|i| ((i * 37) % 101) as f32 * 0.05).collect();
    let sampler = Sampler::new(&SamplingParams::sampled(0.8).top_p(0.9), 5).unwrap();
    let alone: Vec<Drawn> = (0..50)
        .map(|position| {
            sampler
                .draw(&logits, position, &mut Scratch::default())
                .unwrap()
        })
        .collect();
    let mut scratch = Scratch::default();
    let other = SamplingParams::sampled(1.2).top_k(3);
    for position in (0..50).rev() {
        Sampler::new(&other, 8)
            .unwrap()
            .draw(&logits[..77], position, &mut scratch)
            .unwrap();
        let drawn = sampler.draw(&logits, position, &mut scratch).unwrap();
        assert_eq!(drawn, alone[usize::try_from(position).unwrap()]);
    }
}

fn params() -> impl Strategy<Value = SamplingParams> {
    let temperature = prop_oneof![Just(1.0f32), Just(0.7), 0.05f32..3.0];
    let top_k = prop_oneof![Just(0u32), Just(1), 1u32..50, Just(5000)];
    let top_p = prop_oneof![Just(1.0f32), Just(0.0), 0.01f32..1.0, Just(0.999)];
    let min_p = prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..0.5];
    (temperature, top_k, top_p, min_p, any::<u64>()).prop_map(|(t, k, p, min, seed)| {
        SamplingParams::sampled(t)
            .top_k(k)
            .top_p(p)
            .min_p(min)
            .seed(seed)
    })
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        8 => -10.0f32..10.0,
        1 => Just(f32::NEG_INFINITY),
        2 => (-8i8..8).prop_map(|step| f32::from(step) * 0.5),
        1 => (-8i8..8).prop_map(|step| 3.0 + f32::from(step) * 3e-4),
    ];
    let length = prop_oneof![1usize..40, 200usize..3000];
    length
        .prop_flat_map(move |length| prop::collection::vec(logit.clone(), length))
        .prop_filter("needs a finite logit", |logits| {
            logits.iter().any(|logit| logit.is_finite())
        })
}

/// Logits in a few tight clusters, so that cuts fall close to tokens.
fn clusters() -> impl Strategy<Value = Vec<f32>> {
    let logit = (0u8..3, 0u8..10)
        .prop_map(|(level, step)| f32::from(level) * 0.7 + f32::from(step) * 1.5e-4);
    prop::collection::vec(logit, 2..12)
}

/// Filters that cut within `off` (relative) of a token's probability or cumulative probability.
fn cut_close(
    logits: &[f32],
    temperature: f32,
    which: u8,
    token: usize,
    off: f32,
) -> SamplingParams {
    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let weight = |logit: f32| ((logit - sorted[0]) / temperature).exp();
    let total: f32 = sorted.iter().copied().map(weight).sum();
    let rank = token % sorted.len();
    let mut params = SamplingParams::sampled(temperature).seed(11);
    if which & 1 != 0 {
        params = params.top_k(u32::try_from(rank + 1).unwrap());
    }
    if which & 2 != 0 {
        let above: f32 = sorted[..=rank].iter().copied().map(weight).sum();
        params = params.top_p((above / total * (1.0 + off)).clamp(0.0, 1.0));
    }
    if which & 4 != 0 {
        params = params.min_p((weight(sorted[rank]) * (1.0 + off)).clamp(0.0, 1.0));
    }
    params
}

proptest! {
    #[test]
    fn draws_match_the_sorted_reference(
        params in params(),
        logits in logits(),
        position in any::<u64>(),
    ) {
        let drawn = draw(&params, &logits, position);
        let (token, gap) = reference_draw(&params, &logits, position);
        prop_assert!(drawn.margin >= 0.0);
        prop_assert!(f64::from(drawn.margin) <= gap * (1.0 + 1e-6));
        if drawn.margin > 1e-6 {
            prop_assert_eq!(drawn.token, token);
        }
    }

    /// Moving every logit by less than half of the margin never changes the token, which is what
    /// callers rely on when they excuse a difference by its margin.
    #[test]
    fn margins_are_guarantees(
        params in params(),
        logits in logits(),
        shifts in prop::collection::vec(-0.48f32..0.48, 3000),
        extreme in any::<bool>(),
    ) {
        let drawn = draw(&params, &logits, 0);
        let margin = drawn.margin.min(1e-3);
        // Below this, rounding of the shifted logits would count.
        prop_assume!(margin > 1e-4);
        let moved: Vec<f32> = logits
            .iter()
            .zip(&shifts)
            .map(|(logit, shift)| {
                let shift = if extreme { 0.48f32.copysign(*shift) } else { *shift };
                logit + shift * margin
            })
            .collect();
        prop_assert_eq!(draw(&params, &moved, 0).token, drawn.token);
    }

    /// The same next to a cut, under the movements that shift it most: everything from one token on
    /// down the ranking against everything above it.
    #[test]
    fn margins_are_guarantees_next_to_cuts(
        logits in clusters(),
        temperature in prop_oneof![Just(1.0f32), Just(0.5), 0.2f32..2.0],
        which in 1u8..8,
        token in 0usize..12,
        off in prop_oneof![Just(0.0f32), -4e-4f32..4e-4],
        position in any::<u64>(),
    ) {
        let params = cut_close(&logits, temperature, which, token, off);
        let drawn = draw(&params, &logits, position);
        let margin = drawn.margin.min(1e-3);
        prop_assume!(margin > 1e-5);
        for pivot in 0..logits.len() {
            for (others, own) in [(1.0f32, 1.0f32), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)] {
                let place = |token: usize| rank(logits[token], u32::try_from(token).unwrap());
                let shift = |token: usize| match place(token).cmp(&place(pivot)) {
                    std::cmp::Ordering::Less => others,
                    std::cmp::Ordering::Equal => own,
                    std::cmp::Ordering::Greater => -others,
                };
                let moved: Vec<f32> = (0..logits.len())
                    .map(|token| logits[token] + 0.48 * margin * shift(token))
                    .collect();
                prop_assert_eq!(draw(&params, &moved, position).token, drawn.token);
            }
        }
    }
}

/// A row in the shape of a language model's: a wide body, and a few tokens ahead of it.
fn wide_row(vocabulary: usize, ahead: f32) -> Vec<f32> {
    let noise = Noise::new(1, 1);
    (0u32..)
        .take(vocabulary)
        .map(|token| {
            let body = f32::from(u16::try_from(noise.word(token) >> 16).unwrap()) / 6000.0;
            if token % 12_000 == 7 {
                body + ahead
            } else {
                body
            }
        })
        .collect()
}

#[test]
fn a_large_vocabulary_matches_the_reference() {
    let base = SamplingParams::sampled(0.8).seed(3);
    for ahead in [0.0, 4.0, 9.0] {
        let logits = wide_row(248_320, ahead);
        for params in [
            base.clone(),
            base.clone().top_p(0.5),
            base.clone().top_p(0.999),
            base.clone().top_k(40),
            base.clone().top_k(200_000),
            base.clone().min_p(0.01),
            base.clone().top_k(1000).top_p(0.9).min_p(0.001),
        ] {
            for position in 0..3 {
                let drawn = draw(&params, &logits, position);
                let (token, gap) = reference_draw(&params, &logits, position);
                assert_eq!(drawn.token, token, "{params:?}");
                assert!(f64::from(drawn.margin) <= gap * (1.0 + 1e-6));
            }
        }
    }
}

/// A margin that is small for no reason would excuse real differences.
#[test]
fn margins_are_rarely_small() {
    let logits = wide_row(20_000, 3.0);
    for params in [
        SamplingParams::sampled(0.7),
        SamplingParams::sampled(0.7).top_p(0.9),
        SamplingParams::sampled(0.7).top_k(40),
        SamplingParams::sampled(0.7).min_p(0.001),
    ] {
        let params = params.seed(5);
        let small = (0..300)
            .filter(|&at| draw(&params, &logits, at).margin < 1e-4)
            .count();
        assert!(small < 5, "{params:?}: {small} of 300");
    }
}

#[test]
fn equal_scores_go_to_the_lower_token() {
    for order in [[3, 9], [9, 3]] {
        let mut race = Race::new(1.0, Noise::new(0, 0));
        for token in order {
            race.enter_with(token, 1.5, 77);
        }
        assert_eq!(
            race.drawn(race.gap()),
            Drawn {
                token: 3,
                margin: 0.0
            }
        );
    }
}
