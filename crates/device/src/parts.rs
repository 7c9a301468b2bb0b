//! Many parts at once: gathered into one run of memory, or scattered out of it.

use crate::backend::Copy;
use crate::error::{Invalid, Result};
use crate::info::Place;
use crate::loan::{ReadLoan, WriteLoan};
use crate::memory::Memory;
use crate::stream::{Stream, cut};

/// What is gathered: bytes of a memory, or of the caller's own.
#[derive(Debug)]
pub enum Part<'b> {
    /// Bytes of a memory.
    Loan(ReadLoan),
    /// The caller's own.
    Bytes(&'b [u8]),
}

/// Where to scatter to: bytes of a memory, or of the caller's own.
#[derive(Debug)]
pub enum PartMut<'b> {
    /// Bytes of a memory.
    Loan(WriteLoan),
    /// The caller's own.
    Bytes(&'b mut [u8]),
}

impl Stream {
    /// Copies parts into one run of memory, each from an offset in it on, and waits once, for all of them. The shortest way to
    /// move a checkpoint of many regions: on CUDA, short copies within the device's reach are made by one kernel, and those
    /// across the bus by one call of the driver.
    ///
    /// Of parts that overlap in the target, any may be the one that stays.
    ///
    /// # Errors
    ///
    /// [`Invalid::OutOfBounds`] for a part that does not fit, [`Invalid::OtherDevice`], or the device's failure; after that
    /// the target may hold some of the bytes.
    pub fn gather<'b>(
        &self,
        parts: impl IntoIterator<Item = (usize, Part<'b>)>,
        into: &mut WriteLoan,
    ) -> Result<()> {
        self.gather_all([(parts, into)])
    }

    /// The same into several runs, of which each has parts of its own: waits once, for all of them.
    ///
    /// # Errors
    ///
    /// As for [`gather`](Self::gather).
    pub fn gather_all<'b, 'l, P>(
        &self,
        runs: impl IntoIterator<Item = (P, &'l mut WriteLoan)>,
    ) -> Result<()>
    where
        P: IntoIterator<Item = (usize, Part<'b>)>,
    {
        let mut loans = Vec::new();
        let mut copies = Vec::new();
        for (parts, into) in runs {
            self.reaches(into.memory())?;
            for (at, part) in parts {
                match part {
                    Part::Loan(loan) => {
                        self.reaches(loan.memory())?;
                        check(at, loan.len(), into.len())?;
                        let (from, to) = (End::of(&loan, 0), End::of(into, at));
                        spread(from, to, loan.len(), &mut copies)?;
                        loans.push(loan);
                    }
                    Part::Bytes(bytes) => {
                        check(at, bytes.len(), into.len())?;
                        match into.bytes_mut() {
                            Ok(target) => target[at..at + bytes.len()].copy_from_slice(bytes),
                            Err(_) => {
                                let from = End::Own(bytes.as_ptr().expose_provenance() as u64);
                                spread(from, End::of(into, at), bytes.len(), &mut copies)?;
                            }
                        }
                    }
                }
            }
        }
        // SAFETY: `copy_many` waits: until then the loans of sources are held, those of targets and slices are borrowed for
        // longer than this call, and a slice and a loan for writing cannot overlap.
        let copied = unsafe { self.copy_many(&copies) };
        drop_from_last(loans);
        copied
    }

    /// Copies one run of memory to parts, each from an offset in it on, and waits once, for all of them: see
    /// [`gather`](Self::gather).
    ///
    /// # Errors
    ///
    /// As for [`gather`](Self::gather); after that the parts may hold some of the bytes.
    pub fn scatter<'b>(
        &self,
        from: &ReadLoan,
        parts: impl IntoIterator<Item = (usize, PartMut<'b>)>,
    ) -> Result<()> {
        self.scatter_all([(from, parts)])
    }

    /// The same of several runs, of which each has parts of its own: waits once, for all of them.
    ///
    /// # Errors
    ///
    /// As for [`scatter`](Self::scatter).
    pub fn scatter_all<'b, 'l, P>(
        &self,
        runs: impl IntoIterator<Item = (&'l ReadLoan, P)>,
    ) -> Result<()>
    where
        P: IntoIterator<Item = (usize, PartMut<'b>)>,
    {
        let mut loans = Vec::new();
        let mut copies = Vec::new();
        // What the caller's own bytes are borrowed for, and where they come from.
        let mut slices = Vec::new();
        for (from, parts) in runs {
            self.reaches(from.memory())?;
            for (at, part) in parts {
                match part {
                    PartMut::Loan(loan) => {
                        self.reaches(loan.memory())?;
                        check(at, loan.len(), from.len())?;
                        let (from, to) = (End::of(from, at), End::of(&loan, 0));
                        spread(from, to, loan.len(), &mut copies)?;
                        loans.push(loan);
                    }
                    PartMut::Bytes(bytes) => {
                        check(at, bytes.len(), from.len())?;
                        slices.push((from, at, bytes));
                    }
                }
            }
        }
        if slices.iter().any(|(from, ..)| from.bytes().is_ok()) {
            // The order of the stream is kept: what was enqueued before comes first.
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

/// One end of a copy: within a loan, or an address of ordinary memory.
#[derive(Clone, Copy)]
pub(crate) enum End<'l> {
    Of(&'l Memory, usize),
    Own(u64),
}

impl End<'_> {
    pub(crate) fn of<L: Lent>(loan: &L, at: usize) -> End<'_> {
        let (memory, start) = loan.lies();
        End::Of(memory, start + at)
    }

    fn place(self) -> Place {
        match self {
            Self::Of(memory, _) => memory.place(),
            Self::Own(_) => Place::Host,
        }
    }

    fn address(self, at: usize) -> u64 {
        match self {
            Self::Of(memory, start) => memory.base() + (start + at) as u64,
            Self::Own(address) => address + at as u64,
        }
    }

    /// Whether devices reach the byte by themselves; so they do all of a run.
    fn is_pinned(self, at: usize) -> bool {
        match self {
            Self::Of(memory, start) => memory.is_pinned(start + at),
            Self::Own(_) => false,
        }
    }

    /// Bytes from there on that one call may copy.
    fn run(self, at: usize) -> usize {
        match self {
            Self::Of(memory, start) => memory.run_from(start + at),
            Self::Own(_) => usize::MAX,
        }
    }
}

/// A loan of either kind.
pub(crate) trait Lent {
    fn lies(&self) -> (&Memory, usize);
}

impl Lent for ReadLoan {
    fn lies(&self) -> (&Memory, usize) {
        (self.memory(), self.range().start)
    }
}

impl Lent for WriteLoan {
    fn lies(&self) -> (&Memory, usize) {
        (self.memory(), self.range().start)
    }
}

/// Adds the copies of `len` bytes, cut where one call may not go on.
pub(crate) fn spread(from: End<'_>, to: End<'_>, len: usize, copies: &mut Vec<Copy>) -> Result<()> {
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

fn check(at: usize, len: usize, room: usize) -> Result<()> {
    if at.checked_add(len).is_some_and(|end| end <= room) {
        return Ok(());
    }
    let range = at..at.saturating_add(len);
    Err(Invalid::OutOfBounds { range, len: room }.into())
}

/// A ledger lists loans by where they start: those that come last go without moving others.
fn drop_from_last<L>(mut loans: Vec<L>) {
    while loans.pop().is_some() {}
}
