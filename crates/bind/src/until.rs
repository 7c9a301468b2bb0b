//! The end of a call's wait.

use std::fmt;
use std::time::Duration;

use tierflow_engine::{Call, Engine};

/// The end of a call's wait: the patience is over, or `interrupt` returns true, which is called every 50 ms. The call keeps its place in
/// the queue meanwhile. The default waits without an end.
#[derive(Clone, Copy)]
pub struct Until<'a> {
    /// The longest wait; [`Duration::MAX`] means for ever.
    pub patience: Duration,
    /// Returns true if the call must stop at once, for example because of a signal.
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
    /// Makes a wait of this length at most, without an interrupt.
    #[must_use]
    pub fn patience(patience: Duration) -> Self {
        Self {
            patience,
            interrupt: None,
        }
    }

    /// Begins a call of the engine that waits until then.
    pub fn of(self, engine: &'a Engine) -> Call<'a> {
        let call = engine.call().within(self.patience);
        match self.interrupt {
            Some(interrupt) => call.unless(interrupt),
            None => call,
        }
    }
}
