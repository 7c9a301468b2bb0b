//! A group of ranks whose pieces make up each version.

use crate::EngineBuilder;
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::Collective;

/// A rank of a group: see [`EngineBuilder::group`].
#[derive(Debug, Clone)]
pub struct Group {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) run: u64,
    pub(crate) collective: Option<Arc<dyn Collective>>,
    pub(crate) patience: Duration,
    pub(crate) refuses_losses: bool,
}

impl Default for Group {
    fn default() -> Self {
        Self::new(0, 1, 0)
    }
}

impl Group {
    /// Returns the rank `rank`, counted from 0, of `ranks` ranks. `run` is the application's number of this run, such as a job's
    /// number, and must be new after each restart.
    #[must_use]
    pub fn new(rank: u32, ranks: u32, run: u64) -> Self {
        Self {
            rank,
            ranks,
            run,
            collective: None,
            patience: Duration::from_secs(300),
            refuses_losses: false,
        }
    }

    /// Sets the means by which the ranks find the versions from which all of them can continue, such as the application's network.
    /// By default, the ranks meet in the directory that they share on external storage, or in the node-local directory if there is
    /// no other.
    #[must_use]
    pub fn collective(mut self, collective: Arc<dyn Collective>) -> Self {
        self.collective = Some(collective);
        self
    }

    /// Sets the time for which the ranks wait for each other when their engines are built. The default is five minutes. The ranks
    /// meet several times, and each time wait as long.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Chooses whether [`EngineBuilder::build`] fails with [`BuildError::Losses`](crate::BuildError::Losses), on all ranks, if
    /// versions are lost that the [redundancy](EngineBuilder::redundancy) protected. The group can then start again once a missing
    /// node is back. By default, the group continues from the versions that are there, and
    /// [`Engine::damage`](crate::Engine::damage) reports the losses. Choose the same on all ranks.
    #[must_use]
    pub fn refuse_losses(mut self, refuses: bool) -> Self {
        self.refuses_losses = refuses;
        self
    }
}

impl EngineBuilder {
    /// Makes the engine keep the pieces of one rank of a group. Ranks are threads, processes or hosts that share the external
    /// storage. A durable version counts only if every rank has written its piece, in the same run of the application.
    ///
    /// [`EngineBuilder::build`] is then collective: each rank calls it, in its own thread or process. The call returns when all
    /// ranks have agreed on the versions that every rank can restore, so [`latest`](crate::Engine::latest) is the same for all. All
    /// ranks give up newer versions, whose numbers are free again. If the vault has no [way to
    /// meet](tierflow_store::Vault::collective), each rank decides for itself, and the results may differ.
    ///
    /// ```no_run
    /// # use tierflow_engine::{Engine, Group};
    /// # use std::time::Duration;
    /// # fn build(rank: u32, ranks: u32, job: u64) -> tierflow_engine::Result<Engine> {
    /// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    /// Engine::builder(&device)
    ///     .host_cache(1 << 30)
    ///     .external("/shared/job")
    ///     .group(Group::new(rank, ranks, job).patience(Duration::from_secs(60)))
    ///     .build()
    /// # }
    /// ```
    #[must_use]
    pub fn group(mut self, group: Group) -> Self {
        self.history.group = Some(group);
        self
    }
}
