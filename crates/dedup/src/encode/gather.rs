//! Assembly of a difference from header, metadata and stored chunks.

use rayon::prelude::*;

use super::leaves::{Block, chunks_per_block};
use super::{CheckpointId, Difference, LastCheckpoint, Pass, Summary, header};
use crate::container::{Body, HEADER_BYTES, write};
use crate::hash::Sum;

pub(super) fn gather(
    pass: &Pass<'_>,
    blocks: &[Block],
    body: Body,
    version: u64,
    parent: Option<LastCheckpoint>,
) -> Difference {
    let layout = pass.layout;
    let is_full = matches!(body, Body::Full);
    let sizes: Vec<u64> = blocks
        .iter()
        .map(|block| block.stored_bytes(layout))
        .collect();
    let payload_bytes = if is_full {
        layout.len
    } else {
        sizes.iter().sum()
    };
    let id = CheckpointId {
        version,
        ordinal: pass.ordinal,
    };
    let mut header = header(
        layout,
        &body,
        id,
        pass.hasher.seed(),
        parent,
        pass.content,
        payload_bytes,
    );
    let (mut bytes, payload_at) = write(&mut header, &body);
    let payload = &mut bytes[payload_at..];
    if is_full {
        let piece = chunks_per_block(layout) * layout.chunk_bytes();
        let pieces = payload
            .par_chunks_mut(piece)
            .zip(pass.data.par_chunks(piece));
        pieces.for_each(|(to, from)| to.copy_from_slice(from));
        // Every chunk is stored at its own place.
        header.payload = pass.content;
    } else {
        header.payload = copy_stored(pass, blocks, &sizes, payload);
    }
    bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Difference {
        bytes,
        summary: Summary::new(&header, pass.collisions),
    }
}

/// Copies the stored chunks of each block to its part of the payload, and returns their sum.
fn copy_stored(pass: &Pass<'_>, blocks: &[Block], sizes: &[u64], payload: &mut [u8]) -> Sum {
    let layout = pass.layout;
    let mut rest = payload;
    let mut rank = 0;
    let mut parts = Vec::with_capacity(blocks.len());
    for (block, &size) in blocks.iter().zip(sizes) {
        if size == 0 {
            continue;
        }
        let (part, behind) = rest.split_at_mut(size as usize);
        parts.push((block, part, rank));
        rest = behind;
        rank += size.div_ceil(u64::from(layout.chunk));
    }
    let copy = |(block, part, rank): (&Block, &mut [u8], u64)| {
        let mut sum = Sum::default();
        let places = part.chunks_mut(layout.chunk_bytes()).zip(rank..);
        for (chunk, (to, rank)) in block.stored().zip(places) {
            to.copy_from_slice(pass.chunk(chunk));
            sum.add(pass.hasher.digest(to), rank);
        }
        sum
    };
    let merge = |mut one: Sum, other: Sum| {
        one.merge(other);
        one
    };
    parts.into_par_iter().map(copy).reduce(Sum::default, merge)
}
