//! Containers of nvCOMP's codecs, decoded by the processor.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail like tests")]

mod common;
#[path = "common/nvcomp.rs"]
mod nvcomp;

use common::{LENGTHS, inputs, seal};
use nvcomp::container;
use proptest::prelude::*;
use tierflow_codec::{Codec, CodecId, Element, Error, Header, NvcompCodec, Planes, decode_to_vec};

const MOST: u64 = 1 << 24;

#[test]
fn containers_of_other_encoders_are_decoded() {
    for codec in NvcompCodec::ALL {
        assert_eq!(NvcompCodec::of(codec.id()), Some(codec));
        for element in Element::ALL {
            for len in LENGTHS.into_iter().chain([20_000, 100_000]) {
                for (name, input) in inputs(element, len) {
                    let container = container(codec, element, &input);
                    let header = Header::parse(&container).unwrap();
                    assert_eq!(header.codec, codec.id());
                    let most = codec.max_encoded_len(input.len() as u64, element);
                    assert!(header.stored_bytes <= most.unwrap());
                    let output = decode_to_vec(&container, MOST).unwrap();
                    assert!(output == input, "{codec}, {element:?}, {name}");
                }
            }
        }
    }
    assert_eq!(NvcompCodec::of(CodecId::Planes), None);
}

#[test]
fn a_frame_of_many_small_blocks_takes_no_more_memory_than_it_may() {
    // A Zstandard frame with a window of 2 GiB, and blocks of 4 bytes that stand for 128 KiB of one byte each.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 21 << 3];
    let block = (128_u32 << 10) << 3 | 1 << 1;
    while frame.len() < 60_000 {
        frame.extend(&block.to_le_bytes()[..3]);
        frame.push(7);
    }
    let input = vec![7; 65_536];
    let mut damaged = container(NvcompCodec::Zstd, Element::I8, &input);
    damaged.truncate(64);
    damaged.extend((frame.len() as u32).to_le_bytes());
    damaged.resize(80, 0);
    damaged.extend(&frame);
    damaged.resize(damaged.len().next_multiple_of(16), 0);
    let bytes = damaged.len() as u64;
    damaged[24..32].copy_from_slice(&bytes.to_le_bytes());
    seal(&mut damaged);
    let before = most_memory();
    let found = decode_to_vec(&damaged, MOST);
    assert!(matches!(found, Err(Error::Corrupt { .. })));
    let more = most_memory() - before;
    assert!(more < 256 << 10, "{more} KiB");
}

/// The process's peak memory in KiB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn blocks_that_are_empty_or_lie_elsewhere_are_refused() {
    for codec in NvcompCodec::ALL {
        let sound = container(codec, Element::F32, &[3; 200_000]);
        assert!(decode_to_vec(&sound, MOST).is_ok());
        for entry in 0..4 {
            for length in [0, 1, 17, 1 << 16, u32::MAX] {
                let mut damaged = sound.clone();
                damaged[64 + 4 * entry..][..4].copy_from_slice(&u32::to_le_bytes(length));
                let found = decode_to_vec(&damaged, MOST);
                assert!(
                    matches!(found, Err(Error::Corrupt { .. })),
                    "{entry}: {length}"
                );
            }
        }
        // The table without its blocks.
        let mut short = sound[..80].to_vec();
        short[24..32].copy_from_slice(&80_u64.to_le_bytes());
        seal(&mut short);
        assert!(matches!(Header::parse(&short), Err(Error::Corrupt { .. })));
    }
}

proptest! {
    #[test]
    fn a_container_of_nvcomp_is_no_longer_than_the_promised_limit(len in prop_oneof![0_u64..200_000, 0_u64..1 << 36], of in 0_usize..8) {
        let element = Element::ALL[of];
        if let Ok(most) = Planes::new().max_encoded_len(len, element) {
            for codec in NvcompCodec::ALL {
                prop_assert!(codec.max_encoded_len(len, element).unwrap() <= most);
            }
        }
    }

    #[test]
    fn damaged_ones_are_an_error_or_bytes(
        which in 0_usize..2,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mixed: Vec<u8> = (0..90_000_u32)
            .map(|n| if n < 50_000 { (n / 700) as u8 } else { (n.wrapping_mul(2_654_435_761) >> 27) as u8 })
            .collect();
        let mut container = container(NvcompCodec::ALL[which], Element::I16, &mixed);
        for (at, byte) in edits {
            let at = at.index(container.len());
            container[at] = byte;
        }
        seal(&mut container);
        if let Some(cut) = cut {
            container.truncate(cut.index(container.len()));
        }
        match decode_to_vec(&container, MOST) {
            Ok(bytes) => prop_assert_eq!(bytes.len() as u64, Header::parse(&container).unwrap().raw_bytes),
            Err(Error::Corrupt { .. } | Error::Invalid(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
