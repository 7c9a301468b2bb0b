//! The names of objects.

use object_store::path::Path;
use tierflow_store::Truncation;

/// The kind of an object that has a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectKind {
    Piece,
    Manifest,
}

/// A piece or manifest, by its version and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) version: u64,
    pub(crate) rank: u32,
    pub(crate) kind: ObjectKind,
}

impl Name {
    pub(crate) fn piece(version: u64, rank: u32) -> Self {
        let kind = ObjectKind::Piece;
        Self {
            version,
            rank,
            kind,
        }
    }

    pub(crate) fn manifest(version: u64, rank: u32) -> Self {
        let kind = ObjectKind::Manifest;
        Self {
            version,
            rank,
            kind,
        }
    }

    pub(crate) fn path(self, prefix: &Path) -> Path {
        let ending = match self.kind {
            ObjectKind::Piece => "tfc",
            ObjectKind::Manifest => "tfm",
        };
        let version = self.version;
        rank_path(prefix, self.rank).join(format!("v{version:020}.{ending}"))
    }
}

fn rank_path(prefix: &Path, rank: u32) -> Path {
    prefix.clone().join(format!("rank-{rank}"))
}

/// The path of an index of a rank, which the rank wrote as its record of this epoch and sequence.
pub(crate) fn index_path(prefix: &Path, rank: u32, (epoch, sequence): (u32, u64)) -> Path {
    rank_path(prefix, rank).join(format!("index-{epoch:010}-{sequence:020}.tfi"))
}

/// The path of the object that stands for a truncation of a rank.
pub(crate) fn truncation_path(prefix: &Path, rank: u32, truncation: Truncation) -> Path {
    rank_path(prefix, rank).join(truncation.name())
}

/// A path under a prefix. Objects with names of other forms are not of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    Record(Name),
    /// Of a rank.
    Index(u32),
    /// Of a rank.
    Truncation(u32, Truncation),
}

impl Parsed {
    pub(crate) fn of(prefix: &Path, path: &Path) -> Option<Self> {
        let mut parts = path.prefix_match(prefix)?;
        let (rank, file) = (parts.next()?, parts.next()?);
        let rank = rank.as_ref().strip_prefix("rank-")?.parse().ok()?;
        let file = file.as_ref();
        if let Some(numbers) = file.strip_prefix("index-") {
            let (epoch, sequence) = numbers.strip_suffix(".tfi")?.split_once('-')?;
            let order = (epoch.parse().ok()?, sequence.parse().ok()?);
            return (index_path(prefix, rank, order) == *path).then_some(Self::Index(rank));
        }
        if let Some(truncation) = Truncation::parse(file) {
            let is_exact = truncation_path(prefix, rank, truncation) == *path;
            return is_exact.then_some(Self::Truncation(rank, truncation));
        }
        let (version, ending) = file.strip_prefix('v')?.split_once('.')?;
        let version = version.parse().ok()?;
        let name = match ending {
            "tfc" => Name::piece(version, rank),
            "tfm" => Name::manifest(version, rank),
            _ => return None,
        };
        (name.path(prefix) == *path).then_some(Self::Record(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let prefix = Path::from("runs/7");
        for name in [Name::piece(3, 0), Name::manifest(u64::MAX, 12)] {
            let parsed = Parsed::of(&prefix, &name.path(&prefix));
            assert_eq!(parsed, Some(Parsed::Record(name)));
        }
        let index = index_path(&prefix, 5, (2, 77));
        assert_eq!(Parsed::of(&prefix, &index), Some(Parsed::Index(5)));
        let truncation = Truncation { epoch: 7, from: 42 };
        let path = truncation_path(&prefix, 5, truncation);
        let parsed = Parsed::of(&prefix, &path);
        assert_eq!(parsed, Some(Parsed::Truncation(5, truncation)));
        for other in [
            "runs/7/rank-0/v3.tfc",
            "runs/7/rank-00/v00000000000000000003.tfc",
            "runs/7/rank-0/v00000000000000000003.txt",
            "runs/7/rank-0/index-1-2.tfi",
            "runs/7/rank-0/deep/v00000000000000000003.tfc",
            "runs/8/rank-0/v00000000000000000003.tfc",
            "runs/7/v00000000000000000003.tfc",
        ] {
            assert_eq!(Parsed::of(&prefix, &Path::from(other)), None, "{other}");
        }
    }
}
