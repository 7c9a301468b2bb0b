//! Writing of a container, except for its payload.

use super::header::{HEADER_BYTES, Header, REPEATS, Stored, metadata_bytes};
use crate::hash::word_sum;
use crate::layout::Layout;
use crate::regions::Regions;

/// The metadata between header and payload.
#[derive(Debug)]
pub(crate) enum Body {
    Full,
    /// A bit for each chunk, in words of 32; set if the chunk changed.
    Basic(Vec<u32>),
    /// The regions, and true for the form `Tree`, false for `List`.
    Regions(Regions, bool),
}

impl Body {
    pub(crate) fn stored(&self) -> Stored {
        match self {
            Self::Full => Stored::Full,
            Self::Basic(_) => Stored::Basic,
            Self::Regions(_, true) => Stored::Tree,
            Self::Regions(_, false) => Stored::List,
        }
    }

    /// Returns the numbers of entries of first-time occurrences and of shifted duplicates.
    pub(crate) fn entries(&self) -> (u32, u32) {
        match self {
            Self::Full | Self::Basic(_) => (0, 0),
            // A difference has at most as many regions as chunks.
            Self::Regions(regions, _) => (regions.first.len() as u32, regions.shifted.len() as u32),
        }
    }

    pub(crate) fn bytes(&self, chunks: u32) -> u64 {
        let (first, shifted) = self.entries();
        metadata_bytes(self.stored(), chunks, first, shifted)
    }

    /// Writes the words of the metadata to `out`, which has exactly their length.
    fn put(&self, out: &mut [u8]) {
        let mut words = out.as_chunks_mut::<4>().0.iter_mut();
        let mut put = |word: u32| {
            if let Some(place) = words.next() {
                *place = word.to_le_bytes();
            }
        };
        match self {
            Self::Full => {}
            Self::Basic(words) => words.iter().for_each(|&word| put(word)),
            Self::Regions(Regions { first, shifted }, _) => {
                first.iter().for_each(|node| put(node.0));
                shifted.iter().for_each(|shift| put(shift.node.0));
                for shift in shifted {
                    put(shift.source.ordinal | if shift.repeats { REPEATS } else { 0 });
                }
                shifted.iter().for_each(|shift| put(shift.source.chunk));
            }
        }
    }
}

/// Returns the offset of the payload behind `metadata_bytes` bytes: a multiple of 64, for the kernels.
pub(crate) fn payload_at(metadata_bytes: u64) -> u64 {
    (HEADER_BYTES as u64 + metadata_bytes).next_multiple_of(64)
}

/// Returns true if the whole checkpoint takes no more bytes than a difference with these bytes of metadata and payload.
pub(crate) fn full_is_smaller(layout: Layout, metadata_bytes: u64, payload_bytes: u64) -> bool {
    payload_at(metadata_bytes) + payload_bytes >= payload_at(0) + layout.len
}

/// Returns the container with zeros in place of header and payload, and the payload's offset. Sets the sum of the metadata
/// in `header`. The caller fills the payload, and then writes the header, which needs the payload's sum.
pub(crate) fn write(header: &mut Header, body: &Body) -> (Vec<u8>, usize) {
    let (payload_at, total) = (header.payload_at() as usize, header.total_bytes() as usize);
    // The system zeroes pages when the threads that fill them first touch them.
    let mut bytes = vec![0; total];
    let metadata_end = HEADER_BYTES + header.metadata_bytes() as usize;
    let metadata = &mut bytes[HEADER_BYTES..metadata_end];
    body.put(metadata);
    header.metadata = word_sum(metadata);
    (bytes, payload_at)
}
