//! The end of a client.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierflow_bind::Until;
use tierflow_redundancy::ParityStore;
use tierflow_store::{Repository, Vault};

use super::client::Client;
use super::config::Config;
use crate::api::close;
use crate::core::OpenEngine;
use crate::failure::{Failure, Outcome, Status};

impl Client {
    /// Returns the result of a wait for all versions. If some are not durable, returns a failure that names them and says what becomes of them.
    fn name_left(&self, waited: Outcome) -> Outcome {
        let Some(left) = self.keeping.left() else {
            return waited;
        };
        let why = waited.err();
        let status = why
            .as_ref()
            .map_or(Status::Stalled, |failure| failure.status);
        let why = why.map_or_else(String::new, |failure| format!(": {}", failure.text));
        Err(Failure::new(status, format!("{left}{why}")))
    }

    /// Ends a program that did not call `VELOC_Finalize`: waits as [`close`](Self::close) does, but not for the other ranks, which may be
    /// gone. The failure names the checkpoints that are not durable.
    pub(super) fn end_with_program(&self) -> Outcome {
        let patience = self.config.options.closing_patience();
        let waited = self.housekeeping.wait_while_moving(patience);
        let ended = self.name_left(waited);
        let handle = self.core.handle();
        if !handle.passes_by_group() {
            // The engine's error has the same versions, by numbers that the program does not know.
            let _told_above = handle.end(Until::patience(Duration::ZERO));
        }
        ended
    }

    /// Ends the client. Waits until all checkpoints are durable, or until nothing has moved for `closing_patience`. The failure names the
    /// checkpoints that are not durable.
    pub(super) fn close(self) -> Outcome {
        let patience = self.config.options.closing_patience();
        let durable = self.housekeeping.wait_while_moving(patience);
        let waited = self.name_left(self.core.protect_after(durable));
        let group = self.core.group.clone();
        let is_complete = group.as_ref().map_or(Ok(()), |group| group.is_complete());
        // Once all ranks have met, they keep the same versions. If a rank does not answer, the others keep some more.
        let _more_or_less = self.keeping.meet_at_end();
        drop((self.housekeeping, self.keeping));
        let drawn = write_timeline(&self.core, &self.config, self.rank);
        self.handle.forget();
        let (rank, ranks) = group
            .as_ref()
            .map_or((0, 1), |group| (group.rank, group.ranks));
        // Calls of other threads that have found the engine end by themselves, and no further one finds it.
        let Some(core) = alone(self.core, patience) else {
            let text = "another thread is still in a call with the handle of VELOC_Engine: the engine ends with that call";
            return waited.and(Err(Failure::argument(text)));
        };
        let held: BTreeSet<u64> = core.engine.versions().into_iter().collect();
        // If the engine found damage, versions that it does not hold may still be intact, so none are removed below.
        let is_sound = core.engine.damage().is_empty();
        // A run that wrote nothing removes nothing: a list may not show some versions yet, or a piece may lie on a node that is away.
        let has_begun = core.engine.metrics().checkpoint.count > 0;
        let closed = close(core);
        drop(group);
        waited.and(closed).and(is_complete)?;
        if !is_sound {
            return drawn;
        }
        let (state, history) = (self.state.into_inner(), self.history.lock());
        let cleaned = state.cleaned.iter().flat_map(|name| history.versions(name));
        let cleaned: BTreeSet<u64> = cleaned.flat_map(|head| head.numbers(true)).collect();
        if !has_begun && cleaned.is_empty() {
            return drawn;
        }
        let goes = |version: u64| {
            let is_left = has_begun && !held.contains(&version);
            cleaned.contains(&version) || is_left
        };
        let options = &self.config.options;
        if let (Some(scratch), Some(_)) = (&options.node_local, options.redundancy) {
            // With their parity left behind, a later start would take the removed pieces for lost ones.
            let parity = ParityStore::of_rank(scratch, rank)?;
            let protected = parity.versions()?.into_iter();
            parity.discard(&protected.filter(|one| goes(*one)).collect())?;
        }
        if has_begun {
            let mut of_rank = options.clone();
            (of_rank.ranks.rank, of_rank.ranks.ranks) = (rank, ranks);
            match (of_rank.vault_of_agent()?, &options.external) {
                (Some(agent), _) => remove_if(&*agent, |one| !held.contains(&one))?,
                (None, Some(external)) => {
                    remove_if(&writer(external, rank, ranks)?, |one| !held.contains(&one))?;
                }
                (None, None) => {}
            }
        }
        if let Some(scratch) = &options.node_local {
            remove_if(&writer(scratch, rank, ranks)?, goes)?;
        }
        drawn
    }
}

/// Returns the value once nobody else holds it; `None` if others still do when `patience` is over.
fn alone<T>(mut shared: Arc<T>, patience: Duration) -> Option<T> {
    let begun = Instant::now();
    loop {
        shared = match Arc::try_unwrap(shared) {
            Ok(value) => return Some(value),
            Err(_) if begun.elapsed() >= patience => return None,
            Err(shared) => shared,
        };
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes the time line, if the configuration names a file for it. Each rank of a group writes a separate file.
fn write_timeline(core: &OpenEngine, config: &Config, rank: u32) -> Outcome {
    let Some(path) = &config.timeline_file else {
        return Ok(());
    };
    let path = match &core.group {
        Some(_) => format!("{}.{rank}", path.display()),
        None => path.display().to_string(),
    };
    let written = core.engine.write_timeline(&path);
    written.map_err(|error| Failure::file(path.as_ref(), &error))
}

fn writer(place: &Path, rank: u32, ranks: u32) -> Outcome<Repository> {
    Ok(tierflow_objects::History::writer(place, rank, ranks)?)
}

/// Removes this rank's pieces of the versions for which `goes` is true: versions that `VELOC_Cleanup` removed, or that ranks discarded
/// before they were killed.
fn remove_if(place: &dyn Vault, goes: impl Fn(u64) -> bool) -> Outcome {
    let pieces = place.pieces()?.into_iter().map(|piece| piece.version);
    let others: BTreeSet<u64> = pieces.filter(|version| goes(*version)).collect();
    match others.is_empty() {
        true => Ok(()),
        false => Ok(place.remove(&others)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_waits_for_calls_of_other_threads() {
        let engine = Arc::new(());
        let call = Arc::clone(&engine);
        assert!(alone(Arc::clone(&engine), Duration::ZERO).is_none());
        let ended = std::thread::spawn(move || alone(engine, Duration::MAX).is_some());
        drop(call);
        assert!(ended.join().is_ok_and(|is_alone| is_alone));
    }
}
