//! How long a call waits.

use std::fmt;
use std::time::Duration;

use tierflow_engine::{Call, Engine};

/// When a call stops waiting: when its patience is over, or when `interrupt` says so, which is asked every 50 ms. The call keeps
/// its place in the queue. The default waits as long as it takes.
#[derive(Clone, Copy)]
pub struct Until<'a> {
    /// How long to wait at most; [`Duration::MAX`] is for ever.
    pub patience: Duration,
    /// Returns true if the call is to stop at once, such as for a signal.
    pub interrupt: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl Default for Until<'_> {
    fn default() -> Self {
        Self::patience(Duration::MAX)
    }
}

impl fmt::Debug for Until<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Until").field(&self.patience).finish()
    }
}

impl<'a> Until<'a> {
    /// So long at most.
    #[must_use]
    pub fn patience(patience: Duration) -> Self {
        Self {
            patience,
            interrupt: None,
        }
    }

    /// Begins a call of the engine that waits so long.
    pub fn of(self, engine: &'a Engine) -> Call<'a> {
        let call = engine.call().within(self.patience);
        match self.interrupt {
            Some(interrupt) => call.unless(interrupt),
            None => call,
        }
    }
}
