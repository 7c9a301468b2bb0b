//! Decoding of blocks of open formats by the processor.

use std::io::Read;

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::NvcompCodec;
use crate::container::BlockDecoder;

/// Largest number of blocks in a Zstandard frame. Each block may decode to 128 KiB, so a damaged frame takes at most 64 MiB
/// of memory.
const MOST_FRAME_BLOCKS: usize = 512;

/// A decoder of blocks that nvCOMP encoded.
pub(super) struct OpenDecoder(pub(super) NvcompCodec);

impl BlockDecoder for OpenDecoder {
    fn decode(&self, stored: &[u8], values: &mut [u8]) -> Result<(), &'static str> {
        if stored.len() == values.len() {
            values.copy_from_slice(stored);
            return Ok(());
        }
        let decoded = match self.0 {
            NvcompCodec::Lz4 => lz4_flex::block::decompress_into(stored, values)
                .map_err(|_| "a block is no LZ4 of its length")?,
            NvcompCodec::Zstd => zstd(stored, values).ok_or("a block is no Zstandard frame")?,
        };
        match decoded == values.len() {
            true => Ok(()),
            false => Err("a block decodes to another length"),
        }
    }
}

/// Decodes a single Zstandard frame. Returns its decoded length in bytes; `values` gets as many bytes as fit.
fn zstd(mut stored: &[u8], values: &mut [u8]) -> Option<usize> {
    let mut frame = FrameDecoder::new();
    frame.init(&mut stored).ok()?;
    while !frame.is_finished() {
        if frame.blocks_decoded() == MOST_FRAME_BLOCKS {
            return None;
        }
        let one = BlockDecodingStrategy::UptoBlocks(1);
        frame.decode_blocks(&mut stored, one).ok()?;
    }
    let bytes = frame.can_collect();
    frame.read_exact(values).ok()?;
    stored.is_empty().then_some(bytes)
}
