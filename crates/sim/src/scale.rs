//! Jobs of up to 100 000 GPUs on nodes that share a parallel file system: what their checkpoints cost, by the interval between
//! them.
//!
//! Here is no plan: a version goes from the application to its node's own memory or storage (the application waits), is protected by
//! other nodes' (in the background), and is flushed to the file system (in the background). Nodes are simulated one by one,
//! rounds of computing and checkpointing one after the other; between two rounds is a barrier of all nodes.
//!
//! | | |
//! |---|---|
//! | exact | the file system's bandwidth is shared evenly by the nodes that write, each with the same limit of its own, which is max-min fair |
//! | exact | GPUs of a node are exchangeable: their bytes are one flow, and the slowest of *g* equally distributed draws is one draw of the *g*-th root of a uniform number |
//! | approximate | nodes fail independently of what they do, at a constant rate; neighbours fail along with a probability |
//! | approximate | rebuilding and reading back take the time of the slowest node alone; failures during it begin it again |
//! | left out | what flushes and protection take from the application's own network and memory |
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
    /// How many.
    pub nodes: usize,
    /// GPUs of each.
    pub gpus: u32,
    /// Bytes/s into a node's own memory or storage, while the application waits.
    pub local: f64,
    /// Bytes/s that a node sends to those that protect its versions.
    pub network: f64,
    /// Bytes/s that one node writes to the file system, or reads from there, at most.
    pub link: f64,
    /// Bytes/s that all nodes together write to the file system, or read from there, at most.
    pub shared: f64,
    /// Mean time between failures of one node; infinite for none.
    pub mtbf: f64,
    /// The probability that a failure takes the next node along, and then the one after that.
    pub along: f64,
    /// From a failure until its nodes are replaced.
    pub replaced: f64,
}

/// What runs on all nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Bytes that each GPU checkpoints.
    pub bytes: f64,
    /// Rounds of computing and checkpointing.
    pub rounds: usize,
    /// How long a GPU that is not slowed down computes in a round.
    pub interval: f64,
    /// Versions that a node holds that are still to be flushed: with more, a checkpoint waits.
    pub slots: usize,
    /// Every so manieth version is flushed to the file system.
    pub every: usize,
    /// How other nodes protect a node's versions.
    pub protection: Protection,
    /// How GPUs are slowed down.
    pub straggle: Straggle,
}

/// The outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct JobOutcome {
    /// When the last round ended.
    pub elapsed: f64,
    /// When all that was to be flushed was on the file system.
    pub settled: f64,
    /// Computing, had no GPU been slowed down and nothing been lost.
    pub work: f64,
    /// The application waited for its copies.
    pub copying: f64,
    /// The application waited for room, or for the protection of the version before.
    pub waiting: f64,
    /// Computing and all else that had to be done again.
    pub lost: f64,
    /// From failures to going on.
    pub restarting: f64,
    /// Failures, those during a restart included.
    pub failures: usize,
    /// Of the restarts, those from the file system.
    pub from_shared: usize,
}

impl JobOutcome {
    /// Computing as a share of the time until the last round ended.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        self.work / self.elapsed
    }
}
