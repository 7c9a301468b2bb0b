//! Frames: files come back, and damaged and forged frames are refused before memory is allocated.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail like tests")]

mod common;

use common::{inputs, seal};
use proptest::prelude::*;
use tierflow_codec::{Codec, Element, Error, Frame, Header, Invalid, Planes, decode_to_vec};

const MOST: u64 = 1 << 22;

/// A file whose first bytes stay unencoded, and whose rest is containers of these types.
fn framed(plain: &[u8], parts: &[(&[u8], Element)]) -> Vec<u8> {
    let rest = parts.iter().map(|(bytes, _)| bytes.len() as u64).sum();
    let mut frame = Frame::start(plain, rest);
    for (bytes, element) in parts {
        let planes = Planes::chosen_for(bytes, *element);
        frame.extend(planes.encode_to_vec(bytes, *element).unwrap());
    }
    frame
}

fn file(frame: &[u8]) -> Result<Vec<u8>, Error> {
    Frame::parse(frame)?.to_vec(MOST)
}

proptest! {
    #[test]
    fn any_file_comes_back(
        plain in prop::collection::vec(any::<u8>(), 0..300),
        parts in prop::collection::vec(
            (prop::collection::vec(0_u8..9, 1..40_000), prop::sample::select(Element::ALL.to_vec())), 0..4,
        ),
    ) {
        let borrowed: Vec<_> = parts.iter().map(|(bytes, element)| (bytes.as_slice(), *element)).collect();
        let whole: Vec<u8> = [&plain].into_iter().chain(parts.iter().map(|(bytes, _)| bytes)).flatten().copied().collect();
        let frame = framed(&plain, &borrowed);
        let found = Frame::parse(&frame).unwrap();
        prop_assert_eq!(found.plain(), plain.as_slice());
        prop_assert_eq!(found.raw_bytes(), whole.len() as u64);
        prop_assert_eq!(found.to_vec(whole.len() as u64).unwrap(), whole);
    }

    #[test]
    fn no_bytes_are_more_than_an_error(
        edits in prop::collection::vec((0_usize..1000, any::<u8>()), 0..8),
        seals in any::<bool>(),
        length in 0_usize..1000,
    ) {
        let values: Vec<u8> = (0..3000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut frame = framed(&[1; 192], &[(&values[..400], Element::I32), (&values[400..], Element::F32)]);
        for (at, value) in edits {
            let at = at % frame.len();
            frame[at] = value;
        }
        if seals {
            seal(&mut frame);
        }
        let _ = file(&frame);
        frame.truncate(length);
        prop_assert!(file(&frame).is_err());
    }
}

#[test]
fn every_field_of_a_header_is_checked() {
    let values: Vec<u8> = inputs(Element::F32, 5000).swap_remove(0).1;
    let sound = framed(&[9; 192], &[(&values, Element::F32)]);
    assert!(file(&sound).is_ok());
    for at in 0..Frame::HEADER_BYTES {
        for flip in [1, 0x80] {
            let mut damaged = sound.clone();
            damaged[at] ^= flip;
            let found = file(&damaged);
            assert!(matches!(found, Err(Error::Corrupt { .. })), "byte {at}");
            seal(&mut damaged);
            // With a right checksum, the length still has to match the content.
            let found = file(&damaged);
            assert_eq!(found.is_ok(), (56..64).contains(&at), "byte {at}");
        }
    }
    // Bytes behind the last container belong to none.
    assert!(file(&[sound.as_slice(), &[0]].concat()).is_err());
    assert!(file(&sound[..sound.len() - 1]).is_err());
}

#[test]
fn lengths_are_bounded_before_memory_is_taken() {
    let values = vec![0; 1 << 20];
    let frame = framed(b"head", &[(&values, Element::I8)]);
    let found = Frame::parse(&frame).unwrap();
    let refused = found.to_vec(1 << 20);
    assert!(matches!(
        refused,
        Err(Error::Invalid(Invalid::Limit { .. }))
    ));
    assert_eq!(found.to_vec((1 << 20) + 4).unwrap().len(), (1 << 20) + 4);
    for raw in [0, 1 << 40, u64::MAX] {
        let mut forged = frame.clone();
        forged[24..32].copy_from_slice(&raw.to_le_bytes());
        seal(&mut forged);
        assert!(matches!(
            Frame::parse(&forged).map(|frame| frame.raw_bytes()),
            Err(Error::Corrupt { .. })
        ));
    }
    for plain in [5, 1 << 40, u64::MAX] {
        let mut forged = frame.clone();
        forged[16..24].copy_from_slice(&plain.to_le_bytes());
        seal(&mut forged);
        assert!(matches!(file(&forged), Err(Error::Corrupt { .. })));
    }
}

#[test]
fn a_frame_is_no_container_and_a_container_no_frame() {
    let inner = framed(&[3; 192], &[(&[5; 9000], Element::I8)]);
    let container = Planes::new().encode_to_vec(&inner, Element::I8).unwrap();
    assert!(Header::is_one(&container) && !Frame::is_one(&container));
    assert!(Frame::is_one(&inner) && !Header::is_one(&inner));
    assert!(file(&container).is_err() && decode_to_vec(&inner, MOST).is_err());
    // A frame encoded as a checkpoint comes back unchanged.
    assert_eq!(decode_to_vec(&container, MOST).unwrap(), inner);
}
