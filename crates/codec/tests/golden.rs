//! Containers written in formats 1 and 2 stay readable, and equal those written now.
//!
//! `TIERFLOW_WRITE_GOLDEN=1` writes the files that are missing, and replaces none.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use common::{Draws, bytes_of};
use std::path::Path;
use tierflow_codec::{
    Bound, Bounded, Codec, Element, Method, Planes, Predictor, decode_all, decode_to_vec,
    decoded_len,
};

/// Values of each input: a few blocks, and some more.
const VALUES: usize = 5_000;

fn cases() -> Vec<(String, Method, Element, Vec<u8>)> {
    let mut cases = Vec::new();
    for element in Element::ALL {
        let mut random = Draws(element as u64);
        // Zeros first, then a walk by sums and products alone, which are the same on every machine.
        let mut value = 0.0;
        let walk = (0..VALUES).map(|n| {
            value += if n < 1_000 {
                0.0
            } else {
                0.05 * (random.share() - 0.5)
            };
            value
        });
        let mut bytes = bytes_of(element, walk);
        bytes.extend([1, 2, 3]);
        for (name, predictor) in [("values", Predictor::None), ("steps", Predictor::Previous)] {
            let planes = Planes::with(predictor).into();
            cases.push((
                format!("{element:?}-{name}"),
                planes,
                element,
                bytes.clone(),
            ));
        }
        if matches!(element, Element::F32 | Element::F64) {
            cases.push((
                format!("{element:?}-polynomial"),
                Planes::with(Predictor::Polynomial).into(),
                element,
                bytes.clone(),
            ));
            for (name, bound) in [
                ("absolute", Bound::Absolute(1e-4)),
                ("relative", Bound::Relative(1e-3)),
                ("pointwise", Bound::PointwiseRelative(1e-3)),
            ] {
                let bounded = Bounded::new(bound).unwrap().into();
                cases.push((
                    format!("{element:?}-{name}"),
                    bounded,
                    element,
                    bytes.clone(),
                ));
            }
        }
    }
    cases
}

/// Sums of the decoded bounded inputs, in their order.
const BOUNDED: [u64; 6] = [
    16_568_033_209_729_168_728,
    8_301_286_704_167_732_361,
    11_435_458_020_751_667_679,
    12_192_083_198_232_663_121,
    12_088_278_573_515_345_665,
    10_644_898_927_381_681_451,
];

/// FNV-1a, 64 bits.
fn sum(bytes: &[u8]) -> u64 {
    let next = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, next)
}

#[test]
fn old_containers_are_read_and_written_as_they_were() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut bounded = Vec::new();
    for (name, method, element, bytes) in cases() {
        let written = method.encode_to_vec(&bytes, element).unwrap();
        let path = golden.join(format!("{name}.bin"));
        if std::env::var_os("TIERFLOW_WRITE_GOLDEN").is_some() && !path.exists() {
            std::fs::create_dir_all(&golden).unwrap();
            std::fs::write(&path, &written).unwrap();
        }
        let old = std::fs::read(&path).unwrap();
        let decoded = decode_to_vec(&old, 1 << 20).unwrap();
        assert!(old == written, "{name} is written otherwise");
        match method {
            Method::Planes(_) => assert!(decoded == bytes, "{name}"),
            _ => bounded.push(sum(&decoded)),
        }
    }
    assert_eq!(bounded, BOUNDED);
}

#[test]
fn several_containers_are_decoded_together() {
    let (mut containers, mut whole) = (Vec::new(), Vec::new());
    for (_, method, element, bytes) in cases() {
        let container = method.encode_to_vec(&bytes, element).unwrap();
        whole.extend(decode_to_vec(&container, 1 << 20).unwrap());
        containers.extend(container);
    }
    assert_eq!(decoded_len(&containers).unwrap(), whole.len() as u64);
    let mut out = vec![0; whole.len()];
    decode_all(&containers, &mut out).unwrap();
    assert!(out == whole);
    // An output of another length, and containers cut off.
    assert!(decode_all(&containers, &mut vec![0; whole.len() + 1]).is_err());
    assert!(decode_all(&containers, &mut vec![0; whole.len() - 1]).is_err());
    let last = cases().pop().map(|(_, method, element, bytes)| {
        let container = method.encode_to_vec(&bytes, element).unwrap();
        decode_to_vec(&container, 1 << 20).unwrap().len()
    });
    let shorter = whole.len() - last.unwrap();
    assert!(decode_all(&containers, &mut out[..shorter]).is_err());
    for end in (1..containers.len()).step_by(997) {
        assert!(decoded_len(&containers[..end]).is_err(), "{end}");
        assert!(decode_all(&containers[..end], &mut out).is_err(), "{end}");
    }
}
