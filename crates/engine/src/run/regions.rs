//! The application's regions, seen as one run of bytes.

use crate::plan::{Piece, Place};
use crate::{Error, Region, RegionMut, Result};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;
use tierflow_device::{Memory, Part, PartMut, ReadLoan, Stream, WriteLoan};

/// Regions to copy from.
pub(crate) struct SourceRegions<'r, 'a> {
    regions: &'r [Region<'a>],
    /// The offsets of the regions in the checkpoint.
    spans: Spans,
}

/// Regions to copy to: all of the checkpoint, or parts of it.
pub(crate) struct TargetRegions<'r, 'a> {
    regions: &'r mut [RegionMut<'a>],
    /// The offsets of the regions in the checkpoint, in ascending order. The regions do not overlap.
    spans: Spans,
    is_whole: bool,
}

/// An offset in a checkpoint, and memory for the bytes from there on.
pub(crate) type At<L> = (u64, L);

/// Bytes to read, and the parts into which they go, each with its offset among them.
pub(super) type Run<'r> = (ReadLoan, SmallVec<[(usize, PartMut<'r>); 1]>);

/// Offsets of regions: most checkpoints have few, which need no allocation.
type Spans = SmallVec<[Range<u64>; 2]>;

impl<'r, 'a> SourceRegions<'r, 'a> {
    /// Takes the regions of the checkpoint, one after the other.
    pub(crate) fn new(regions: &'r [Region<'a>]) -> Self {
        Self {
            regions,
            spans: spans(regions.iter().map(Region::len)),
        }
    }

    /// Returns the number of bytes of the regions.
    pub(super) fn len(&self) -> usize {
        self.regions.iter().map(Region::len).sum()
    }

    /// Returns the regions that have bytes in this range: the offset of each in the checkpoint, the region, and its bytes in the range.
    fn within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Region<'a>, Range<usize>)> {
        within(&self.spans, range)
            .map(|(index, of)| (self.spans[index].start, self.regions[index].plain(), of))
    }

    /// Copies parts of the checkpoint into these targets, all at once.
    pub(super) fn copy_to(&self, targets: &mut [At<WriteLoan>], stream: &Stream) -> Result<()> {
        let runs = targets.iter_mut().map(|(start, target)| {
            let start = *start;
            let parts = self.within(start..start + target.len() as u64);
            let parts = parts.map(move |(begin, region, within)| {
                let at = (begin + within.start as u64 - start) as usize;
                let part = match region {
                    Region::Memory(memory, of) => {
                        Part::Memory(memory, of.start + within.start..of.start + within.end)
                    }
                    Region::Bytes(bytes) => Part::Bytes(&bytes[within]),
                    // The region is plain.
                    Region::Named { .. } => Part::Bytes(&[]),
                };
                (at, part)
            });
            (parts, target)
        });
        Ok(stream.gather_all(runs)?)
    }

    /// Fills `into` with the bytes of the checkpoint from `start` on, if they are ordinary memory. Returns true if they are.
    pub(super) fn copy_bytes(&self, start: u64, into: &mut [u8]) -> bool {
        let range = start..start + into.len() as u64;
        let is_plain = |region: &Region<'_>| matches!(region, Region::Bytes(_));
        if !self
            .within(range.clone())
            .all(|(_, region, _)| is_plain(region))
        {
            return false;
        }
        for (begin, region, within) in self.within(range) {
            if let Region::Bytes(bytes) = region {
                let at = (begin + within.start as u64 - start) as usize;
                into[at..at + within.len()].copy_from_slice(&bytes[within]);
            }
        }
        true
    }
}

impl<'r, 'a> TargetRegions<'r, 'a> {
    /// Takes the regions of the checkpoint, one after the other.
    pub(crate) fn whole(regions: &'r mut [RegionMut<'a>]) -> Self {
        let spans = spans(regions.iter().map(RegionMut::len));
        Self {
            regions,
            spans,
            is_whole: true,
        }
    }

    /// Takes regions for parts of the checkpoint. `starts`: the offset of each part, in ascending order.
    pub(crate) fn parts(regions: &'r mut [RegionMut<'a>], starts: &[u64]) -> Self {
        let regions_at = starts.iter().zip(&*regions);
        let spans = regions_at.map(|(start, region)| *start..*start + region.len() as u64);
        Self {
            spans: spans.collect(),
            regions,
            is_whole: false,
        }
    }

    /// Returns the number of bytes of the regions.
    pub(crate) fn len(&self) -> u64 {
        self.regions.iter().map(|region| region.len() as u64).sum()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the regions, if they are all of the checkpoint.
    pub(super) fn all(&mut self) -> Option<&mut [RegionMut<'a>]> {
        self.is_whole.then_some(&mut *self.regions)
    }

    /// Returns the numbers of the regions that have bytes in this range, and the bytes of each in the range.
    fn within(&self, range: Range<u64>) -> impl Iterator<Item = (usize, Range<usize>)> {
        within(&self.spans, range)
    }

    /// Lends the memory for these bytes of the checkpoint, if all of them go to one region that is a [`Memory`].
    pub(super) fn lend(&self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        let length = bytes.end - bytes.start;
        let (index, within) = self.within(bytes).next()?;
        match &self.regions[index] {
            RegionMut::Memory(memory, of) if within.len() as u64 == length => {
                let of = of.start + within.start..of.start + within.end;
                Some(memory.lend_mut(of).map_err(Into::into))
            }
            _ => None,
        }
    }

    /// Returns the regions and the offset of each, if all are ordinary memory.
    pub(super) fn bytes_mut(&mut self) -> Option<Vec<(u64, &mut [u8])>> {
        let regions = self.spans.iter().zip(self.regions.iter_mut());
        let parts = regions.map(|(span, region)| match region {
            RegionMut::Bytes(bytes) => Some((span.start, &mut **bytes)),
            RegionMut::Memory(..) => None,
        });
        parts.collect()
    }

    /// Returns the wanted bytes of the checkpoint; `None` if all are wanted.
    pub(crate) fn wanted(&self) -> Option<Vec<Range<u64>>> {
        (!self.is_whole).then(|| self.spans.to_vec())
    }

    /// Returns the wanted parts of these pieces. In its piece, each part begins at a multiple of `alignment`, and ends at another one or at
    /// the end of the piece.
    pub(super) fn cut<'p>(
        &self,
        pieces: &'p [Piece],
        alignment: impl Fn(&Piece) -> u64,
    ) -> Cow<'p, [Piece]> {
        let Some(wanted) = self.wanted() else {
            return Cow::Borrowed(pieces);
        };
        let mut cut: Vec<Piece> = Vec::new();
        for piece in pieces {
            let (begin, end) = (piece.start, piece.start + piece.place.size);
            let unit = alignment(piece);
            // Offsets from the piece's start.
            let mut runs: Vec<Range<u64>> = Vec::new();
            for range in &wanted {
                let (from, to) = (range.start.max(begin), range.end.min(end));
                if from >= to {
                    continue;
                }
                let from = (from - begin) / unit * unit;
                let to = (to - begin).next_multiple_of(unit).min(end - begin);
                match runs.last_mut() {
                    Some(last) if from <= last.end => last.end = to,
                    _ => runs.push(from..to),
                }
            }
            cut.extend(runs.into_iter().map(|run| Piece {
                start: begin + run.start,
                place: Place {
                    offset: piece.place.offset + run.start,
                    size: run.end - run.start,
                    ..piece.place
                },
            }));
        }
        Cow::Owned(cut)
    }

    /// Copies these sources, which ascend, into the regions, all at once. Bytes that are not wanted are left out.
    pub(super) fn copy_from(
        &mut self,
        sources: impl IntoIterator<Item = At<ReadLoan>>,
        stream: &Stream,
    ) -> Result<()> {
        scatter(&mut self.runs(sources)?, stream)
    }

    /// Returns each of these sources, which ascend, with the parts of regions into which its bytes go. Bytes that are not wanted are left
    /// out.
    pub(super) fn runs(
        &mut self,
        sources: impl IntoIterator<Item = At<ReadLoan>>,
    ) -> Result<SmallVec<[Run<'_>; 1]>> {
        let mut rooms: SmallVec<[RegionCursor<'_>; 2]> =
            self.regions.iter_mut().map(RegionCursor::of).collect();
        let mut runs = SmallVec::new();
        for (start, source) in sources {
            let range = start..start + source.len() as u64;
            let mut parts = SmallVec::new();
            for (index, within) in within(&self.spans, range) {
                let at = (self.spans[index].start + within.start as u64 - start) as usize;
                parts.push((at, rooms[index].take(within)?));
            }
            runs.push((source, parts));
        }
        Ok(runs)
    }
}

/// Copies each source into its parts, all at once.
pub(super) fn scatter(runs: &mut [Run<'_>], stream: &Stream) -> Result<()> {
    let runs = runs.iter_mut();
    Ok(stream.scatter_all(runs.map(|(source, parts)| (&*source, std::mem::take(parts))))?)
}

/// A region of which parts are taken in ascending order.
enum RegionCursor<'r> {
    Memory(&'r Memory, Range<usize>),
    /// The bytes behind those that were taken or passed over, and their offset in the region.
    Bytes(&'r mut [u8], usize),
}

impl<'r> RegionCursor<'r> {
    fn of(region: &'r mut RegionMut<'_>) -> Self {
        match region {
            RegionMut::Memory(memory, of) => Self::Memory(memory, of.clone()),
            RegionMut::Bytes(bytes) => Self::Bytes(bytes, 0),
        }
    }

    fn take(&mut self, within: Range<usize>) -> Result<PartMut<'r>> {
        match self {
            Self::Memory(memory, of) => {
                let of = of.start + within.start..of.start + within.end;
                Ok(PartMut::Memory(memory, of))
            }
            Self::Bytes(rest, passed) => {
                let skipped = within.start.checked_sub(*passed);
                let behind = skipped.and_then(|at| std::mem::take(rest).split_at_mut_checked(at));
                let (_, behind) = behind.ok_or(NOT_ASCENDING)?;
                let taken = behind.split_at_mut_checked(within.len());
                let (taken, behind) = taken.ok_or(NOT_ASCENDING)?;
                (*rest, *passed) = (behind, within.end);
                Ok(PartMut::Bytes(taken))
            }
        }
    }
}

/// The error of pieces that do not ascend: the plan names the pieces of a version in ascending order.
const NOT_ASCENDING: Error = Error::Internal {
    what: "pieces of a version that do not ascend",
};

/// Returns the offsets of runs of these lengths, one after the other.
fn spans(lengths: impl Iterator<Item = usize>) -> Spans {
    let (mut spans, mut end) = (Spans::new(), 0);
    for length in lengths {
        let start = end;
        end += length as u64;
        spans.push(start..end);
    }
    spans
}

/// Returns the numbers of the spans, which ascend, that have bytes in a range, and the bytes of each in the range.
fn within(spans: &[Range<u64>], range: Range<u64>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let Range { start, end } = range;
    let first = spans.partition_point(|span| span.end <= start);
    let numbered = spans.iter().enumerate().skip(first);
    let in_range = numbered.take_while(move |(_, span)| span.start < end);
    in_range.filter_map(move |(index, span)| {
        let (from, to) = (start.max(span.start), end.min(span.end));
        let of = (from - span.start) as usize..(to - span.start) as usize;
        (from < to).then_some((index, of))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_range_once() {
        let lengths = [3, 0, 5, 1, 0, 0, 4, 0];
        let spans = spans(lengths.into_iter());
        for from in 0..13_u64 {
            for to in from..=13 {
                let parts = within(&spans, from..to);
                let bytes = parts.flat_map(|(index, of)| {
                    assert!(of.end <= lengths[index]);
                    of.map(|byte| spans[index].start + byte as u64)
                        .collect::<Vec<_>>()
                });
                assert_eq!(bytes.collect::<Vec<_>>(), (from..to).collect::<Vec<_>>());
            }
        }
    }
}
