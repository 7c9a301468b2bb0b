//! Versions that the program says it will restart from, in its order: `VELOC_Prefetch_enqueue` and `VELOC_Prefetch_start`. These
//! calls name no checkpoint: they are about the name that was begun or restarted from last.

use super::client::{Client, DEFAULT, State, named};
use super::head::{Head, is_head};
use super::history::History;
use crate::failure::{Failure, Outcome, Status};

/// Versions that were enqueued.
#[derive(Default)]
pub(super) struct Foretold {
    /// A version was enqueued: the order that the configuration names does not count.
    pub(super) is_any: bool,
    has_started: bool,
    /// Versions that the engine was not told of yet, in their order.
    versions: Vec<u64>,
}

/// The engine's versions that hold what is restored of a checkpoint.
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

    /// Tells the engine of the versions that were enqueued, as far as they were taken by now.
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

    /// The name under which a version is meant that is called by its number alone.
    pub(super) fn name_of(&self, version: i32) -> Outcome<String> {
        let version = version_of(version)?;
        let last = self.state.lock().name.clone();
        let history = self.history.lock();
        let found = history.of_version(last.as_deref(), version);
        let found = found.map(|head| head.name.clone());
        // The other ranks hear that there is none.
        Ok(found.or(last).unwrap_or_else(|| DEFAULT.to_owned()))
    }

    /// Bytes of a region in a version that is called by its number alone.
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
