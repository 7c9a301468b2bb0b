//! The application's regions, seen as one run of bytes.

use crate::plan::{Piece, Place};
use crate::{Region, RegionMut, Result};
use std::borrow::Cow;
use std::ops::Range;
use tierflow_device::{ReadLoan, Stream, WriteLoan};

/// Regions to copy from.
pub(crate) struct Source<'r, 'a>(pub(crate) &'r [Region<'a>]);

/// Regions to copy to: all of the checkpoint, or parts of it.
pub(crate) struct Sink<'r, 'a> {
    regions: &'r mut [RegionMut<'a>],
    /// Where in the checkpoint each part begins, in ascending order. They do not overlap.
    starts: Option<&'r [u64]>,
}

/// Bytes of a checkpoint, from an offset on, and memory for as many.
pub(super) type At<L> = (u64, L);

impl Source<'_, '_> {
    /// Copies parts of the checkpoint into these targets, all at once.
    pub(super) fn copy_to(
        &self,
        targets: impl IntoIterator<Item = At<WriteLoan>>,
        stream: &Stream,
    ) -> Result<()> {
        let mut pairs: Vec<(ReadLoan, WriteLoan)> = Vec::new();
        for (start, target) in targets {
            let mut walk = Walk::over(start..start + target.len() as u64);
            let mut rest = Some(target);
            for region in self.0 {
                let Some(within) = walk.pass(region.len()) else {
                    continue;
                };
                let Some(target) = rest.take() else { break };
                let (mut part, behind) = target.split_at(within.len());
                rest = Some(behind);
                match region.plain() {
                    Region::Memory(memory, of) => {
                        let of = of.start + within.start..of.start + within.end;
                        pairs.push((memory.lend(of)?, part));
                    }
                    Region::Bytes(bytes) => match part.bytes_mut() {
                        Ok(part) => part.copy_from_slice(&bytes[within]),
                        Err(_) => stream.write(&bytes[within], &mut part)?,
                    },
                    // It is plain.
                    Region::Named(_) => {}
                }
            }
        }
        Ok(stream.copy_all(pairs)?)
    }
}

impl Source<'_, '_> {
    /// Fills `into` with the bytes of the checkpoint from `start` on, if they are ordinary memory. Returns whether they are.
    pub(super) fn copy_bytes(&self, start: u64, into: &mut [u8]) -> bool {
        let is_plain = |region: &Region<'_>| matches!(region.plain(), Region::Bytes(_));
        if !self.0.iter().all(is_plain) {
            return false;
        }
        let mut walk = Walk::over(start..start + into.len() as u64);
        let mut rest = into;
        for region in self.0 {
            if let (Some(within), Region::Bytes(bytes)) = (walk.pass(region.len()), region.plain())
            {
                let (part, behind) = std::mem::take(&mut rest).split_at_mut(within.len());
                part.copy_from_slice(&bytes[within]);
                rest = behind;
            }
        }
        true
    }
}

impl<'r, 'a> Sink<'r, 'a> {
    /// The regions of the checkpoint, one after the other.
    pub(crate) fn whole(regions: &'r mut [RegionMut<'a>]) -> Self {
        Self {
            regions,
            starts: None,
        }
    }

    /// Parts of it, and where each begins, in ascending order.
    pub(crate) fn parts(regions: &'r mut [RegionMut<'a>], starts: &'r [u64]) -> Self {
        Self {
            regions,
            starts: Some(starts),
        }
    }

    /// Bytes of the regions.
    pub(crate) fn len(&self) -> u64 {
        self.regions.iter().map(|region| region.len() as u64).sum()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.starts.is_none()
    }

    /// The regions, if they are all of the checkpoint.
    pub(super) fn all(&mut self) -> Option<&mut [RegionMut<'a>]> {
        match self.starts {
            None => Some(self.regions),
            Some(_) => None,
        }
    }

    /// Lends the memory for these bytes of the checkpoint, if they all go to one region that is no ordinary memory.
    pub(super) fn lend(&self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        let mut begin = 0;
        for (index, region) in self.regions.iter().enumerate() {
            let start = self.starts.and_then(|starts| starts.get(index).copied());
            let start = start.unwrap_or(begin);
            begin = start + region.len() as u64;
            if let RegionMut::Memory(memory, of) = region
                && start <= bytes.start
                && bytes.end <= begin
            {
                let from = of.start + (bytes.start - start) as usize;
                let length = (bytes.end - bytes.start) as usize;
                return Some(memory.lend_mut(from..from + length).map_err(Into::into));
            }
        }
        None
    }

    /// The regions and where each begins, if all are ordinary memory.
    pub(super) fn bytes_mut(&mut self) -> Option<Vec<(u64, &mut [u8])>> {
        let mut begin = 0;
        let mut parts = Vec::with_capacity(self.regions.len());
        for (index, region) in self.regions.iter_mut().enumerate() {
            let RegionMut::Bytes(bytes) = region else {
                return None;
            };
            let start = self.starts.and_then(|starts| starts.get(index).copied());
            let start = start.unwrap_or(begin);
            begin = start + bytes.len() as u64;
            parts.push((start, &mut **bytes));
        }
        Some(parts)
    }

    /// The bytes of the checkpoint that are wanted, if not all are.
    pub(super) fn wanted(&self) -> Option<Vec<Range<u64>>> {
        let starts = self.starts?.iter().zip(self.regions.iter());
        let ranges = starts.map(|(start, region)| *start..*start + region.len() as u64);
        Some(ranges.collect())
    }

    /// Of these pieces, what is wanted of each: from multiples of `alignment` on, and to them or to the end of the piece.
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
            // From the piece's start.
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

    /// Copies these sources into their parts of the checkpoint, all at once; what is not wanted of them is left out.
    pub(super) fn copy_from(
        &mut self,
        sources: impl IntoIterator<Item = At<ReadLoan>>,
        stream: &Stream,
    ) -> Result<()> {
        let mut pairs: Vec<(ReadLoan, WriteLoan)> = Vec::new();
        for (start, source) in sources {
            let mut walk = Walk::over(start..start + source.len() as u64);
            let (mut at, mut rest) = (start, Some(source));
            for (index, region) in self.regions.iter_mut().enumerate() {
                if let Some(start) = self.starts.and_then(|starts| starts.get(index)) {
                    walk.begin = *start;
                }
                let first = walk.begin;
                let Some(within) = walk.pass(region.len()) else {
                    continue;
                };
                let Some(mut source) = rest.take() else { break };
                let from = first + within.start as u64;
                if from > at {
                    source = source.split_at((from - at) as usize).1;
                }
                let (part, behind) = source.split_at(within.len());
                (at, rest) = (from + within.len() as u64, Some(behind));
                match region {
                    RegionMut::Memory(memory, of) => {
                        let of = of.start + within.start..of.start + within.end;
                        pairs.push((part, memory.lend_mut(of)?));
                    }
                    RegionMut::Bytes(bytes) => stream.read(&part, &mut bytes[within])?,
                }
            }
        }
        Ok(stream.copy_all(pairs)?)
    }
}

/// Walks over regions, for the part of each that lies in a range of their concatenation.
struct Walk {
    range: Range<u64>,
    /// Where the next region begins.
    begin: u64,
}

impl Walk {
    fn over(range: Range<u64>) -> Self {
        Self { range, begin: 0 }
    }

    /// Passes a region of `length` bytes: which of them lie in the range?
    fn pass(&mut self, length: usize) -> Option<Range<usize>> {
        let start = self.begin;
        self.begin += length as u64;
        let from = self.range.start.max(start);
        let to = self.range.end.min(self.begin);
        (from < to).then(|| (from - start) as usize..(to - start) as usize)
    }
}

/// Cuts `size` bytes into runs of at most `piece`: (start, length).
pub(super) fn cuts(size: u64, piece: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..size.div_ceil(piece)).map(move |i| (i * piece, piece.min(size - i * piece)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_range_once() {
        let lengths = [3, 0, 5, 1, 4];
        for from in 0..13_u64 {
            for to in from..=13 {
                let mut bytes = Vec::new();
                let mut walk = Walk::over(from..to);
                for length in lengths {
                    let begin = walk.begin;
                    bytes.extend(
                        walk.pass(length)
                            .into_iter()
                            .flatten()
                            .map(|b| begin + b as u64),
                    );
                }
                assert_eq!(bytes, (from..to).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn cuts_cover_the_size() {
        assert_eq!(cuts(10, 4).collect::<Vec<_>>(), [(0, 4), (4, 4), (8, 2)]);
        assert_eq!(cuts(8, 4).collect::<Vec<_>>(), [(0, 4), (4, 4)]);
        assert_eq!(cuts(0, 4).count(), 0);
    }
}
