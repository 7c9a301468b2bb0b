//! Many parts at once: gathered into one range of memory, or scattered out of it.

use crate::backend::Copy;
use crate::error::{Invalid, Result};
use crate::info::Place;
use crate::loan::{ReadLoan, WriteLoan};
use crate::memory::Memory;
use crate::stream::{Stream, cut};
use smallvec::SmallVec;
use std::ops::Range;

/// The copies of a call. Most checkpoints are one region, whose copy needs no allocation here.
pub(crate) type Copies = SmallVec<[Copy; 1]>;

/// A part to gather: bytes of a memory, or of the caller.
#[derive(Debug)]
#[non_exhaustive]
pub enum Part<'b> {
    /// Bytes of a memory.
    Loan(ReadLoan),
    /// Bytes of a memory, lent for the time of the call.
    Memory(&'b Memory, Range<usize>),
    /// Bytes of the caller.
    Bytes(&'b [u8]),
}

/// A part to scatter to: bytes of a memory, or of the caller.
#[derive(Debug)]
#[non_exhaustive]
pub enum PartMut<'b> {
    /// Bytes of a memory.
    Loan(WriteLoan),
    /// Bytes of a memory, lent for the time of the call.
    Memory(&'b Memory, Range<usize>),
    /// Bytes of the caller.
    Bytes(&'b mut [u8]),
}

impl Stream {
    /// Copies parts to their offsets in ranges of memory, and waits once for all. The call is the fastest way to copy a
    /// checkpoint of many regions: on CUDA, one kernel makes the copies within the device's reach, and one call of the
    /// driver those across the bus.
    ///
    /// If two parts overlap in the target, the bytes of either may stay.
    ///
    /// # Errors
    ///
    /// [`Invalid::OutOfBounds`] for a part that does not fit, the errors of [`Memory::lend`], [`Invalid::OtherDevice`], or the
    /// device's failure. After an error the target may hold some of the bytes.
    pub fn gather_all<'b, 'l, P>(
        &self,
        runs: impl IntoIterator<Item = (P, &'l mut WriteLoan)>,
    ) -> Result<()>
    where
        P: IntoIterator<Item = (usize, Part<'b>)>,
    {
        let mut loans = SmallVec::new();
        let mut copies = Copies::new();
        let mut is_synchronized = false;
        for (parts, into) in runs {
            self.reaches(into.memory())?;
            for (at, part) in parts {
                let loan = match part {
                    Part::Loan(loan) => loan,
                    Part::Memory(memory, range) => memory.lend(range)?,
                    Part::Bytes(bytes) => {
                        check_bounds(at, bytes.len(), into.len())?;
                        match into.bytes_mut() {
                            Ok(target) => {
                                if !std::mem::replace(&mut is_synchronized, true) {
                                    // Waiting keeps the stream's order: work enqueued before comes first.
                                    self.synchronize()?;
                                }
                                target[at..at + bytes.len()].copy_from_slice(bytes);
                            }
                            Err(_) => {
                                let from = End::Own(bytes.as_ptr().expose_provenance() as u64);
                                spread(from, End::of(into, at), bytes.len(), &mut copies)?;
                            }
                        }
                        continue;
                    }
                };
                self.reaches(loan.memory())?;
                check_bounds(at, loan.len(), into.len())?;
                let (from, to) = (End::of(&loan, 0), End::of(into, at));
                spread(from, to, loan.len(), &mut copies)?;
                loans.push(loan);
            }
        }
        // SAFETY: `copy_many` waits. Until then, the loans of the sources are held; the loans of the targets and the slices
        // are borrowed for longer than this call. A slice and a loan for writing cannot overlap.
        let copied = unsafe { self.copy_many(&copies) };
        drop_from_last(loans);
        copied
    }

    /// Copies parts from their offsets in ranges of memory, and waits once for all: see [`gather_all`](Self::gather_all).
    ///
    /// # Errors
    ///
    /// As for [`gather_all`](Self::gather_all), with the errors of [`Memory::lend_mut`] for those of [`Memory::lend`]. After an
    /// error the parts may hold some of the bytes.
    pub fn scatter_all<'b, 'l, P>(
        &self,
        runs: impl IntoIterator<Item = (&'l ReadLoan, P)>,
    ) -> Result<()>
    where
        P: IntoIterator<Item = (usize, PartMut<'b>)>,
    {
        let mut loans = SmallVec::new();
        let mut copies = Copies::new();
        // `(source, offset in it, target)` of the parts that are bytes of the caller.
        let mut slices: SmallVec<[_; 1]> = SmallVec::new();
        for (from, parts) in runs {
            self.reaches(from.memory())?;
            for (at, part) in parts {
                let loan = match part {
                    PartMut::Loan(loan) => loan,
                    PartMut::Memory(memory, range) => memory.lend_mut(range)?,
                    PartMut::Bytes(bytes) => {
                        check_bounds(at, bytes.len(), from.len())?;
                        slices.push((from, at, bytes));
                        continue;
                    }
                };
                self.reaches(loan.memory())?;
                check_bounds(at, loan.len(), from.len())?;
                let (from, to) = (End::of(from, at), End::of(&loan, 0));
                spread(from, to, loan.len(), &mut copies)?;
                loans.push(loan);
            }
        }
        if slices.iter().any(|(from, ..)| from.bytes().is_ok()) {
            // Waiting keeps the stream's order: work enqueued before comes first.
            self.synchronize()?;
        }
        for (from, at, bytes) in &mut slices {
            match from.bytes() {
                Ok(source) => bytes.copy_from_slice(&source[*at..*at + bytes.len()]),
                Err(_) => {
                    let to = End::Own(bytes.as_mut_ptr().expose_provenance() as u64);
                    spread(End::of(*from, *at), to, bytes.len(), &mut copies)?;
                }
            }
        }
        // SAFETY: as in `gather_all`, the other way round.
        let copied = unsafe { self.copy_many(&copies) };
        drop_from_last(loans);
        copied
    }
}

/// Source or target of a copy: an offset in a memory, or an address of ordinary memory.
#[derive(Clone, Copy)]
pub(crate) enum End<'l> {
    Of(&'l Memory, usize),
    Own(u64),
}

impl End<'_> {
    pub(crate) fn of<L: Loan>(loan: &L, at: usize) -> End<'_> {
        let (memory, start) = loan.location();
        End::Of(memory, start + at)
    }

    pub(crate) fn place(self) -> Place {
        match self {
            Self::Of(memory, _) => memory.place(),
            Self::Own(_) => Place::Host,
        }
    }

    pub(crate) fn address(self, at: usize) -> u64 {
        match self {
            Self::Of(memory, start) => memory.base() + (start + at) as u64,
            Self::Own(address) => address + at as u64,
        }
    }

    /// Returns true if every device is known to access the byte at `at`, and its run, without the driver's help.
    fn is_pinned(self, at: usize) -> bool {
        match self {
            Self::Of(memory, start) => memory.is_pinned(start + at),
            Self::Own(_) => false,
        }
    }

    /// Returns the number of bytes from `at` on that one call may copy: the run of `at`.
    pub(crate) fn run(self, at: usize) -> usize {
        match self {
            Self::Of(memory, start) => memory.run_from(start + at),
            Self::Own(_) => usize::MAX,
        }
    }
}

/// A loan of either kind.
pub(crate) trait Loan {
    fn location(&self) -> (&Memory, usize);
}

impl Loan for ReadLoan {
    fn location(&self) -> (&Memory, usize) {
        (self.memory(), self.range().start)
    }
}

impl Loan for WriteLoan {
    fn location(&self) -> (&Memory, usize) {
        (self.memory(), self.range().start)
    }
}

/// Adds the copies of `len` bytes to `copies`, cut where one call must end.
pub(crate) fn spread(from: End<'_>, to: End<'_>, len: usize, copies: &mut Copies) -> Result<()> {
    let run = |at| from.run(at).min(to.run(at));
    cut(len, run, |at, len| {
        copies.push(Copy {
            src: from.address(at),
            src_place: from.place(),
            dst: to.address(at),
            dst_place: to.place(),
            len,
            is_pinned: from.is_pinned(at) && to.is_pinned(at),
        });
        Ok(())
    })
}

/// Checks that `len` bytes from `at` on lie within `room` bytes.
pub(crate) fn check_bounds(at: usize, len: usize, room: usize) -> Result<()> {
    if at.checked_add(len).is_some_and(|end| end <= room) {
        return Ok(());
    }
    let range = at..at.saturating_add(len);
    Err(Invalid::OutOfBounds { range, len: room }.into())
}

/// Drops loans from the last to the first: a ledger sorts loans by start, so dropping one moves no other.
fn drop_from_last<L>(mut loans: SmallVec<[L; 1]>) {
    while loans.pop().is_some() {}
}
