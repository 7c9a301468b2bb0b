//! Reading of containers from untrusted sources.

use std::collections::BTreeSet;

use super::header::{HEADER_BYTES, Header, REPEATS, Stored};
use crate::error::{Error, Result};
use crate::hash::{Hasher, Sum, word_sum};
use crate::layout::{Layout, Node};
use crate::regions::{Place, Shift};

/// A checked difference in borrowed bytes.
///
/// ```
/// # fn main() -> tierflow_dedup::Result<()> {
/// use tierflow_dedup::{Config, Container, Lineage, Method, Stored};
/// let mut lineage = Lineage::new(Config::new(Method::Tree))?;
/// let difference = lineage.encode(7, &[0; 100_000])?;
/// let container = Container::parse(difference.as_bytes())?;
/// assert_eq!(container.version(), 7);
/// assert_eq!(container.stored(), Stored::Tree);
/// assert_eq!(container.checkpoint_bytes(), 100_000);
/// container.check_payload()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Container<'a> {
    pub(crate) header: Header,
    metadata: &'a [u8],
    payload: &'a [u8],
}

/// Neighbouring chunks whose bytes are in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Number of chunks in the payload before these.
    pub(crate) rank: u32,
}

impl<'a> Container<'a> {
    /// Returns the difference in `bytes`. Checks everything but the bytes of the payload, whose sum
    /// [`check_payload`](Self::check_payload) and every restore compare. Allocates nothing, whatever the bytes are.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the bytes are damaged, or no difference.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let header = Header::read(bytes)?;
        let bad = |what| Error::corrupt(header.version, what);
        // `read` has compared the sum of the lengths with the total in the header.
        if bytes.len() as u64 != header.total_bytes() {
            return Err(bad("it is not as long as its header says"));
        }
        let metadata_end = HEADER_BYTES + header.metadata_bytes() as usize;
        let metadata = &bytes[HEADER_BYTES..metadata_end];
        let payload_at = header.payload_at() as usize;
        if bytes[metadata_end..payload_at]
            .iter()
            .any(|&byte| byte != 0)
        {
            return Err(bad("there is something between metadata and payload"));
        }
        if word_sum(metadata) != header.metadata {
            return Err(bad("the sum of its metadata does not fit"));
        }
        let container = Self {
            header,
            metadata,
            payload: &bytes[payload_at..],
        };
        container.check_regions()?;
        Ok(container)
    }

    /// Returns the difference in bytes that were parsed before. Checks nothing.
    pub(crate) fn known(header: Header, bytes: &'a [u8]) -> Self {
        let end = HEADER_BYTES + header.metadata_bytes() as usize;
        Self {
            header,
            metadata: &bytes[HEADER_BYTES..end],
            payload: &bytes[header.payload_at() as usize..],
        }
    }

    /// Checks the payload's sum. Reads all of the payload.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the sum does not fit.
    pub fn check_payload(&self) -> Result<()> {
        let hasher = Hasher::new(self.header.seed);
        let mut sum = Sum::default();
        for (chunk, rank) in self.payload.chunks(self.layout().chunk_bytes()).zip(0..) {
            sum.add(hasher.digest(chunk), rank);
        }
        if sum == self.header.payload {
            return Ok(());
        }
        Err(self.corrupt("the sum of its payload does not fit"))
    }

    /// Returns the version that the writer gave.
    pub fn version(&self) -> u64 {
        self.header.version
    }

    /// Returns the stored form.
    pub fn stored(&self) -> Stored {
        self.header.stored
    }

    /// Returns the bytes of the checkpoint.
    pub fn checkpoint_bytes(&self) -> u64 {
        self.header.layout.len
    }

    /// Returns the bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.header.layout.chunk
    }

    /// Returns the seed of the lineage's hash.
    pub fn seed(&self) -> u64 {
        self.header.seed
    }

    /// Returns the number of the difference in the lineage, from 0.
    pub fn ordinal(&self) -> u32 {
        self.header.ordinal
    }

    /// Returns the ordinal of the checkpoint before; `None` if the difference has no parent, as the first one.
    pub fn parent(&self) -> Option<u32> {
        (self.header.parent != super::NO_PARENT).then_some(self.header.parent)
    }

    /// Returns the ordinals of other differences that the entries of this one name as the place of chunks. Ordinals that only entries
    /// of its parents name are not among them.
    pub fn sources(&self) -> BTreeSet<u32> {
        let sources = self.shifts().map(|shift| shift.source.ordinal);
        sources
            .filter(|&ordinal| ordinal != self.header.ordinal)
            .collect()
    }

    /// Returns the bytes of metadata, without the header.
    pub fn metadata_bytes(&self) -> u64 {
        self.header.metadata_bytes()
    }

    /// Returns the bytes of the chunks stored in the difference.
    pub fn payload_bytes(&self) -> u64 {
        self.header.payload_bytes
    }

    /// Returns the numbers of entries of first-time occurrences and of shifted duplicates; 0 in the forms `Full` and `Basic`.
    pub fn entries(&self) -> (u32, u32) {
        (self.header.first, self.header.shifted)
    }

    pub(crate) fn layout(&self) -> Layout {
        self.header.layout
    }

    pub(crate) fn payload(&self) -> &'a [u8] {
        self.payload
    }

    fn corrupt(&self, what: &'static str) -> Error {
        Error::corrupt(self.header.version, what)
    }

    fn words(&self, from: usize, count: usize) -> impl Iterator<Item = u32> + use<'a> {
        let words = self.metadata[4 * from..4 * (from + count)]
            .as_chunks::<4>()
            .0;
        words.iter().map(|word| u32::from_le_bytes(*word))
    }

    fn first_nodes(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.words(0, self.header.first as usize)
    }

    /// Returns the runs of chunks in the payload, in the order of the payload. Two runs may be neighbours.
    pub(crate) fn stored_runs(&self) -> impl Iterator<Item = Run> + use<'a> {
        let layout = self.layout();
        let chunks = layout.count;
        let full = (self.stored() == Stored::Full).then_some((0, chunks));
        let words = match self.stored() {
            Stored::Basic => self.words(0, chunks.div_ceil(32) as usize).zip(0_u32..),
            _ => self.words(0, 0).zip(0_u32..),
        };
        let bits = words.flat_map(|(word, at)| Bits(word).map(move |bit| (32 * at + bit, 1)));
        let nodes = self
            .first_nodes()
            .map(|name| (Node(name).first(), Node(name).count()));
        let mut rank = 0;
        full.into_iter()
            .chain(bits)
            .chain(nodes)
            .map(move |(first, count)| {
                let run = Run { first, count, rank };
                rank += count;
                run
            })
    }

    /// Returns the regions of shifted duplicates.
    pub(crate) fn shifts(&self) -> impl Iterator<Item = Shift> + use<'a> {
        let (first, count) = (self.header.first as usize, self.header.shifted as usize);
        let nodes = self.words(first, count);
        let ordinals = self.words(first + count, count);
        let chunks = self.words(first + 2 * count, count);
        nodes
            .zip(ordinals)
            .zip(chunks)
            .map(|((node, ordinal), chunk)| Shift {
                node: Node(node),
                source: Place {
                    ordinal: ordinal & !REPEATS,
                    chunk,
                },
                repeats: ordinal & REPEATS != 0,
            })
    }

    fn check_regions(&self) -> Result<()> {
        let (layout, header) = (self.layout(), &self.header);
        let has_entries = matches!(self.stored(), Stored::List | Stored::Tree);
        if !has_entries && (header.first != 0 || header.shifted != 0) {
            return Err(self.corrupt("it has entries that its form has not"));
        }
        if self.stored() == Stored::Basic {
            let last = self
                .words((layout.count.div_ceil(32) - 1) as usize, 1)
                .next();
            let valid = layout.count % 32;
            if valid != 0 && last.is_some_and(|last| last >> valid != 0) {
                return Err(self.corrupt("its bitmap has more bits than there are chunks"));
            }
        }
        if has_entries {
            self.check_nodes()?;
        }
        let mut stored = 0_u64;
        for run in self.stored_runs() {
            stored += layout.bytes(run.first, run.count).len() as u64;
        }
        if stored != header.payload_bytes {
            return Err(self.corrupt("its payload is not as long as its entries say"));
        }
        Ok(())
    }

    /// Checks that entries are in order, that each chunk is in at most one, and that the sources are possible.
    fn check_nodes(&self) -> Result<()> {
        let (layout, header) = (self.layout(), &self.header);
        let mut firsts = self.first_nodes().peekable();
        let mut shifts = self.shifts().peekable();
        let mut end = 0;
        loop {
            // The next entry is the one with the lower name. If a list is unsorted, the comparison with `end` fails.
            let first_is_next = match (firsts.peek(), shifts.peek()) {
                (Some(&first), Some(shift)) => first < shift.node.0,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return Ok(()),
            };
            let shift = if first_is_next { None } else { shifts.next() };
            let name = match shift {
                Some(shift) => shift.node.0,
                None => firsts.next().unwrap_or_default(),
            };
            let node = Node::named(name, layout.count)
                .ok_or_else(|| self.corrupt("an entry names no region"))?;
            if self.stored() == Stored::List && node.count() != 1 {
                return Err(self.corrupt("an entry of a list names more than a chunk"));
            }
            if node.first() < end {
                return Err(self.corrupt("its entries overlap or are out of order"));
            }
            end = node.end();
            if let Some(shift) = shift {
                let is_behind = shift.source.ordinal > header.ordinal;
                if is_behind || !shift.fits(layout) {
                    return Err(self.corrupt("an entry has an impossible source"));
                }
            }
        }
    }
}

impl Shift {
    /// Returns the source of chunk `n` of the region.
    pub(crate) fn source_of(&self, n: u32) -> Place {
        Place {
            chunk: self.source.chunk + if self.repeats { 0 } else { n },
            ..self.source
        }
    }

    /// Returns true if the source exists and has as many bytes as the region.
    fn fits(&self, layout: Layout) -> bool {
        let step = if self.repeats {
            0
        } else {
            self.node.count() - 1
        };
        let Some(last) = self.source.chunk.checked_add(step) else {
            return false;
        };
        let is_leaf = self.node.count() == 1;
        // Only the last chunk is short, and only the last chunk of a region can be that one.
        last < layout.count
            && !(self.repeats && is_leaf)
            && layout.is_short(last) == layout.is_short(self.node.end() - 1)
            && !(self.repeats && layout.is_short(last))
    }
}

/// An iterator over the positions of set bits, the lowest first.
struct Bits(u32);

impl Iterator for Bits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (bit < 32).then_some(bit)
    }
}
