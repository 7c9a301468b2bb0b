//! Node-local versions that outlive their node, as other ranks keep what brings them back.

use super::nodes::losses;
use super::{Group, HistoryOptions};
use crate::blocked::{CallKind, Cause, spend_on};
use crate::deadline::Deadline;
use crate::{BuildError, Engine, EngineBuilder, Result, Version};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_store::{NodeDirectory, Protection, Protector, Repository, Vault};

/// The longest single wait of a wait without an end.
const LONG: Duration = Duration::from_secs(3600);

impl EngineBuilder {
    /// Keeps the versions of the [`node_local`](Self::node_local) directory of a [`group`](Self::group) though nodes are lost:
    /// `tierflow_redundancy::Redundancy` over a transport, say. [`EngineBuilder::build`] brings back what is missing, on the same node or
    /// on another one.
    ///
    /// If the node-local directory is the lowest tier, a version is durable once it is protected. Above external storage, the
    /// nodes protect what is not there yet.
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
    /// Brings back what the node-local directory lost.
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
    /// Protects what the members of this rank's set have on their nodes, where [redundancy](EngineBuilder::redundancy) is made in
    /// the application's calls alone: all ranks make this one at about the same time, such as after [`Engine::wait`]. Elsewhere it
    /// waits until that is done. It does nothing for an engine without redundancy.
    ///
    /// # Errors
    /// [`Error::Storage`](crate::Error::Storage): why nothing is protected any more, where versions lie on the nodes alone. Above external storage,
    /// [`Engine::damage`] tells that.
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

    /// Returns true if redundancy is made in calls of [`Engine::protect`] alone.
    pub(crate) fn is_driven(&self) -> bool {
        let protected = self.nodes.protected.as_ref();
        protected.is_some_and(|protected| protected.is_driven())
    }

    /// Returns true if others keep a version, or need not: it lies on storage that outlives the nodes, or none was asked to be kept.
    pub(crate) fn is_protected(&self, version: Version) -> bool {
        let protector = self.nodes.protector();
        protector.is_none_or(|protector| protector.is_protected(version))
    }

    /// The versions that are to be protected for one to be durable, or all that are held now; none where versions lie on
    /// storage that outlives the nodes.
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

    /// Waits for the protection of these versions.
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
