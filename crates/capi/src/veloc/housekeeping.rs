//! Housekeeping after a checkpoint became durable. A separate thread removes older versions, and copies routed files to the paths that the
//! application gave.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::files;
use super::head::Head;
use super::keeping::Keeping;
use crate::failure::{Failure, Outcome, Status, caught};

/// Time after which the thread, while it waits for storage, checks again whether the client ends.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A checkpoint that the engine has accepted.
pub(super) struct Accepted {
    pub(super) head: Head,
    /// The routed file, and the path to which it is copied; that path is `None` without a persistent directory.
    pub(super) file: Option<(PathBuf, Option<PathBuf>)>,
}

#[derive(Default)]
struct Progress {
    pending: usize,
    settled: u64,
    failed: Option<Failure>,
    /// Checkpoints that could not be made durable. The next wait returns the failure, and the wait after it tries again.
    left: Vec<Accepted>,
    /// The paths that files were copied to, with the serials of their checkpoints, as long as files of older checkpoints may follow.
    published: HashMap<PathBuf, u64>,
}

/// The state that the thread and its client share.
#[derive(Default)]
struct Work {
    progress: Mutex<Progress>,
    changed: Condvar,
    /// True if the thread no longer waits for storage, as the client ends.
    given_up: AtomicBool,
    /// Blocks of routed files that were copied.
    copied: AtomicU64,
}

#[derive(Default)]
pub(super) struct Housekeeping {
    jobs: Option<Sender<Accepted>>,
    thread: Option<JoinHandle<()>>,
    work: Arc<Work>,
    keeping: Option<Arc<Keeping>>,
}

impl Housekeeping {
    pub(super) fn start(keeping: &Arc<Keeping>) -> Outcome<Self> {
        let (jobs, received) = channel();
        let (work, kept) = (Arc::<Work>::default(), Arc::clone(keeping));
        let shared = Arc::clone(&work);
        let builder = std::thread::Builder::new().name("tierflow-veloc".to_owned());
        let thread = builder.spawn(move || {
            shared.run(&received, |accepted| shared.settle(&kept, accepted));
        });
        let thread = thread.map_err(tierflow_engine::Error::Thread)?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            work,
            keeping: Some(Arc::clone(keeping)),
        })
    }

    pub(super) fn submit(&self, accepted: Accepted) -> Outcome {
        self.work.progress.lock().pending += 1;
        self.send(accepted)
    }

    /// Sends the thread a checkpoint that is counted as pending already.
    fn send(&self, accepted: Accepted) -> Outcome {
        let jobs = self.jobs.as_ref();
        let is_sent = jobs.is_some_and(|jobs| jobs.send(accepted).is_ok());
        if !is_sent {
            self.work.progress.lock().pending -= 1;
            return Err(Failure::argument("VELOC_Finalize was called"));
        }
        Ok(())
    }

    /// Returns true if all accepted checkpoints are durable.
    pub(super) fn is_idle(&self) -> bool {
        let progress = self.work.progress.lock();
        progress.pending == 0 && progress.left.is_empty()
    }

    /// Submits failed checkpoints again, if an earlier wait returned their failure.
    fn try_again(&self) -> Outcome {
        let left = {
            let mut progress = self.work.progress.lock();
            match progress.failed {
                Some(_) => Vec::new(),
                None => {
                    // All become pending at once, so that `published` keeps the paths of newer files until the last is settled.
                    progress.pending += progress.left.len();
                    std::mem::take(&mut progress.left)
                }
            }
        };
        let sent: Vec<Outcome> = left.into_iter().map(|left| self.send(left)).collect();
        sent.into_iter().collect()
    }

    /// Waits until all accepted checkpoints are durable, for `patience` at most if there is one. Returns the last failure since the previous
    /// wait, once; the next wait tries the failed checkpoints again.
    pub(super) fn wait(&self, patience: Option<Duration>) -> Outcome {
        self.try_again()?;
        // A deadline beyond the clock's range counts as no deadline.
        let end = patience.and_then(|patience| Instant::now().checked_add(patience));
        let changed = &self.work.changed;
        let mut progress = self.work.progress.lock();
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

    /// Waits as [`wait`](Self::wait) does as long as bytes get to storage: `patience` counts from the last byte that got there.
    pub(super) fn wait_while_moving(&self, patience: Duration) -> Outcome {
        let moved = || {
            let moved = self
                .keeping
                .as_ref()
                .map(|keeping| keeping.core.engine.metrics().progress);
            let settled = self.work.progress.lock().settled;
            (moved, settled, self.work.copied.load(Ordering::Relaxed))
        };
        let (mut seen, mut since) = (moved(), Instant::now());
        loop {
            match self.wait(Some(patience.min(POLL_INTERVAL))) {
                Err(failure) if failure.status == Status::TimedOut => {}
                waited => return waited,
            }
            let now = moved();
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() >= patience {
                let text = format!(
                    "{} checkpoints are not durable, and nothing has moved for {patience:?} (closing_patience)",
                    self.work.progress.lock().pending
                );
                return Err(Failure::new(Status::TimedOut, text));
            }
        }
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        drop(self.jobs.take());
        self.work.given_up.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to do.
            let _ended = thread.join();
        }
    }
}

impl Work {
    /// Settles each accepted checkpoint. Counts a checkpoint as settled even if `settle` panics, so that no caller waits without end.
    fn run(&self, jobs: &Receiver<Accepted>, settle: impl Fn(&Accepted) -> Outcome) {
        while let Ok(accepted) = jobs.recv() {
            let done = caught(|| settle(&accepted));
            let mut progress = self.progress.lock();
            progress.pending -= 1;
            progress.settled += 1;
            if let Err(failure) = done {
                progress.failed = Some(failure);
                progress.left.push(accepted);
            }
            if progress.pending == 0 && progress.left.is_empty() {
                progress.published.clear();
            }
            self.changed.notify_all();
        }
    }

    fn settle(&self, keeping: &Keeping, accepted: &Accepted) -> Outcome {
        let number = accepted.head.number();
        let engine = &keeping.core.engine;
        let is_durable = loop {
            let has_given_up = self.given_up.load(Ordering::Relaxed);
            let look = match has_given_up {
                true => Duration::ZERO,
                false => POLL_INTERVAL,
            };
            match engine.call().within(look).wait_version(number) {
                Err(tierflow_engine::Error::TimedOut { .. }) if !has_given_up => {}
                // A newer checkpoint of the same name and version replaced this one, or the program discarded it.
                Err(tierflow_engine::Error::Discarded { .. }) => break false,
                durable => {
                    durable?;
                    break true;
                }
            }
        };
        if let Some((routed, original)) = &accepted.file {
            // If this checkpoint is tried again after a newer one, the newer file stays.
            let may_publish = |at: &&PathBuf| is_durable && !self.has_newer(at, accepted);
            if let Some(original) = original.as_ref().filter(may_publish) {
                files::publish(routed, original, &self.copied)?;
                let mut progress = self.progress.lock();
                progress
                    .published
                    .insert(original.clone(), accepted.head.serial);
            }
            files::remove(routed)?;
        }
        if is_durable {
            keeping.supersede(&accepted.head);
            keeping.prune(&accepted.head.name);
        }
        Ok(())
    }

    /// Returns true if the file of a newer checkpoint was copied to `original`.
    fn has_newer(&self, original: &Path, accepted: &Accepted) -> bool {
        let published = &self.progress.lock().published;
        published
            .get(original)
            .is_some_and(|newest| *newest > accepted.head.serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_panic_is_told_to_those_who_wait_and_what_follows_is_settled() {
        let (jobs, received) = channel();
        let work = Arc::<Work>::default();
        let (shared, calls) = (Arc::clone(&work), Arc::<AtomicU32>::default());
        let counted = Arc::clone(&calls);
        let thread = std::thread::spawn(move || {
            let settle = |_: &Accepted| match counted.fetch_add(1, Ordering::Relaxed) {
                0 => panic!("planted"),
                _ => Ok(()),
            };
            shared.run(&received, settle);
        });
        let housekeeping = Housekeeping {
            jobs: Some(jobs),
            thread: Some(thread),
            work,
            keeping: None,
        };
        for version in 0..2 {
            let head = Head {
                name: "name".to_owned(),
                version,
                serial: version,
                spares: 0,
                parts: Vec::new(),
            };
            // `submit` fails if the thread ended; the wait below then shows it.
            let _accepted = housekeeping.submit(Accepted { head, file: None });
        }
        let failure = housekeeping
            .wait(Some(Duration::from_secs(20)))
            .unwrap_err();
        assert_eq!(failure.status, Status::Internal, "{}", failure.text);
        housekeeping.wait(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn storage_that_hangs_is_waited_for_no_longer_than_patience_says() {
        let housekeeping = Housekeeping::default();
        housekeeping.work.progress.lock().pending = 2;
        let failure = housekeeping.wait(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(failure.status, Status::TimedOut);
        assert!(failure.text.contains("2 checkpoints"), "{}", failure.text);
        let failure = housekeeping.wait_while_moving(Duration::ZERO).unwrap_err();
        assert!(
            failure.text.contains("nothing has moved"),
            "{}",
            failure.text
        );
        housekeeping.work.progress.lock().pending = 0;
        housekeeping.wait(Some(Duration::ZERO)).unwrap();
        housekeeping.wait(None).unwrap();
    }
}
