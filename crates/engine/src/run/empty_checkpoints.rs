//! Checkpoints without bytes, of ranks that have nothing to save. The plan knows of none: there, each has one byte.

use crate::Version;
use std::collections::BTreeSet;
use tierflow_sync::model::Mutex;

/// The versions without bytes, if there may be any.
#[derive(Debug, Default)]
pub(crate) struct EmptyCheckpoints(Option<Mutex<BTreeSet<Version>>>);

impl EmptyCheckpoints {
    /// `allowed`: in a group, of which some ranks may have nothing.
    pub(crate) fn new(allowed: bool) -> Self {
        Self(allowed.then(Mutex::default))
    }

    pub(crate) fn are_allowed(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn has(&self, version: Version) -> bool {
        let versions = self.0.as_ref();
        versions.is_some_and(|versions| versions.lock().contains(&version))
    }

    /// A version is there anew, with or without bytes.
    pub(crate) fn note(&self, version: Version, is_empty: bool) {
        if let Some(versions) = &self.0 {
            let mut versions = versions.lock();
            match is_empty {
                true => versions.insert(version),
                false => versions.remove(&version),
            };
        }
    }
}
