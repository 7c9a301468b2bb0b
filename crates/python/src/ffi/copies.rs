//! Copies between slots and arrays, in the order of a stream.

use tierflow_device::{Memory, ReadLoan, Result, Stream, WriteLoan};

/// Fills a slot, from `offset` on, with the bytes of an array.
pub(crate) fn fill(
    (stream, wait): (&Stream, Wait),
    slot: &WriteLoan,
    offset: usize,
    array: &Memory,
) -> Result<()> {
    let len = array.len();
    let source = array.lend(0..len)?;
    // SAFETY: the slot is committed, or given up, behind the stream's work, and is the application's to write until then.
    // It is the contract of a stream that is named that the array is there, and as it is, until its work is over, as it is
    // for all work of a framework; where none is, the copy is waited for.
    let copied = unsafe { stream.copy_unwaited(&source, 0, slot, offset, len) };
    ordered(stream, wait, copied)
}

/// Copies parts to their offsets in an array, or in a slot.
pub(crate) fn gather(
    (stream, wait): (&Stream, Wait),
    parts: &[(usize, Memory)],
    into: &WriteLoan,
) -> Result<()> {
    let sources = parts
        .iter()
        .map(|(at, part)| Ok((*at, part.lend(0..part.len())?)));
    let sources: Vec<(usize, ReadLoan)> = sources.collect::<Result<_>>()?;
    let parts = sources.iter().map(|(at, source)| (*at, source));
    // SAFETY: as in `fill`; the caller gives each part a place of its own.
    let copied = unsafe { stream.gather_unwaited(parts, into) };
    ordered(stream, wait, copied)
}

/// Fills an array with the bytes of a slot, from `offset` on.
pub(crate) fn read(
    (stream, wait): (&Stream, Wait),
    slot: &ReadLoan,
    offset: usize,
    array: &Memory,
) -> Result<()> {
    let len = array.len();
    let target = array.lend_mut(0..len)?;
    // SAFETY: as in `fill`; the slot is given back behind the stream's work, and the array said that it may be written.
    let copied = unsafe { stream.copy_unwaited(slot, offset, &target, 0, len) };
    ordered(stream, wait, copied)
}

/// Whether this thread waits for the copy: it must if no stream of a framework orders what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Yes,
    No,
}

fn ordered(stream: &Stream, wait: Wait, copied: Result<()>) -> Result<()> {
    match wait {
        Wait::Yes => stream.synchronize().and(copied),
        Wait::No => copied,
    }
}

/// A number of a program's, in plain memory.
pub(crate) fn number(at: *const u32) -> u32 {
    // SAFETY: a buffer of 4 bytes of XLA's, which it keeps for the call.
    unsafe { at.read_unaligned() }
}

/// Sets a number of a program's, in plain memory.
pub(crate) fn set_number(at: *mut u32, number: u32) {
    // SAFETY: as in `number`; it is a result, which is the call's to write.
    unsafe { at.write_unaligned(number) };
}
