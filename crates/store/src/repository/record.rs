//! The names of a repository's files, and the records in them.

use super::PieceInfo;
use super::heads::PieceEntry;
use super::identity::{Identity, Mark};
use crate::container::{Head, ManifestRow, checksum, encode_rows};

/// The kind and the number of a file in a rank's directory, as given by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    /// A piece in its own file, named by its version.
    Alone(u64),
    /// A manifest in its own blob, named by its version. In directories, manifests lie in segments.
    Manifest(u64),
    /// A segment of many records, named by its number.
    Segment(u64),
    /// A segment that was left open and whose number another, published segment has.
    Twin(u64),
}

impl Name {
    /// Returns the name of the file once it is complete.
    pub(crate) fn published(self) -> String {
        match self {
            Self::Alone(version) => format!("v{version:020}.tfc"),
            Self::Manifest(version) => format!("v{version:020}.tfm"),
            Self::Segment(number) => format!("s{number:020}.tfs"),
            Self::Twin(_) => self.unpublished(),
        }
    }

    /// Returns the name of the file while it is written.
    pub(crate) fn unpublished(self) -> String {
        match self {
            Self::Alone(version) | Self::Manifest(version) => format!("v{version:020}.tmp"),
            Self::Segment(number) | Self::Twin(number) => format!("s{number:020}.open"),
        }
    }

    /// Returns the name of the file once it is put aside: some of it is damaged, and the rest is not needed any more.
    pub(crate) fn aside(self) -> String {
        match self {
            Self::Alone(version) | Self::Manifest(version) => format!("v{version:020}.damaged"),
            Self::Segment(number) | Self::Twin(number) => format!("s{number:020}.damaged"),
        }
    }

    /// Parses the name of a blob that holds a record of a rank.
    pub(crate) fn parse_blob(text: &str) -> Option<Self> {
        let piece = text
            .strip_suffix(".tfm")
            .map(|start| format!("{start}.tfc"));
        match (Self::parse(piece.as_deref().unwrap_or(text))?, piece) {
            ((Self::Alone(version), _), Some(_)) => Some(Self::Manifest(version)),
            ((name @ Self::Alone(_), _), None) => Some(name),
            _ => None,
        }
    }

    /// Parses the name of a file. Returns the file, and true if it is published.
    pub(crate) fn parse(text: &str) -> Option<(Self, bool)> {
        let number = text.get(DIGITS)?;
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number = number.parse().ok()?;
        match (text.get(..1)?, text.get(21..)?) {
            ("v", ".tfc") => Some((Self::Alone(number), true)),
            // No writer gets so far: a larger number leaves none for the next segment.
            ("s", _) if number > u64::MAX / 2 => None,
            ("s", ".tfs") => Some((Self::Segment(number), true)),
            ("s", ".open") => Some((Self::Segment(number), false)),
            _ => None,
        }
    }

    /// Returns the version of a piece or manifest in its own file.
    pub(crate) fn version(self) -> Option<u64> {
        match self {
            Self::Alone(version) | Self::Manifest(version) => Some(version),
            Self::Segment(_) | Self::Twin(_) => None,
        }
    }

    /// Returns the number of a segment.
    pub(crate) fn segment(self) -> Option<u64> {
        match self {
            Self::Alone(_) | Self::Manifest(_) => None,
            Self::Segment(number) | Self::Twin(number) => Some(number),
        }
    }
}

/// Bytes of a name's number.
const DIGITS: std::ops::Range<usize> = 1..21;

/// Returns the name of the file that marks a run that wrote here.
pub(crate) fn mark_name(mark: Mark) -> String {
    let Mark { epoch, run } = mark;
    format!("e{epoch:010}-{run:016x}.run")
}

/// Parses the name of a mark.
pub(crate) fn parse_mark(name: &str) -> Option<Mark> {
    let (epoch, run) = name
        .strip_suffix(".run")?
        .strip_prefix('e')?
        .split_once('-')?;
    let mark = Mark {
        epoch: epoch.parse().ok()?,
        run: u64::from_str_radix(run, 16).ok()?,
    };
    // Names of other forms belong to other programs.
    (mark_name(mark) == name).then_some(mark)
}

/// Returns true if this is the name of a damaged file that was put aside. Such a file is never removed, as nobody knows its
/// content.
pub(crate) fn is_aside(name: &str) -> bool {
    let number = name.strip_suffix(".damaged");
    let number = number.and_then(|name| name.strip_prefix(['s', 'v']));
    number.is_some_and(|n| n.len() == DIGITS.len() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the checksum of a manifest's rows.
pub(crate) fn sum_of(rows: impl IntoIterator<Item = ManifestRow>) -> u64 {
    checksum(&encode_rows(rows))
}

/// A record, as described by its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) file: Name,
    pub(crate) position: u64,
    pub(crate) record_length: u64,
    /// Bytes of all regions together.
    pub(crate) bytes: u64,
    pub(crate) version: u64,
    pub(crate) identity: Identity,
    pub(crate) ranks: u32,
    pub(crate) detail: Detail,
}

/// The properties of a record that depend on its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// A piece without encoded regions.
    Plain,
    /// A piece with encoded regions. The value is the length in bytes of all regions after decoding.
    Decoded(u64),
    /// A manifest. The value is the checksum of its rows.
    Manifest(u64),
}

/// The place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    pub(crate) file: Name,
    pub(crate) position: u64,
}

impl Record {
    pub(crate) fn new(file: Name, position: u64, head: &Head) -> Self {
        Self {
            file,
            position,
            record_length: head.record_length(),
            bytes: head.regions.iter().map(|region| region.length).sum(),
            version: head.version,
            identity: Identity::of(head),
            ranks: head.ranks,
            detail: head.decoded().map_or(Detail::Plain, Detail::Decoded),
        }
    }

    /// Returns the checksum of the rows if the record is a manifest.
    pub(crate) fn manifest(&self) -> Option<u64> {
        match self.detail {
            Detail::Manifest(sum) => Some(sum),
            Detail::Plain | Detail::Decoded(_) => None,
        }
    }

    pub(crate) fn place(&self) -> RecordPlace {
        let Self { file, position, .. } = *self;
        RecordPlace { file, position }
    }

    /// Returns true if this record counts instead of `counting`, the record of the same version and kind that counted so far.
    pub(crate) fn replaces(&self, counting: Option<&Self>) -> bool {
        counting.is_none_or(|counting| counting.identity.order() <= self.identity.order())
    }

    /// Returns true if this is the same record, in the same place.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        (self.file, self.position, self.identity) == (other.file, other.position, other.identity)
    }

    /// Returns the entry of the piece.
    pub(crate) fn listed(&self) -> PieceEntry {
        PieceEntry {
            info: PieceInfo {
                version: self.version,
                ranks: self.ranks,
                identity: self.identity,
                bytes: self.bytes,
                decoded: match self.detail {
                    Detail::Decoded(bytes) => Some(bytes),
                    Detail::Plain | Detail::Manifest(_) => None,
                },
            },
            record_length: self.record_length,
        }
    }
}
