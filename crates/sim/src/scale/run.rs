//! A job in virtual time, round by round.

use super::link::SharedLink;
use super::straggle::Random;
use super::{Job, JobOutcome, System};
use crate::ordered::Ordered;
use crate::{Error, Result};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The most failures after one another without a round that is new to the job.
const MOST_FAILURES: usize = 10_000;

/// A version that a node has not flushed: its round, and the time at which it is copied, in s.
#[derive(Debug, Clone, Copy)]
struct UnflushedVersion {
    round: usize,
    copied: f64,
}

/// The state of one node.
#[derive(Debug, Clone, Default)]
struct Node {
    /// The versions that it has not flushed, the oldest first. The flush of the oldest may be under way.
    unflushed: VecDeque<UnflushedVersion>,
    is_flushing: bool,
    /// Time at which its application goes on after the last checkpoint, in s.
    resumes: f64,
    /// True while it waits for a version to be flushed.
    blocked: bool,
}

/// A version that not all nodes have flushed yet, and the number of nodes that have.
#[derive(Debug)]
struct FlushCount {
    round: usize,
    nodes: usize,
}

struct JobRun<'a> {
    system: &'a System,
    job: &'a Job,
    random: Random,
    now: f64,
    nodes: Vec<Node>,
    link: SharedLink,
    /// Nodes, by the time at which their copies end. A flush begins then, unless the node has one under way.
    begins: BinaryHeap<Reverse<(Ordered, usize)>>,
    blocked: usize,
    flushing: VecDeque<FlushCount>,
    /// The last round whose version is whole on the file system.
    on_shared: usize,
    /// The rounds whose versions other nodes protect, each with the time in s from which they do.
    protected: VecDeque<(usize, f64)>,
    /// The last round that was protected.
    on_nodes: usize,
    protected_at: f64,
    /// Time that each round took, without the undone ones, in s.
    took: Vec<f64>,
    failure: f64,
    /// The most rounds that the job had done at a time, and the failures since then.
    furthest: usize,
    failures: usize,
    outcome: JobOutcome,
}

/// The failure of a node before the round ended.
struct NodeFailed;

impl System {
    /// Plays a job, with the random numbers of a seed.
    ///
    /// # Errors
    /// [`Error::Cluster`] if there are no nodes or GPUs, a rate is not above 0 or `along` not in `0..1`; or if the job has no
    /// rounds, slots, bytes or interval, or never flushes; if the time of replacing nodes, the bytes sent or the slowdown is
    /// negative or not finite; or if nodes fail so often that the job gets no further.
    pub fn run(&self, job: &Job, seed: u64) -> Result<JobOutcome> {
        self.check(job)?;
        let mut random = Random(seed);
        let failure = random.exponential(self.mtbf / self.nodes as f64);
        let run = JobRun {
            system: self,
            job,
            random,
            now: 0.0,
            nodes: vec![Node::default(); self.nodes],
            link: SharedLink::new(self.link, self.shared),
            begins: BinaryHeap::new(),
            blocked: 0,
            flushing: VecDeque::new(),
            on_shared: 0,
            protected: VecDeque::new(),
            on_nodes: 0,
            protected_at: 0.0,
            took: Vec::new(),
            failure,
            furthest: 0,
            failures: 0,
            outcome: JobOutcome {
                work: job.interval * job.rounds as f64,
                ..JobOutcome::default()
            },
        };
        run.play()
    }

    /// Returns the time for which a checkpoint blocks if there is room, in s.
    #[must_use]
    pub fn cost(&self, job: &Job) -> f64 {
        self.bytes(job) / self.local
    }

    fn bytes(&self, job: &Job) -> f64 {
        job.bytes * f64::from(self.gpus)
    }

    fn check(&self, job: &Job) -> Result<()> {
        let is_time = |value: f64| (0.0..f64::INFINITY).contains(&value);
        let rates = [self.local, self.network, self.link, self.shared, self.mtbf];
        let refusals = [
            (self.nodes == 0 || self.gpus == 0, "there are no GPUs"),
            (
                !rates.iter().all(|rate| *rate > 0.0),
                "a bandwidth or the time between failures is not above 0",
            ),
            (
                !(0.0..1.0).contains(&self.along),
                "the probability that a node fails along is not below 1",
            ),
            (
                job.rounds == 0 || job.slots == 0 || job.every == 0,
                "rounds, slots and every are at least 1",
            ),
            (
                job.protection.set == 0,
                "a set that protects versions has no node",
            ),
            (
                !(job.interval > 0.0 && job.bytes > 0.0),
                "a round has an interval and bytes",
            ),
            (
                !is_time(self.replaced) || !is_time(job.protection.sent),
                "the time of replacing nodes and the bytes that protection sends are finite and not below 0",
            ),
            (
                !(0.0..=1.0).contains(&job.straggle.probability) || !is_time(job.straggle.mean),
                "a slowdown has a probability of 0 to 1 and a mean that is finite and not below 0",
            ),
        ];
        match refusals.iter().find(|(is_refused, _)| *is_refused) {
            Some((_, why)) => Err(Error::Cluster((*why).to_owned())),
            None => Ok(()),
        }
    }
}

impl JobRun<'_> {
    fn play(mut self) -> Result<JobOutcome> {
        while self.took.len() < self.job.rounds {
            let begun = self.now;
            match self.round(self.took.len() + 1) {
                Ok(()) => {
                    self.took.push(self.now - begun);
                    if self.took.len() > self.furthest {
                        (self.furthest, self.failures) = (self.took.len(), 0);
                    }
                }
                Err(NodeFailed) => {
                    self.outcome.lost += self.failure - begun;
                    let kept = self.restart()?;
                    let undone = self.took.split_off(kept);
                    self.outcome.lost += undone.iter().sum::<f64>();
                }
            }
        }
        self.outcome.elapsed = self.now;
        self.outcome.settled = self.settle();
        Ok(self.outcome)
    }

    /// Plays a round: all nodes compute, wait at a barrier and checkpoint, until the last of them goes on.
    fn round(&mut self, round: usize) -> std::result::Result<(), NodeFailed> {
        let Job {
            interval, straggle, ..
        } = *self.job;
        let mut barrier = self.now;
        for node in &self.nodes {
            let slowdown = straggle.largest_of(self.system.gpus, self.random.uniform());
            barrier = barrier.max(node.resumes + interval * (1.0 + slowdown));
        }
        self.pass(barrier)?;
        // A node protects one version after the other.
        let ready = barrier.max(self.protected_at);
        self.pass(ready)?;
        let cost = self.system.cost(self.job);
        let is_flushed = round.is_multiple_of(self.job.every);
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            let is_full = is_flushed && node.unflushed.len() >= self.job.slots;
            if is_flushed {
                let copied = f64::INFINITY;
                node.unflushed.push_back(UnflushedVersion { round, copied });
            }
            match is_full {
                true => {
                    node.blocked = true;
                    self.blocked += 1;
                }
                false => self.copy(at, is_flushed),
            }
        }
        if is_flushed {
            self.flushing.push_back(FlushCount { round, nodes: 0 });
        }
        while self.blocked > 0 {
            // A blocked node waits for a flush that is under way.
            let Some(next) = self.next() else { break };
            self.pass(next)?;
        }
        let resumes = self.nodes.iter().map(|node| node.resumes);
        let resumed = resumes.fold(self.now, f64::max);
        self.pass(resumed)?;
        self.outcome.copying += cost;
        self.outcome.waiting += (resumed - barrier - cost).max(0.0);
        let sent = self.system.bytes(self.job) * self.job.protection.sent;
        self.protected_at = resumed + sent / self.system.network;
        if self.job.protection.tolerates > 0 {
            self.protected.push_back((round, self.protected_at));
        }
        Ok(())
    }

    /// Copies the checkpoint of a node's application, which then goes on.
    fn copy(&mut self, at: usize, is_flushed: bool) {
        let resumes = self.now + self.system.cost(self.job);
        let node = &mut self.nodes[at];
        node.blocked = false;
        node.resumes = resumes;
        if is_flushed && let Some(last) = node.unflushed.back_mut() {
            last.copied = resumes;
            self.begins.push(Reverse((Ordered(resumes), at)));
        }
    }

    /// Returns the time of the next begin or end of a flush, in s.
    fn next(&self) -> Option<f64> {
        let begins = self.begins.peek().map(|Reverse((Ordered(at), _))| *at);
        match (begins, self.link.next_end()) {
            (Some(begin), Some(end)) => Some(begin.min(end)),
            (begin, end) => begin.or(end),
        }
    }

    /// Lets time pass until `until` or until a node fails, with the flushes that begin and end.
    fn pass(&mut self, until: f64) -> std::result::Result<(), NodeFailed> {
        while let Some(next) = self.next().filter(|next| *next <= until.min(self.failure)) {
            self.now = self.now.max(next);
            let end = self.link.next_end();
            let begins = self.begins.peek().map(|Reverse((Ordered(at), _))| *at);
            match begins.filter(|begin| end.is_none_or(|end| *begin <= end)) {
                Some(begin) => {
                    let node = self.begins.pop().map_or(0, |Reverse((_, node))| node);
                    self.flush(node, begin);
                }
                None => {
                    let ended = self.link.end();
                    self.flushed(ended.unwrap_or(0), next);
                }
            }
        }
        if until > self.failure {
            return Err(NodeFailed);
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Begins a node's next flush, unless one is under way.
    fn flush(&mut self, at: usize, now: f64) {
        let node = &mut self.nodes[at];
        let is_copied = node
            .unflushed
            .front()
            .is_some_and(|unflushed| unflushed.copied <= now);
        if is_copied && !node.is_flushing {
            node.is_flushing = true;
            self.link.begin(at, self.system.bytes(self.job), now);
        }
    }

    /// Ends a node's flush.
    fn flushed(&mut self, at: usize, now: f64) {
        let node = &mut self.nodes[at];
        node.is_flushing = false;
        let round = node.unflushed.pop_front().map(|unflushed| unflushed.round);
        self.flush(at, now);
        if self.nodes[at].blocked {
            self.blocked -= 1;
            self.copy(at, true);
        }
        let mut flushing = self.flushing.iter_mut();
        if let Some(version) = flushing.find(|v| Some(v.round) == round) {
            version.nodes += 1;
        }
        while let Some(first) = self.flushing.front()
            && first.nodes == self.nodes.len()
        {
            self.on_shared = first.round;
            self.flushing.pop_front();
        }
    }

    /// Restarts the job after a failure: nodes are replaced, and their versions are rebuilt or read back. Returns the
    /// round from which the job goes on.
    fn restart(&mut self) -> Result<usize> {
        let System {
            nodes,
            mtbf,
            along,
            replaced,
            local,
            network,
            link,
            shared,
            ..
        } = *self.system;
        let bytes = self.system.bytes(self.job);
        let failed = self.failure;
        while let Some(&(round, at)) = self.protected.front()
            && at <= failed
        {
            self.on_nodes = round;
            self.protected.pop_front();
        }
        let mut lost: Vec<usize> = Vec::new();
        let (round, resumes) = loop {
            self.outcome.failures += 1;
            self.failures += 1;
            if self.failures > MOST_FAILURES {
                let done = self.furthest;
                return Err(Error::Cluster(format!(
                    "after {MOST_FAILURES} failures in a row no more than {done} rounds are done: choose shorter rounds, faster restarts or a longer time between failures"
                )));
            }
            let mut node = (self.random.uniform() * nodes as f64) as usize;
            loop {
                lost.push(node);
                node = (node + 1) % nodes;
                if self.random.uniform() >= along {
                    break;
                }
            }
            lost.sort_unstable();
            lost.dedup();
            let is_near = self.on_nodes >= self.on_shared.max(1)
                && self.job.protection.tolerates(&lost, nodes);
            let (round, back) = match is_near {
                true => {
                    let parts = self.job.protection.set.saturating_sub(1).max(1) as f64;
                    (self.on_nodes, bytes / local + bytes * parts / network)
                }
                false if self.on_shared == 0 => (0, 0.0),
                false => (self.on_shared, bytes / link.min(shared / nodes as f64)),
            };
            let resumes = self.failure + replaced + back;
            let next = self.failure + self.random.exponential(mtbf / nodes as f64);
            let again = next < resumes;
            self.failure = next;
            if !again {
                self.outcome.from_shared += usize::from(!is_near && self.on_shared > 0);
                break (round, resumes);
            }
        };
        self.outcome.restarting += resumes - failed;
        self.now = resumes;
        self.link.clear();
        self.begins.clear();
        self.flushing.clear();
        self.protected.clear();
        self.blocked = 0;
        self.on_nodes = round;
        self.protected_at = resumes;
        for node in &mut self.nodes {
            *node = Node {
                resumes,
                ..Node::default()
            };
        }
        Ok(round)
    }

    /// Plays all flushes to their end. Returns its time, in s.
    fn settle(&mut self) -> f64 {
        self.failure = f64::INFINITY;
        while let Some(next) = self.next() {
            if self.pass(next).is_err() {
                break;
            }
        }
        self.now
    }
}
