//! The outcome of a simulation.

use tierflow_plan::Statistics;

/// The time for which the application did not compute, by its causes. All in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stalls {
    /// Time of copying checkpoints out of the application's memory.
    pub checkpoint_copy_ns: u64,
    /// Time of waiting for room before that.
    pub room_ns: u64,
    /// Time of copying restored versions into the application's memory, from any tier.
    pub restore_copy_ns: u64,
    /// Part of `restore_copy_ns` for versions that lay below the fastest tier, wholly or in part.
    pub restore_from_below_ns: u64,
    /// Time of waiting for a copy on its way up before a restore.
    pub arrival_ns: u64,
    /// Time in [`Op::Wait`](crate::Op::Wait), for flushes.
    pub flush_ns: u64,
    /// Time in [`Op::Barrier`](crate::Op::Barrier), for other GPUs.
    pub barrier_ns: u64,
    /// Number of checkpoints that had to wait for room.
    pub room_waits: u64,
    /// Number of restores that had to wait for a copy on its way up.
    pub arrival_waits: u64,
}

/// The outcome for one GPU's application.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientOutcome {
    /// ns from the beginning until its last op was done.
    pub elapsed_ns: u64,
    /// Time lost, by cause.
    pub stalls: Stalls,
    /// Bytes checkpointed.
    pub checkpointed: u64,
    /// Bytes restored.
    pub restored: u64,
    /// Runs of a tier that checkpoints were copied into.
    pub checkpoint_pieces: u64,
    /// Runs of a tier that restores were copied out of.
    pub restore_pieces: u64,
    /// Prefetch distance at each restore: the versions after it that were on the fastest tier, up to the first that was
    /// not (HPDC'23 §5.4.4).
    pub prefetch_distance: Vec<u32>,
    /// The plan's own counts: by tier restores (hits) and evictions, by hop bytes.
    pub statistics: Statistics,
}

impl ClientOutcome {
    /// ns that checkpoints held the application up.
    #[must_use]
    pub fn checkpoint_blocking_ns(&self) -> u64 {
        self.stalls.room_ns + self.stalls.checkpoint_copy_ns
    }

    /// ns that restores held the application up.
    #[must_use]
    pub fn restore_blocking_ns(&self) -> u64 {
        self.stalls.arrival_ns + self.stalls.restore_copy_ns
    }

    /// ns that checkpoints and restores held the application up (HPDC'23 §5.4.1).
    #[must_use]
    pub fn blocking_ns(&self) -> u64 {
        self.checkpoint_blocking_ns() + self.restore_blocking_ns()
    }

    /// ns in which the application did not compute: blocking, and waiting for flushes and for other GPUs.
    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.blocking_ns() + self.stalls.flush_ns + self.stalls.barrier_ns
    }

    /// Replicas given up, each of one extent, on all tiers.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.statistics
            .tiers
            .iter()
            .map(|tier| tier.evictions)
            .sum()
    }

    /// The mean of the prefetch distances; 0 without restores.
    #[must_use]
    pub fn mean_prefetch_distance(&self) -> f64 {
        let sum: u64 = self.prefetch_distance.iter().copied().map(u64::from).sum();
        sum as f64 / self.prefetch_distance.len().max(1) as f64
    }
}

/// The outcome for all GPUs' applications.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The outcomes by GPU.
    pub clients: Vec<ClientOutcome>,
    /// Number of events that the plans were told.
    pub events: u64,
}

impl Outcome {
    /// ns of blocking of all GPUs together.
    #[must_use]
    pub fn blocking_ns(&self) -> u64 {
        self.clients.iter().map(ClientOutcome::blocking_ns).sum()
    }

    /// ns of all GPUs together in which their applications did not compute.
    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.clients.iter().map(ClientOutcome::lost_ns).sum()
    }
}
