//! Putting a container together, all but its payload.

use super::header::{HEADER_BYTES, Header, REPEATS, Stored, metadata_bytes};
use crate::hash::word_sum;
use crate::layout::Layout;
use crate::regions::Regions;

/// What lies between header and payload.
#[derive(Debug)]
pub(crate) enum Body {
    Full,
    /// One bit for each chunk, in words of 32; a set bit means that it changed.
    Basic(Vec<u32>),
    /// Whether the regions are of the tree.
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

    /// Entries of first-time occurrences and of shifted duplicates.
    pub(crate) fn entries(&self) -> (u32, u32) {
        match self {
            Self::Full | Self::Basic(_) => (0, 0),
            // There are no more regions than chunks.
            Self::Regions(regions, _) => (regions.first.len() as u32, regions.shifted.len() as u32),
        }
    }

    pub(crate) fn bytes(&self, chunks: u32) -> u64 {
        let (first, shifted) = self.entries();
        metadata_bytes(self.stored(), chunks, first, shifted)
    }

    /// Writes the words to `out`, which has room for exactly them.
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

/// Where the payload starts behind so many bytes of metadata: at a multiple of 64, for the kernels.
pub(crate) fn payload_at(metadata_bytes: u64) -> u64 {
    (HEADER_BYTES as u64 + metadata_bytes).next_multiple_of(64)
}

/// Whether the whole checkpoint takes no more room than this.
pub(crate) fn full_is_smaller(layout: Layout, metadata_bytes: u64, payload_bytes: u64) -> bool {
    payload_at(metadata_bytes) + payload_bytes >= payload_at(0) + layout.len
}

/// The container, with zeros in the place of the payload, and where that starts. The caller
/// fills the payload and then writes the header, which has the payload's checksum; `header` gets the metadata's here.
pub(crate) fn write(header: &mut Header, body: &Body) -> (Vec<u8>, usize) {
    let (payload_at, total) = (header.payload_at() as usize, header.total_bytes() as usize);
    // Zeroed by the system, page by page, when the threads that fill it come there.
    let mut bytes = vec![0; total];
    let metadata_end = HEADER_BYTES + header.metadata_bytes() as usize;
    let metadata = &mut bytes[HEADER_BYTES..metadata_end];
    body.put(metadata);
    header.metadata = word_sum(metadata);
    (bytes, payload_at)
}
