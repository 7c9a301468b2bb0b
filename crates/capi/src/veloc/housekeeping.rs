//! Housekeeping once a checkpoint is durable, on a thread of its own: older versions are removed, and routed files are
//! copied to where the application wants them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::files;
use super::head::Head;
use super::history::History;
use crate::core::Core;
use crate::failure::{Failure, Outcome, Status};

/// How often the thread, while it waits for storage, checks whether the client ends.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A checkpoint that the engine has accepted.
pub(super) struct Accepted {
    pub(super) head: Head,
    /// The routed file, and where it is to be copied to; `None` if only its version counts.
    pub(super) file: Option<(PathBuf, Option<PathBuf>)>,
}

/// Work for the thread.
enum Job {
    Settle(Accepted),
    /// Discard the versions beyond those to keep, of all names.
    Prune,
}

#[derive(Default)]
struct Progress {
    pending: usize,
    failed: Option<Failure>,
}

pub(super) struct Housekeeping {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    progress: Arc<(Mutex<Progress>, Condvar)>,
    /// Whether to wait for storage no longer.
    given_up: Arc<AtomicBool>,
}

struct Work {
    given_up: Arc<AtomicBool>,
    core: Arc<Core>,
    history: Arc<Mutex<History>>,
    /// Versions of a name to keep; 0 for all.
    most: usize,
    /// The lowest directory, or the URL of an object store, in which a group's version is seen to be whole.
    lowest: PathBuf,
    lowest_opened: Option<tierflow_objects::History>,
}

impl Housekeeping {
    pub(super) fn start(
        core: &Arc<Core>,
        history: &Arc<Mutex<History>>,
        most: usize,
        lowest: PathBuf,
    ) -> Outcome<Self> {
        let (jobs, received) = channel();
        let progress = Arc::<(Mutex<Progress>, Condvar)>::default();
        let given_up = Arc::<AtomicBool>::default();
        let work = Work {
            given_up: Arc::clone(&given_up),
            core: Arc::clone(core),
            history: Arc::clone(history),
            most,
            lowest,
            lowest_opened: None,
        };
        let seen = Arc::clone(&progress);
        let builder = std::thread::Builder::new().name("tierflow-veloc".to_owned());
        let thread = builder.spawn(move || work.run(&received, &seen));
        let thread = thread.map_err(tierflow_engine::Error::Thread)?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            progress,
            given_up,
        })
    }

    pub(super) fn submit(&self, accepted: Accepted) -> Outcome {
        self.send(Job::Settle(accepted))
    }

    /// Discards the versions beyond those to keep, as far as all ranks have newer ones by now.
    pub(super) fn prune(&self, patience: Duration) -> Outcome {
        self.send(Job::Prune)?;
        self.wait(Some(patience))
    }

    fn send(&self, job: Job) -> Outcome {
        let gone = || Failure::argument("VELOC_Finalize was called");
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        self.progress.0.lock().pending += 1;
        jobs.send(job).map_err(|_| gone())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.progress.0.lock().pending == 0
    }

    /// Waits until all accepted checkpoints are durable, for `patience` at most if there is one. The last failure since the
    /// previous wait is returned once.
    pub(super) fn wait(&self, patience: Option<Duration>) -> Outcome {
        // A deadline beyond the clock's range is none.
        let end = patience.and_then(|patience| Instant::now().checked_add(patience));
        let (progress, changed) = &*self.progress;
        let mut progress = progress.lock();
        while progress.pending > 0 {
            match end {
                None => changed.wait(&mut progress),
                Some(end) if Instant::now() >= end => {
                    let text = format!(
                        "{} checkpoints are not durable after {:?}; they are still on their way",
                        progress.pending,
                        patience.unwrap_or_default()
                    );
                    return Err(Failure::new(Status::TimedOut, text));
                }
                Some(end) => {
                    let _whether_it_is_over = changed.wait_until(&mut progress, end);
                }
            }
        }
        progress.failed.take().map_or(Ok(()), Err)
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        drop(self.jobs.take());
        self.given_up.store(true, Ordering::Relaxed);
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
                Job::Settle(accepted) => self.settle(&accepted),
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

    fn settle(&mut self, accepted: &Accepted) -> Outcome {
        // Another of its name and version may have taken its place since.
        let number = accepted.head.number();
        let engine = &self.core.engine;
        loop {
            let has_given_up = self.given_up.load(Ordering::Relaxed);
            let look = if has_given_up {
                Duration::ZERO
            } else {
                POLL_INTERVAL
            };
            match engine.within(look).wait_version(number) {
                Err(tierflow_engine::Error::TimedOut { .. }) if !has_given_up => {}
                Err(tierflow_engine::Error::Discarded { .. }) => break,
                durable => break durable?,
            }
        }
        if let Some((routed, original)) = &accepted.file {
            if let Some(original) = original {
                files::publish(routed, original)?;
            }
            files::remove(routed)?;
        }
        let old = self.history.lock().superseded_by(&accepted.head);
        for head in old {
            self.discard(&head);
        }
        self.prune(&accepted.head.name)
    }

    fn prune_all(&mut self) -> Outcome {
        let names = self.history.lock().names();
        names.iter().try_for_each(|name| self.prune(name))
    }

    /// Discards the oldest versions of a name beyond those to keep, which all ranks have.
    fn prune(&mut self, name: &str) -> Outcome {
        if self.most == 0 {
            return Ok(());
        }
        let is_whole: Box<dyn Fn(&Head) -> bool> = if self.core.group.is_some() {
            let opened = match self.lowest_opened.take() {
                Some(opened) => opened,
                None => tierflow_objects::History::open(&self.lowest)?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_that_hangs_is_waited_for_no_longer_than_patience_says() {
        let housekeeping = Housekeeping {
            jobs: None,
            thread: None,
            progress: Arc::default(),
            given_up: Arc::default(),
        };
        housekeeping.progress.0.lock().pending = 2;
        let failure = housekeeping.wait(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(failure.status, Status::TimedOut);
        assert!(failure.text.contains("2 checkpoints"), "{}", failure.text);
        housekeeping.progress.0.lock().pending = 0;
        housekeeping.wait(Some(Duration::ZERO)).unwrap();
        housekeeping.wait(None).unwrap();
    }
}
