//! Identities of pieces: they distinguish two copies of one number, and tell which one is newer.

use crate::container::Head;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tierflow_sync::{Mutex, MutexGuard};

/// The identity of a piece, wherever it is copied: two copies of a version with the same identity hold the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Identity {
    /// The writer's count of the runs that wrote as this rank; 0 in files of format 1.
    pub epoch: u32,
    /// Number of the record among all that the rank wrote in this epoch.
    pub sequence: u64,
    /// Number that the application gave to its run.
    pub run: u64,
    /// Time of the write, in nanoseconds since 1970 by the writer's clock. Nothing is ordered by it.
    pub created: u64,
    /// A checksum over the regions and the checksums of their blocks.
    pub content: u64,
    /// The version that the piece is a difference against.
    pub base: Option<u64>,
}

impl Identity {
    /// Returns the identity of the piece with this head.
    #[must_use]
    pub fn of(head: &Head) -> Self {
        Self {
            epoch: head.epoch,
            sequence: head.sequence,
            run: head.run,
            created: head.created,
            content: head.content(),
            base: head.base,
        }
    }

    /// Returns true if both are copies of one piece. Copies of a format 1 piece may differ in their sequences.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let sequence = match (self.epoch, other.epoch) {
            (0, 0) => self.sequence,
            _ => other.sequence,
        };
        *self == Self { sequence, ..*other }
    }

    /// Returns true if this piece was written after `other`, a piece of the same number and rank, by the epochs and sequences of
    /// the writers.
    #[must_use]
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.order() > other.order()
    }

    /// Returns true if this piece can be a difference against `base`, a piece of the same rank. A base of a later epoch was written
    /// by a later run in place of the real base. Within a run, a base may be written after the pieces that build upon it. Format 1
    /// has no epochs, so its pieces build upon pieces of format 1 only.
    #[must_use]
    pub fn may_build_on(&self, base: &Self) -> bool {
        match self.epoch {
            0 => base.epoch == 0,
            epoch => base.epoch <= epoch,
        }
    }

    /// Returns the key that orders pieces of one number and rank.
    pub(crate) fn order(&self) -> (u32, u64) {
        (self.epoch, self.sequence)
    }
}

/// Returns the versions that lie only `here` and follow a version that lies only `there` and has a later epoch. The later run
/// continued from an older version, so these versions belong to a history that was given up. Callers ask this if the last run wrote
/// elsewhere.
///
/// Considers only runs with other versions that lie in both places. A run that writes only here reports its versions as durable
/// once they lie here.
#[must_use]
pub fn left_behind(
    here: &BTreeMap<u64, Identity>,
    there: &BTreeMap<u64, Identity>,
) -> BTreeSet<u64> {
    let lies_here = |(version, identity): &(&u64, &Identity)| {
        let here = here.get(version);
        here.is_some_and(|here| here.is_same(identity))
    };
    let (both, elsewhere): (Vec<_>, Vec<_>) = there.iter().partition(lies_here);
    let brought: BTreeSet<u32> = both.iter().map(|(_, identity)| identity.epoch).collect();
    let mut elsewhere = elsewhere.into_iter().peekable();
    let (mut behind, mut latest) = (BTreeSet::new(), 0);
    for (version, identity) in here {
        while let Some((_, before)) = elsewhere.next_if(|(before, _)| *before < version) {
            latest = latest.max(before.epoch);
        }
        let alone = !there.contains_key(version) && brought.contains(&identity.epoch);
        if alone && identity.epoch < latest {
            behind.insert(*version);
        }
    }
    behind
}

/// The mark that a run leaves in each directory that it writes to. The mark stays when all versions are removed. If two directories
/// have the mark of one run, and it is the last mark in the second directory, no other run has continued from the second directory
/// since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mark {
    /// The run's epoch; 0 if no run left a mark.
    pub epoch: u32,
    /// A random number that distinguishes the run from an independent run of the same epoch; 0 if unknown.
    pub run: u64,
}

/// The most marks that a directory keeps.
pub(super) const MARKS: usize = 16;

/// The marks of the last runs that wrote in a directory.
#[derive(Debug, Clone, Default)]
pub struct Marks(pub(super) BTreeSet<Mark>);

impl Marks {
    /// Returns true if a run of this epoch wrote here and did not write `there`. Returns false for an epoch older than all marks of
    /// `there` if `there` is full, as older marks were dropped.
    fn has_stranger(&self, epoch: u32, there: &Self) -> bool {
        let oldest = there.0.first().filter(|_| there.0.len() >= MARKS);
        let is_known = oldest.is_none_or(|oldest| oldest.epoch <= epoch);
        let mut of_epoch = self.0.iter().filter(|mark| mark.epoch == epoch);
        is_known && of_epoch.any(|mark| !there.0.contains(mark))
    }

    /// Returns true if the run that wrote a piece of epoch `here` did not write there, and the run that wrote the piece there did
    /// not write here. Then neither run knew of the other, and their epochs do not tell which came first.
    #[must_use]
    pub fn are_strangers(&self, here: u32, there: (u32, &Self)) -> bool {
        let (epoch, marks) = there;
        self.has_stranger(here, marks) && marks.has_stranger(epoch, self)
    }
}

/// The numbers of the records of one run of a rank, in all of its directories: an epoch, and a sequence within the epoch. The epoch
/// is higher than that of each known earlier run. Directories that a run writes at the same time share one order.
#[derive(Debug, Clone, Default)]
pub struct Order(Arc<Mutex<Counters>>);

#[derive(Debug, Default)]
struct Counters {
    /// The highest epoch and the highest sequence that are known.
    epoch: u32,
    sequence: u64,
    /// The epoch of this run, once it was needed.
    own: Option<u32>,
    run: u64,
}

/// Returns a number that no other run has.
pub(super) fn random() -> u64 {
    use std::hash::BuildHasher;
    // The hasher has new random keys each time.
    std::hash::RandomState::new().hash_one(std::process::id()) | 1
}

impl Order {
    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.0.lock()
    }

    /// Takes note of a record of another run, so that all later records of this run are newer.
    pub fn see(&self, epoch: u32, sequence: u64) {
        let mut counters = self.counters();
        counters.epoch = counters.epoch.max(epoch);
        counters.sequence = counters.sequence.max(sequence);
    }

    /// Takes note of a piece of an earlier run that was copied here before this run wrote anything. All later records of this run
    /// are newer, even if both runs, without knowing of each other, got the same epoch.
    pub(super) fn follow(&self, epoch: u32, sequence: u64) {
        self.see(epoch, sequence);
        let mut counters = self.counters();
        counters.own = counters.own.filter(|own| *own > epoch);
    }

    /// Returns the epoch of the next record.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        let mut counters = self.counters();
        let own = counters.own.filter(|own| *own >= counters.epoch);
        let own = own.unwrap_or_else(|| counters.epoch.saturating_add(1));
        (counters.own, counters.epoch) = (Some(own), own);
        own
    }

    /// Returns the mark that this run leaves in each directory that it writes to.
    #[must_use]
    pub fn mark(&self) -> Mark {
        let epoch = self.epoch();
        let mut counters = self.counters();
        if counters.run == 0 {
            counters.run = random();
        }
        let run = counters.run;
        Mark { epoch, run }
    }

    /// Returns epoch and sequence of the next record.
    #[must_use]
    pub fn next(&self) -> (u32, u64) {
        let epoch = self.epoch();
        let mut counters = self.counters();
        counters.sequence = counters.sequence.saturating_add(1);
        (epoch, counters.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(epoch: u32, sequence: u64) -> Identity {
        Identity {
            epoch,
            sequence,
            run: 0,
            created: 7,
            content: 9,
            base: None,
        }
    }

    #[test]
    fn epochs_come_before_sequences_and_clocks_count_for_nothing() {
        let (old, new) = (identity(1, 90), identity(2, 3));
        assert!(new.is_newer_than(&old) && !old.is_newer_than(&new));
        let set_back = Identity { created: 0, ..new };
        assert!(set_back.is_newer_than(&old) && !set_back.is_newer_than(&new));
        assert!(identity(2, 4).is_newer_than(&new));
    }

    #[test]
    fn bases_of_later_runs_are_others() {
        let of = |epoch| identity(epoch, 1);
        assert!(of(2).may_build_on(&of(2)) && of(2).may_build_on(&of(1)));
        assert!(!of(1).may_build_on(&of(2)) && !of(0).may_build_on(&of(1)));
        assert!(of(0).may_build_on(&of(0)) && of(2).may_build_on(&identity(2, 9)));
    }

    #[test]
    fn runs_of_one_epoch_are_told_apart() {
        let (one, other) = (Order::default(), Order::default());
        assert_eq!(one.mark().epoch, other.mark().epoch);
        assert_eq!(one.mark(), one.mark());
        assert_ne!(one.mark(), other.mark());
        let later = Order::default();
        later.see(1, 0);
        assert!(later.mark() > one.mark() && later.mark() > other.mark());
    }

    #[test]
    fn strangers_are_runs_of_which_neither_knew_the_other() {
        let mark = |(epoch, run)| Mark { epoch, run };
        let marks = |all: &[(u32, u64)]| Marks(all.iter().copied().map(mark).collect());
        let (here, there) = (
            marks(&[(1, 1), (2, 2), (3, 9)]),
            marks(&[(1, 1), (2, 3), (3, 9)]),
        );
        assert!(here.are_strangers(2, (2, &there)));
        // The first run knew of the second, or the last run knew of both.
        assert!(!here.are_strangers(2, (1, &there)));
        assert!(!here.are_strangers(3, (2, &there)));
        // Nothing can be said about runs that are as old as the dropped marks.
        let many: Vec<_> = (5..5 + MARKS as u32).map(|epoch| (epoch, 7)).collect();
        assert!(!marks(&[(2, 2)]).are_strangers(2, (5, &marks(&many))));
        assert!(marks(&[(6, 2)]).are_strangers(6, (6, &marks(&many))));
    }

    #[test]
    fn copies_of_format_1_are_the_same_whatever_their_sequences() {
        assert!(identity(0, 1).is_same(&identity(0, 8)));
        assert!(!identity(1, 1).is_same(&identity(1, 8)));
        assert!(!identity(0, 1).is_same(&identity(1, 1)));
        let other = Identity {
            content: 8,
            ..identity(0, 1)
        };
        assert!(!other.is_same(&identity(0, 1)));
    }

    #[test]
    fn a_run_that_sees_a_later_one_goes_on_after_it() {
        let order = Order::default();
        order.see(3, 100);
        assert_eq!((order.next(), order.next()), ((4, 101), (4, 102)));
        order.see(6, 50);
        assert_eq!(order.next(), (7, 103));
        order.see(7, 0);
        assert_eq!(order.epoch(), 7, "that was its own");
    }

    #[test]
    fn a_run_follows_what_another_of_its_epoch_wrote() {
        let order = Order::default();
        let first = order.mark();
        order.follow(1, 9);
        assert_eq!(order.next(), (2, 10));
        assert_eq!((order.mark().run, order.mark().epoch), (first.run, 2));
        order.follow(1, 20);
        assert_eq!(order.next(), (2, 21), "it was newer already");
    }
}
