//! Loans: the right to read or write a range of a memory until they are dropped.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;

use crate::device::Device;
use crate::error::{Access, Invalid, Result};
use crate::info::Place;
use crate::memory::Memory;

/// The right to read a range of bytes (a shared borrow guard). Dropping it gives the bytes back; forgetting it leaks
/// the memory and leaves the bytes lent, which is safe.
///
/// The right covers this range alone. The memory, from which others could be lent, stays with the lender:
///
/// ```compile_fail,E0624
/// # fn f(loan: &tierflow_device::ReadLoan) {
/// loan.memory().clone();
/// # }
/// ```
pub struct ReadLoan {
    held: LoanEntry,
}

/// The exclusive right to read and write a range of bytes (an exclusive borrow guard). Dropping it
/// gives the bytes back; forgetting it leaks the memory and leaves the bytes lent, which is safe.
pub struct WriteLoan {
    held: LoanEntry,
}

impl Memory {
    /// Lends bytes for reading. Loans for reading may overlap one another, but no loan for writing.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`](crate::Error::Busy) if some bytes are lent for writing; [`Invalid::OutOfBounds`],
    /// [`Invalid::Unmapped`].
    pub fn lend(&self, range: Range<usize>) -> Result<ReadLoan> {
        self.ledger().lock().lend(&range, Access::Read)?;
        Ok(ReadLoan::new(self.clone(), range))
    }

    /// Lends bytes for writing. No other loan may overlap them.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`](crate::Error::Busy) if some bytes are lent; [`Invalid::OutOfBounds`], [`Invalid::Unmapped`].
    pub fn lend_mut(&self, range: Range<usize>) -> Result<WriteLoan> {
        self.ledger().lock().lend(&range, Access::Write)?;
        Ok(WriteLoan::new(self.clone(), range))
    }
}

/// An entry in the ledger of `memory`, removed when this is dropped.
struct LoanEntry {
    memory: Memory,
    range: Range<usize>,
    access: Access,
}

impl LoanEntry {
    fn address(&self) -> u64 {
        self.memory.base() + self.range.start as u64
    }

    fn split_at(self, at: usize) -> (Self, Self) {
        let mut whole = ManuallyDrop::new(self);
        let middle = whole.range.start + at.min(whole.range.len());
        let access = whole.access;
        whole.memory.split_loan(&whole.range, middle, access);
        let right = Self {
            memory: whole.memory.clone(),
            range: middle..whole.range.end,
            access,
        };
        whole.range.end = middle;
        (ManuallyDrop::into_inner(whole), right)
    }
}

impl Drop for LoanEntry {
    fn drop(&mut self) {
        self.memory.give_back(&self.range, self.access);
    }
}

macro_rules! shared_by_both {
    ($loan:ident, $access:expr) => {
        impl $loan {
            /// Makes the loan of a range that the caller has entered into the ledger.
            pub(crate) fn new(memory: Memory, range: Range<usize>) -> Self {
                Self {
                    held: LoanEntry {
                        memory,
                        range,
                        access: $access,
                    },
                }
            }

            /// Returns the number of bytes lent.
            pub fn len(&self) -> usize {
                self.held.range.len()
            }

            /// Returns true if no bytes are lent.
            pub fn is_empty(&self) -> bool {
                self.held.range.is_empty()
            }

            /// Returns the range of the loan, in bytes from the start of the memory.
            pub fn range(&self) -> Range<usize> {
                self.held.range.clone()
            }

            /// Returns the device of the memory.
            pub fn device(&self) -> &Device {
                self.held.memory.device()
            }

            /// Returns the side of the bus on which the bytes lie.
            pub fn place(&self) -> Place {
                self.held.memory.place()
            }

            /// Returns true if the processor reaches the bytes in place, so that [`bytes`](Self::bytes) succeeds.
            pub fn host_accessible(&self) -> bool {
                self.held.memory.host_accessible()
            }

            /// Returns the memory of the bytes. Crate-private, as the holder of the loan may use its range alone.
            pub(crate) fn memory(&self) -> &Memory {
                &self.held.memory
            }

            /// Returns the address of the first byte, for kernels and other libraries. Every access through the address
            /// must keep to the loan's range, access and lifetime.
            pub fn address(&self) -> u64 {
                self.held.address()
            }

            /// Splits the loan into the first `at` bytes and the rest. An `at` beyond the end leaves the second loan
            /// empty.
            #[must_use = "what is not kept is given back"]
            pub fn split_at(self, at: usize) -> (Self, Self) {
                let (left, right) = self.held.split_at(at);
                (Self { held: left }, Self { held: right })
            }

            /// Returns the bytes, in place.
            ///
            /// # Errors
            ///
            /// [`Invalid::NotHostAccessible`] if only the device can read them.
            pub fn bytes(&self) -> Result<&[u8]> {
                let pointer = self.pointer()?;
                // SAFETY: the range is mapped, initialised, host-accessible memory, alive as long
                // as the loan holds its `Memory`; the ledger keeps every writer out while this
                // loan is live, and a `WriteLoan` gives its own mutable view only through `&mut`.
                Ok(unsafe { std::slice::from_raw_parts(pointer, self.len()) })
            }

            fn pointer(&self) -> Result<*mut u8> {
                if !self.held.memory.host_accessible() {
                    return Err(Invalid::NotHostAccessible.into());
                }
                Ok(std::ptr::with_exposed_provenance_mut(
                    self.address() as usize
                ))
            }
        }

        impl fmt::Debug for $loan {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($loan))
                    .field("range", &self.held.range)
                    .field("place", &self.held.memory.place())
                    .finish_non_exhaustive()
            }
        }
    };
}

shared_by_both!(ReadLoan, Access::Read);
shared_by_both!(WriteLoan, Access::Write);

impl WriteLoan {
    /// Returns the bytes, in place, for writing.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotHostAccessible`] if only the device can write them.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let pointer = self.pointer()?;
        // SAFETY: as for `bytes`; no other loan overlaps a loan for writing, and
        // `&mut self` keeps every other view of this one out.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer, self.len()) })
    }

    /// Turns the loan into one for reading, so that others may read too. No thread can write in between.
    pub fn into_read(self) -> ReadLoan {
        let mut held = self.held;
        held.memory.ledger().lock().downgrade(&held.range);
        held.access = Access::Read;
        ReadLoan { held }
    }
}
