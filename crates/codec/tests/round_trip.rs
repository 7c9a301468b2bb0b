//! Decoded inputs are the same bit for bit, or within the bound.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail like tests")]

mod common;

use common::{LENGTHS, codecs, inputs};
use proptest::prelude::*;
use tierflow_codec::{
    Bound, Bounded, Codec, CodecId, Element, Error, HEADER_BYTES, Header, Invalid, Planes,
    Predictor, decode, decode_to_vec,
};

/// Checks that every value differs by no more than the bound that belongs to it.
fn assert_within(
    element: Element,
    bound: impl Fn(f64) -> f64,
    input: &[u8],
    output: &[u8],
    what: &str,
) {
    let wide = |bytes: &[u8]| -> Vec<f64> {
        match element {
            Element::F32 => bytes
                .chunks_exact(4)
                .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
                .collect(),
            _ => bytes
                .chunks_exact(8)
                .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
                .collect(),
        }
    };
    let width = element.bytes();
    for (n, (a, b)) in wide(input).into_iter().zip(wide(output)).enumerate() {
        let same = input[n * width..][..width] == output[n * width..][..width];
        assert!(
            same || (a.is_finite() && (a - b).abs() <= bound(a)),
            "{what}: value {n} was {a} and is {b}, with a bound of {}",
            bound(a)
        );
    }
    let tail = input.len() / width * width;
    assert_eq!(
        input[tail..],
        output[tail..],
        "{what}: behind the last value"
    );
}

fn assert_comes_back(codec: &dyn Codec, element: Element, input: &[u8], what: &str) -> Header {
    let what = format!("{what}, {codec:?}, {element:?}, {} bytes", input.len());
    let encoded = codec.encode_to_vec(input, element).unwrap();
    let header = Header::parse(&encoded).unwrap();
    assert_eq!(header.stored_bytes, encoded.len() as u64, "{what}");
    assert_eq!(header.raw_bytes, input.len() as u64, "{what}");
    assert_eq!((header.codec, header.element), (codec.id(), element));
    let mut output = vec![0xA5; input.len()];
    decode(&encoded, &mut output).unwrap();
    if codec.id() == CodecId::Planes {
        assert!(output == input, "{what}: not the same bytes");
        assert_eq!(header.bound, 0.0);
    } else {
        let bound = |value: f64| match header.is_pointwise() {
            true => header.bound * value.abs(),
            false => header.bound,
        };
        assert_within(element, bound, input, &output, &what);
    }
    // Encodes again, with other threads at work.
    let alone = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    let again = alone
        .install(|| codec.encode_to_vec(input, element))
        .unwrap();
    assert!(again == encoded, "{what}: other bytes from one thread");
    header
}

#[test]
fn every_codec_brings_back_every_kind_of_input_of_any_length() {
    for element in Element::ALL {
        for n in LENGTHS {
            for (name, input) in inputs(element, n) {
                for codec in codecs(element) {
                    assert_comes_back(codec.as_ref(), element, &input, name);
                    if n % 2 == 1 {
                        // The input ends within a value, and starts at an odd address.
                        let odd = &input[1..];
                        assert_comes_back(codec.as_ref(), element, odd, name);
                    }
                }
            }
        }
    }
}

#[test]
fn inputs_with_little_information_take_little_room() {
    let n = 1 << 18;
    let ratio = |codec: &dyn Codec, element, name: &str| {
        let all = inputs(element, n);
        let (_, input) = all.iter().find(|(known, _)| *known == name).unwrap();
        assert_comes_back(codec, element, input, name).ratio()
    };
    let planes = Planes::new();
    assert!(ratio(&planes, Element::Bf16, "normal") > 1.45);
    assert!(ratio(&planes, Element::F32, "normal") > 1.18);
    assert!(ratio(&planes, Element::F32, "zeros") > 3000.0);
    assert!(ratio(&planes, Element::I32, "constant") > 100.0);
    assert!(ratio(&Planes::with(Predictor::Previous), Element::I64, "constant") > 30.0);
    let polynomial = Planes::with(Predictor::Polynomial);
    assert!(ratio(&polynomial, Element::F32, "zeros") > 3000.0);
    assert!(ratio(&polynomial, Element::F32, "constant") > 40.0);
    let bounded = Bounded::new(Bound::Relative(1e-3)).unwrap();
    assert!(ratio(&bounded, Element::F32, "wave") > 12.0);
    assert!(ratio(&bounded, Element::F64, "wave") > 24.0);
    let pointwise = Bounded::new(Bound::PointwiseRelative(1e-3)).unwrap();
    assert!(ratio(&pointwise, Element::F32, "normal") > 1.7);
    // Values of both signs are a million steps apart: 21 bits of 64.
    assert!(ratio(&pointwise, Element::F64, "normal") > 2.9);
}

#[test]
fn values_on_a_polynomial_take_little() {
    // Whole numbers are exact, and so is the sum that predicts them.
    let n = 1 << 16;
    for element in [Element::F32, Element::F64] {
        for power in 1..5 {
            let values = (0..n).map(|i| f64::from((i % 128_i32 - 60).pow(power)));
            let input = common::bytes_of(element, values);
            let of = |predictor| {
                let codec = Planes::with(predictor);
                assert_comes_back(&codec, element, &input, "powers").ratio()
            };
            let (previous, polynomial) = (of(Predictor::Previous), of(Predictor::Polynomial));
            assert!(
                polynomial > (2.0 * previous).max(8.0),
                "{previous} {polynomial}"
            );
        }
    }
}

#[test]
fn nothing_gets_longer_than_promised() {
    for element in Element::ALL {
        for codec in codecs(element) {
            for n in LENGTHS {
                let len = n * element.bytes();
                let most = codec.max_encoded_len(len as u64, element).unwrap();
                for (name, input) in inputs(element, n) {
                    let encoded = codec.encode_to_vec(&input, element).unwrap();
                    assert!(encoded.len() as u64 <= most, "{codec:?} {element:?} {name}");
                }
                // A container has at most 1/64 more bytes than its input, and the bytes of an empty block.
                assert!(
                    most <= len as u64 + len as u64 / 64 + 700,
                    "{codec:?} {element:?} {n}"
                );
            }
        }
    }
    // The limit is reached up to the padding.
    let noise = &inputs(Element::F32, 40_960)[4].1;
    let planes = Planes::new();
    let most = planes
        .max_encoded_len(noise.len() as u64, Element::F32)
        .unwrap();
    let len = planes.encode_to_vec(noise, Element::F32).unwrap().len() as u64;
    assert_eq!(len, most);
    let exact = Bounded::new(Bound::Absolute(1e-300)).unwrap();
    let most = exact
        .max_encoded_len(noise.len() as u64, Element::F32)
        .unwrap();
    let len = exact.encode_to_vec(noise, Element::F32).unwrap().len() as u64;
    assert_eq!(len, most);
}

#[test]
fn a_bound_is_what_was_asked_for() {
    let (_, wave) = inputs(Element::F32, 50_000).swap_remove(3);
    let header = |bound| {
        let codec = Bounded::new(bound).unwrap();
        assert_comes_back(&codec, Element::F32, &wave, "wave")
    };
    assert_eq!(header(Bound::Absolute(0.25)).bound, 0.25);
    let peak = wave
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()).abs())
        .fold(0.0, f32::max);
    assert_eq!(header(Bound::Relative(0.01)).bound, 0.01 * f64::from(peak));
    for bound in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-310] {
        for bound in [Bound::Absolute(bound), Bound::Relative(bound)] {
            let refused = Bounded::new(bound).unwrap_err();
            assert!(matches!(refused, Error::Invalid(Invalid::Bound { .. })));
        }
    }
    assert!(Bounded::new(Bound::Relative(1.5)).is_err());
    let codec = Bounded::new(Bound::Relative(0.1)).unwrap();
    assert!(matches!(
        codec.encode_to_vec(&wave, Element::Bf16),
        Err(Error::Invalid(Invalid::Element { .. }))
    ));
}

#[test]
fn the_predictor_that_suits_is_chosen() {
    let n = 1 << 18;
    let weights = &inputs(Element::Bf16, n)[2].1;
    let chosen = Planes::chosen_for(weights, Element::Bf16);
    assert_eq!(chosen.predictor(), Predictor::None);
    // Nearly all values are zero, as ahead of a wavefront: the sample must find the few blocks that are not.
    let mut field = vec![0; 12 * n];
    let swell = (0..n).map(|i| (i as f64 / 300.0).sin());
    field.extend(common::bytes_of(Element::F32, swell));
    let chosen = Planes::chosen_for(&field, Element::F32);
    assert_eq!(chosen.predictor(), Predictor::Polynomial);
    let sorted: Vec<u8> = (0..n as i32).flat_map(|i| (17 * i).to_le_bytes()).collect();
    let chosen = Planes::chosen_for(&sorted, Element::I32);
    assert_eq!(chosen.predictor(), Predictor::Previous);
    assert_eq!(Planes::chosen_for(&[], Element::F64), Planes::new());
    assert_eq!(Planes::chosen_for(&[1, 2, 3], Element::F64), Planes::new());
}

#[test]
fn too_little_room_is_an_error() {
    for element in [Element::F32, Element::I16] {
        let (_, input) = inputs(element, 20_000).swap_remove(2);
        for codec in codecs(element) {
            let encoded = codec.encode_to_vec(&input, element).unwrap();
            let mut exact = vec![0; encoded.len()];
            let len = codec.encode(&input, element, &mut exact).unwrap();
            assert_eq!(exact[..len], encoded);
            for room in [0, HEADER_BYTES, encoded.len() / 2, encoded.len() - 1] {
                let full = codec.encode(&input, element, &mut exact[..room]);
                assert!(matches!(full, Err(Error::Full { .. })), "{room} bytes");
            }
        }
    }
    let planes = Planes::new();
    assert!(matches!(
        planes.max_encoded_len(u64::MAX, Element::I8),
        Err(Error::Invalid(Invalid::TooLong { .. }))
    ));
    assert!(planes.max_encoded_len(1 << 35, Element::I8).is_ok());
}

#[test]
fn the_output_must_have_its_length() {
    let encoded = Planes::new()
        .encode_to_vec(&[7; 100], Element::I16)
        .unwrap();
    for len in [0, 99, 101] {
        let error = decode(&encoded, &mut vec![0; len]).unwrap_err();
        assert!(matches!(error, Error::Invalid(Invalid::Length { .. })));
    }
    assert_eq!(decode_to_vec(&encoded, 100).unwrap(), [7; 100]);
    let error = decode_to_vec(&encoded, 99).unwrap_err();
    assert!(matches!(error, Error::Invalid(Invalid::Limit { .. })));
    let bounded = Bounded::new(Bound::Relative(0.1)).unwrap();
    let error = bounded.decode(&encoded, &mut [0; 100]).unwrap_err();
    assert!(matches!(error, Error::Invalid(Invalid::OtherCodec { .. })));
}

#[test]
fn every_exponent_and_many_mantissas_keep_their_bound() {
    let bits = (0..=u16::MAX)
        .flat_map(|high| [0, 1, 0x7FFF, 0xFFFF].map(|low| u32::from(high) << 16 | low));
    let input: Vec<u8> = bits.flat_map(u32::to_le_bytes).collect();
    // Each exponent once among equal exponents, and once among all others.
    let values = input.len() / 4;
    let (words, _) = input.as_chunks::<4>();
    let strewn: Vec<u8> = (0..values)
        .flat_map(|n| words[n * 40_503 % values])
        .collect();
    for bound in [
        f64::MIN_POSITIVE,
        1e-45,
        1e-38,
        1e-7,
        0.5,
        1e20,
        1e38,
        f64::MAX,
    ] {
        let codec = Bounded::new(Bound::Absolute(bound)).unwrap();
        assert_comes_back(&codec, Element::F32, &input, "in order");
        assert_comes_back(&codec, Element::F32, &strewn, "strewn");
    }
}

/// Checks a relative bound that is computed from the input. The bound in the header is a normal number, and may be larger.
fn assert_keeps_share(share: f64, element: Element, values: &[f64]) {
    let input = common::bytes_of(element, values.iter().copied());
    let codec = Bounded::new(Bound::Relative(share)).unwrap();
    let encoded = codec.encode_to_vec(&input, element).unwrap();
    let output = decode_to_vec(&encoded, input.len() as u64).unwrap();
    let stored = values.iter().map(|value| match element {
        Element::F32 => f64::from((*value as f32).abs()),
        _ => value.abs(),
    });
    let bound = share * stored.fold(0.0, f64::max);
    assert_within(element, |_| bound, &input, &output, "tiny values");
}

#[test]
fn a_share_of_a_tiny_peak_is_kept() {
    let tiny: Vec<f64> = (0..5000).map(|n| f64::from(n) * 1e-311).collect();
    assert_keeps_share(1e-3, Element::F64, &tiny);
    assert_keeps_share(1.0, Element::F64, &[5e-324, -5e-324, 0.0, 1e-320]);
    assert_keeps_share(0.5, Element::F64, &[3e-308, 1.5e-308, f64::NAN]);
    assert_keeps_share(1e-300, Element::F32, &[1e-20, -3e-21, 0.0]);
    assert_keeps_share(1e-300, Element::F64, &[0.0; 100]);
}

/// Multiples at both ends of their range differ by 2^31. An `i32` cannot hold this difference.
#[test]
fn the_largest_multiples_beside_each_other_keep_their_bound() {
    const MOST: f64 = (1 << 30) as f64;
    for (element, end, bound) in [
        (Element::F64, MOST - 0.3, 0.5),
        (Element::F32, 1.0, 0.5 / (MOST - 0.3)),
    ] {
        let codec = Bounded::new(Bound::Absolute(bound)).unwrap();
        let ends = [-end, end, end, -end, 0.0, end, -end, -end];
        for turn in 0..ends.len() {
            let values = ends.iter().copied().cycle().skip(turn).take(100);
            let input = common::bytes_of(element, values);
            assert_comes_back(&codec, element, &input, "ends");
            // The values were rounded, not stored bit for bit.
            let encoded = codec.encode_to_vec(&input, element).unwrap();
            let mut output = vec![0; input.len()];
            decode(&encoded, &mut output).unwrap();
            assert!(element == Element::F32 || output != input, "{turn}");
        }
    }
}

fn element() -> impl Strategy<Value = Element> {
    (0..Element::ALL.len()).prop_map(|n| Element::ALL[n])
}

/// Runs of one byte, few bytes, and noise.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let run = prop_oneof![
        (any::<u8>(), 0..3000_usize).prop_map(|(byte, len)| vec![byte; len]),
        prop::collection::vec(any::<u8>(), 0..3000),
        prop::collection::vec(0..4_u8, 0..3000),
    ];
    prop::collection::vec(run, 0..16).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_bytes_come_back(element in element(), input in bytes()) {
        for planes in Planes::all(element) {
            assert_comes_back(&planes, element, &input, "any");
        }
    }

    #[test]
    fn any_f32_keeps_its_bound(
        bits in prop::collection::vec(any::<u32>(), 0..6000),
        bound in prop_oneof![1e-40..1e-30_f64, 1e-9..1e-3_f64, 1.0..1e30_f64],
    ) {
        let input: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let codec = Bounded::new(Bound::Absolute(bound)).unwrap();
        assert_comes_back(&codec, Element::F32, &input, "any");
    }

    #[test]
    fn any_bits_keep_a_share_of_each_value(
        bits in prop::collection::vec(any::<u32>(), 0..6000),
        near in prop::collection::vec(any::<u16>(), 0..6000),
        share in prop_oneof![1e-9..1e-3_f64, 1e-3..1.0_f64],
    ) {
        let codec = Bounded::new(Bound::PointwiseRelative(share)).unwrap();
        let near = near.iter().map(|near| 0x3F80_0000 | u32::from(*near) << 9);
        for bits in [bits, near.collect()] {
            let input: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
            assert_comes_back(&codec, Element::F32, &input, "any");
            assert_comes_back(&codec, Element::F64, &input, "any");
        }
    }

    #[test]
    fn any_field_keeps_a_relative_bound(
        values in prop::collection::vec(-1e3..1e3_f64, 0..6000),
        bound in 1e-9..1.0_f64,
    ) {
        let codec = Bounded::new(Bound::Relative(bound)).unwrap();
        for element in [Element::F32, Element::F64] {
            let input = common::bytes_of(element, values.iter().copied());
            assert_comes_back(&codec, element, &input, "any");
        }
    }

    #[test]
    fn any_exponent_keeps_a_relative_bound(
        values in prop::collection::vec(-1e3..1e3_f64, 0..3000),
        exponent in -324..0,
        share in prop_oneof![1e-9..1.0_f64, 1e-300..1e-290_f64],
    ) {
        let values: Vec<f64> = values.iter().map(|value| value * 10_f64.powi(exponent)).collect();
        assert_keeps_share(share, Element::F64, &values);
        assert_keeps_share(share, Element::F32, &values);
    }
}
