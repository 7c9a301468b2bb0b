//! Damage of storage that outlives the engine.

use crate::Version;
use std::fmt;
use std::path::{Path, PathBuf};
use tierflow_store::Error;

/// The first words of the line about all versions that more nodes were lost with than their protection bears.
pub(super) const LOSSES: &str = "more is lost than the nodes protect";

/// Something that was written and cannot be read as it was, or a tier that cannot be used as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The tier, by its name in the metrics.
    pub tier: &'static str,
    /// The file or directory, as far as that is known.
    pub path: PathBuf,
    /// The version that is hit, where that can be told.
    pub version: Option<Version>,
    /// The fault, in words.
    pub what: String,
}

impl Damage {
    /// Returns true for the line that names all of [`Reports::losses`](crate::Reports::losses).
    #[must_use]
    pub fn names_losses(&self) -> bool {
        self.what.starts_with(LOSSES)
    }

    /// A difference whose base was not found.
    pub(super) fn without_base(
        tier: &'static str,
        path: &Path,
        version: Version,
        base: Version,
    ) -> Self {
        Self {
            tier,
            path: path.to_path_buf(),
            version: Some(version),
            what: format!(
                "it is stored as a difference that builds upon version {base}, which was not found where the engine looked: the copy stays, and is offered again once version {base} is found"
            ),
        }
    }

    /// The mark of this run could not be left.
    pub(crate) fn unmarked(tier: &'static str, error: &Error) -> Self {
        Self {
            tier,
            path: PathBuf::new(),
            version: None,
            what: format!("the mark of this run could not be left there: {error}"),
        }
    }

    pub(super) fn unusable(tier: &'static str, path: &Path, error: &Error) -> Self {
        Self {
            tier,
            path: path.to_path_buf(),
            version: None,
            what: error.to_string(),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} storage, {}", self.tier, self.path.display())?;
        if let Some(version) = self.version {
            write!(f, ", version {version}")?;
        }
        write!(f, ": {}", self.what)
    }
}
