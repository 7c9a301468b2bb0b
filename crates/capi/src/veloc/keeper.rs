//! What is done once a checkpoint is durable, on a thread of its own: older ones go, and routed files come where the
//! application wants them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tierflow_store::{Options, Repository};

use super::files;
use super::head::Head;
use super::history::History;
use crate::core::Core;
use crate::failure::{Failure, Outcome};

/// A checkpoint that was taken in.
pub(super) struct Taken {
    pub(super) head: Head,
    /// The routed file, and where it is to be copied to; `None` if only its version counts.
    pub(super) file: Option<(PathBuf, Option<PathBuf>)>,
}

/// Work for the thread.
enum Job {
    Settle(Taken),
    /// Give up what is not to be kept, of all names.
    Prune,
}

#[derive(Default)]
struct Progress {
    pending: usize,
    failed: Option<Failure>,
}

pub(super) struct Keeper {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    progress: Arc<(Mutex<Progress>, Condvar)>,
}

struct Work {
    core: Arc<Core>,
    history: Arc<Mutex<History>>,
    /// Versions of a name to keep; 0 for all.
    most: usize,
    /// The lowest directory, in which a group's version is seen to be whole.
    lowest: PathBuf,
    lowest_opened: Option<Repository>,
}

impl Keeper {
    pub(super) fn start(
        core: &Arc<Core>,
        history: &Arc<Mutex<History>>,
        most: usize,
        lowest: PathBuf,
    ) -> Outcome<Self> {
        let (jobs, taken) = channel();
        let progress = Arc::<(Mutex<Progress>, Condvar)>::default();
        let work = Work {
            core: Arc::clone(core),
            history: Arc::clone(history),
            most,
            lowest,
            lowest_opened: None,
        };
        let seen = Arc::clone(&progress);
        let builder = std::thread::Builder::new().name("tierflow-veloc".to_owned());
        let thread = builder.spawn(move || work.run(&taken, &seen));
        let thread = thread.map_err(tierflow_engine::Error::Thread)?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            progress,
        })
    }

    pub(super) fn taken(&self, taken: Taken) -> Outcome {
        self.give(Job::Settle(taken))
    }

    /// Gives up what is not to be kept, as far as all ranks have what is newer by now.
    pub(super) fn prune(&self) -> Outcome {
        self.give(Job::Prune)?;
        self.wait()
    }

    fn give(&self, job: Job) -> Outcome {
        let gone = || Failure::argument("VELOC_Finalize was called");
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        self.progress.0.lock().pending += 1;
        jobs.send(job).map_err(|_| gone())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.progress.0.lock().pending == 0
    }

    /// Waits until all that was taken in is durable. What failed since the last time is told once.
    pub(super) fn wait(&self) -> Outcome {
        let (progress, changed) = &*self.progress;
        let mut progress = progress.lock();
        while progress.pending > 0 {
            changed.wait(&mut progress);
        }
        progress.failed.take().map_or(Ok(()), Err)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing left to do.
            let _ended = thread.join();
        }
    }
}

impl Work {
    fn run(mut self, jobs: &Receiver<Job>, progress: &(Mutex<Progress>, Condvar)) {
        while let Ok(job) = jobs.recv() {
            let done = match job {
                Job::Settle(taken) => self.settle(&taken),
                Job::Prune => self.prune_all(),
            };
            let (progress, changed) = progress;
            let mut progress = progress.lock();
            progress.pending -= 1;
            if let Err(failure) = done {
                progress.failed = Some(failure);
            }
            changed.notify_all();
        }
    }

    fn settle(&mut self, taken: &Taken) -> Outcome {
        // Another of its name and version may have taken its place since.
        let number = taken.head.number();
        match self.core.engine.wait_version(number) {
            Err(tierflow_engine::Error::Discarded { .. }) => {}
            durable => durable?,
        }
        if let Some((routed, original)) = &taken.file {
            if let Some(original) = original {
                files::publish(routed, original)?;
            }
            files::remove(routed)?;
        }
        let old = self.history.lock().give_way_to(&taken.head);
        for head in old {
            self.discard(&head);
        }
        self.prune(&taken.head.name)
    }

    fn prune_all(&mut self) -> Outcome {
        let names = self.history.lock().names();
        names.iter().try_for_each(|name| self.prune(name))
    }

    /// Gives up the versions of a name that are older than as many as are to be kept, which all ranks have.
    fn prune(&mut self, name: &str) -> Outcome {
        if self.most == 0 {
            return Ok(());
        }
        let is_whole: Box<dyn Fn(&Head) -> bool> = if self.core.group.is_some() {
            let opened = match self.lowest_opened.take() {
                Some(opened) => opened,
                None => Repository::read_only(&self.lowest, Options::default())?,
            };
            let whole = opened.versions()?;
            self.lowest_opened = Some(opened);
            let numbers: Vec<u64> = whole.iter().map(|info| info.version).collect();
            Box::new(move |head| numbers.contains(&head.number()))
        } else {
            let core = Arc::clone(&self.core);
            Box::new(move |head| core.engine.is_durable(head.number()))
        };
        let old = self.history.lock().beyond(name, self.most, is_whole);
        for head in old {
            self.discard(&head);
        }
        Ok(())
    }

    fn discard(&self, head: &Head) {
        let empties = self.core.group.is_some();
        for number in head.numbers(empties) {
            // It may have gone with an engine that was killed.
            let _gone = self.core.engine.discard(number);
        }
    }
}
