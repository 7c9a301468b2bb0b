//! Damage of storage that outlives the engine.

use crate::Version;
use std::fmt;
use std::path::{Path, PathBuf};
use tierflow_store::Error;

/// The first words of the entry that names all lost versions: more nodes were lost with them than the redundancy tolerates.
pub(super) const LOSSES: &str = "more is lost than the nodes protect";

/// Stored bytes that cannot be read as they were written, or a tier that cannot be used as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The name of the tier, as in the metrics.
    pub tier: &'static str,
    /// The file or directory, if known; otherwise empty.
    pub path: PathBuf,
    /// The affected version, if known.
    pub version: Option<Version>,
    /// The fault, as text.
    pub what: String,
}

impl Damage {
    /// Returns true for the entry that names all of [`Reports::losses`](crate::Reports::losses).
    #[must_use]
    pub fn names_losses(&self) -> bool {
        self.what.starts_with(LOSSES)
    }

    /// Returns the damage of a difference whose base was not found.
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

    /// Returns the damage of a tier on which this run could not leave its mark.
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
