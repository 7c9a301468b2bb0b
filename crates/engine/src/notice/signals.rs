//! Notices that signals give.

use super::Notice;
use crate::{Error, Result};
use signal_hook::iterator::{Handle, Signals};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tierflow_device::{OwnerProcess, receive_signal};
use tierflow_sync::Mutex;

/// The numbers of signals, real-time signals included.
const NUMBERS: RangeInclusive<i32> = 1..=64;

/// The thread that receives the signals of a notice, until the last clone of the notice is dropped.
#[derive(Debug)]
struct Listener {
    handle: Handle,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: OwnerProcess,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let thread = self.thread.get_mut();
        if !self.process.is_current() {
            // The thread is the parent's.
            std::mem::forget(thread.take());
            return;
        }
        self.handle.close();
        // A thread that panicked has no result that matters.
        thread.take().map(JoinHandle::join);
    }
}

impl Notice {
    /// Returns a notice that is given when one of these signals arrives. The job ends `grace` later, as the batch system was told.
    /// The signals lose their default action, which for SIGTERM is to end the process, even after the notice is dropped. A handler
    /// that the program installed before is still called. In a fork, the signals have their default action again,
    /// unless the program ignored or handled them before, or the fork makes a notice of its own.
    ///
    /// # Errors
    /// [`Error::Signals`] if a signal cannot be received, such as SIGKILL; [`Error::Thread`] if the thread cannot be started.
    ///
    /// ```no_run
    /// # use tierflow_engine::Notice;
    /// // sbatch --signal=TERM@120: two minutes, of which ten seconds are kept for the end of the program.
    /// let notice = Notice::on_signals(&[15], std::time::Duration::from_secs(110))?;
    /// # Ok::<(), tierflow_engine::Error>(())
    /// ```
    pub fn on_signals(signals: &[i32], grace: Duration) -> Result<Self> {
        let forbidden = signal_hook::consts::FORBIDDEN;
        let is_none = |signal: &&i32| forbidden.contains(signal) || !NUMBERS.contains(signal);
        if let Some(signal) = signals.iter().find(is_none) {
            let error = std::io::Error::other(format!("signal {signal} cannot be received"));
            return Err(Error::Signals(error));
        }
        for signal in signals {
            receive_signal(*signal).map_err(Error::Signals)?;
        }
        let mut received = Signals::new(signals).map_err(Error::Signals)?;
        let (handle, mut notice) = (received.handle(), Self::new());
        let given = notice.clone();
        let listen = move || received.forever().for_each(|_| given.give(grace));
        let thread = Builder::new().name("tierflow-notice".to_owned());
        let thread = thread.spawn(listen).map_err(Error::Thread)?;
        notice._listener = Some(Arc::new(Listener {
            handle,
            thread: Mutex::new(Some(thread)),
            process: OwnerProcess::current(),
        }));
        Ok(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_gives_it() {
        let user = rustix::process::Signal::USR2;
        let notice = Notice::on_signals(&[user.as_raw()], Duration::from_secs(9)).unwrap();
        assert_eq!(notice.deadline(), None);
        rustix::process::kill_process(rustix::process::getpid(), user).unwrap();
        while notice.deadline().is_none() {
            std::thread::yield_now();
        }
        for signal in [9, 0, -1, 65, 128, 999, i32::MAX] {
            let refused = Notice::on_signals(&[signal], Duration::from_secs(1));
            let text = refused.unwrap_err().to_string();
            assert!(text.contains(&format!("signal {signal} ")), "{text}");
        }
    }
}
