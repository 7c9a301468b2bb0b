//! Inputs for the tests.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::expect_used,
    reason = "each test takes what it needs, and fails like a test"
)]

mod seal;

pub use seal::seal;
use tierflow_codec::{Bound, Bounded, Codec, Element, Planes, Predictor};
pub use tierflow_testing::Draws;

/// Converts values to bytes of a type; integers are truncated.
pub fn bytes_of(element: Element, values: impl Iterator<Item = f64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match element {
            Element::I8 => bytes.push((value * 20.0) as i8 as u8),
            Element::I16 => bytes.extend(((value * 1000.0) as i16).to_le_bytes()),
            Element::I32 => bytes.extend(((value * 1e5) as i32).to_le_bytes()),
            Element::I64 => bytes.extend(((value * 1e9) as i64).to_le_bytes()),
            // The upper half of an f32 stands for an f16 as well: only bits matter here.
            Element::F16 | Element::Bf16 => {
                bytes.extend(&(value as f32).to_le_bytes()[2..]);
            }
            Element::F32 => bytes.extend((value as f32).to_le_bytes()),
            Element::F64 => bytes.extend(value.to_le_bytes()),
        }
    }
    bytes
}

/// A pulse in the middle of zeros.
pub fn wave(n: usize) -> impl Iterator<Item = f64> {
    (0..n).map(move |i| {
        let x = (i as f64 - n as f64 / 2.0) / 40.0;
        if x.abs() > 25.0 {
            0.0
        } else {
            (-x * x / 60.0).exp() * (1.7 * x).sin()
        }
    })
}

/// Inputs of about `n` values that exercise every path, by name.
pub fn inputs(element: Element, n: usize) -> Vec<(&'static str, Vec<u8>)> {
    let len = n * element.bytes();
    let mut random = Draws(n as u64);
    let noise: Vec<u8> = (0..len).map(|_| random.word() as u8).collect();
    let mut sparse = vec![0; len];
    for _ in 0..n / 500 {
        let at = random.word() as usize % len.max(1);
        sparse[at] = random.word() as u8;
    }
    let few: Vec<u8> = (0..len)
        .map(|_| [3, 9, 200][random.word() as usize % 3])
        .collect();
    // The first half has few different bytes, the other is noise. The code that suits the first half makes units of the second longer.
    let mut halves = vec![5; len];
    halves[len / 2..].copy_from_slice(&noise[len / 2..]);
    let mut specials = Vec::new();
    let all = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        0.0,
        f64::MIN_POSITIVE,
        5e-324,
        1e-45,
        f64::MAX,
        3e38,
        1.0,
    ];
    specials.extend(bytes_of(
        element,
        (0..n).map(|i| all[(i * i + i / 7) % all.len()]),
    ));
    let mut normal = random.clone();
    vec![
        ("zeros", vec![0; len]),
        ("constant", bytes_of(element, (0..n).map(|_| 0.7))),
        (
            "normal",
            bytes_of(element, (0..n).map(|_| normal.normal() * 0.02)),
        ),
        ("wave", bytes_of(element, wave(n))),
        ("noise", noise),
        ("sparse", sparse),
        ("few", few),
        ("halves", halves),
        ("specials", specials),
    ]
}

/// Every codec that supports the type.
pub fn codecs(element: Element) -> Vec<Box<dyn Codec>> {
    let mut codecs: Vec<Box<dyn Codec>> = vec![
        Box::new(Planes::new()),
        Box::new(Planes::with(Predictor::Previous)),
    ];
    if matches!(element, Element::F32 | Element::F64) {
        codecs.push(Box::new(Planes::with(Predictor::Polynomial)));
        for bound in [
            Bound::Absolute(1e-3),
            Bound::Absolute(1e-30),
            Bound::Relative(1e-3),
            Bound::Relative(0.2),
            Bound::Relative(1e-307),
            Bound::PointwiseRelative(1e-3),
            Bound::PointwiseRelative(1.0),
            Bound::PointwiseRelative(1e-9),
        ] {
            codecs.push(Box::new(Bounded::new(bound).expect("a sound bound")));
        }
    }
    codecs
}

/// Numbers of values around the borders of groups, segments and blocks.
pub const LENGTHS: [usize; 14] = [
    0, 1, 31, 32, 33, 1023, 1024, 1025, 2047, 4096, 4097, 8193, 16_385, 40_000,
];
