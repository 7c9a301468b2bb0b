//! What is known of an object, and the row that an index has of it.

use crate::name::{Holds, Name};
use object_store::ObjectMeta;
use tierflow_store::container::{Head, ManifestRow, Row, checksum};
use tierflow_store::{Identity, Listed, PieceInfo};

/// What an object was found to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Piece(Listed),
    /// Written in this epoch, under this sequence number, and the checksum of its rows.
    Manifest((u32, u64), u64),
    Damaged {
        offset: u64,
        what: &'static str,
    },
}

/// An object as it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) size: u64,
    /// Another one when the object is written again: see [`tag_of`].
    pub(crate) tag: u64,
    /// Whether the tag is that of a list. What was just written here has the one of the store's answer, if it gave any.
    pub(crate) is_listed: bool,
    pub(crate) found: Found,
    /// The index that has a row of it; 0 for none.
    pub(crate) index: u32,
}

/// What tells the contents of an object from others of the same size: the store's entity tag or, where its lists have none,
/// when it was written.
pub(crate) fn tag_of(meta: &ObjectMeta) -> u64 {
    match &meta.e_tag {
        Some(tag) => tag_of_text(tag),
        None => checksum(&meta.last_modified.timestamp_micros().to_le_bytes()),
    }
}

pub(crate) fn tag_of_text(tag: &str) -> u64 {
    checksum(tag.trim_matches('"').as_bytes())
}

/// What stands for the rows of a manifest.
pub(crate) fn sum_of(rows: impl IntoIterator<Item = ManifestRow>) -> u64 {
    let words = rows.into_iter().flat_map(|row| row.words());
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    checksum(&bytes)
}

impl Found {
    pub(crate) fn piece(head: &Head) -> Self {
        Self::Piece(Listed {
            info: PieceInfo {
                version: head.version,
                ranks: head.ranks,
                identity: Identity::of(head),
                bytes: head.regions.iter().map(|region| region.length).sum(),
                decoded: head.decoded(),
            },
            record_length: head.record_length(),
        })
    }

    /// The epoch in which it was written, and its sequence number.
    pub(crate) fn order(&self) -> Option<(u32, u64)> {
        match self {
            Self::Piece(Listed { info, .. }) => Some((info.identity.epoch, info.identity.sequence)),
            Self::Manifest(order, _) => Some(*order),
            Self::Damaged { .. } => None,
        }
    }
}

/// Words of a row.
const WORDS: usize = 14;
/// Bytes of a row.
pub(crate) const ROW: usize = WORDS * 8;

const MANIFEST: u64 = 1;
const HAS_BASE: u64 = 2;
const IS_ENCODED: u64 = 4;

/// The row of an object that is not damaged.
pub(crate) fn to_row(name: Name, seen: &Seen) -> Option<[u8; ROW]> {
    let (epoch, sequence) = seen.found.order()?;
    let mut words = [0; WORDS];
    [words[0], words[1], words[2]] = [name.version, seen.size, seen.tag];
    [words[4], words[5]] = [u64::from(epoch), sequence];
    match &seen.found {
        Found::Piece(Listed {
            info,
            record_length,
        }) => {
            let identity = &info.identity;
            if identity.base.is_some() {
                words[3] |= HAS_BASE;
            }
            if info.decoded.is_some() {
                words[3] |= IS_ENCODED;
            }
            words[6..].copy_from_slice(&[
                identity.run,
                identity.created,
                identity.content,
                identity.base.unwrap_or(0),
                u64::from(info.ranks),
                info.bytes,
                info.decoded.unwrap_or(0),
                *record_length,
            ]);
        }
        Found::Manifest(_, sum) => [words[3], words[6]] = [MANIFEST, *sum],
        Found::Damaged { .. } => return None,
    }
    let mut row = [0; ROW];
    for (bytes, word) in row.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    Some(row)
}

/// What rows of a rank's index say.
pub(crate) fn of_rows(rank: u32, rows: &[u8]) -> impl Iterator<Item = (Name, Seen)> + '_ {
    rows.as_chunks::<ROW>().0.iter().filter_map(move |row| {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(row.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        of_words(rank, words)
    })
}

fn of_words(rank: u32, words: [u64; WORDS]) -> Option<(Name, Seen)> {
    let [version, size, tag, flags, epoch, sequence, ..] = words;
    let [
        ..,
        run,
        created,
        content,
        base,
        ranks,
        bytes,
        decoded,
        record_length,
    ] = words;
    let epoch = u32::try_from(epoch).ok()?;
    let is_manifest = flags & MANIFEST != 0;
    let found = match is_manifest {
        true => Found::Manifest((epoch, sequence), run),
        false => Found::Piece(Listed {
            info: PieceInfo {
                version,
                ranks: u32::try_from(ranks).ok()?,
                identity: Identity {
                    epoch,
                    sequence,
                    run,
                    created,
                    content,
                    base: (flags & HAS_BASE != 0).then_some(base),
                },
                bytes,
                decoded: (flags & IS_ENCODED != 0).then_some(decoded),
            },
            record_length,
        }),
    };
    let holds = match is_manifest {
        true => Holds::Manifest,
        false => Holds::Piece,
    };
    let name = Name {
        version,
        rank,
        holds,
    };
    let seen = Seen {
        size,
        tag,
        is_listed: true,
        found,
        index: 0,
    };
    Some((name, seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_are_written() {
        let info = |base, decoded| PieceInfo {
            version: 7,
            ranks: 3,
            identity: Identity {
                epoch: 4,
                sequence: 5,
                run: 6,
                created: 8,
                content: 9,
                base,
            },
            bytes: 10,
            decoded,
        };
        let piece = |base, decoded| {
            Found::Piece(Listed {
                info: info(base, decoded),
                record_length: 11,
            })
        };
        let cases = [
            (Name::piece(7, 2), piece(None, None)),
            (Name::piece(7, 2), piece(Some(0), Some(0))),
            (Name::piece(7, 2), piece(Some(3), Some(99))),
            (Name::manifest(7, 2), Found::Manifest((4, 5), 12)),
        ];
        let mut rows = Vec::new();
        let mut expected = Vec::new();
        for (name, found) in cases {
            let seen = Seen {
                size: 1,
                tag: 2,
                is_listed: true,
                found,
                index: 0,
            };
            rows.extend(to_row(name, &seen).into_iter().flatten());
            expected.push((name, seen));
        }
        assert_eq!(of_rows(2, &rows).collect::<Vec<_>>(), expected);
        rows.pop();
        assert_eq!(of_rows(2, &rows).count(), 3, "what is left over is no row");
    }
}
