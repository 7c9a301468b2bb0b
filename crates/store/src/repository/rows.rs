//! The rows of the indexes of blobs: the contents of the blobs' heads.

use super::identity::Identity;
use super::record::{Detail, Name, Record};
use crate::BlobStamp;

/// 64-bit words in a row.
const WORDS: usize = 14;
/// Bytes of a row.
pub(super) const ROW: usize = WORDS * 8;

const MANIFEST: u64 = 1;
const HAS_BASE: u64 = 2;
const IS_ENCODED: u64 = 4;

/// Returns the row of a blob that holds this record.
pub(super) fn to_row(record: &Record, stamp: BlobStamp) -> [u8; ROW] {
    let identity = &record.identity;
    let mut words = [0; WORDS];
    [words[0], words[1], words[2]] = [record.version, stamp.size, stamp.tag];
    [words[4], words[5]] = [u64::from(identity.epoch), identity.sequence];
    if let Some(sum) = record.manifest() {
        [words[3], words[6]] = [MANIFEST, sum];
    } else {
        if identity.base.is_some() {
            words[3] |= HAS_BASE;
        }
        let decoded = record.listed().info.decoded;
        if decoded.is_some() {
            words[3] |= IS_ENCODED;
        }
        words[6..].copy_from_slice(&[
            identity.run,
            identity.created,
            identity.content,
            identity.base.unwrap_or(0),
            u64::from(record.ranks),
            record.bytes,
            decoded.unwrap_or(0),
            record.record_length,
        ]);
    }
    let mut row = [0; ROW];
    for (bytes, word) in row.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    row
}

/// Returns the records in the rows of an index, each with the size and the tag of its blob.
pub(super) fn of_rows(rows: &[u8]) -> impl Iterator<Item = (Record, u64, u64)> + '_ {
    rows.as_chunks::<ROW>().0.iter().filter_map(|row| {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(row.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        of_words(words)
    })
}

fn of_words(words: [u64; WORDS]) -> Option<(Record, u64, u64)> {
    let [version, size, tag, flags, epoch, sequence, run, created, ..] = words;
    let [.., content, base, ranks, bytes, decoded, record_length] = words;
    let mut record = Record {
        file: Name::Manifest(version),
        position: 0,
        record_length: size,
        bytes: 0,
        version,
        identity: Identity {
            epoch: u32::try_from(epoch).ok()?,
            sequence,
            ..Identity::default()
        },
        ranks: 0,
        detail: Detail::Plain,
    };
    match flags & MANIFEST != 0 {
        true => record.detail = Detail::Manifest(run),
        false => {
            record.file = Name::Alone(version);
            record.identity = Identity {
                run,
                created,
                content,
                base: (flags & HAS_BASE != 0).then_some(base),
                ..record.identity
            };
            record.ranks = u32::try_from(ranks).ok()?;
            record.bytes = bytes;
            if flags & IS_ENCODED != 0 {
                record.detail = Detail::Decoded(decoded);
            }
            record.record_length = record_length;
        }
    }
    Some((record, size, tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_are_written() {
        let stamp = BlobStamp {
            size: 1,
            tag: 2,
            is_exact: true,
        };
        let piece = |base, detail| Record {
            file: Name::Alone(7),
            position: 0,
            record_length: 11,
            bytes: 10,
            version: 7,
            identity: Identity {
                epoch: 4,
                sequence: 5,
                run: 6,
                created: 8,
                content: 9,
                base,
            },
            ranks: 3,
            detail,
        };
        let manifest = Record {
            file: Name::Manifest(7),
            record_length: 1,
            bytes: 0,
            identity: Identity {
                epoch: 4,
                sequence: 5,
                ..Identity::default()
            },
            ranks: 0,
            detail: Detail::Manifest(12),
            ..piece(None, Detail::Plain)
        };
        let cases = [
            piece(None, Detail::Plain),
            piece(Some(0), Detail::Decoded(0)),
            piece(Some(3), Detail::Decoded(99)),
            manifest,
        ];
        let mut rows: Vec<u8> = cases
            .iter()
            .flat_map(|record| to_row(record, stamp))
            .collect();
        let read: Vec<_> = of_rows(&rows).collect();
        assert_eq!(read, cases.map(|record| (record, 1, 2)));
        rows.pop();
        assert_eq!(of_rows(&rows).count(), 3, "what is left over is no row");
    }
}
