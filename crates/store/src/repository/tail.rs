//! The bytes behind the last sound record of an open segment: either a batch that was never completed, and so never reported as
//! saved, or a batch that was damaged later.
//!
//! Each batch ends with the index of its records. So a record before a sound index was written, and is damaged if it does not match
//! its checksums. If the index itself is not sound, this module decides whether it was never written completely or is damaged.

use super::batch::batch_index;
use super::damage::DamagedRange;
use super::handle::Handle;
use super::record::Record;
use crate::Result;
use crate::container::{BATCH, IndexRow, Kind, Source, UNIT};

/// The findings at the end of a segment.
#[derive(Debug, Default)]
pub(super) struct OpenSegmentEnd {
    pub(super) damage: Vec<DamagedRange>,
    /// The end of the bytes that must stay.
    pub(super) end: u64,
}

/// Bytes that are read at a time.
const STEP: u64 = 1 << 20;
/// Offsets of fields within a head, in bytes.
const FORMAT_AT: usize = 8;
const KIND_AT: usize = 88;
const INDEX: u8 = Kind::Index as u8;

/// Decides whether the bytes behind `end` are damaged or an incomplete batch. `end` is the end of the last sound record or index.
/// `records` are the sound records, and `listed` the rows of the sound indexes.
pub(super) fn classify(
    handle: &Handle,
    records: &[Record],
    listed: &[IndexRow],
    end: u64,
) -> Result<OpenSegmentEnd> {
    let of_lists = listed.iter().map(|row| row.position).max();
    let pending = records
        .iter()
        .filter(|record| of_lists.is_none_or(|listed| record.position > listed));
    let mut pending: Vec<&Record> = pending.collect();
    pending.sort_by_key(|record| record.position);
    let batch = end.next_multiple_of(BATCH);
    let damaged = |offset, what| DamagedRange {
        offset,
        record: None,
        what,
    };
    let mut tail = OpenSegmentEnd {
        damage: Vec::new(),
        end,
    };
    if pending.last().is_some_and(|last| last.identity.epoch > 0) {
        let expected = batch_index(&pending, end)?;
        let there = bytes(handle, end, expected.len() as u64)?;
        if is_changed(&expected, &there) {
            let what = "the list of a batch's records does not match";
            tail.damage.push(damaged(end, what));
            tail.end += expected.len() as u64;
        }
        return Ok(tail);
    }
    let padding = bytes(handle, end, batch - end)?;
    let start = bytes(handle, batch, UNIT as u64)?;
    // An index may have been written when the segment was to be closed.
    let is_format_1 = start.get(FORMAT_AT) == Some(&1) && start.get(KIND_AT) != Some(&INDEX);
    if pending.is_empty() && !is_format_1 {
        if let Some(at) = padding.iter().position(|byte| *byte != 0) {
            let what = "something lies between the records";
            tail.damage.push(damaged(end + at as u64, what));
            tail.end = batch;
        }
        return Ok(tail);
    }
    // In format 1, the ends of batches cannot be determined.
    if let Some((first, last)) = written(handle, end)? {
        let what = "it was not whole when the writing ended, or is damaged";
        tail.damage.push(damaged(first, what));
        tail.end = last;
    }
    Ok(tail)
}

/// Returns true if `there` equals `expected` except for a few bytes, and is not the state of an incomplete write.
fn is_changed(expected: &[u8], there: &[u8]) -> bool {
    let mut there = there.to_vec();
    there.resize(expected.len(), 0);
    let is_part = |(expected, there): (&[u8], &[u8])| {
        let equal = expected.iter().zip(there).take_while(|(a, b)| a == b);
        let equal = equal.count();
        there[equal..].iter().all(|byte| *byte == 0)
    };
    if expected.chunks(UNIT).zip(there.chunks(UNIT)).all(is_part) {
        return false;
    }
    let known = expected.iter().zip(&there).filter(|(a, _)| **a != 0);
    let (all, equal) = known.fold((0, 0), |(all, equal), (a, b)| {
        (all + 1, equal + usize::from(a == b))
    });
    4 * equal >= 3 * all
}

/// Reads up to `length` bytes from `offset` on, as many as there are.
fn bytes(handle: &Handle, offset: u64, length: u64) -> Result<Vec<u8>> {
    let rest = handle.plain.size()?.saturating_sub(offset);
    let mut bytes = vec![0; length.min(rest) as usize];
    handle.plain.read(offset, &mut bytes)?;
    Ok(bytes)
}

/// Returns the offset of the first byte that is not zero, from `offset` on, and the end of the last unit with such a byte.
fn written(handle: &Handle, offset: u64) -> Result<Option<(u64, u64)>> {
    let (mut at, size) = (offset, handle.plain.size()?);
    let (mut first, mut last) = (None, 0);
    while at < size {
        let step = bytes(handle, at, STEP)?;
        let is_written = |byte: &u8| *byte != 0;
        if let Some(found) = step.iter().position(is_written) {
            first.get_or_insert(at + found as u64);
        }
        if let Some(found) = step.iter().rposition(is_written) {
            last = (at + found as u64 + 1).next_multiple_of(UNIT as u64);
        }
        at += step.len() as u64;
        if at.is_multiple_of(BATCH) {
            at = handle.plain.data_from(at)?.unwrap_or(size).max(at);
        }
    }
    Ok(first.map(|first| (first, last.min(size))))
}
