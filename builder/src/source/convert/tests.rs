use super::super::testing::{checkpoint, f32_bytes};
use super::*;
use pawl_models::WeightPart;
use proptest::prelude::*;

/// Rounds to nearest, ties to even, by looking at both neighbours: `bits` decodes the 16-bit type.
fn nearest(value: f32, decode: impl Fn(u16) -> f32, infinity: u16) -> u16 {
    let (sign, value) = (
        u16::from(value.is_sign_negative()) << 15,
        f64::from(value.abs()),
    );
    let (mut low, mut high) = (0_u16, infinity);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if f64::from(decode(middle)) <= value {
            low = middle;
        } else {
            high = middle;
        }
    }
    // The step that infinity would be, were there one more exponent.
    let step = f64::from(decode(low)) - f64::from(decode(low.saturating_sub(1)));
    let above = if high == infinity {
        f64::from(decode(low)) + step
    } else {
        f64::from(decode(high))
    };
    let (down, up) = (value - f64::from(decode(low)), above - value);
    let magnitude = if down < up || (down == up && low % 2 == 0) {
        low
    } else {
        high
    };
    sign | magnitude
}

fn narrowed(values: &[f32], dtype: Dtype) -> Result<Vec<u16>, String> {
    let mut bytes = vec![0; values.len() * 2];
    narrow(values, dtype, &mut bytes)?;
    Ok(bytes
        .chunks(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect())
}

fn any_float() -> impl Strategy<Value = f32> {
    let near_ties = (any::<u16>(), -2_i32..3).prop_map(|(bits, step)| {
        let value = f16::from_bits(bits).to_f32();
        f32::from_bits(
            value
                .to_bits()
                .wrapping_add(0x1000)
                .wrapping_add_signed(step),
        )
    });
    prop_oneof![
        any::<u32>().prop_map(f32::from_bits),
        near_ties,
        -9.0_f32..9.0
    ]
}

proptest! {
    #[test]
    fn sixteen_bits_are_the_nearest(value in any_float().prop_filter("finite", |v| v.is_finite())) {
        let half = nearest(value, |bits| f16::from_bits(bits).to_f32(), 0x7C00);
        match narrowed(&[value], Dtype::F16) {
            Ok(bits) => prop_assert_eq!(bits[0], half),
            Err(problem) => {
                prop_assert_eq!(half & 0x7FFF, 0x7C00, "{}", value);
                prop_assert!(problem.contains("too large for f16; --dtype bf16"));
            }
        }
        let brain = nearest(value, |bits| bf16::from_bits(bits).to_f32(), 0x7F80);
        match narrowed(&[value], Dtype::Bf16) {
            Ok(bits) => prop_assert_eq!(bits[0], brain),
            Err(_) => prop_assert_eq!(brain & 0x7FFF, 0x7F80, "{}", value),
        }
    }

    #[test]
    fn widening_is_exact(bits in any::<u16>(), single in any::<u32>()) {
        let mut value = [0.0];
        widen(WeightDtype::F16, &bits.to_le_bytes(), &mut value);
        prop_assert_eq!(value[0].to_bits(), f16::from_bits(bits).to_f32().to_bits());
        widen(WeightDtype::Bf16, &bits.to_le_bytes(), &mut value);
        if !value[0].is_nan() {
            prop_assert_eq!(value[0].to_bits(), u32::from(bits) << 16);
        }
        widen(WeightDtype::F32, &single.to_le_bytes(), &mut value);
        prop_assert_eq!(value[0].to_bits(), single);
    }

    /// Row ranges of tensors of every type, one after the other, plus one: element by element as
    /// a reader without blocks would make them.
    #[test]
    fn parts_follow_each_other(
        tensors in prop::collection::vec((0_usize..3, 1_u64..9, 1_u64..6, any::<[u64; 4]>()), 1..5),
        add_one in any::<bool>(),
        target in 0_usize..3,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..tensors.len()).map(|index| format!("t{index}")).collect();
        let mut files = Vec::new();
        let (mut parts, mut expected) = (Vec::new(), Vec::new());
        for (name, (kind, rows, width, random)) in names.iter().zip(&tensors) {
            let values: Vec<f32> = (0..rows * width)
                .map(|index| (random[0].wrapping_mul(index + 1) >> 48) as f32 / 4096.0 - 8.0)
                .collect();
            let (dtype, bytes, stored) = encode(*kind, &values);
            let begin = random[1] % rows;
            let end = begin + random[2] % (rows - begin + 1);
            for element in begin * width..end * width {
                expected.push(stored[usize::try_from(element).unwrap()]);
            }
            parts.push(WeightPart { tensor: name.clone(), shape: vec![*rows, *width], rows: begin..end });
            files.push((name.as_str(), dtype, vec![*rows, *width], bytes));
        }
        let borrowed: Vec<_> = files.iter().map(|(n, d, s, b)| (*n, *d, s.clone(), b.as_slice())).collect();
        let checkpoint = checkpoint(folder.path(), &borrowed);
        let transform = if add_one { Transform::AddOne } else { Transform::None };
        let weight = Weight { parts, shape: vec![expected.len() as u64], transform };
        let dtype = [Dtype::F32, Dtype::F16, Dtype::Bf16][target];
        let mut bytes = Vec::new();
        let mut sink = |block: &[u8]| { bytes.extend_from_slice(block); Ok(()) };
        Converter::new(false).convert(&checkpoint, &weight, Encoding::Float(dtype), &mut sink).unwrap();
        let one = f32::from(u8::from(add_one));
        let naive: Vec<u8> = expected.iter().flat_map(|value| match dtype {
            Dtype::F16 => f16::from_f32(value + one).to_le_bytes().to_vec(),
            Dtype::Bf16 => bf16::from_f32(value + one).to_le_bytes().to_vec(),
            Dtype::F32 | Dtype::I64 | Dtype::I32 | Dtype::Bool | Dtype::U8 => (value + one).to_le_bytes().to_vec(),
        }).collect();
        prop_assert_eq!(bytes, naive);
    }
}

fn encode(kind: usize, values: &[f32]) -> (&'static str, Vec<u8>, Vec<f32>) {
    match kind {
        0 => ("F32", f32_bytes(values), values.to_vec()),
        1 => {
            let halves: Vec<_> = values.iter().map(|value| f16::from_f32(*value)).collect();
            let bytes = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
            (
                "F16",
                bytes,
                halves.iter().map(|half| half.to_f32()).collect(),
            )
        }
        _ => {
            let brains: Vec<_> = values.iter().map(|value| bf16::from_f32(*value)).collect();
            let bytes = brains
                .iter()
                .flat_map(|brain| brain.to_le_bytes())
                .collect();
            (
                "BF16",
                bytes,
                brains.iter().map(|brain| brain.to_f32()).collect(),
            )
        }
    }
}

#[test]
fn one_is_added_in_float32() {
    // In bfloat16, 1 + 0.0047 is 1.0078 or 1: the sum must be made before it is rounded.
    let stored = bf16::from_f32(0.0047);
    let folder = tempfile::tempdir().unwrap();
    let bytes = stored.to_le_bytes();
    let checkpoint = checkpoint(folder.path(), &[("norm", "BF16", vec![1], &bytes)]);
    let weight = Weight {
        transform: Transform::AddOne,
        ..Weight::whole("norm", [1])
    };
    let mut sum = Vec::new();
    let mut sink = |block: &[u8]| {
        sum.extend_from_slice(block);
        Ok(())
    };
    Converter::new(false)
        .convert(&checkpoint, &weight, Encoding::Float(Dtype::F32), &mut sink)
        .unwrap();
    assert_eq!(sum, (stored.to_f32() + 1.0).to_le_bytes());
    assert!(f32::from_le_bytes(sum.try_into().unwrap()) > 1.004);
}

#[test]
fn values_that_are_not_finite_are_kept_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let values = [
        f32::NAN,
        1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        -0.0,
    ];
    let bytes = f32_bytes(&values);
    let tensors = [
        ("bad", "F32", vec![7], &*bytes),
        ("good", "F32", vec![1], &bytes[4..8]),
    ];
    let checkpoint = checkpoint(folder.path(), &tensors);
    let mut converter = Converter::new(false);
    let mut kept = Vec::new();
    let mut sink = |block: &[u8]| {
        kept.extend_from_slice(block);
        Ok(())
    };
    for name in ["bad", "good"] {
        let rows = checkpoint.info().tensors[name].clone();
        converter
            .convert(
                &checkpoint,
                &Weight::whole(name, rows),
                Encoding::Float(Dtype::F32),
                &mut sink,
            )
            .unwrap();
    }
    assert_eq!(kept[..28], bytes[..]);
    let counts: Vec<_> = converter.non_finite().iter().collect();
    assert_eq!(
        counts,
        [(
            &"bad".to_owned(),
            &NonFinite {
                nan: 2,
                infinite: 2
            }
        )]
    );

    // Infinite stays infinite in 16 bits; only a finite value may not become so.
    assert_eq!(narrowed(&[f32::INFINITY], Dtype::F16).unwrap(), [0x7C00]);
    assert_eq!(narrowed(&[65519.0], Dtype::F16).unwrap(), [0x7BFF]);
    assert!(
        narrowed(&[-65520.0], Dtype::F16)
            .unwrap_err()
            .contains("holds -65520, too large")
    );
    let weight = Weight {
        parts: vec![part("bad", 7, 5..6)],
        ..Weight::whole("bad", [1])
    };
    let message = converter
        .convert(
            &checkpoint,
            &weight,
            Encoding::Float(Dtype::F16),
            &mut |_| Ok(()),
        )
        .unwrap_err();
    assert!(
        message
            .to_string()
            .contains("model.safetensors: bad: holds 34028"),
        "{message}"
    );
}

fn part(tensor: &str, length: u64, rows: std::ops::Range<u64>) -> WeightPart {
    WeightPart {
        tensor: tensor.to_owned(),
        shape: vec![length],
        rows,
    }
}

/// Sixteen blocks and a rest go through buffers that never grow.
#[test]
fn a_large_tensor_goes_through_the_same_buffers() {
    let elements = (16 * BLOCK + 5) as u64;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let header = format!(
        r#"{{"w":{{"dtype":"F32","shape":[{elements}],"data_offsets":[0,{}]}}}}"#,
        elements * 4
    );
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    let values: Vec<_> = (0..elements).map(|index| index as f32).collect();
    super::super::testing::raw(&path, &header, &f32_bytes(&values));
    let checkpoint = Checkpoint::open(folder.path()).unwrap();

    let mut converter = Converter::new(false);
    let buffers = |c: &Converter| {
        (
            c.raw.as_ptr(),
            c.raw.len(),
            c.values.as_ptr(),
            c.values.len(),
            c.encoded.as_ptr(),
            c.encoded.len(),
        )
    };
    let before = buffers(&converter);
    let (mut blocks, mut reached) = (0, 0);
    let mut sink = |block: &[u8]| {
        assert!(block.len() <= BLOCK_BYTES);
        for (offset, bytes) in block.chunks(4).enumerate() {
            assert_eq!(bytes, ((reached + offset) as f32).to_le_bytes());
        }
        reached += block.len() / 4;
        blocks += 1;
        Ok(())
    };
    converter
        .convert(
            &checkpoint,
            &Weight::whole("w", [elements]),
            Encoding::Float(Dtype::F32),
            &mut sink,
        )
        .unwrap();
    assert_eq!((blocks, reached as u64), (17, elements));
    assert_eq!(buffers(&converter), before);
    assert_eq!(before.1 + before.3 * 4 + before.5, 12 << 20);
}

/// Both halves of a weight in 8 bits, with the warnings that the whole weight leaves too.
fn quantized(checkpoint: &Checkpoint, weight: &Weight) -> (Vec<u8>, Vec<f32>, NonFinite) {
    let mut converter = Converter::new(false);
    let mut encoded = |encoding| {
        let mut bytes = Vec::new();
        let mut sink = |block: &[u8]| {
            bytes.extend_from_slice(block);
            Ok(())
        };
        converter
            .convert(checkpoint, weight, encoding, &mut sink)
            .unwrap();
        bytes
    };
    encoded(Encoding::Float(Dtype::F32));
    let values = encoded(Encoding::Int8(Half::Values));
    let scales = encoded(Encoding::Int8(Half::Scales));
    let scales = scales.as_chunks::<4>().0.iter();
    let scales = scales.map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let found = converter.non_finite().get("w").copied();
    (values, scales, found.unwrap_or_default())
}

/// Rows of two tensors, across the edge of a buffer: block by block as one that holds all of it would make them.
#[test]
fn blocks_of_a_row_are_quantized_wherever_the_buffers_end() {
    let rows = (BLOCK / 96 + 3) as u64;
    let folder = tempfile::tempdir().unwrap();
    let element = |index: u64| ((index.wrapping_mul(2_654_435_761) >> 8) % 2001) as f32 - 1000.0;
    let stored: Vec<f32> = (0..rows * 96).map(element).collect();
    let bytes = f32_bytes(&stored);
    let tensors = [
        ("w", "F32", vec![rows, 96], &*bytes),
        ("v", "F32", vec![2, 96], &bytes[..768]),
    ];
    let checkpoint = checkpoint(folder.path(), &tensors);
    let weight = Weight::whole("w", [rows, 96]);
    let weight = Weight::concat(&[&weight, &Weight::whole("v", [2, 96])]).unwrap();
    let (values, scales, _) = quantized(&checkpoint, &weight);
    let all = stored.iter().chain(&stored[..192]).copied();
    let all: Vec<f32> = all.collect();
    assert_eq!((values.len(), scales.len()), (all.len(), all.len() / 32));
    for (block, (values, scale)) in all.chunks(32).zip(values.chunks(32).zip(&scales)) {
        let largest = block.iter().fold(0.0_f32, |most, w| most.max(w.abs()));
        assert_eq!(*scale, largest / 127.0);
        for (weight, value) in block.iter().zip(values) {
            assert!((weight - (f32::from(*value) - 128.0) * scale).abs() <= scale * 0.5001);
        }
    }
}

#[test]
fn a_quantized_block_with_a_value_that_is_not_finite_is_nan_and_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut stored = [1.0_f32; 128];
    (stored[5], stored[70], stored[71]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    let bytes = f32_bytes(&stored);
    let checkpoint = checkpoint(folder.path(), &[("w", "F32", vec![2, 64], &bytes)]);
    let weight = Weight::whole("w", [2, 64]);
    let (values, scales, found) = quantized(&checkpoint, &weight);
    let nan: Vec<bool> = scales.iter().map(|scale| scale.is_nan()).collect();
    assert_eq!(nan, [true, false, true, false]);
    assert!(values[..32].iter().all(|value| *value == 128));
    assert!(values[32..64].iter().all(|value| *value == 255));
    let expected = NonFinite {
        nan: 1,
        infinite: 2,
    };
    assert_eq!(found, expected);

    let encoding = Encoding::Int8(Half::Scales);
    let refused = Converter::new(true).convert(&checkpoint, &weight, encoding, &mut |_| Ok(()));
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("--refuse-nonfinite"), "{message}");
}

#[test]
fn a_part_that_is_not_whole_blocks_is_a_defect() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = f32_bytes(&[1.0; 96]);
    let checkpoint = checkpoint(folder.path(), &[("w", "F32", vec![96], &bytes)]);
    let weight = Weight {
        parts: vec![part("w", 96, 0..33), part("w", 96, 33..64)],
        ..Weight::whole("w", [2, 32])
    };
    let encoding = Encoding::Int8(Half::Values);
    let mut converter = Converter::new(false);
    let error = converter.convert(&checkpoint, &weight, encoding, &mut |_| Ok(()));
    let message = error.unwrap_err().to_string();
    assert!(message.contains("not whole blocks"), "{message}");
}
