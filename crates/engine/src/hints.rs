//! Hints: the application names the versions that it will restore, withdraws them, and starts prefetching.

use crate::plan::Event;
use crate::{Engine, Version};

/// The versions that the application will restore, in the order that it hinted. Also starts the prefetching.
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
    /// Appends `versions` to the hinted order of restores.
    ///
    /// Hints may come at any time, in parts, and may name versions that are not written yet. Hints are advice: wrong, missing and
    /// late ones cost time, never correctness. Behind the hints, or without any, the engine predicts the restores of an
    /// application that repeats an order, such as a second pass or a stride.
    pub fn hint(&self, versions: impl IntoIterator<Item = Version>) {
        if self.at_home().is_ok() {
            let versions: Vec<_> = versions.into_iter().collect();
            self.shared.hint(&versions);
        }
    }

    /// Returns the hints given so far, to add others before them, to withdraw some, or to start prefetching.
    #[must_use]
    pub fn hints(&self) -> Hints<'_> {
        Hints { engine: self }
    }
}

impl Hints<'_> {
    /// Inserts `versions` before all hinted versions. Hinted versions keep room for themselves. So an application that stores and
    /// restores a few more versions on its way should hint them shortly before it needs them.
    pub fn prepend(self, versions: impl IntoIterator<Item = Version>) {
        if self.engine.at_home().is_ok() {
            let versions: Vec<_> = versions.into_iter().collect();
            self.engine.shared.hint_next(&versions);
        }
    }

    /// Withdraws the hints of these versions. If an engine has several users, each withdraws only the versions that it hinted.
    /// Later hints count.
    pub fn forget(self, versions: &[Version]) {
        if self.engine.at_home().is_ok() {
            self.engine.shared.forget_hints(Some(versions));
        }
    }

    /// Withdraws all hints, as the application will do something else. Later hints count.
    pub fn clear(self) {
        if self.engine.at_home().is_ok() {
            self.engine.shared.forget_hints(None);
        }
    }

    /// Starts prefetching. The first restore starts it, too: call this to start earlier.
    pub fn prefetch_start(self) {
        if self.engine.at_home().is_ok() {
            self.engine.shared.tell(Event::PrefetchStart);
        }
    }
}
