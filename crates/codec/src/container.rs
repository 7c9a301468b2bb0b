//! Conversion between inputs and containers, block by block on all threads of the caller's pool.

use std::ops::Range;

use rayon::prelude::*;

use crate::element::Element;
use crate::error::{Error, Invalid, Result};
use crate::header::{
    ALIGNMENT, CodecId, HEADER_BYTES, Header, TAIL_AT, block_values, blocks, payload_at,
};

/// Number of blocks that are encoded before they are copied to their places. The number bounds the memory for encoded
/// blocks.
const BATCH: usize = 256;

/// An encoder of the values of a block.
pub(crate) trait BlockEncoder: Sync {
    /// Appends the encoded form, whose length is a multiple of [`ALIGNMENT`] and at most [`most_block_bytes`].
    fn encode(&self, values: &[u8], out: &mut Vec<u8>);
}

/// A decoder of the values of a block.
pub(crate) trait BlockDecoder: Sync {
    /// Fills `values` from `stored`, the encoded form of as many values. Returns the defect if the form is damaged.
    fn decode(&self, stored: &[u8], values: &mut [u8]) -> Result<(), &'static str>;
}

/// Returns the bytes of the longest block of `values` values.
fn most_block_bytes(codec: CodecId, element: Element, values: usize) -> u64 {
    let most = match codec {
        CodecId::Planes => crate::planes::most_block_bytes(element, values),
        CodecId::Bounded => crate::bounded::most_block_bytes(element, values),
        // A block that would be longer is stored unencoded.
        CodecId::NvcompLz4 | CodecId::NvcompZstd => values * element.bytes(),
    };
    most.next_multiple_of(ALIGNMENT) as u64
}

/// Returns the bytes of the longest container for an input of `raw_bytes` bytes.
///
/// # Errors
///
/// [`Invalid::TooLong`] if the offsets of such a container exceed the entries of its table.
pub(crate) fn most_bytes(codec: CodecId, element: Element, raw_bytes: u64) -> Result<u64> {
    let blocks = blocks(codec, element, raw_bytes);
    let too_long = Invalid::TooLong { len: raw_bytes };
    let whole = block_values(codec, element);
    let last = (raw_bytes / element.bytes() as u64 % whole as u64) as usize;
    let shortened = match last {
        0 => 0,
        last => most_block_bytes(codec, element, whole) - most_block_bytes(codec, element, last),
    };
    let payload = blocks
        .checked_mul(most_block_bytes(codec, element, whole))
        .map(|payload| payload - shortened)
        .filter(|payload| payload / ALIGNMENT as u64 <= u64::from(u32::MAX))
        .ok_or(too_long)?;
    Ok(payload_at(blocks) + payload)
}

/// Returns the bytes of the shortest container with such a header. The longest block, of 4096 `f64`, has an entry of 4 bytes. As a shorter one is refused, a damaged container does
/// not decode to more than 8192 times its bytes.
pub(crate) fn least_bytes(header: &Header) -> u64 {
    let of_blocks = match header.codec {
        // A block of no bytes stands for zeros.
        CodecId::Planes | CodecId::Bounded => 0,
        CodecId::NvcompLz4 | CodecId::NvcompZstd => header.blocks() * ALIGNMENT as u64,
    };
    header.payload_at() + of_blocks
}

/// Encodes `input` to the start of `out`. Completes `header`, and returns the container's length in bytes.
pub(crate) fn encode(
    coder: &impl BlockEncoder,
    mut header: Header,
    input: &[u8],
    out: &mut [u8],
) -> Result<usize> {
    let most = most_bytes(header.codec, header.element, header.raw_bytes)?;
    let full = Error::Full {
        given: out.len() as u64,
        most,
    };
    let (values, tail) = input.split_at(input.len() - header.tail_bytes());

    let payload_at = header.payload_at() as usize;
    let Some((front, payload)) = out.split_at_mut_checked(payload_at) else {
        return Err(full);
    };
    front.fill(0);
    let block_bytes = block_values(header.codec, header.element) * header.element.bytes();
    let mut stored: Vec<Vec<u8>> = vec![Vec::new(); BATCH];
    let mut end = 0;
    let mut entries = front[HEADER_BYTES..].chunks_exact_mut(4);
    for batch in values.chunks(BATCH * block_bytes) {
        let blocks = batch.par_chunks(block_bytes);
        let count = blocks.len();
        stored
            .par_iter_mut()
            .zip(blocks)
            .for_each(|(stored, block)| {
                stored.clear();
                coder.encode(block, stored);
            });
        let batch_bytes: usize = stored[..count].iter().map(Vec::len).sum();
        let Some(mut rest) = payload.get_mut(end..end + batch_bytes) else {
            return Err(full);
        };
        let mut places = Vec::with_capacity(count);
        for (block, entry) in stored[..count].iter().zip(&mut entries) {
            let (place, others) = rest.split_at_mut(block.len());
            places.push((place, block));
            rest = others;
            end += block.len();
            entry.copy_from_slice(&((end / ALIGNMENT) as u32).to_le_bytes());
        }
        places
            .into_par_iter()
            .for_each(|(place, block)| place.copy_from_slice(block));
    }
    header.stored_bytes = (payload_at + end) as u64;
    front[..HEADER_BYTES].copy_from_slice(&header.to_bytes(tail));
    Ok(payload_at + end)
}

/// Returns the range of each block, in bytes from the first block. `front` is the container's header and table.
///
/// # Errors
///
/// [`Error::Corrupt`] if the blocks do not fill the container.
pub(crate) fn places(header: &Header, front: &[u8]) -> Result<Vec<Range<usize>>> {
    let out_of_order = Error::corrupt("its table of blocks is out of order");
    let table = HEADER_BYTES..HEADER_BYTES + 4 * header.blocks() as usize;
    let (entries, _) = front
        .get(table)
        .ok_or(out_of_order.clone())?
        .as_chunks::<4>();
    let payload = header.stored_bytes.checked_sub(header.payload_at());
    let payload = payload.ok_or(out_of_order.clone())? as usize;
    let mut at = 0;
    let place = |entry: &[u8; 4]| {
        let entry = u32::from_le_bytes(*entry) as usize;
        let place = match header.codec {
            CodecId::Planes | CodecId::Bounded => at..entry * ALIGNMENT,
            CodecId::NvcompLz4 | CodecId::NvcompZstd if entry == 0 => return None,
            CodecId::NvcompLz4 | CodecId::NvcompZstd => at..at + entry,
        };
        at = place.end.next_multiple_of(ALIGNMENT);
        (place.start <= place.end && place.end <= payload).then_some(place)
    };
    let places: Option<Vec<_>> = entries.iter().map(place).collect();
    let places = places.ok_or(out_of_order)?;
    match at == payload {
        true => Ok(places),
        false => Err(Error::corrupt("its blocks do not end where it does")),
    }
}

/// Decodes the container of `header` to `out`.
pub(crate) fn decode(
    coder: &impl BlockDecoder,
    header: &Header,
    container: &[u8],
    out: &mut [u8],
) -> Result<()> {
    if out.len() as u64 != header.raw_bytes {
        return Err(Invalid::Length {
            given: out.len() as u64,
            expected: header.raw_bytes,
        }
        .into());
    }
    let short = Error::corrupt("it is shorter than its header says");
    let stored_bytes = usize::try_from(header.stored_bytes).map_err(|_| short.clone())?;
    let container = container.get(..stored_bytes).ok_or(short)?;
    let (front, payload) = container.split_at(header.payload_at() as usize);
    let places = places(header, front)?;

    let (values, tail) = out.split_at_mut(out.len() - header.tail_bytes());
    tail.copy_from_slice(&front[TAIL_AT..TAIL_AT + tail.len()]);
    let block_bytes = block_values(header.codec, header.element) * header.element.bytes();
    values
        .par_chunks_mut(block_bytes)
        .zip(places)
        .try_for_each(|(values, place)| {
            let stored = &payload[place];
            if stored.is_empty() {
                values.fill(0);
                return Ok(());
            }
            coder.decode(stored, values).map_err(Error::corrupt)
        })
}
