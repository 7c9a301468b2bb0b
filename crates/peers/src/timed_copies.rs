//! Runs copies that start together, each on its own stream, and measures their time. A deadline limits them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use tierflow_device::{ReadLoan, Stream, Transfer, WriteLoan};

use crate::error::{DeviceContext, Error, Result};
use crate::socket::deadline;

/// A copy, and the stream that it runs on.
#[derive(Debug)]
pub(crate) struct TimedCopy<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) from: ReadLoan,
    pub(crate) to: WriteLoan,
}

/// Runs all copies at once. Returns the duration of each from the common start.
///
/// Each copy has its own thread, as on the host back end the calling thread copies.
pub(crate) fn run(
    doing: &str,
    timed_copies: Vec<TimedCopy<'_>>,
    patience: Duration,
) -> Result<Vec<Duration>> {
    let go = AtomicBool::new(false);
    let mut start = Instant::now();
    let ends = std::thread::scope(|scope| -> Result<Vec<Result<Instant>>> {
        let threads: std::io::Result<Vec<_>> = timed_copies
            .into_iter()
            .map(|timed_copy| {
                let go = &go;
                Builder::new().spawn_scoped(scope, move || {
                    while !go.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    timed_copy.copy(doing, patience)
                })
            })
            .collect();
        // Threads take some time to start; without this pause a copy that starts late would count as slow.
        std::thread::sleep(Duration::from_micros(200));
        start = Instant::now();
        go.store(true, Ordering::Release);
        // If a thread could not be started, the scope still waits for the threads that were.
        let threads = threads.map_err(|why| Error::System {
            doing: "starting a thread",
            why,
        })?;
        let ends = threads.into_iter().map(|thread| match thread.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        Ok(ends.collect())
    })?;
    let ends = ends.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(ends.into_iter().map(|end| end - start).collect())
}

impl TimedCopy<'_> {
    fn copy(self, doing: &str, patience: Duration) -> Result<Instant> {
        let deadline = deadline(patience);
        let transfer = self.stream.copy(self.from, self.to);
        while !transfer.is_done() {
            if Instant::now() > deadline {
                return Err(leak(doing, transfer, patience));
            }
            std::hint::spin_loop();
        }
        let end = Instant::now();
        transfer.wait().result.when(|| doing.to_owned())?;
        Ok(end)
    }
}

/// Leaks a transfer that timed out, so that its bytes stay lent for good: the device may still use them.
fn leak(doing: &str, transfer: Transfer, patience: Duration) -> Error {
    std::mem::forget(transfer);
    Error::TimedOut {
        doing: doing.to_owned(),
        patience,
    }
}
