//! Several clients on one node, each with a device cache of its own (HPDC'23, Figure 9): as threads and as processes,
//! independent or coupled (all meet before each checkpoint and each restore), with a host cache each or one shared pool.
//!
//! Histories differ, as they do if checkpoints are compressed: every other client's versions are three times as large as the others'.
//! The gain of a pool over caches of one size is therefore that clients of small versions leave room for the others.

mod client;

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};
use tierflow_device::{Choice, Kind, open};
use tierflow_tier_alloc::HostPool;

use super::Run;
use crate::process::Process;
use crate::threads::on_threads;
pub(super) use client::Client;
use client::{ClientScale, ClientTimes};

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let is_gpu = open(Choice::Auto)?.info().kind == Kind::Cuda;
    let scale = ClientScale::of(is_gpu, run.is_quick());
    for processes in [false, true] {
        for coupled in [false, true] {
            for pooled in [false, true] {
                for clients in [1, 2, 4, 8] {
                    let sharing = Sharing {
                        processes,
                        coupled,
                        pooled,
                    };
                    cell(run, &scale, clients, sharing)?;
                }
            }
        }
    }
    Ok(())
}

/// The manner in which clients share a node.
#[derive(Clone, Copy)]
struct Sharing {
    /// True if clients are processes, false if they are threads.
    processes: bool,
    /// True if clients meet before each checkpoint and each restore.
    coupled: bool,
    /// True if clients share one pool of host memory.
    pooled: bool,
}

fn cell(run: &mut Run, scale: &ClientScale, clients: usize, sharing: Sharing) -> Result<()> {
    let Sharing {
        processes,
        coupled,
        pooled,
    } = sharing;
    let folder = tempfile::tempdir()?;
    let all = (0..clients).map(|index| Client {
        index,
        clients,
        coupled,
        pooled,
        scale: *scale,
        directory: folder.path().to_owned(),
    });
    let all: Vec<_> = all.collect();
    let done = if processes {
        as_processes(&all)?
    } else {
        as_threads(&all)?
    };
    let yes = |is| if is { "yes" } else { "no" };
    let case = format!(
        "as={}, coupled={}, host={}, clients={clients}",
        if processes { "processes" } else { "threads" },
        yes(coupled),
        if pooled { "pooled" } else { "private" },
    );
    let rates: Vec<_> = done.iter().map(|d| d.bytes / d.restoring).collect();
    run.samples(&case, "restore rate", "bytes/s", &rates)?;
    let blocked: Vec<_> = done
        .iter()
        .map(|d| (d.restoring + d.checkpointing) * 1e9)
        .collect();
    run.samples(&case, "blocked", "ns", &blocked)?;
    Ok(())
}

fn as_threads(clients: &[Client]) -> Result<Vec<ClientTimes>> {
    let pool = HostPool::in_process(clients[0].pool_options())?;
    let meeting = Meeting::of(clients.len());
    on_threads(clients, |client| {
        let pool = client.pooled.then_some(&pool);
        let done = client.run(pool, &mut || meeting.meet());
        // After a failure, the other clients need not wait.
        done.inspect_err(|_| meeting.give_up())
    })
}

/// A place where threads wait for each other, unless one of them has failed.
struct Meeting {
    all: usize,
    state: Mutex<Here>,
    changed: Condvar,
}

#[derive(Default)]
struct Here {
    here: usize,
    round: u64,
    failed: bool,
}

impl Meeting {
    fn of(all: usize) -> Self {
        Self {
            all,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn meet(&self) -> Result<()> {
        let mut state = self.state.lock();
        let round = state.round;
        state.here += 1;
        if state.here == self.all {
            state.here = 0;
            state.round += 1;
            self.changed.notify_all();
        }
        let waits = |state: &mut Here| state.round == round && !state.failed;
        self.changed.wait_while(&mut state, waits);
        (!state.failed)
            .then_some(())
            .context("another client failed")
    }

    fn give_up(&self) {
        self.state.lock().failed = true;
        self.changed.notify_all();
    }
}

fn as_processes(clients: &[Client]) -> Result<Vec<ClientTimes>> {
    let processes = clients
        .iter()
        .map(|client| Process::start("clients", client));
    Process::answers(processes.collect::<Result<_>>()?, clients[0].meetings())
}
