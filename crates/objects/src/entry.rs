//! An entry of the catalog, and the row that an index has of it.

use crate::name::{Name, ObjectKind};
use object_store::ObjectMeta;
use tierflow_store::container::{Head, ManifestRow, Row, checksum};
use tierflow_store::{Identity, PieceEntry, PieceInfo};

/// The content of an object, as far as its head says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Piece(PieceEntry),
    /// The epoch and sequence number under which it was written, and the checksum of its rows.
    Manifest((u32, u64), u64),
    Damaged {
        offset: u64,
        what: &'static str,
    },
}

/// An object whose head was read, or that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) size: u64,
    /// Changes when the object is written again: see [`tag_of`].
    pub(crate) tag: u64,
    /// True if the tag is that of a list. An object that was just written has the one of the store's answer, 0 if there was none.
    pub(crate) is_listed: bool,
    pub(crate) content: Content,
    /// The number of the index that has a row of it; 0 for none.
    pub(crate) index: u32,
}

/// A checksum that changes with an object's content: of the store's entity tag or, where its lists have none, of the time of
/// the last write.
pub(crate) fn tag_of(meta: &ObjectMeta) -> u64 {
    match &meta.e_tag {
        Some(tag) => tag_of_text(tag),
        None => checksum(&meta.last_modified.timestamp_micros().to_le_bytes()),
    }
}

pub(crate) fn tag_of_text(tag: &str) -> u64 {
    checksum(tag.trim_matches('"').as_bytes())
}

/// The checksum of the rows of a manifest.
pub(crate) fn sum_of(rows: impl IntoIterator<Item = ManifestRow>) -> u64 {
    let words = rows.into_iter().flat_map(|row| row.words());
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    checksum(&bytes)
}

impl Content {
    pub(crate) fn piece(head: &Head) -> Self {
        Self::Piece(PieceEntry {
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

    /// The identity of a piece.
    pub(crate) fn identity(&self) -> Option<Identity> {
        match self {
            Self::Piece(listed) => Some(listed.info.identity),
            Self::Manifest(..) | Self::Damaged { .. } => None,
        }
    }

    /// The epoch in which it was written, and its sequence number.
    pub(crate) fn order(&self) -> Option<(u32, u64)> {
        match self {
            Self::Piece(PieceEntry { info, .. }) => {
                Some((info.identity.epoch, info.identity.sequence))
            }
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
pub(crate) fn to_row(name: Name, entry: &Entry) -> Option<[u8; ROW]> {
    let (epoch, sequence) = entry.content.order()?;
    let mut words = [0; WORDS];
    [words[0], words[1], words[2]] = [name.version, entry.size, entry.tag];
    [words[4], words[5]] = [u64::from(epoch), sequence];
    match &entry.content {
        Content::Piece(PieceEntry {
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
        Content::Manifest(_, sum) => [words[3], words[6]] = [MANIFEST, *sum],
        Content::Damaged { .. } => return None,
    }
    let mut row = [0; ROW];
    for (bytes, word) in row.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    Some(row)
}

/// The objects in the rows of a rank's index, and their entries.
pub(crate) fn of_rows(rank: u32, rows: &[u8]) -> impl Iterator<Item = (Name, Entry)> + '_ {
    rows.as_chunks::<ROW>().0.iter().filter_map(move |row| {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(row.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        of_words(rank, words)
    })
}

fn of_words(rank: u32, words: [u64; WORDS]) -> Option<(Name, Entry)> {
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
    let content = match is_manifest {
        true => Content::Manifest((epoch, sequence), run),
        false => Content::Piece(PieceEntry {
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
    let kind = match is_manifest {
        true => ObjectKind::Manifest,
        false => ObjectKind::Piece,
    };
    let name = Name {
        version,
        rank,
        kind,
    };
    let entry = Entry {
        size,
        tag,
        is_listed: true,
        content,
        index: 0,
    };
    Some((name, entry))
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
            Content::Piece(PieceEntry {
                info: info(base, decoded),
                record_length: 11,
            })
        };
        let cases = [
            (Name::piece(7, 2), piece(None, None)),
            (Name::piece(7, 2), piece(Some(0), Some(0))),
            (Name::piece(7, 2), piece(Some(3), Some(99))),
            (Name::manifest(7, 2), Content::Manifest((4, 5), 12)),
        ];
        let mut rows = Vec::new();
        let mut expected = Vec::new();
        for (name, content) in cases {
            let entry = Entry {
                size: 1,
                tag: 2,
                is_listed: true,
                content,
                index: 0,
            };
            rows.extend(to_row(name, &entry).into_iter().flatten());
            expected.push((name, entry));
        }
        assert_eq!(of_rows(2, &rows).collect::<Vec<_>>(), expected);
        rows.pop();
        assert_eq!(of_rows(2, &rows).count(), 3, "what is left over is no row");
    }
}
