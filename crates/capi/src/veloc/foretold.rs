//! Versions that the program says it will restart from, in its order: `VELOC_Prefetch_enqueue` and `VELOC_Prefetch_start`. The calls have
//! no name of a checkpoint: they use the name that was begun or restarted from last.

use super::client::{Client, DEFAULT, State, named};
use super::head::{Head, is_head};
use super::history::History;
use crate::failure::{Failure, Outcome, Status};

/// Versions that were enqueued.
#[derive(Default)]
pub(super) struct Foretold {
    /// True if a version was ever enqueued. The client then ignores the order in the configuration.
    pub(super) is_any: bool,
    has_started: bool,
    /// Enqueued versions that were not hinted to the engine yet, in their order.
    versions: Vec<u64>,
}

/// Returns the engine's versions of a checkpoint's parts that have bytes. The head is not among them.
pub(super) fn parts(head: &Head) -> Vec<u64> {
    let stored = head.numbers(false).filter(|number| !is_head(*number));
    stored.collect()
}

fn version_of(version: i32) -> Outcome<u64> {
    named(DEFAULT, version)
}

impl Client {
    pub(super) fn enqueue(&self, version: i32) -> Outcome {
        let version = version_of(version)?;
        let mut state = self.state.lock();
        state.foretold.is_any = true;
        state.foretold.versions.push(version);
        if state.foretold.has_started {
            self.foretell(&mut state);
        }
        Ok(())
    }

    pub(super) fn start_prefetches(&self) -> Outcome {
        let mut state = self.state.lock();
        state.foretold.has_started = true;
        self.foretell(&mut state);
        self.core.engine.hints().prefetch_start();
        Ok(())
    }

    /// Hints the enqueued versions to the engine. A version without a checkpoint stays enqueued until the checkpoint is taken.
    pub(super) fn foretell(&self, state: &mut State) {
        if state.foretold.versions.is_empty() {
            return;
        }
        let history = self.history.lock();
        let name = state.name.as_deref();
        let mut order = Vec::new();
        state.foretold.versions.retain(|version| {
            let head = history.of_version(name, *version);
            order.extend(head.into_iter().flat_map(parts));
            head.is_none()
        });
        drop(history);
        self.core.engine.hint(order);
    }

    /// Returns the name that a call means which gives a version without a name.
    pub(super) fn name_of(&self, version: i32) -> Outcome<String> {
        let version = version_of(version)?;
        let last = self.state.lock().name.clone();
        let history = self.history.lock();
        let found = history.of_version(last.as_deref(), version);
        let found = found.map(|head| head.name.clone());
        // If there is no such version, the collective call goes on with this name, and the other ranks learn it there.
        Ok(found.or(last).unwrap_or_else(|| DEFAULT.to_owned()))
    }

    /// Returns the bytes of a region in a version that is given without a name.
    pub(super) fn size_of(&self, version: i32, id: i32) -> Outcome<u64> {
        let name = self.name_of(version)?;
        let version = version_of(version)?;
        let history: &History = &self.history.lock();
        let head = history.find(&name, version);
        let regions = head.map(Head::regions);
        let mut found = regions
            .into_iter()
            .flatten()
            .filter(|(other, _)| *other == i64::from(id));
        let unknown = || {
            let text = format!("version {version} of {name:?} has no region {id}");
            Failure::new(Status::Unknown, text)
        };
        let (_, bytes) = found.next_back().ok_or_else(unknown)?;
        Ok(bytes)
    }
}
