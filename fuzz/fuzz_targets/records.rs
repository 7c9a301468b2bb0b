//! Reads files of checkpoint records from an untrusted source: any bytes, and sound heads with some words overwritten, with right or wrong
//! checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierflow_store::container::{
    Element, Found, Head, Kind, RegionInfo, Source, UNIT, checksum, scan,
};

/// Returns a head with a value in every field.
fn sound() -> Vec<u8> {
    let region = |name: &str, offset, element, shape: &[u64]| RegionInfo {
        name: name.to_owned(),
        offset,
        length: 48,
        element,
        shape: shape.to_vec(),
    };
    let head = Head {
        kind: Kind::Piece,
        position: 0,
        version: 7,
        sequence: 9,
        epoch: 4,
        run: 3,
        base: Some(6),
        created: 1,
        rank: 1,
        ranks: 3,
        length: 512,
        payload_length: 512,
        block_bytes: 256,
        regions: vec![
            region(&"long".repeat(15), 0, Element::F64, &[2, 3]),
            region("b", 256, Element::Bytes, &[]),
        ],
        parts: Vec::new(),
        blocks: vec![1, 2],
    };
    let mut file = head.encode().expect("a sound head");
    file.resize(1024, 0);
    file
}

fuzz_target!(|input: (Vec<(u16, u32)>, bool, Vec<u8>)| {
    let (edits, seal, more) = input;
    let mut file = sound();
    for (at, word) in edits {
        let at = usize::from(at) % (file.len() - 4);
        file[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    if seal {
        let sum = checksum(&file[..504]);
        file[504..512].copy_from_slice(&sum.to_le_bytes());
    }
    for bytes in [
        &more[..],
        &[file.clone(), more.clone()].concat(),
        &[more.clone(), file].concat(),
    ] {
        let size = bytes.size().expect("memory has a size");
        let mut last = 0;
        let end = scan(bytes, 0, |found| {
            if let Found::Record(head) = found {
                assert!(head.position >= last && head.position % UNIT as u64 == 0);
                last = head.position + head.record_length();
                assert!(last <= size);
                let mut end = 0;
                for region in &head.regions {
                    assert!(region.offset >= end);
                    end = region.offset + region.length;
                }
                assert!(end <= head.payload_length);
                // Writing the head that was read gives the same bytes.
                let at = head.position as usize;
                let again = head.encode().expect("it was decoded");
                assert_eq!(again, bytes[at..at + again.len()]);
            }
            Ok(true)
        });
        assert!(end.expect("memory can be read") <= size);
    }
});
