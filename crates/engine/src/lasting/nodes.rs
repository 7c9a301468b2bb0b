//! What other ranks keep of the versions on this node.

use super::Damage;
use crate::Version;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tierflow_store::{Error as StoreError, Protect, Repository};

/// What other ranks keep of the versions on this node, and what this one sees of theirs.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(super) protected: Option<Arc<dyn Protect>>,
    /// Whether versions outlive the engine on the nodes alone.
    pub(super) is_lowest: bool,
    /// What was protected and is lost nevertheless.
    lost: BTreeMap<Version, StoreError>,
    /// Where all ranks' pieces lie.
    pub(super) directory: Option<Arc<Repository>>,
}

impl Nodes {
    /// `external`: whether there is storage below, and the directory that it is. `newest`: what all ranks can go on from.
    pub(super) fn new(
        protected: Option<&Arc<dyn Protect>>,
        external: (bool, Option<&Arc<Repository>>),
        newest: Option<Version>,
        damage: &mut Vec<Damage>,
    ) -> Self {
        let mut nodes = Self {
            protected: protected.cloned(),
            is_lowest: !external.0,
            lost: BTreeMap::new(),
            directory: external.1.cloned(),
        };
        for gone in protected.map(|it| it.gone()).unwrap_or_default() {
            let (version, why) = (gone.version, gone.why);
            let error = StoreError::Lost {
                version,
                why,
                newest,
            };
            damage.push(Damage {
                tier: "node-local",
                path: PathBuf::new(),
                version: Some(version),
                what: error.to_string(),
            });
            nodes.lost.insert(version, error);
        }
        nodes
    }

    /// Why not everything is protected, if that is so.
    pub(crate) fn weakness(&self) -> Option<String> {
        self.protected.as_ref()?.weakness()
    }

    /// Why a version that was protected is lost nevertheless, if it is.
    pub(crate) fn lost(&self, version: Version) -> Option<StoreError> {
        self.lost.get(&version).cloned()
    }

    /// What durable versions are kept by, if that is the nodes alone.
    pub(super) fn keeper(&self) -> Option<&dyn Protect> {
        self.protected.as_deref().filter(|_| self.is_lowest)
    }
}
