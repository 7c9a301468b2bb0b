//! The checkpoints that are kept: as many as the configuration says, of the checkpoints that all ranks have.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::head::Head;
use super::history::History;
use crate::core::OpenEngine;
use crate::failure::{Failure, Outcome, Status};

/// Durable checkpoints of a name that a rank names to the others beyond the number to keep. A rank is ahead of the slowest rank by fewer
/// checkpoints.
const AHEAD: usize = 32;
/// The longest wait for the other ranks when the client closes, unless the configuration has a shorter one: the rest of the program may have
/// failed.
const AT_END: Duration = Duration::from_secs(300);

/// A checkpoint that this rank begins.
pub(super) struct CheckpointStart<'a> {
    pub(super) name: &'a str,
    pub(super) version: u64,
    pub(super) serial: u64,
}

impl CheckpointStart<'_> {
    /// Returns words that are the same on all ranks that begin the same checkpoint.
    fn words(&self) -> [u64; 3] {
        let name = self.name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        [self.serial, self.version, name]
    }
}

pub(super) struct Keeping {
    pub(super) core: Arc<OpenEngine>,
    pub(super) history: Arc<Mutex<History>>,
    /// Versions of a name to keep; 0 for all.
    most: usize,
    /// The longest wait for the other ranks.
    patience: Duration,
    /// The serials of checkpoints that are durable on all ranks, as of the last meeting.
    agreed: Mutex<BTreeSet<u64>>,
}

impl Keeping {
    pub(super) fn new(
        core: &Arc<OpenEngine>,
        history: &Arc<Mutex<History>>,
        most: usize,
        patience: Duration,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            history: Arc::clone(history),
            most,
            patience,
            agreed: Mutex::default(),
        }
    }

    /// Meets the other ranks, if only some versions are kept: finds the checkpoints that are durable on all ranks, and discards older ones
    /// than are kept. Fails if another rank begins a different checkpoint.
    pub(super) fn meet(&self, start: &CheckpointStart<'_>) -> Outcome {
        let all = self.gather(&start.words(), self.patience)?;
        let differs = |list: &Vec<u64>| !list.starts_with(&start.words());
        if let Some(rank) = all.iter().position(differs) {
            let CheckpointStart { name, version, .. } = start;
            let text = format!(
                "rank {rank} begins another checkpoint than this one, which begins version {version} of {name:?}: all ranks checkpoint the same"
            );
            return Err(Failure::new(Status::Group, text));
        }
        self.prune_all();
        Ok(())
    }

    /// Meets the other ranks for the last time.
    pub(super) fn meet_at_end(&self) -> Outcome {
        self.gather(&[0; 3], self.patience.min(AT_END))?;
        self.prune_all();
        Ok(())
    }

    /// Gives `words` and the serials of the checkpoints that are durable here to all ranks, and returns the lists of all ranks.
    fn gather(&self, words: &[u64; 3], patience: Duration) -> Outcome<Vec<Vec<u64>>> {
        let Some(group) = self.core.group.as_ref().filter(|_| self.most > 0) else {
            return Ok(Vec::new());
        };
        let mine: Vec<u64> = words.iter().copied().chain(self.durable()).collect();
        let all = group.lists(&mine, patience)?;
        let mut agreed: BTreeSet<u64> = mine.iter().skip(words.len()).copied().collect();
        for list in &all {
            let theirs: BTreeSet<u64> = list.iter().skip(words.len()).copied().collect();
            agreed.retain(|serial| theirs.contains(serial));
        }
        *self.agreed.lock() = agreed;
        Ok(all)
    }

    /// Returns the serials of the newest durable checkpoints of each name.
    fn durable(&self) -> Vec<u64> {
        let history = self.history.lock();
        let is_durable = |head: &&Head| self.core.engine.is_durable(head.number());
        let newest = |name: &String| {
            let newest = history.versions(name).rev().filter(is_durable);
            let newest = newest.take(self.most.saturating_add(AHEAD));
            newest.map(|head| head.serial).collect::<Vec<u64>>()
        };
        history.names().iter().flat_map(newest).collect()
    }

    /// Names the checkpoints that are not durable, by rank, name and version, and what becomes of them; `None` if all are durable.
    pub(super) fn left(&self) -> Option<String> {
        let (engine, group) = (&self.core.engine, self.core.group.as_ref());
        let rank = group.map_or(String::new(), |group| format!("rank {}'s ", group.rank));
        let history = self.history.lock();
        let names = history.names();
        let all = names.iter().flat_map(|name| history.versions(name));
        let left = all.filter(|head| !engine.is_durable(head.number()));
        let is_kept = |head: &&Head| {
            let mut numbers = head.numbers(group.is_some());
            numbers.all(|number| engine.call().is_kept(number))
        };
        let (kept, lost): (Vec<_>, Vec<_>) = left.partition(is_kept);
        let ends = [
            (lost, "not durable and lost with this client"),
            (
                kept,
                "not durable and on this node alone, where the next client finds that",
            ),
        ];
        let ends = ends.iter().filter(|(heads, _)| !heads.is_empty());
        let text = ends.map(|(heads, end)| {
            let heads = heads.iter();
            let heads =
                heads.map(|head| format!("{rank}version {} of {:?}", head.version, head.name));
            format!("{} {end}", heads.collect::<Vec<_>>().join(", "))
        });
        let text = text.collect::<Vec<_>>().join("; ");
        (!text.is_empty()).then_some(text)
    }

    fn prune_all(&self) {
        let names = self.history.lock().names();
        names.iter().for_each(|name| self.prune(name));
    }

    /// Discards the versions of a name that are older than the versions to keep. Only versions that all ranks have count as kept.
    pub(super) fn prune(&self, name: &str) {
        if self.most == 0 {
            return;
        }
        let old = {
            let agreed = self.agreed.lock();
            self.history
                .lock()
                .beyond(name, self.most, |head| match self.core.group.is_some() {
                    true => agreed.contains(&head.serial),
                    false => self.core.engine.is_durable(head.number()),
                })
        };
        old.iter().for_each(|head| self.discard(head));
    }

    /// Discards the versions that a durable checkpoint replaces.
    pub(super) fn supersede(&self, durable: &Head) {
        let (old, leftovers) = {
            let mut history = self.history.lock();
            (history.superseded_by(durable), history.take_leftovers())
        };
        old.iter().for_each(|head| self.discard(head));
        for number in leftovers {
            // A version that cannot be discarded now is a leftover of the next client again.
            let _gone = self.core.engine.discard(number);
        }
    }

    fn discard(&self, head: &Head) {
        for number in head.numbers(self.core.group.is_some()) {
            // The version may be gone already, discarded by an engine that was killed later.
            let _gone = self.core.engine.discard(number);
        }
    }
}
