//! Notices that a job has to end: signals of the batch system, a cloud's notice, or any other.

#[cfg(feature = "signals")]
mod signals;

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A notice that the job has to end, with the deadline. Clones share the notice.
///
/// Batch systems send a signal some time before they end a job: Slurm with `--signal=TERM@120`, clouds SIGTERM to the machine's
/// services. `Notice::on_signals` (feature `signals`) receives the signal. A program that gets the notice in another way calls
/// [`Notice::give`]. The application checks the notice between two steps, and [suspends](crate::Engine::suspend):
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
///         let suspension = engine.suspend(None, deadline)?;
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
    /// The thread that gives the notice. The thread ends when the last clone is dropped.
    _listener: Option<Arc<dyn Debug + Send + Sync>>,
}

impl Notice {
    /// Returns a notice that is not given yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the notice: the deadline is `grace` from now on, at most a century. Later calls do not move the deadline.
    pub fn give(&self, grace: Duration) {
        let deadline = Instant::now() + grace.min(LONGEST_GRACE);
        let _first_given_counts = self.deadline.set(deadline);
    }

    /// Returns the deadline once the notice was given.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }
}

/// Longest grace: longer than a job needs, and within the range of every clock.
const LONGEST_GRACE: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

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

    #[test]
    fn a_grace_beyond_the_clock_is_given() {
        let notice = Notice::new();
        notice.give(Duration::MAX);
        assert!(notice.deadline().is_some());
    }
}
