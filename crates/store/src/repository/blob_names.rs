//! The names of blobs.

use super::rank_name;
use super::record::Name;
use super::truncate::Truncation;

/// The name of a record's blob, with its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlobName {
    pub(super) rank: u32,
    pub(super) name: Name,
}

impl BlobName {
    pub(super) fn text(self) -> String {
        format!("{}/{}", rank_name(self.rank), self.name.published())
    }
}

/// Returns the name of an index of a rank. The rank wrote the index as the record of this epoch and sequence.
pub(super) fn index_name(rank: u32, epoch: u32, sequence: u64) -> String {
    format!("{}/index-{epoch:010}-{sequence:020}.tfi", rank_name(rank))
}

/// Returns the name of the blob that represents a truncation of a rank.
pub(super) fn note_name(rank: u32, truncation: Truncation) -> String {
    format!("{}/{}", rank_name(rank), truncation.name())
}

/// The meaning of a blob's name. Blobs with names of other forms do not belong to the history.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Record(BlobName),
    /// The index of a rank.
    Index(u32),
    /// The note of a rank.
    Note(u32, Truncation),
}

impl Parsed {
    pub(super) fn of(text: &str) -> Option<Self> {
        let (directory, file) = text.split_once('/')?;
        let rank: u32 = directory.strip_prefix("rank-")?.parse().ok()?;
        let is_exact = |name: String| name == text;
        if let Some(numbers) = file.strip_prefix("index-") {
            let (epoch, sequence) = numbers.strip_suffix(".tfi")?.split_once('-')?;
            let (epoch, sequence) = (epoch.parse().ok()?, sequence.parse().ok()?);
            return is_exact(index_name(rank, epoch, sequence)).then_some(Self::Index(rank));
        }
        if let Some(truncation) = Truncation::parse(file) {
            let is_exact = is_exact(note_name(rank, truncation));
            return is_exact.then_some(Self::Note(rank, truncation));
        }
        let name = Name::parse_blob(file)?;
        let name = BlobName { rank, name };
        is_exact(name.text()).then_some(Self::Record(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (rank, name) in [(0, Name::Alone(3)), (12, Name::Manifest(u64::MAX))] {
            let name = BlobName { rank, name };
            assert_eq!(Parsed::of(&name.text()), Some(Parsed::Record(name)));
        }
        assert_eq!(Parsed::of(&index_name(5, 2, 77)), Some(Parsed::Index(5)));
        let truncation = Truncation { epoch: 7, from: 42 };
        let parsed = Parsed::of(&note_name(5, truncation));
        assert_eq!(parsed, Some(Parsed::Note(5, truncation)));
        for other in [
            "rank-0/v3.tfc",
            "rank-00/v00000000000000000003.tfc",
            "rank-0/v00000000000000000003.txt",
            "rank-0/s00000000000000000003.tfs",
            "rank-0/index-1-2.tfi",
            "rank-0/deep/v00000000000000000003.tfc",
            "v00000000000000000003.tfc",
        ] {
            assert_eq!(Parsed::of(other), None, "{other}");
        }
    }
}
