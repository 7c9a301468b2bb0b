//! That a job has to go: a signal of the batch system, a cloud's notice, or whatever else tells so.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Says whether and when a job has to go. Clones are of the same notice.
///
/// Batch systems send a signal some time before they end a job: Slurm with `--signal=TERM@120`, clouds SIGTERM to the
/// machine's services. `Notice::on_signals` (feature `signals`) receives them; a program that learns of it in another way calls
/// [`Notice::give`]. The application looks between two steps, and [suspends](crate::Engine::suspend):
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tierflow_engine::{Engine, Notice, Region};
/// # use std::time::Duration;
/// # let directory = std::env::temp_dir().join(format!("tierflow-notice-{}", std::process::id()));
/// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// # let engine = Engine::builder(&device).host_cache(1 << 20).external(&directory).build()?;
/// # let mut state = vec![0_u8; 4096];
/// let notice = Notice::new();
/// # let elsewhere = notice.clone();
/// # elsewhere.give(Duration::from_secs(60));
/// for step in 0.. {
///     state[0] += 1;
///     engine.checkpoint(step, &[Region::from(&state[..])])?;
///     if let Some(deadline) = notice.deadline() {
///         let suspension = engine.suspend(deadline)?;
///         println!("goes on from {:?}", suspension.version());
///         suspension.wait()?;
///         break;
///     }
/// }
/// # drop(engine);
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Notice {
    deadline: Arc<OnceLock<Instant>>,
    #[cfg(feature = "signals")]
    listener: Option<Arc<signals::Listener>>,
}

impl Notice {
    /// One that was not given yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The job has to go within `grace` from now on. Later ones do not move the deadline.
    pub fn give(&self, grace: Duration) {
        if let Some(deadline) = Instant::now().checked_add(grace) {
            let _first_given_counts = self.deadline.set(deadline);
        }
    }

    /// When the job has to be gone, once that was said.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }
}

#[cfg(feature = "signals")]
mod signals {
    use super::Notice;
    use crate::{Error, Result};
    use signal_hook::iterator::{Handle, Signals};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::thread::{Builder, JoinHandle};
    use std::time::Duration;

    /// A thread that receives signals, as long as there is a notice that hears of them.
    #[derive(Debug)]
    pub(super) struct Listener {
        handle: Handle,
        thread: Mutex<Option<JoinHandle<()>>>,
    }

    impl Drop for Listener {
        fn drop(&mut self) {
            self.handle.close();
            let thread = self
                .thread
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            // One that panicked has nothing to give back.
            thread.take().map(JoinHandle::join);
        }
    }

    impl Notice {
        /// A notice that is given when one of these signals comes: the job is ended `grace` later, as its batch system says. The
        /// signals no longer do what they did, which for SIGTERM is to end the process, also once the notice is dropped.
        ///
        /// # Errors
        /// [`Error::Signals`] if one of them cannot be received, such as SIGKILL; [`Error::Thread`].
        ///
        /// ```no_run
        /// # use tierflow_engine::Notice;
        /// // sbatch --signal=TERM@120: two minutes, of which ten seconds are kept for the end of the program.
        /// let notice = Notice::on_signals(&[15], std::time::Duration::from_secs(110))?;
        /// # Ok::<(), tierflow_engine::Error>(())
        /// ```
        pub fn on_signals(signals: &[i32], grace: Duration) -> Result<Self> {
            let forbidden = signal_hook::consts::FORBIDDEN;
            if let Some(signal) = signals.iter().find(|signal| forbidden.contains(signal)) {
                let error = std::io::Error::other(format!("signal {signal} cannot be received"));
                return Err(Error::Signals(error));
            }
            let mut received = Signals::new(signals).map_err(Error::Signals)?;
            let (handle, mut notice) = (received.handle(), Self::new());
            let given = notice.clone();
            let listen = move || received.forever().for_each(|_| given.give(grace));
            let thread = Builder::new().name("tierflow-notice".to_owned());
            let thread = thread.spawn(listen).map_err(Error::Thread)?;
            notice.listener = Some(Arc::new(Listener {
                handle,
                thread: Mutex::new(Some(thread)),
            }));
            Ok(notice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_given_counts() {
        let notice = Notice::new();
        let other = notice.clone();
        assert_eq!(notice.deadline(), None);
        other.give(Duration::from_secs(5));
        let deadline = notice.deadline();
        assert!(deadline.is_some());
        notice.give(Duration::from_secs(1));
        assert_eq!(other.deadline(), deadline);
    }

    #[cfg(feature = "signals")]
    #[test]
    fn a_signal_gives_it() {
        let user = rustix::process::Signal::USR2;
        let notice = Notice::on_signals(&[user.as_raw()], Duration::from_secs(9)).unwrap();
        assert_eq!(notice.deadline(), None);
        rustix::process::kill_process(rustix::process::getpid(), user).unwrap();
        while notice.deadline().is_none() {
            std::thread::yield_now();
        }
        let refused = Notice::on_signals(&[9], Duration::from_secs(1));
        assert!(refused.unwrap_err().to_string().contains("signal 9"));
    }
}
