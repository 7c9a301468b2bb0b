//! Redundancy for node-local versions: other ranks keep the bytes that restore them when their node is lost.

use super::nodes::losses;
use super::{Group, HistoryOptions};
use crate::blocked::{CallKind, Cause, spend_on};
use crate::deadline::Deadline;
use crate::{BuildError, Engine, EngineBuilder, Result, Version};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_store::{NodeDirectory, Protection, Protector, Repository, Vault};

/// Longest single wait if the deadline is unlimited.
const LONG: Duration = Duration::from_secs(3600);

impl EngineBuilder {
    /// Keeps the versions of the [`node_local`](Self::node_local) directory of a [`group`](Self::group) even if nodes are lost,
    /// such as by `tierflow_redundancy::Redundancy` over a transport. [`EngineBuilder::build`] restores the missing versions, on
    /// the same node or on another one.
    ///
    /// If the node-local directory is the lowest tier, a version is durable once it is protected. Above external storage, the nodes
    /// protect the versions that are not on external storage yet.
    #[must_use]
    pub fn redundancy(mut self, protection: impl Protection + 'static) -> Self {
        self.history.protection = Some(Arc::new(protection));
        self
    }
}

/// Checks that there is a directory to protect, and other ranks to protect it.
pub(super) fn check(has_directory: bool, group: Option<&Group>) -> Result<()> {
    let needs = match (has_directory, group) {
        (false, _) => "a directory of the node: give it node_local, too",
        (_, None) => "other ranks: give it group, too",
        _ => return Ok(()),
    };
    Err(BuildError::NoProtection { needs }.into())
}

impl HistoryOptions {
    /// Restores the versions that the node-local directory lost, and starts the redundancy.
    pub(super) fn protect(
        &self,
        local: Option<&Arc<Repository>>,
        external: Option<&dyn Vault>,
    ) -> Result<Option<Arc<dyn Protector>>> {
        let Some(protection) = &self.protection else {
            return Ok(None);
        };
        let group = self.group();
        let (rank, ranks) = (group.rank, group.ranks);
        let writable = local.filter(|local| !local.is_read_only());
        let (Some(repository), Some(path)) = (writable, &self.node_local) else {
            return Err(BuildError::NoProtection {
                needs: "a directory of the node that can be written: see to node_local, or leave redundancy out",
            }.into());
        };
        let there = external.map(|external| external.pieces().unwrap_or_default());
        let there = there.unwrap_or_default().into_iter();
        let there = there.filter(|piece| piece.ranks == ranks);
        let elsewhere: BTreeSet<Version> = there.map(|piece| piece.version).collect();
        let opened = protection.open(NodeDirectory {
            path,
            repository: Arc::clone(repository),
            rank,
            ranks,
            elsewhere: &elsewhere,
            collective: group.collective.as_deref(),
            patience: group.patience,
        })?;
        match losses(&opened.gone()).filter(|_| group.refuses_losses) {
            Some(losses) => Err(BuildError::Losses { losses }.into()),
            None => Ok(Some(opened)),
        }
    }
}

impl Engine {
    /// Protects the versions that the members of this rank's set have on their nodes, if [redundancy](EngineBuilder::redundancy) is
    /// made only in the application's calls. All ranks then call this at about the same time, such as after [`Engine::wait`]. With
    /// redundancy in the background, waits until the versions are protected. Returns at once for an engine without redundancy.
    ///
    /// # Errors
    /// [`Error::Storage`](crate::Error::Storage) with the reason if nothing is protected any more and versions are on the nodes
    /// alone. Above external storage, [`Engine::damage`] reports that instead.
    pub fn protect(&self) -> Result<()> {
        self.at_home()?;
        let Some(protected) = &self.nodes.protected else {
            return Ok(());
        };
        let clock = self.shared.blocked.begin(CallKind::Wait);
        match spend_on(Cause::Protection, || protected.protect()) {
            Err(error) if self.nodes.is_lowest => Err(error.into()),
            _ => {
                clock.done(0);
                Ok(())
            }
        }
    }

    /// Returns true if redundancy is made only in calls of [`Engine::protect`].
    pub(crate) fn is_driven(&self) -> bool {
        let protected = self.nodes.protected.as_ref();
        protected.is_some_and(|protected| protected.is_driven())
    }

    /// Returns true if other ranks protect a version, or need not: if storage that outlives the nodes has it, or if the engine has
    /// no redundancy.
    pub(crate) fn is_protected(&self, version: Version) -> bool {
        let protector = self.nodes.protector();
        protector.is_none_or(|protector| protector.is_protected(version))
    }

    /// Returns the versions that must be protected for `version` to be durable, or all versions that are held now. Returns none if
    /// the lowest tier outlives the nodes.
    pub(crate) fn to_protect(&self, version: Option<Version>) -> Vec<Version> {
        if self.nodes.protector().is_none() {
            return Vec::new();
        }
        let core = self.shared.lock();
        match version {
            Some(version) => core.plan().chain(version).collect(),
            None => core.plan().versions().collect(),
        }
    }

    /// Waits until these versions are protected.
    pub(crate) fn wait_protected(&self, versions: &[Version], deadline: Deadline) -> Result<()> {
        let Some(protector) = self.nodes.protector() else {
            return Ok(());
        };
        for version in versions {
            loop {
                let look = deadline.next_look();
                let left = look.map(|look| look.saturating_duration_since(Instant::now()));
                let wait = || protector.wait(Some(*version), left.unwrap_or(LONG));
                if spend_on(Cause::Protection, wait)? {
                    break;
                }
                if look.is_some() && !deadline.goes_on() {
                    return Err(deadline.passed());
                }
            }
        }
        Ok(())
    }
}
