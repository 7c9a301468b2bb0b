//! The application's regions, seen as one run of bytes.

use crate::{Region, RegionMut, Result};
use std::ops::Range;
use tierflow_device::{ReadLoan, Stream, WriteLoan};

/// Regions to copy from.
pub(crate) struct Source<'r, 'a>(pub(crate) &'r [Region<'a>]);

/// Regions to copy to.
pub(crate) struct Sink<'r, 'a>(pub(crate) &'r mut [RegionMut<'a>]);

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
                match region {
                    Region::Memory(memory, of) => {
                        let of = of.start + within.start..of.start + within.end;
                        pairs.push((memory.lend(of)?, part));
                    }
                    Region::Bytes(bytes) => stream.write(&bytes[within], &mut part)?,
                }
            }
        }
        Ok(stream.copy_all(pairs)?)
    }
}

impl Sink<'_, '_> {
    /// Copies these sources into their parts of the checkpoint, all at once.
    pub(super) fn copy_from(
        &mut self,
        sources: impl IntoIterator<Item = At<ReadLoan>>,
        stream: &Stream,
    ) -> Result<()> {
        let mut pairs: Vec<(ReadLoan, WriteLoan)> = Vec::new();
        for (start, source) in sources {
            let mut walk = Walk::over(start..start + source.len() as u64);
            let mut rest = Some(source);
            for region in self.0.iter_mut() {
                let Some(within) = walk.pass(region.len()) else {
                    continue;
                };
                let Some(source) = rest.take() else { break };
                let (part, behind) = source.split_at(within.len());
                rest = Some(behind);
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
