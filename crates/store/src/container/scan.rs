//! Finding the records of a file, whole or not.

use super::{Head, Invalid, UNIT, checksum};
use std::cell::RefCell;

/// A source of records: a file, or bytes in memory.
pub trait Source {
    /// Why it cannot be read.
    type Error;
    /// How many bytes there are.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn size(&self) -> Result<u64, Self::Error>;
    /// Fills `bytes` from `offset`; the whole range is within [`size`](Self::size).
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;
    /// Returns the offset, from `offset` on, at which the next bytes may be that are not zero, a multiple of 4096 if `offset` is one; `None` if
    /// there are none. Who cannot tell answers with `offset`.
    ///
    /// # Errors
    /// When that cannot be found out.
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
    /// A record whose head is whole and which lies within the file. Its payload was not looked at.
    Record(Box<Head>),
    /// Something that is no record, up to the next one or the end.
    Damage {
        /// The offset at which it starts.
        offset: u64,
        /// The fault of it.
        what: Invalid,
    },
}

/// Batches of records start at multiples of this many bytes, and what lies between them is zero.
pub(crate) const BATCH: u64 = 4096;

/// Hands every record of `source` from `offset` on to `found`, and every stretch that is none. Goes on after damage,
/// and stops when `found` says `false`. Returns where the last record ends to which it said `true`.
///
/// # Errors
/// When `source` cannot be read.
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

/// The shortest and the longest stretch that is read ahead, in bytes.
const AHEAD: (usize, usize) = (4 << 10, 256 << 10);

/// Reads ahead, more each time: heads are small, and lie one behind the other.
#[derive(Debug)]
struct Ahead<'s, S: ?Sized> {
    source: &'s S,
    size: u64,
    window: RefCell<Window>,
}

/// Bytes that were read, where they start, and how many are read the next time.
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
                // The first head is read alone: many scans look at no other.
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
            // The payload of a record was passed over: the next head may be far from this one, too.
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
            // Some of it cannot be read, and perhaps not what was asked for.
            window.bytes.clear();
        }
        self.source.read(offset, bytes)
    }

    fn data_from(&self, offset: u64) -> Result<Option<u64>, S::Error> {
        self.source.data_from(offset)
    }
}

/// Finds one record after the other: heads can be found again behind anything that is none, as each starts at a multiple of
/// [`UNIT`] and says where.
#[derive(Debug)]
pub(crate) struct Scanner<'s, S: ?Sized> {
    source: Ahead<'s, S>,
    size: u64,
    at: u64,
    /// Within a stretch that is no record: it is reported once.
    is_damaged: bool,
    /// Within one that cannot be read.
    is_unreadable: bool,
    /// Bytes to go on by when the next ones cannot be read.
    step: u64,
}

/// No more than so many bytes are passed over because one of them cannot be read.
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

    /// The offset at which the scan goes on.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next record or stretch that is none; `None` at the end. After an error, the same place is looked at again.
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
                        // Space that was set aside may be long.
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

    /// Passes over what cannot be read: a block, and more each time until there is a record again. Says where that was,
    /// unless it is within a stretch that was reported.
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
/// The fault of zeros at which a batch should start.
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

/// The offset in the file of the first block of a record that fails its checksum.
///
/// # Errors
/// When `source` cannot be read.
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
