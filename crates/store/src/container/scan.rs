//! Finds the records of a file, damaged or not.

use super::{Head, Invalid, UNIT, checksum};
use std::cell::RefCell;

/// A source of records: a file, or bytes in memory.
pub trait Source {
    /// The error of a failed read.
    type Error;
    /// Returns the size in bytes.
    ///
    /// # Errors
    /// If the size cannot be determined.
    fn size(&self) -> Result<u64, Self::Error>;
    /// Fills `bytes` from `offset`; the whole range is within [`size`](Self::size).
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;
    /// Returns an offset, at or after `offset`, before which all bytes from `offset` on are zero; `None` if all of them are. The
    /// result is a multiple of 4096 if `offset` is one. A source that knows no holes returns `offset`.
    ///
    /// # Errors
    /// If that cannot be determined.
    fn data_from(&self, offset: u64) -> Result<Option<u64>, Self::Error> {
        Ok(Some(offset))
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    type Error = S::Error;

    fn size(&self) -> Result<u64, S::Error> {
        (**self).size()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), S::Error> {
        (**self).read(offset, bytes)
    }

    fn data_from(&self, offset: u64) -> Result<Option<u64>, S::Error> {
        (**self).data_from(offset)
    }
}

impl Source for [u8] {
    type Error = Invalid;

    fn size(&self) -> Result<u64, Invalid> {
        Ok(self.len() as u64)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Invalid> {
        let from = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let from = from.and_then(|tail| tail.get(..bytes.len()));
        bytes.copy_from_slice(from.ok_or(Invalid("read behind the end"))?);
        Ok(())
    }
}

/// The record or fault at an offset of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A record whose head is sound and which lies within the file. The payload was not checked.
    Record(Box<Head>),
    /// Bytes that are no record, up to the next record or the end.
    Damage {
        /// The offset at which they start.
        offset: u64,
        /// The fault of these bytes.
        what: Invalid,
    },
}

/// Batches of records start at multiples of this many bytes. The bytes between batches are zero.
pub(crate) const BATCH: u64 = 4096;

/// Calls `found` with every record of `source` from `offset` on, and with every range that holds no record. Goes on after damage,
/// and stops when `found` returns `false`. Returns the end of the last record for which `found` returned `true`.
///
/// # Errors
/// The error of `source` if it cannot be read, and the errors of `found`.
pub fn scan<S: Source + ?Sized>(
    source: &S,
    offset: u64,
    mut found: impl FnMut(Found) -> Result<bool, S::Error>,
) -> Result<u64, S::Error> {
    let mut end = offset;
    let mut scanner = Scanner::new(source, offset)?;
    while let Some(next) = scanner.next()? {
        let is_record = matches!(next, Found::Record(_));
        if !found(next)? {
            break;
        }
        if is_record {
            end = scanner.at;
        }
    }
    Ok(end)
}

/// The least and the largest number of bytes that are read ahead.
const AHEAD: (usize, usize) = (4 << 10, 256 << 10);

/// Reads ahead, twice as much with each read: heads are small and often follow each other.
#[derive(Debug)]
struct Ahead<'s, S: ?Sized> {
    source: &'s S,
    size: u64,
    window: RefCell<Window>,
}

/// The bytes of the last read, the offset of the first of them, and the number of bytes to read the next time.
#[derive(Debug)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
    next: usize,
}

impl<'s, S: Source + ?Sized> Ahead<'s, S> {
    fn new(source: &'s S) -> Result<Self, S::Error> {
        Ok(Self {
            source,
            size: source.size()?,
            window: RefCell::new(Window {
                start: 0,
                bytes: Vec::new(),
                // The first head is read without more: many scans look at no other.
                next: 0,
            }),
        })
    }
}

impl<S: Source + ?Sized> Source for Ahead<'_, S> {
    type Error = S::Error;

    fn size(&self) -> Result<u64, S::Error> {
        Ok(self.size)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), S::Error> {
        let mut window = self.window.borrow_mut();
        let within = |window: &Window| {
            let from = usize::try_from(offset.checked_sub(window.start)?).ok()?;
            Some(from..from.checked_add(bytes.len())?)
        };
        if let Some(known) = within(&window).and_then(|range| window.bytes.get(range)) {
            bytes.copy_from_slice(known);
            return Ok(());
        }
        let end = window.start + window.bytes.len() as u64;
        if !(window.start..end + BATCH).contains(&offset) {
            // The scan skipped the payload of a record: the next head may be far from this one, too.
            window.next = window.next.min(AHEAD.0);
        }
        let rest = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = window.next.min(rest);
        window.next = (window.next * 2).clamp(AHEAD.0, AHEAD.1);
        if length > bytes.len() {
            window.start = offset;
            window.bytes = vec![0; length];
            if self.source.read(offset, &mut window.bytes).is_ok() {
                bytes.copy_from_slice(&window.bytes[..bytes.len()]);
                return Ok(());
            }
            // A part of the window cannot be read; the bytes that the caller wants may be readable.
            window.bytes.clear();
        }
        self.source.read(offset, bytes)
    }

    fn data_from(&self, offset: u64) -> Result<Option<u64>, S::Error> {
        self.source.data_from(offset)
    }
}

/// Finds the records of a source in order. After damage, the scanner finds the next head again, since each head starts at a
/// multiple of [`UNIT`] and contains its position.
#[derive(Debug)]
pub(crate) struct Scanner<'s, S: ?Sized> {
    source: Ahead<'s, S>,
    size: u64,
    at: u64,
    /// True while `at` is in a range that holds no record, and that was reported.
    is_damaged: bool,
    /// True while `at` is in a range that cannot be read.
    is_unreadable: bool,
    /// Bytes to skip when the next bytes cannot be read.
    step: u64,
}

/// The most bytes that are skipped at a time because one of them cannot be read.
const LONGEST_STEP: u64 = 1 << 20;

impl<'s, S: Source + ?Sized> Scanner<'s, S> {
    pub(crate) fn new(source: &'s S, at: u64) -> Result<Self, S::Error> {
        Ok(Self {
            source: Ahead::new(source)?,
            size: source.size()?,
            at,
            is_damaged: false,
            is_unreadable: false,
            step: BATCH,
        })
    }

    /// Returns the offset at which the scan continues.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the next record, or the next range that holds none; `None` at the end. After an error, the next call tries the same
    /// offset again.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, S::Error> {
        while self.at < self.size {
            let at = self.at;
            let looked = record_at(&self.source, at, self.size)?;
            self.is_unreadable = false;
            match looked {
                ScanStep::Record(head) => {
                    // Both fields were checked against the size of the file.
                    self.at += head.record_length();
                    (self.is_damaged, self.step) = (false, BATCH);
                    return Ok(Some(Found::Record(head)));
                }
                ScanStep::Padding => self.at += UNIT as u64,
                ScanStep::Nothing(what) => {
                    self.at = match what {
                        // A reserved range of a file may be long, so its hole is skipped.
                        NOTHING => self.source.data_from(at)?.unwrap_or(self.size),
                        _ => at,
                    };
                    self.at = self.at.max(at + UNIT as u64);
                    if !std::mem::replace(&mut self.is_damaged, true) {
                        return Ok(Some(Found::Damage { offset: at, what }));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Skips bytes that cannot be read: one block, and twice as many with each call until a record is found. Returns the damage,
    /// unless it belongs to a range that was reported before.
    pub(crate) fn pass_over(&mut self) -> Option<Found> {
        let offset = self.at;
        self.at = (offset - offset % BATCH).saturating_add(self.step);
        self.step = (2 * self.step).min(LONGEST_STEP);
        self.is_damaged = true;
        let is_known = std::mem::replace(&mut self.is_unreadable, true);
        let what = UNREADABLE;
        (!is_known).then_some(Found::Damage { offset, what })
    }
}

/// The fault of bytes that the file system cannot read.
pub(crate) const UNREADABLE: Invalid = Invalid("it cannot be read");
/// The fault of a record in the directory of another rank than the one that wrote it.
pub(crate) const OF_ANOTHER_RANK: Invalid =
    Invalid("another rank wrote it: move the file back to that rank's directory");
/// The fault of zeros where a batch should start.
const NOTHING: Invalid = Invalid("nothing was written here");

enum ScanStep {
    Record(Box<Head>),
    Padding,
    Nothing(Invalid),
}

fn record_at<S: Source + ?Sized>(source: &S, at: u64, size: u64) -> Result<ScanStep, S::Error> {
    let mut start = [0; UNIT];
    if size - at < UNIT as u64 {
        return Ok(ScanStep::Nothing(Invalid("the file is cut off")));
    }
    source.read(at, &mut start)?;
    if start == [0; UNIT] {
        return Ok(if at.is_multiple_of(BATCH) {
            ScanStep::Nothing(NOTHING)
        } else {
            ScanStep::Padding
        });
    }
    let length = match Head::length(&start) {
        Ok(length) => length,
        Err(what) => return Ok(ScanStep::Nothing(what)),
    };
    if size - at < length as u64 {
        return Ok(ScanStep::Nothing(Invalid("the file is cut off")));
    }
    let mut bytes = vec![0; length];
    source.read(at, &mut bytes)?;
    Ok(match Head::decode(&bytes) {
        Ok(head) if head.position != at => {
            ScanStep::Nothing(Invalid("the record belongs at another place"))
        }
        Ok(head) if head.record_length() > size - at => {
            ScanStep::Nothing(Invalid("the file is cut off"))
        }
        Ok(head) => ScanStep::Record(Box::new(head)),
        Err(what) => ScanStep::Nothing(what),
    })
}

/// Returns the offset in the file of the first block of a record whose checksum does not match; `None` if all match.
///
/// # Errors
/// The error of `source` if it cannot be read.
pub(crate) fn damaged_block<S: Source + ?Sized>(
    source: &S,
    head: &Head,
) -> Result<Option<u64>, S::Error> {
    let mut memory = vec![0; (u64::from(head.block_bytes)).min(head.payload_length) as usize];
    for (number, sum) in head.blocks.iter().enumerate() {
        let within = number as u64 * u64::from(head.block_bytes);
        let length = (head.payload_length - within).min(u64::from(head.block_bytes)) as usize;
        let at = head.position + u64::from(head.length) + within;
        source.read(at, &mut memory[..length])?;
        if checksum(&memory[..length]) != *sum {
            return Ok(Some(at));
        }
    }
    Ok(None)
}
