//! Containers of nvCOMP's codecs, made by other encoders of the same formats as docs/src/codec.md describes.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test takes what it needs, and fails like a test"
)]

use crate::common::seal;
use tierflow_codec::{Codec, Element, NvcompCodec, Planes};

const BLOCK: usize = 64 << 10;

/// Makes the container of an input.
pub fn container(codec: NvcompCodec, element: Element, input: &[u8]) -> Vec<u8> {
    let values = &input[..input.len() / element.bytes() * element.bytes()];
    let encode = |block: &[u8]| {
        let encoded = match codec {
            NvcompCodec::Lz4 => lz4_flex::block::compress(block),
            _ => ruzstd::encoding::compress_to_vec(
                block,
                ruzstd::encoding::CompressionLevel::Fastest,
            ),
        };
        if encoded.len() < block.len() {
            encoded
        } else {
            block.to_vec()
        }
    };
    let blocks: Vec<Vec<u8>> = values.chunks(BLOCK).map(encode).collect();
    // The common fields come from a container of another codec.
    let mut container = Planes::new().encode_to_vec(input, element).unwrap()[..64].to_vec();
    for block in &blocks {
        container.extend((block.len() as u32).to_le_bytes());
    }
    container.resize(container.len().next_multiple_of(16), 0);
    for block in &blocks {
        container.extend(block);
        container.resize(container.len().next_multiple_of(16), 0);
    }
    container[9] = codec.id() as u8;
    container[12..16].copy_from_slice(&(blocks.len() as u32).to_le_bytes());
    let bytes = container.len() as u64;
    container[24..32].copy_from_slice(&bytes.to_le_bytes());
    seal(&mut container);
    container
}
