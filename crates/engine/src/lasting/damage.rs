//! What is wrong with storage that outlives the engine.

use crate::{Engine, Version};
use std::fmt;
use std::path::{Path, PathBuf};
use tierflow_store::Error;

/// Something that was written and cannot be read as it was, or a tier that cannot be used as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The tier, by its name in the metrics.
    pub tier: &'static str,
    /// The file or directory, as far as that is known.
    pub path: PathBuf,
    /// The version that is hit, where that can be told.
    pub version: Option<Version>,
    /// What is wrong.
    pub what: String,
}

impl Damage {
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

impl Engine {
    /// What is known to be damaged, unreadable or unusable of the storage that outlives the engine, without reading what it
    /// holds: what could not be read when the engine was built may be missing from [`versions`](Self::versions).
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let mut all = self.damage.clone();
        for tier in &self.shared.tiers {
            let Some(kept) = tier.medium.kept() else {
                continue;
            };
            all.extend(kept.vault().damage().into_iter().map(|damage| Damage {
                tier: tier.kind.name(),
                what: format!("at byte {}: {}", damage.offset, damage.what),
                path: damage.path,
                version: damage.version,
            }));
        }
        let weakness = self.nodes.protected.as_ref();
        let weakness = weakness.and_then(|protected| protected.weakness());
        all.extend(weakness.map(|what| Damage {
            tier: "node-local",
            path: PathBuf::new(),
            version: None,
            what,
        }));
        all
    }

    /// What makes a version that the engine does not hold unreadable, if it was there.
    pub(crate) fn damage_of(&self, version: Version) -> Option<Error> {
        let lost = self.nodes.lost.get(&version).cloned();
        lost.or_else(|| self.shared.damage_of(version))
    }
}
