//! Passes on a piece part by part, for callers that cannot take it in one buffer of ordinary memory.

use super::aligned::Aligned;
use super::piece::{Part, Piece};
use super::threads::side_by_side;
use crate::Result;
use std::ops::Range;
use tierflow_sync::{Mutex, rank};

impl Piece {
    /// Passes a region to `push`, from start to end, in verified parts of a few MiB, each with its offset in the region.
    ///
    /// # Errors
    /// As [`restore`](Self::restore), and the error of `push`, which ends the call.
    pub fn read_through(
        &self,
        name: &str,
        push: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let region = self.region(name)?;
        let (start, end) = (region.offset, region.offset + region.length);
        let mut memory = Aligned::default();
        for part in self.cut(Vec::new(), true) {
            let part_end = part.offset + part.length as u64;
            let (from, to) = (start.max(part.offset), end.min(part_end));
            if from < to {
                let bytes = self.checked(part.offset, part.length, &mut memory)?;
                let within = (from - part.offset) as usize..(to - part.offset) as usize;
                push(from - start, &bytes[within])?;
            }
        }
        Ok(())
    }

    /// Passes all regions to `push`, as if each began where the previous one ends, in verified parts of at most a few MiB, each
    /// with its offset in this sequence. Parts of which `wants` wants no byte are not read. Several threads read, so the parts come
    /// in any order, but never two at the same time.
    ///
    /// # Errors
    /// As [`restore`](Self::restore), and the error of `push`, which ends the call.
    pub fn read_range_through(
        &self,
        wants: &(dyn Fn(Range<u64>) -> bool + Sync),
        push: &mut (dyn FnMut(u64, &[u8]) -> Result<()> + Send),
    ) -> Result<()> {
        let starts = self.starts();
        // Returns, for a range of the payload, the wanted ranges within it, each with its offset in the sequence of all regions.
        let wanted = |range: Range<u64>| {
            let regions = self.regions();
            let first =
                regions.partition_point(|region| region.offset + region.length <= range.start);
            let regions = regions.iter().zip(&starts).skip(first);
            let end = range.end;
            let regions = regions.take_while(move |(region, _)| region.offset < end);
            regions.filter_map(move |(region, start)| {
                let from = range.start.max(region.offset);
                let to = range.end.min(region.offset + region.length);
                let at = start + (from.saturating_sub(region.offset));
                (from < to && wants(at..at + (to - from))).then_some((from..to, at))
            })
        };
        let mut parts = self.cut(Vec::new(), true);
        parts.retain(|part| wanted(part.range()).next().is_some());
        let threads = self.threads().min(parts.len());
        let push: Mutex<_, { rank::PACKER }> = Mutex::new(push);
        let hand_on = |memory: &mut Aligned, part: Part<'_>| {
            let bytes = self.checked(part.offset, part.length, memory)?;
            let mut push = push.lock();
            wanted(part.range()).try_for_each(|(range, at)| {
                let from = (range.start - part.offset) as usize;
                push(at, &bytes[from..from + (range.end - range.start) as usize])
            })
        };
        side_by_side(threads, parts.into_iter(), Aligned::default, hand_on)
    }

    /// Returns the offset of each region, if each began where the previous one ends.
    pub(super) fn starts(&self) -> Vec<u64> {
        let starts = self.regions().iter().scan(0_u64, |end, region| {
            let start = *end;
            *end += region.length;
            Some(start)
        });
        starts.collect()
    }
}
