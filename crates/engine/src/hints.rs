//! Hints: the application names the versions that it will restore, withdraws them, and lets prefetching begin.

use crate::plan::Event;
use crate::{Engine, Version};

/// The order of the restores to come, as the application has hinted it, and the prefetching by it.
///
/// ```
/// # use tierflow_engine::Engine;
/// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// # let engine = Engine::builder(&device).device_cache(4 << 20).host_cache(16 << 20).build()?;
/// engine.hint([3, 2, 1, 0]);
/// // Version 7 is restored before all of them, and version 0 will not be.
/// engine.hints().prepend([7]);
/// engine.hints().forget(&[0]);
/// engine.hints().prefetch_start();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Hints<'e> {
    engine: &'e Engine,
}

impl Engine {
    /// Tells which versions will be restored, in this order, after those hinted before.
    ///
    /// Hints may come at any time, in parts, and name versions not written yet. They are advice: wrong, missing and late
    /// ones cost time, never correctness. Without hints, the engine predicts the restores of an application that repeats an order, such as
    /// a second pass or a stride.
    pub fn hint(&self, versions: impl IntoIterator<Item = Version>) {
        if self.at_home().is_ok() {
            let versions: Vec<_> = versions.into_iter().collect();
            self.shared.hint(&versions);
        }
    }

    /// Returns the hints given so far, to put others before them, to withdraw some, or to let prefetching begin.
    #[must_use]
    pub fn hints(&self) -> Hints<'_> {
        Hints { engine: self }
    }
}

impl Hints<'_> {
    /// Tells which versions will be restored before all that are hinted: an application that comes to store and restore some more on
    /// its way hints them when they are near, as hinted versions keep room for themselves.
    pub fn prepend(self, versions: impl IntoIterator<Item = Version>) {
        if self.engine.at_home().is_ok() {
            let versions: Vec<_> = versions.into_iter().collect();
            self.engine.shared.hint_next(&versions);
        }
    }

    /// Withdraws the hints of these versions: several users of one engine each name the versions that they hinted. Hints given after
    /// this count.
    pub fn forget(self, versions: &[Version]) {
        if self.engine.at_home().is_ok() {
            self.engine.shared.forget_hints(Some(versions));
        }
    }

    /// Withdraws all hints: the application will do something else. Hints given after this count.
    pub fn clear(self) {
        if self.engine.at_home().is_ok() {
            self.engine.shared.forget_hints(None);
        }
    }

    /// Lets prefetching begin. The first restore begins it, too: call this to begin earlier.
    pub fn prefetch_start(self) {
        if self.engine.at_home().is_ok() {
            self.engine.shared.tell(Event::PrefetchStart);
        }
    }
}
