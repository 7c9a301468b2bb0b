//! Finding the records of a file, whole or not.

use super::{Head, Invalid, UNIT, checksum};

/// Whatever records are read from: a file, or bytes in memory.
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

/// What lies at an offset of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A record whose head is whole and which lies within the file. Its payload was not looked at.
    Record(Box<Head>),
    /// Something that is no record, up to the next one or the end.
    Damage {
        /// Where it starts.
        offset: u64,
        /// What is wrong with it.
        what: Invalid,
    },
}

/// Batches of records start at multiples of this many bytes, and what lies between them is zero.
const BATCH: u64 = 4096;

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
    let size = source.size()?;
    let (mut at, mut end) = (offset, offset);
    // Reported once for each stretch.
    let mut damaged = false;
    while at < size {
        match record_at(source, at, size)? {
            Looked::Record(head) => {
                // Both fields were checked against the size of the file.
                at += head.record_length();
                damaged = false;
                if !found(Found::Record(head))? {
                    return Ok(end);
                }
                end = at;
            }
            Looked::Padding => at += UNIT as u64,
            Looked::Nothing(what) => {
                if !damaged && !found(Found::Damage { offset: at, what })? {
                    return Ok(end);
                }
                damaged = true;
                at += UNIT as u64;
            }
        }
    }
    Ok(end)
}

enum Looked {
    Record(Box<Head>),
    Padding,
    Nothing(Invalid),
}

fn record_at<S: Source + ?Sized>(source: &S, at: u64, size: u64) -> Result<Looked, S::Error> {
    let mut start = [0; UNIT];
    if size - at < UNIT as u64 {
        return Ok(Looked::Nothing(Invalid("the file is cut off")));
    }
    source.read(at, &mut start)?;
    if start == [0; UNIT] {
        return Ok(if at.is_multiple_of(BATCH) {
            Looked::Nothing(Invalid("nothing was written here"))
        } else {
            Looked::Padding
        });
    }
    let length = match Head::length(&start) {
        Ok(length) => length,
        Err(what) => return Ok(Looked::Nothing(what)),
    };
    if size - at < length as u64 {
        return Ok(Looked::Nothing(Invalid("the file is cut off")));
    }
    let mut bytes = vec![0; length];
    source.read(at, &mut bytes)?;
    Ok(match Head::decode(&bytes) {
        Ok(head) if head.position != at => {
            Looked::Nothing(Invalid("the record belongs at another place"))
        }
        Ok(head) if head.record_length() > size - at => {
            Looked::Nothing(Invalid("the file is cut off"))
        }
        Ok(head) => Looked::Record(Box::new(head)),
        Err(what) => Looked::Nothing(what),
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
