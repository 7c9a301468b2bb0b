//! Checkpoints without bytes, of ranks that have nothing to save. The plan counts one byte for each, and knows of no empty ones.

use crate::Version;
use std::collections::BTreeSet;
use tierflow_sync::model::Mutex;

/// The versions without bytes, if there may be any.
#[derive(Debug, Default)]
pub(crate) struct EmptyCheckpoints(Option<Mutex<BTreeSet<Version>>>);

impl EmptyCheckpoints {
    /// Starts with no such version. `allowed`: true in a group, where some ranks may have nothing to save.
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

    /// Notes whether a new version has bytes.
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
