//! Synthetic workloads.

use super::{BatchJob, Cluster, OnDemandJob};

/// The distribution from which synthetic workloads are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkloadModel {
    /// Number of batch jobs.
    pub batch: usize,
    /// Number of on-demand jobs.
    pub on_demand: usize,
    /// Time for which the batch jobs would keep all nodes busy, as a share of the time in which they arrive.
    pub load: f64,
    /// ms between an on-demand job's arrival and its latest beginning.
    pub notice: u64,
    /// ms between a batch job's own checkpoints; 0 for none.
    pub interval: u64,
    /// Bytes of a node's memory that a batch job fills.
    pub memory: u64,
}

/// The jobs of a workload, each kind by arrival.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Jobs {
    /// Jobs that may be stopped.
    pub batch: Vec<BatchJob>,
    /// Jobs for which room is made.
    pub on_demand: Vec<OnDemandJob>,
}

const MINUTE: u64 = 60_000;

impl WorkloadModel {
    /// Draws a workload on a cluster from a seed. Batch jobs take powers of two of nodes up to an eighth of the
    /// cluster, for 20 minutes to 10 hours, and a tenth to a third of their memory is critical. On-demand jobs take up
    /// to a quarter of the cluster, for 5 to 60 minutes.
    #[must_use]
    pub fn jobs(&self, cluster: &Cluster, seed: u64) -> Jobs {
        let mut word = seed;
        let mut random = |below: u64| {
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (word >> 33) % below.max(1)
        };
        let largest = (cluster.nodes / 8).max(1).ilog2();
        let mut batch: Vec<_> = (0..self.batch)
            .map(|_| {
                let nodes = 1 << random(u64::from(largest) + 1);
                let memory = self.memory.saturating_mul(nodes);
                BatchJob {
                    arrives: 0,
                    nodes,
                    runs: MINUTE * (20 + random(30) * random(20)),
                    memory,
                    critical: memory / (3 + random(8)),
                    interval: self.interval,
                }
            })
            .collect();
        let work: u64 = batch.iter().map(|job| job.nodes * job.runs).sum();
        let span = work as f64 / cluster.nodes.max(1) as f64 / self.load;
        // With a load of 0 or no number, all jobs arrive at once.
        let span = if span.is_finite() { span } else { 0.0 };
        // Jobs arrive evenly over the span, from 0 on.
        let over = |at: usize, of: usize| (span * at as f64 / of.max(1) as f64) as u64;
        for (at, job) in batch.iter_mut().enumerate() {
            job.arrives = over(at, self.batch);
        }
        let on_demand = (0..self.on_demand).map(|at| {
            let arrives = over(at, self.on_demand) + random(MINUTE);
            OnDemandJob {
                arrives,
                nodes: 1 + random(cluster.nodes / 4),
                runs: MINUTE * (5 + random(56)),
                begins_by: arrives.saturating_add(self.notice),
            }
        });
        let on_demand = on_demand.collect();
        Jobs { batch, on_demand }
    }
}
