//! Compares two pieces. Blocks with the same checksum are equal, so only other blocks are read.

use super::aligned::Aligned;
use super::piece::Piece;
use super::threads::{WRITE_BYTES, side_by_side};
use crate::container::{Element, Head, RegionInfo};
use crate::{Comparison, Difference, Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use tierflow_sync::Mutex;

/// The difference of two pieces.
#[derive(Debug, Clone, Default)]
pub struct PieceDifference {
    /// The regions whose values differ, in the order of the first piece.
    pub regions: Vec<RegionDifference>,
    /// Names of regions that one piece lacks, or that have different types or shapes.
    pub unlike: Vec<String>,
    /// Bytes that were read from both pieces together.
    pub bytes_read: u64,
}

impl PieceDifference {
    /// Returns true if no region differs.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.regions.is_empty() && self.unlike.is_empty()
    }
}

/// A region whose values differ.
#[derive(Debug, Clone)]
pub struct RegionDifference {
    /// The region as it lies in the first piece.
    pub region: RegionInfo,
    /// The places and the size of the difference of its values.
    pub difference: Difference,
}

/// A part of a region that is read from both pieces and compared.
#[derive(Debug)]
struct UnequalPart {
    /// Index of the pair of regions.
    pair: usize,
    /// Range of bytes within the region.
    bytes: Range<u64>,
}

/// Bytes of a region in memory.
struct PartRead<'m> {
    bytes: &'m [u8],
    /// Length in bytes of the blocks that were read for `bytes`.
    read: u64,
}

/// The regions of two pieces, paired by their names.
#[derive(Debug, Clone, Default)]
pub struct RegionPairs<'a> {
    /// Regions with the same name, type and shape: first the one of the first piece.
    pub pairs: Vec<[&'a RegionInfo; 2]>,
    /// The names of all other regions.
    pub unlike: Vec<String>,
}

impl<'a> RegionPairs<'a> {
    /// Pairs all regions of two pieces, or only those with the given name.
    ///
    /// # Errors
    /// [`Error::Argument`] if neither piece has a region of that name.
    pub fn of(a: &'a [RegionInfo], b: &'a [RegionInfo], name: Option<&str>) -> Result<Self> {
        let is_chosen = |region: &&RegionInfo| name.is_none_or(|name| region.name == name);
        let theirs = b.iter().filter(is_chosen);
        let mut theirs: BTreeMap<&str, &RegionInfo> = theirs
            .map(|region| (region.name.as_str(), region))
            .collect();
        let mut found = Self::default();
        for a in a.iter().filter(is_chosen) {
            match theirs.remove(a.name.as_str()) {
                Some(b) if (a.element, a.length, &a.shape) == (b.element, b.length, &b.shape) => {
                    found.pairs.push([a, b]);
                }
                _ => found.unlike.push(a.name.clone()),
            }
        }
        found.unlike.extend(theirs.into_keys().map(str::to_owned));
        match name {
            Some(name) if found.pairs.is_empty() && found.unlike.is_empty() => Err(
                Error::Argument(format!("neither of the two has a region {name:?}")),
            ),
            _ => Ok(found),
        }
    }
}

impl Piece {
    /// Compares the regions of this piece with those of the same names in another piece, all of them or one, by the rules of
    /// [`Comparison::new`].
    ///
    /// Blocks with the same checksum and place in both pieces are not read; only the heads are.
    ///
    /// # Errors
    /// [`Error::Argument`] for encoded pieces, for a name that neither piece has, and for a wrong tolerance; and the errors of
    /// [`restore`](Self::restore).
    pub fn compare(
        &self,
        other: &Self,
        region: Option<&str>,
        within: Option<f64>,
    ) -> Result<PieceDifference> {
        for piece in [self, other] {
            if piece.head().decoded().is_some() {
                return Err(Error::Argument(format!(
                    "version {} lies in {} as a difference, or compressed: compare it by the command, or once it is restored",
                    piece.version(),
                    piece.path().display()
                )));
            }
        }
        // Reports a wrong tolerance even if nothing has to be compared.
        Comparison::new(Element::Bytes, within)?;
        let RegionPairs { pairs, unlike } =
            RegionPairs::of(self.regions(), other.regions(), region)?;
        let parts: Vec<UnequalPart> = (0..)
            .zip(&pairs)
            .flat_map(|(number, pair)| self.unequal(other, number, pair))
            .collect();
        let threads = self.threads().min(parts.len());
        let read = AtomicU64::new(0);
        let found: Mutex<_> = Mutex::new(vec![None::<Difference>; pairs.len()]);
        let compare = |(ours, theirs): &mut (Aligned, Aligned), part: UnequalPart| {
            let [a, b] = pairs[part.pair];
            let mut comparison = Comparison::new(a.element, within)?;
            let a_read = self.part(a, &part.bytes, ours)?;
            let b_read = other.part(b, &part.bytes, theirs)?;
            let at = part.bytes.start / a.element.size();
            comparison.add(at, a_read.bytes, b_read.bytes);
            read.fetch_add(a_read.read + b_read.read, Ordering::Relaxed);
            if let Some(more) = comparison.difference() {
                let mut found = found.lock();
                let before = &mut found[part.pair];
                *before = Some(before.map_or(more, |before| before.joined(more)));
            }
            Ok(())
        };
        side_by_side(threads, parts.into_iter(), Default::default, compare)?;
        let found = found.into_inner();
        let regions = pairs.iter().zip(found).filter_map(|([region, _], found)| {
            Some(RegionDifference {
                difference: found?,
                region: (*region).clone(),
            })
        });
        Ok(PieceDifference {
            regions: regions.collect(),
            unlike,
            bytes_read: read.into_inner(),
        })
    }

    /// Returns the ranges of a region that may differ, cut into parts of whole elements.
    fn unequal(&self, other: &Self, pair: usize, [a, b]: &[&RegionInfo; 2]) -> Vec<UnequalPart> {
        let (length, size) = (a.length, a.element.size());
        let (ours, theirs) = (self.head(), other.head());
        let (start, block) = (a.offset, u64::from(ours.block_bytes));
        let in_same_blocks = start == b.offset && ours.block_bytes == theirs.block_bytes;
        let mut unequal: Vec<Range<u64>> = Vec::new();
        if !in_same_blocks {
            unequal.push(0..length);
        } else if length > 0 {
            for number in start / block..(start + length).div_ceil(block) {
                let sum = |of: &Head| {
                    let covered = (number * block)
                        .saturating_add(block)
                        .min(of.payload_length);
                    (of.blocks.get(number as usize).copied(), covered)
                };
                if sum(ours) == sum(theirs) {
                    continue;
                }
                // A block may begin or end within an element.
                let from = (number * block).saturating_sub(start) / size * size;
                let to = ((number + 1) * block - start).next_multiple_of(size);
                let (from, to) = (from, to.min(length));
                match unequal.last_mut() {
                    Some(last) if last.end >= from => last.end = to,
                    _ => unequal.push(from..to),
                }
            }
        }
        let step = WRITE_BYTES as usize;
        let cut = unequal.into_iter().flat_map(|range| {
            let end = range.end;
            let starts = range.step_by(step);
            starts.map(move |from| from..end.min(from + WRITE_BYTES))
        });
        cut.map(|bytes| UnequalPart { pair, bytes }).collect()
    }

    /// Reads bytes of a region, together with the whole blocks around them, and verifies these blocks.
    fn part<'m>(
        &self,
        region: &RegionInfo,
        bytes: &Range<u64>,
        memory: &'m mut Aligned,
    ) -> Result<PartRead<'m>> {
        let block = u64::from(self.head().block_bytes);
        let (from, to) = (region.offset + bytes.start, region.offset + bytes.end);
        let start = from / block * block;
        let end = to.next_multiple_of(block).min(self.head().payload_length);
        let read = self.checked(start, (end - start) as usize, memory)?;
        Ok(PartRead {
            bytes: &read[(from - start) as usize..(to - start) as usize],
            read: end - start,
        })
    }
}
