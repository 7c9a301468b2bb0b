//! A workload in virtual time.

use super::{
    BatchJob, Candidate, Cluster, ClusterOutcome, Jobs, OnDemandJob, StopOption, Strategy,
    least_loss,
};
use crate::{Error, Result};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// Steps in which the time for writing before a deadline is counted. Options are rounded up to a step.
const STEPS: usize = 32;

/// An event of the queue. Among events of the same moment, ends come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A batch job has run to its end. Outdated if the job was stopped since this beginning.
    Ended(usize, u64),
    /// The batch job was saved for the on-demand job, and its nodes are free.
    Saved(usize, usize),
    OnDemandEnded(usize),
    Submitted(usize),
    OnDemand(usize),
    Deadline(usize),
}

/// A batch job that waits for nodes.
#[derive(Debug, Clone, Copy)]
struct QueuedJob {
    job: usize,
    /// Run time that is done already, in ms.
    done: u64,
    /// Time that bringing the job back takes, in ms.
    back: u64,
}

#[derive(Debug, Clone, Copy)]
struct RunningJob {
    waited: QueuedJob,
    begun: u64,
    beginning: u64,
    /// The on-demand job that gets the nodes when this job ends.
    promised: Option<usize>,
}

impl RunningJob {
    /// Returns the run time until `now` in ms, with the time before the job was stopped.
    fn progress(&self, now: u64) -> u64 {
        self.waited.done + (now - self.begun).saturating_sub(self.waited.back)
    }

    fn end(&self, job: &BatchJob) -> u64 {
        self.begun + self.waited.back + job.runs - self.waited.done
    }

    /// Returns the progress that the job's last own checkpoint contains, in ms.
    fn kept(&self, job: &BatchJob, now: u64) -> u64 {
        let progress = self.progress(now);
        let own = progress.checked_div(job.interval).unwrap_or(0) * job.interval;
        own.max(self.waited.done)
    }
}

/// The nodes of an on-demand job that waits for some of them.
#[derive(Debug, Default)]
struct Allocation {
    held: u64,
    /// Batch jobs whose nodes the on-demand job will get.
    awaited: BTreeSet<usize>,
}

/// The way of stopping a batch job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Kill,
    Save(u64),
    /// Wait for the job, which ends in time.
    Await,
}

struct ClusterRun<'a> {
    cluster: &'a Cluster,
    jobs: &'a Jobs,
    strategy: Strategy,
    now: u64,
    free: u64,
    set_aside: u64,
    /// Time until which the file system is busy, in ms.
    writing_until: u64,
    beginnings: u64,
    queue: VecDeque<QueuedJob>,
    running: BTreeMap<usize, RunningJob>,
    /// On-demand jobs for which no room could be made yet, by their deadlines.
    held_up: BTreeSet<(u64, usize)>,
    /// On-demand jobs for which room is being made.
    allocations: BTreeMap<usize, Allocation>,
    /// Running on-demand jobs: their nodes, and how many of these were set aside.
    on_demand: BTreeMap<usize, (u64, u64)>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    outcome: ClusterOutcome,
}

impl Cluster {
    /// Plays a workload. Batch jobs begin in the order of their submission, stopped ones first, wherever one fits.
    ///
    /// # Errors
    /// [`Error::Cluster`] if a job has no nodes or more than there are, an on-demand job has to begin before it arrives, more
    /// nodes are set aside than there are, or there is no bandwidth.
    pub fn run(&self, jobs: &Jobs, strategy: Strategy) -> Result<ClusterOutcome> {
        let set_aside = match strategy {
            Strategy::Reserve(nodes) => nodes,
            _ => 0,
        };
        let refuse = |reason: String| Err(Error::Cluster(reason));
        if self.bandwidth == 0 {
            return refuse("its file system has no bandwidth".to_owned());
        }
        let Some(room) = self.nodes.checked_sub(set_aside) else {
            let nodes = self.nodes;
            return refuse(format!(
                "{set_aside} of its {nodes} nodes are set aside: reserve {nodes} at most"
            ));
        };
        let late = jobs
            .on_demand
            .iter()
            .find(|job| job.begins_by < job.arrives);
        if let Some(OnDemandJob {
            arrives, begins_by, ..
        }) = late
        {
            return refuse(format!(
                "an on-demand job arrives at {arrives} ms and begins by {begins_by} ms: choose a deadline that is not before the arrival"
            ));
        }
        let batch = jobs.batch.iter().map(|job| (job.nodes, room));
        let on_demand = jobs.on_demand.iter().map(|job| (job.nodes, self.nodes));
        for (nodes, room) in batch.chain(on_demand) {
            if nodes == 0 || nodes > room {
                return refuse(format!("a job of {nodes} nodes does not fit {room}"));
            }
        }
        let mut run = ClusterRun {
            cluster: self,
            jobs,
            strategy,
            now: 0,
            free: room,
            set_aside,
            writing_until: 0,
            beginnings: 0,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            held_up: BTreeSet::new(),
            allocations: BTreeMap::new(),
            on_demand: BTreeMap::new(),
            events: BinaryHeap::new(),
            outcome: ClusterOutcome::default(),
        };
        for (index, job) in jobs.batch.iter().enumerate() {
            run.at(job.arrives, Event::Submitted(index));
        }
        for (index, job) in jobs.on_demand.iter().enumerate() {
            run.at(job.arrives, Event::OnDemand(index));
        }
        run.play();
        Ok(run.outcome)
    }
}

impl ClusterRun<'_> {
    fn at(&mut self, time: u64, what: Event) {
        self.events.push(Reverse((time, what)));
    }

    fn job(&self, index: usize) -> &BatchJob {
        &self.jobs.batch[index]
    }

    fn wanted(&self, index: usize) -> &OnDemandJob {
        &self.jobs.on_demand[index]
    }

    fn play(&mut self) {
        while let Some(Reverse((time, what))) = self.events.pop() {
            self.now = time;
            match what {
                Event::Ended(index, beginning) => self.ended(index, beginning),
                Event::Saved(index, by) => self.arrived(index, by),
                Event::OnDemandEnded(index) => {
                    let (nodes, aside) = self.on_demand.remove(&index).unwrap_or_default();
                    self.free += nodes - aside;
                    self.set_aside += aside;
                    self.outcome.done += nodes * self.wanted(index).runs;
                    self.outcome.ended = time;
                }
                Event::Submitted(job) => self.queue.push_back(QueuedJob {
                    job,
                    done: 0,
                    back: 0,
                }),
                Event::OnDemand(index) => {
                    let begins_by = self.wanted(index).begins_by;
                    self.held_up.insert((begins_by, index));
                    self.at(begins_by, Event::Deadline(index));
                }
                Event::Deadline(index) => {
                    // Room may have come at this very moment.
                    self.make_room();
                    let begins_by = self.wanted(index).begins_by;
                    let missed = self.held_up.remove(&(begins_by, index));
                    self.outcome.missed += usize::from(missed);
                }
            }
            // Jobs begin after all other events of the moment.
            if self.events.peek().is_none_or(|next| next.0.0 > time) {
                self.make_room();
                self.begin_batch();
            }
        }
    }

    fn ended(&mut self, index: usize, beginning: u64) {
        let is_it = |running: &&RunningJob| running.beginning == beginning;
        let Some(running) = self.running.get(&index).filter(is_it).copied() else {
            return;
        };
        self.running.remove(&index);
        let job = *self.job(index);
        self.outcome.done += job.nodes * job.runs;
        self.outcome.ended = self.now;
        match running.promised {
            Some(by) => self.arrived(index, by),
            None => self.free += job.nodes,
        }
    }

    /// Hands the free nodes of a batch job to an on-demand job.
    fn arrived(&mut self, index: usize, by: usize) {
        let nodes = self.job(index).nodes;
        if let Some(allocation) = self.allocations.get_mut(&by) {
            allocation.held += nodes;
            allocation.awaited.remove(&index);
            if allocation.awaited.is_empty() {
                self.begin_on_demand(by);
            }
        }
    }

    fn begin_on_demand(&mut self, index: usize) {
        let allocation = self.allocations.remove(&index).unwrap_or_default();
        let wanted = *self.wanted(index);
        self.free += allocation.held.saturating_sub(wanted.nodes);
        self.on_demand.insert(index, (wanted.nodes, 0));
        self.at(self.now + wanted.runs, Event::OnDemandEnded(index));
    }

    fn begin_batch(&mut self) {
        for waiting in std::mem::take(&mut self.queue) {
            let job = *self.job(waiting.job);
            if job.nodes > self.free {
                self.queue.push_back(waiting);
                continue;
            }
            self.free -= job.nodes;
            self.beginnings += 1;
            let running = RunningJob {
                waited: waiting,
                begun: self.now,
                beginning: self.beginnings,
                promised: None,
            };
            self.outcome.moving += job.nodes * waiting.back;
            self.at(
                running.end(&job),
                Event::Ended(waiting.job, running.beginning),
            );
            self.running.insert(waiting.job, running);
        }
    }

    /// Begins on-demand jobs, or makes room for them, in the order of their deadlines.
    fn make_room(&mut self) {
        for (begins_by, index) in self.held_up.clone() {
            let wanted = *self.wanted(index);
            if wanted.nodes <= self.free + self.set_aside {
                let aside = wanted.nodes.min(self.set_aside);
                self.set_aside -= aside;
                self.free -= wanted.nodes - aside;
                self.on_demand.insert(index, (wanted.nodes, aside));
                self.at(self.now + wanted.runs, Event::OnDemandEnded(index));
                self.held_up.remove(&(begins_by, index));
            } else if let Some(stops) = self.choose(wanted.nodes - self.free, begins_by) {
                self.held_up.remove(&(begins_by, index));
                let held = std::mem::take(&mut self.free);
                self.allocations.entry(index).or_default().held = held;
                self.stop(index, &stops);
            }
        }
    }

    /// Returns the time for which a save keeps the file system busy, in whole ms.
    fn written_in(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.cluster.bandwidth)
    }

    /// Returns the stops that free `nodes` nodes by the time `by`; `None` if there are none in time.
    fn choose(&self, nodes: u64, by: u64) -> Option<Vec<(usize, Stop)>> {
        let begin = self.now.max(self.writing_until);
        let budget = by.saturating_sub(begin);
        let running = self.running.iter();
        let running = running.filter(|(_, running)| running.promised.is_none());
        let save = |job: &BatchJob| match self.strategy {
            Strategy::Kill => Some(Stop::Kill),
            Strategy::System => Some(Stop::Save(job.memory)),
            Strategy::Application => Some(Stop::Save(job.critical)),
            Strategy::Reserve(_) | Strategy::LeastLoss => None,
        };
        if self.strategy == Strategy::LeastLoss {
            return self.choose_least(running.map(|(at, one)| (*at, one)), nodes, budget, by);
        }
        let mut last: Vec<_> = running.collect();
        last.sort_by_key(|(_, running)| Reverse(running.beginning));
        let (mut stops, mut freed, mut writing) = (Vec::new(), 0, 0_u64);
        for (&index, _) in last {
            if freed >= nodes {
                break;
            }
            let stop = save(self.job(index))?;
            if let Stop::Save(bytes) = stop {
                writing = writing.saturating_add(self.written_in(bytes));
            }
            freed += self.job(index).nodes;
            stops.push((index, stop));
        }
        (freed >= nodes && writing <= budget).then_some(stops)
    }

    fn choose_least<'r>(
        &self,
        running: impl Iterator<Item = (usize, &'r RunningJob)>,
        nodes: u64,
        budget: u64,
        by: u64,
    ) -> Option<Vec<(usize, Stop)>> {
        // The budget and the options are in whole ms of writing, as the saves of one deadline are written one after the other.
        let (mut all, mut candidates) = (Vec::new(), Vec::new());
        for (index, running) in running {
            let job = self.job(index);
            let lost = running.progress(self.now) - running.kept(job, self.now);
            let back = match running.kept(job, self.now) {
                0 => 0,
                _ => self.written_in(job.critical),
            };
            let writing = self.written_in(job.critical);
            let mut options = vec![
                (Stop::Kill, job.nodes * (lost + back), 0),
                (Stop::Save(job.critical), job.nodes * 2 * writing, writing),
            ];
            if running.end(job) <= by {
                options = vec![(Stop::Await, 0, 0)];
            }
            let all_options = options.iter();
            candidates.push(Candidate {
                nodes: job.nodes,
                options: all_options
                    .map(|&(_, loss, bytes)| StopOption { loss, bytes })
                    .collect(),
            });
            all.push((index, options));
        }
        let choice = least_loss(&candidates, nodes, budget, STEPS)?;
        let stops = choice.stopped.into_iter();
        let stops = stops.map(|(which, option)| (all[which].0, all[which].1[option].0));
        Some(stops.collect())
    }

    fn stop(&mut self, by: usize, stops: &[(usize, Stop)]) {
        let mut ready = Vec::new();
        let mut again = Vec::new();
        for &(index, stop) in stops {
            let job = *self.job(index);
            if let Some(allocation) = self.allocations.get_mut(&by) {
                allocation.awaited.insert(index);
            }
            if stop == Stop::Await {
                if let Some(running) = self.running.get_mut(&index) {
                    running.promised = Some(by);
                }
                continue;
            }
            let Some(running) = self.running.remove(&index) else {
                continue;
            };
            self.outcome.stopped += 1;
            let progress = running.progress(self.now);
            // The unspent part of bringing the job back was counted before.
            let unspent = (running.begun + running.waited.back).saturating_sub(self.now);
            self.outcome.moving -= job.nodes * unspent;
            let (done, bytes) = match stop {
                Stop::Save(bytes) => {
                    let begin = self.now.max(self.writing_until);
                    self.writing_until = begin + self.written_in(bytes);
                    self.outcome.moving += job.nodes * (self.writing_until - self.now);
                    self.at(self.writing_until, Event::Saved(index, by));
                    (progress, bytes)
                }
                _ => {
                    let kept = running.kept(&job, self.now);
                    self.outcome.lost += job.nodes * (progress - kept);
                    ready.push(index);
                    (kept, job.critical)
                }
            };
            let back = match done {
                0 => 0,
                _ => self.written_in(bytes),
            };
            again.push(QueuedJob {
                job: index,
                done,
                back,
            });
        }
        for waiting in again.into_iter().rev() {
            self.queue.push_front(waiting);
        }
        for index in ready {
            self.arrived(index, by);
        }
    }
}
