//! Damaged and forged containers: an error that names the defect, or bytes; never a panic.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail like tests")]

mod common;

use common::{codecs, inputs, seal};
use proptest::prelude::*;
use tierflow_codec::{Codec, Element, Error, HEADER_BYTES, Header, Planes, decode, decode_to_vec};

const MOST: u64 = 1 << 22;

fn sound() -> Vec<Vec<u8>> {
    let mut containers = Vec::new();
    for element in [Element::I8, Element::Bf16, Element::F32, Element::F64] {
        for (_, input) in inputs(element, 5000) {
            for codec in codecs(element) {
                containers.push(codec.encode_to_vec(&input, element).unwrap());
            }
        }
    }
    containers
}

#[test]
fn every_field_of_a_header_is_checked() {
    let sound = Planes::new()
        .encode_to_vec(&[1; 100_000], Element::I32)
        .unwrap();
    assert!(decode_to_vec(&sound, MOST).is_ok());
    for at in 0..HEADER_BYTES {
        for flip in [1, 0x80] {
            let mut damaged = sound.clone();
            damaged[at] ^= flip;
            let found = decode_to_vec(&damaged, MOST);
            assert!(matches!(found, Err(Error::Corrupt { .. })), "byte {at}");
            seal(&mut damaged);
            // A changed type of the same size, or a changed tail, may decode. The lengths must still be right.
            if let Ok(output) = decode_to_vec(&damaged, MOST) {
                let header = Header::parse(&damaged).unwrap();
                assert_eq!(output.len() as u64, header.raw_bytes);
            }
        }
    }
}

#[test]
fn lengths_that_no_memory_holds_are_refused() {
    let mut container = Planes::new().encode_to_vec(&[], Element::I8).unwrap();
    for raw in [1 << 40, u64::MAX, u64::MAX - 16_383] {
        container[16..24].copy_from_slice(&raw.to_le_bytes());
        let blocks = (raw / 16_384) as u32;
        container[12..16].copy_from_slice(&blocks.to_le_bytes());
        seal(&mut container);
        assert!(matches!(
            decode_to_vec(&container, u64::MAX),
            Err(Error::Corrupt { .. })
        ));
    }
}

#[test]
fn a_container_that_is_cut_off_is_refused() {
    for sound in sound() {
        for len in [0, 7, 63, 64, sound.len() / 2, sound.len().saturating_sub(1)] {
            if len < sound.len() {
                let cut = decode_to_vec(&sound[..len], MOST);
                assert!(matches!(cut, Err(Error::Corrupt { .. })), "{len} bytes");
            }
        }
        let longer = [&sound[..], &[7; 40]].concat();
        assert_eq!(
            decode_to_vec(&longer, MOST).unwrap(),
            decode_to_vec(&sound, MOST).unwrap()
        );
    }
}

#[test]
fn sizes_in_a_block_are_checked() {
    // Table, unit sizes, masks and codes of the first block, each set to its largest value.
    for sound in sound() {
        for at in (HEADER_BYTES..sound.len().min(HEADER_BYTES + 400)).step_by(2) {
            let mut damaged = sound.clone();
            damaged[at..at + 2].fill(0xFF);
            // The call returns, with any result.
            let _ = decode_to_vec(&damaged, MOST);
        }
    }
}

#[test]
fn a_table_out_of_order_is_refused() {
    let input = &inputs(Element::F32, 20_000)[2].1;
    let mut container = Planes::new().encode_to_vec(input, Element::F32).unwrap();
    container.copy_within(HEADER_BYTES + 4..HEADER_BYTES + 8, HEADER_BYTES);
    container[HEADER_BYTES + 4..HEADER_BYTES + 8].fill(0);
    let mut out = vec![0; input.len()];
    assert!(matches!(
        decode(&container, &mut out),
        Err(Error::Corrupt { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn any_edit_is_found_or_decodes(
        which: prop::sample::Index,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        reseal: bool,
    ) {
        static SOUND: std::sync::LazyLock<Vec<Vec<u8>>> = std::sync::LazyLock::new(sound);
        let mut container = which.get(&SOUND).clone();
        for (at, byte) in edits {
            let at = at.index(container.len());
            container[at] = byte;
        }
        if reseal {
            seal(&mut container);
        }
        let _ = decode_to_vec(&container, MOST);
    }

    #[test]
    fn any_bytes_behind_a_sound_header(
        mut body in prop::collection::vec(any::<u8>(), 0..20_000),
        which: prop::sample::Index,
    ) {
        static SOUND: std::sync::LazyLock<Vec<Vec<u8>>> = std::sync::LazyLock::new(sound);
        let mut container = which.get(&SOUND).clone();
        let len = container.len() - HEADER_BYTES;
        body.resize(len, 0);
        // The table of blocks stays, so that the blocks are reached.
        let header = Header::parse(&container).unwrap();
        let blocks = header.raw_bytes.div_ceil(16_384) as usize;
        let at = (HEADER_BYTES + 8 * blocks).min(container.len());
        container[at..].copy_from_slice(&body[..body.len() - (at - HEADER_BYTES)]);
        let _ = decode_to_vec(&container, MOST);
    }
}
