//! The choice of jobs to stop: a cluster of batch jobs that sometimes has to make room for on-demand jobs, which have
//! to begin by a deadline (Maurya et al., *CoSim: A Simulator for Co-Scheduling of Batch and On-Demand Jobs in HPC
//! Datacenters*, DS-RT'20).
//!
//! Nodes can be set aside for on-demand jobs, or batch jobs be stopped. A killed job falls back to its last own
//! checkpoint. A saved job writes its whole memory (system-level) or its critical data (application-level) to a
//! parallel file system that all share. [`least_loss`] finds the jobs, and the way of stopping each, that lose the
//! least. [`Cluster::run`] plays whole workloads in virtual time under each [`Strategy`].
//!
//! Times are in ms, bandwidths in bytes/ms, and work, done or lost, is in node-ms: nodes times ms.

mod choice;
mod model;
mod run;

pub use choice::{Candidate, Choice, StopOption, least_loss};
pub use model::{Jobs, WorkloadModel};

/// A job that runs whenever there is room, from its last checkpoint if it was stopped before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchJob {
    /// Time of its submission, in ms.
    pub arrives: u64,
    /// Nodes that it runs on.
    pub nodes: u64,
    /// Time that it runs if it is not stopped, in ms.
    pub runs: u64,
    /// Bytes of all its memory.
    pub memory: u64,
    /// Bytes of its critical data structures.
    pub critical: u64,
    /// Run time between its own checkpoints, in ms; 0 for none. The model takes them to cost nothing.
    pub interval: u64,
}

/// A job that has to begin by a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDemandJob {
    /// Time of its submission, in ms.
    pub arrives: u64,
    /// Nodes that it runs on.
    pub nodes: u64,
    /// Time that it runs, in ms.
    pub runs: u64,
    /// The latest time of its beginning, in ms. A later job is missed.
    pub begins_by: u64,
}

/// The way of freeing nodes for an on-demand job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// No job is stopped, as this number of nodes is set aside for on-demand jobs.
    Reserve(u64),
    /// The jobs that were begun last are killed.
    Kill,
    /// The whole memory of the jobs that were begun last is saved.
    System,
    /// The critical data of the jobs that were begun last are saved.
    Application,
    /// The jobs and options that lose the least. A job is killed, its critical data are saved, or it is awaited if it ends in time.
    LeastLoss,
}

/// Nodes, and the file system that they share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    /// Number of nodes.
    pub nodes: u64,
    /// Bytes/ms of the file system.
    pub bandwidth: u64,
}

/// The outcome of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterOutcome {
    /// Node-ms of batch jobs' progress that was lost, to be done again.
    pub lost: u64,
    /// Node-ms during which jobs were saved and brought back.
    pub moving: u64,
    /// Node-ms of the jobs that ended.
    pub done: u64,
    /// On-demand jobs that did not begin in time.
    pub missed: usize,
    /// Batch jobs that were stopped, each time counted.
    pub stopped: usize,
    /// Time at which the last job ended, in ms.
    pub ended: u64,
}

impl ClusterOutcome {
    /// Returns the share of all nodes' time until the last job ended in which work was done that was not lost; 0 if no job
    /// ended.
    #[must_use]
    pub fn utilisation(&self, cluster: &Cluster) -> f64 {
        let all = cluster.nodes as f64 * self.ended as f64;
        if all > 0.0 {
            self.done as f64 / all
        } else {
            0.0
        }
    }
}
