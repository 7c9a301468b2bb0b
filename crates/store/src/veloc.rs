//! The storage of VELOC's checkpoints, which have names, in an engine and a repository, which have numbered versions.
//!
//! Each checkpoint has a serial, in the order in which checkpoints were begun. Ranks that make the same calls have the same
//! serials. The *parts* of a checkpoint, its protected memory and a routed file, are versions of the engine. The *head* is another
//! version, which names the checkpoint and lists its regions. The head is written last, and versions become durable in order: if
//! the head is there, so are the parts.

use std::collections::BTreeMap;

/// Binary logarithm of the number of engine versions per checkpoint.
const SHIFT: u32 = 8;
/// Index of the head among these versions.
const HEAD: u64 = (1 << SHIFT) - 1;
const MAGIC: u64 = u64::from_le_bytes(*b"TFVELOC1");
/// The first word of a head whose [`spares`](VelocHead::spares) is not 0.
const SPARING: u64 = u64::from_le_bytes(*b"TFVELOC2");

/// The content of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Regions, one after the other: the id and the length in bytes of each.
    Memory(Vec<(i64, u64)>),
    /// A file that the application wrote, with its length in bytes.
    File(u64),
}

/// The description of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VelocHead {
    /// Name that the application gave to the checkpoint.
    pub name: String,
    /// Version of that name that the application gave.
    pub version: u64,
    /// Number of the checkpoint among all of its group, in the order in which they were begun.
    pub serial: u64,
    /// Checkpoints with smaller serials than this and with higher versions stay valid: the run of this checkpoint did not know of
    /// them.
    pub spares: u64,
    /// The parts of the checkpoint. Each is a version of the engine.
    pub parts: Vec<Content>,
}

/// Returns the engine's version of a part.
#[must_use]
pub fn part_of(serial: u64, part: usize) -> u64 {
    serial << SHIFT | part as u64
}

/// Returns true if this is the engine's version of a head.
#[must_use]
pub fn is_head(version: u64) -> bool {
    version & HEAD == HEAD
}

/// Returns the engine's version of the head of a serial.
#[must_use]
pub fn head_of(serial: u64) -> u64 {
    serial << SHIFT | HEAD
}

/// Returns the serial to which an engine's version belongs.
#[must_use]
pub fn serial_of(version: u64) -> u64 {
    version >> SHIFT
}

/// The most parts of a checkpoint.
pub const MOST_PARTS: usize = HEAD as usize;

impl Content {
    /// Returns the length of the part in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Memory(regions) => regions
                .iter()
                .fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes)),
            Self::File(bytes) => *bytes,
        }
    }
}

impl VelocHead {
    /// Returns the engine's version of the head.
    #[must_use]
    pub fn number(&self) -> u64 {
        head_of(self.serial)
    }

    /// Returns true if an older checkpoint of the same name does not count any more, since the application went back to before it.
    #[must_use]
    pub fn supersedes(&self, old: &Self) -> bool {
        old.version == self.version || (old.version > self.version && old.serial >= self.spares)
    }

    /// Returns the ids of all regions, with their lengths in bytes.
    pub fn regions(&self) -> impl DoubleEndedIterator<Item = (i64, u64)> {
        let regions = self.parts.iter().flat_map(|part| match part {
            Content::Memory(regions) => regions.as_slice(),
            Content::File(_) => &[],
        });
        regions.copied()
    }

    /// Returns the engine's versions of the checkpoint: its stored parts and its head. Parts without bytes are stored if `empties`
    /// is true.
    pub fn numbers(&self, empties: bool) -> impl Iterator<Item = u64> {
        let parts = (0..).zip(&self.parts);
        let stored = parts.filter(move |(_, part)| empties || part.bytes() > 0);
        let numbers = stored.map(|(index, _)| part_of(self.serial, index));
        numbers.chain([self.number()])
    }

    /// Returns the bytes of the head, which are the content of its engine's version.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
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

    /// Returns true if bytes that begin with `start` may be a head.
    #[must_use]
    pub fn is_one(start: &[u8]) -> bool {
        [MAGIC, SPARING]
            .iter()
            .any(|magic| start.starts_with(&magic.to_le_bytes()))
    }

    /// Decodes the bytes that [`encode`](Self::encode) returned; `None` for other bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
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

/// The heads that count, by name and version. Heads are inserted in the order of their serials. If a program wrote a version again,
/// or an older one, it had gone back to before that version. The later versions do not count any more.
#[derive(Debug, Clone, Default)]
pub struct Names(BTreeMap<String, BTreeMap<u64, VelocHead>>);

impl Names {
    /// Returns those of these heads that count. `heads` may have any order.
    #[must_use]
    pub fn of(mut heads: Vec<VelocHead>) -> Self {
        heads.sort_by_key(|head| head.serial);
        let mut names = Self::default();
        for head in heads {
            let _no_longer_count = names.insert(head);
        }
        names
    }

    /// Inserts the newest head. Returns the heads of its name that do not count any more.
    pub fn insert(&mut self, head: VelocHead) -> Vec<VelocHead> {
        let superseded = self.extract(&head.name, |old| head.supersedes(old));
        let versions = self.0.entry(head.name.clone()).or_default();
        versions.insert(head.version, head);
        superseded
    }

    /// Removes the heads of a name for which `is_one` returns true, and returns them.
    pub fn extract(&mut self, name: &str, is_one: impl Fn(&VelocHead) -> bool) -> Vec<VelocHead> {
        let Some((name, versions)) = self.0.remove_entry(name) else {
            return Vec::new();
        };
        let is_one = |(_, head): &(u64, VelocHead)| is_one(head);
        let (extracted, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
            versions.into_iter().partition(is_one);
        if !left.is_empty() {
            self.0.insert(name, left);
        }
        extracted.into_values().collect()
    }

    /// Returns each name with its heads by version.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &BTreeMap<u64, VelocHead>)> {
        self.0.iter().map(|(name, heads)| (name.as_str(), heads))
    }

    /// Returns the heads of a name by version.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&BTreeMap<u64, VelocHead>> {
        self.0.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let head = VelocHead {
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
        assert_eq!(VelocHead::decode(&bytes), Some(head.clone()));
        assert_eq!(
            head.numbers(false).collect::<Vec<_>>(),
            [7 << 8, 7 << 8 | 2, 7 << 8 | 255]
        );
        assert_eq!(head.numbers(true).count(), 4);
        let sparing = VelocHead {
            spares: 5,
            ..head.clone()
        };
        assert_eq!(VelocHead::decode(&sparing.encode()), Some(sparing));
        let fixed = bytes.len() - head.name.len();
        for length in 0..fixed {
            assert_eq!(VelocHead::decode(&bytes[..length]), None, "{length}");
        }
        for at in 0..fixed {
            let mut hostile = bytes.clone();
            hostile[at] ^= 0x80;
            // The call neither panics nor allocates without limit.
            let _another = VelocHead::decode(&hostile);
        }
    }
}
