//! Jobs of up to 100 000 GPUs on nodes that share a parallel file system: the cost of their checkpoints, by the
//! interval between them.
//!
//! The model has no plan. The application copies a version to its node's own memory or storage and waits for that. In
//! the background, other nodes protect the version, and the node flushes it to the file system. Nodes are simulated one
//! by one, rounds of computing and checkpointing one after the other, with a barrier of all nodes between two rounds.
//!
//! | | |
//! |---|---|
//! | exact | the nodes that write share the file system's bandwidth evenly, and each node's link has the same limit; this is max-min fair |
//! | exact | GPUs of a node are exchangeable: their bytes are one flow, and the slowest of *g* equally distributed draws is one draw of the *g*-th root of a uniform number |
//! | approximate | nodes fail independently of what they do, at a constant rate; neighbours fail along with a probability |
//! | approximate | rebuilding and reading back take the time of the slowest node alone; failures during it begin it again |
//! | left out | the share of the application's own network and memory that flushes and protection take |
//!
//! Times are in seconds, bandwidths in bytes/s.

mod daly;
mod link;
mod protection;
mod run;
mod straggle;

pub use daly::{daly_efficiency, daly_interval, young_interval};
pub use protection::Protection;
pub use straggle::Straggle;

/// Nodes, and the file system that they share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct System {
    /// Number of nodes.
    pub nodes: usize,
    /// GPUs of each node.
    pub gpus: u32,
    /// Bytes/s into a node's own memory or storage, while the application waits.
    pub local: f64,
    /// Bytes/s that a node sends to the nodes that protect its versions.
    pub network: f64,
    /// The most bytes/s that one node writes to the file system, or reads from there.
    pub link: f64,
    /// The most bytes/s that all nodes together write to the file system, or read from there.
    pub shared: f64,
    /// Mean time between failures of one node in s; infinite for none.
    pub mtbf: f64,
    /// The probability that a failed node's neighbour fails along with it, then the neighbour's neighbour, and so on.
    pub along: f64,
    /// Time from a failure until its nodes are replaced, in s.
    pub replaced: f64,
}

/// A job that runs on all nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Bytes that each GPU checkpoints.
    pub bytes: f64,
    /// Rounds of computing and checkpointing.
    pub rounds: usize,
    /// Time that a GPU computes in a round if it is not slowed down, in s.
    pub interval: f64,
    /// Unflushed versions that a node can hold. A checkpoint beyond them waits.
    pub slots: usize,
    /// Number of versions of which one is flushed to the file system.
    pub every: usize,
    /// The protection of a node's versions by other nodes.
    pub protection: Protection,
    /// The slowdown of GPUs.
    pub straggle: Straggle,
}

/// The outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct JobOutcome {
    /// Time at which the last round ended, in s.
    pub elapsed: f64,
    /// Time at which all flushes had ended, in s.
    pub settled: f64,
    /// Time of computing without slowdowns and losses, in s.
    pub work: f64,
    /// Time that the application waited for its copies, in s.
    pub copying: f64,
    /// Time that the application waited for room, or for the protection of the version before, in s.
    pub waiting: f64,
    /// Time of computing and all else that had to be done again, in s.
    pub lost: f64,
    /// Time from failures to going on, in s.
    pub restarting: f64,
    /// Number of failures, those during a restart included.
    pub failures: usize,
    /// Number of restarts from the file system.
    pub from_shared: usize,
}

impl JobOutcome {
    /// Returns computing as a share of the time until the last round ended.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        self.work / self.elapsed
    }
}
