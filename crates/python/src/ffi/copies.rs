//! Copies between slots and arrays, in the order of a stream.

use tierflow_bind::CallStream;
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
    // SAFETY: the slot is committed, or given up, behind the stream's work, and only the application writes it until then. By the
    // contract of a named stream, as for all work of a framework, the array exists and stays as it is until the stream's work is
    // done. If no stream is named, or the array is in main memory, `ordered` waits for the copy.
    let copied = unsafe { stream.copy_unwaited(&source, 0, slot, offset, len) };
    ordered(stream, wait, copied)
}

/// Copies parts to their offsets in `into`, an array or a slot.
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
    // SAFETY: as in `fill`; the caller chose places that do not overlap.
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
    // SAFETY: as in `fill`; the slot is given back behind the stream's work, and the array's protocol said that the array is writable.
    let copied = unsafe { stream.copy_unwaited(slot, offset, &target, 0, len) };
    ordered(stream, wait, copied)
}

/// Says if this thread waits for the copy. A copy that no stream of a framework orders before later work must be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Yes,
    No,
}

impl Wait {
    /// Returns `No` for copies on a stream of the application, whose later work comes after them, if all arrays are `on_device`: nothing
    /// keeps an array in main memory in place after the call. No work of the application comes after the copies of the engine's streams.
    pub(crate) fn on(stream: &CallStream<'_>, on_device: bool) -> Self {
        match stream {
            CallStream::Adopted(..) if on_device => Self::No,
            _ => Self::Yes,
        }
    }
}

fn ordered(stream: &Stream, wait: Wait, copied: Result<()>) -> Result<()> {
    match wait {
        Wait::Yes => stream.synchronize().and(copied),
        Wait::No => copied,
    }
}

/// Reads a number of an XLA program in host memory.
pub(crate) fn number(at: *const u32) -> u32 {
    // SAFETY: `at` is a buffer of 4 bytes, which XLA keeps for the call.
    unsafe { at.read_unaligned() }
}

/// Writes a number of an XLA program in host memory.
pub(crate) fn set_number(at: *mut u32, number: u32) {
    // SAFETY: as in `number`; the buffer is a result, which the call writes.
    unsafe { at.write_unaligned(number) };
}
