//! Conversions of the errors of lower crates, sorted by what the caller has to do next.

use super::{BuildError, Error};
use crate::Version;
use crate::kind::Kind;

/// An error of a part of the engine: a text, and the chain of its sources.
///
/// The types of the sources are not part of the engine's interface: they change with the lower crates.
pub type PartError = Box<dyn std::error::Error + Send + Sync>;

/// Scratch storage returned other bytes of a version than were written.
#[derive(Debug, thiserror::Error)]
#[error(
    "version {version} is damaged on the {tier} tier, and no other copy of it can be read: {source}"
)]
struct Altered {
    version: Version,
    tier: &'static str,
    source: tierflow_store::Error,
}

impl Error {
    /// Adds the version and the tier to the error if scratch storage returned other bytes than were written. An engine has at most
    /// one scratch tier.
    pub(crate) fn of_scratch(self, version: Version) -> Self {
        match self {
            Self::Storage(source @ tierflow_store::Error::Altered { .. }) => {
                let tier = Kind::Storage.name();
                Self::Damaged(Box::new(Altered {
                    version,
                    tier,
                    source,
                }))
            }
            other => other,
        }
    }
}

impl From<tierflow_plan::ConfigError> for Error {
    fn from(error: tierflow_plan::ConfigError) -> Self {
        BuildError::Tier(Box::new(error)).into()
    }
}

impl From<tierflow_tier_alloc::Error> for Error {
    fn from(error: tierflow_tier_alloc::Error) -> Self {
        use tierflow_tier_alloc::Error as ArenaError;
        match error {
            ArenaError::Device(source) | ArenaError::Growth { source, .. } => Self::Device(source),
            ArenaError::Pool { .. } => Self::Pool(Box::new(error)),
            ArenaError::NotCuda { .. }
            | ArenaError::Zero { .. }
            | ArenaError::Fixed { .. }
            | ArenaError::Turns { .. } => BuildError::Tier(Box::new(error)).into(),
            error => Self::Memory(Box::new(error)),
        }
    }
}
