//! How named checkpoints are stored in an engine, which has numbered versions.
//!
//! Each checkpoint has a serial, in the order in which they were begun, the same on all ranks that make the same calls. Its
//! *parts* are versions of the engine: protected memory, and a routed file. Its *head* is one more, which names the checkpoint
//! and lists its regions. It is written last, and versions become durable in order: if the head is there, so are the parts.

/// Versions of the engine for each checkpoint.
const SHIFT: u32 = 8;
/// The head's among them.
const HEAD: u64 = (1 << SHIFT) - 1;
const MAGIC: u64 = u64::from_le_bytes(*b"TFVELOC1");
/// Of a head with `spares`.
const SPARING: u64 = u64::from_le_bytes(*b"TFVELOC2");

/// What a part holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Regions by their ids, with their bytes, one after the other.
    Memory(Vec<(i64, u64)>),
    /// The file that the application wrote, of so many bytes.
    File(u64),
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) serial: u64,
    /// Checkpoints of smaller serials, with other numbers, do not give way to this one: its run was not told of them.
    pub(super) spares: u64,
    pub(super) parts: Vec<Content>,
}

/// The engine's version of a part.
pub(super) fn part_of(serial: u64, part: usize) -> u64 {
    serial << SHIFT | part as u64
}

/// Whether that is the engine's version of a head.
pub(super) fn is_head(version: u64) -> bool {
    version & HEAD == HEAD
}

/// The engine's version of the head of a serial.
pub(super) fn head_of(serial: u64) -> u64 {
    serial << SHIFT | HEAD
}

/// The serial to which a version of the engine belongs.
pub(super) fn serial_of(version: u64) -> u64 {
    version >> SHIFT
}

/// The most parts of a checkpoint.
pub(super) const MOST_PARTS: usize = HEAD as usize;

impl Content {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Memory(regions) => regions.iter().map(|(_, bytes)| bytes).sum(),
            Self::File(bytes) => *bytes,
        }
    }
}

impl Head {
    /// The engine's version of it.
    pub(super) fn number(&self) -> u64 {
        head_of(self.serial)
    }

    /// The engine's versions of it: its parts that have some, and itself. `empties` says whether parts without bytes have.
    pub(super) fn numbers(&self, empties: bool) -> impl Iterator<Item = u64> {
        let parts = (0..).zip(&self.parts);
        let stored = parts.filter(move |(_, part)| empties || part.bytes() > 0);
        let numbers = stored.map(|(index, _)| part_of(self.serial, index));
        numbers.chain([self.number()])
    }

    /// Its regions by their ids, with their bytes.
    pub(super) fn regions(&self) -> impl DoubleEndedIterator<Item = (i64, u64)> {
        let regions = self.parts.iter().flat_map(|part| match part {
            Content::Memory(regions) => regions.as_slice(),
            Content::File(_) => &[],
        });
        regions.copied()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let name = self.name.as_bytes();
        let mut words = match self.spares {
            0 => vec![MAGIC],
            spares => vec![SPARING, spares],
        };
        words.extend([self.version, self.serial, self.parts.len() as u64]);
        for part in &self.parts {
            match part {
                Content::Memory(regions) => {
                    words.extend([0, regions.len() as u64]);
                    let region = |(id, bytes): &(i64, u64)| [id.cast_unsigned(), *bytes];
                    words.extend(regions.iter().flat_map(region));
                }
                Content::File(bytes) => words.extend([1, *bytes]),
            }
        }
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        words.chain(name.iter().copied()).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut word = || {
            let (word, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u64::from_le_bytes(*word))
        };
        let spares = match word()? {
            MAGIC => 0,
            SPARING => word()?,
            _ => return None,
        };
        let (version, serial, count) = (word()?, word()?, word()?);
        if count > MOST_PARTS as u64 {
            return None;
        }
        let mut parts = Vec::new();
        for _ in 0..count {
            parts.push(match word()? {
                0 => {
                    let mut regions = Vec::new();
                    for _ in 0..word()? {
                        regions.push((word()?.cast_signed(), word()?));
                    }
                    Content::Memory(regions)
                }
                1 => Content::File(word()?),
                _ => return None,
            });
        }
        let name = String::from_utf8(rest.to_vec()).ok()?;
        Some(Self {
            name,
            version,
            serial,
            spares,
            parts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let head = Head {
            name: "heat".to_owned(),
            version: u64::MAX >> 1,
            serial: 7,
            spares: 0,
            parts: vec![
                Content::Memory(vec![(i64::MIN, 3), (4, u64::MAX / 2)]),
                Content::Memory(Vec::new()),
                Content::File(9),
            ],
        };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Some(head.clone()));
        assert_eq!(
            head.numbers(false).collect::<Vec<_>>(),
            [7 << 8, 7 << 8 | 2, 7 << 8 | 255]
        );
        assert_eq!(head.numbers(true).count(), 4);
        let sparing = Head {
            spares: 5,
            ..head.clone()
        };
        assert_eq!(Head::decode(&sparing.encode()), Some(sparing));
        let fixed = bytes.len() - head.name.len();
        for length in 0..fixed {
            assert_eq!(Head::decode(&bytes[..length]), None, "{length}");
        }
        for at in 0..fixed {
            let mut hostile = bytes.clone();
            hostile[at] ^= 0x80;
            // Never a panic, nor memory without end.
            let _another = Head::decode(&hostile);
        }
    }
}
