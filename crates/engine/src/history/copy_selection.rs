//! Lists the copies on the tiers that outlive the engine, and chooses among copies that differ.

use super::Group;
use super::agreement::Agreed;
use super::run_marks::{LastWriter, RunMarks};
use crate::plan::Difference;
use crate::run::DurableTier;
use crate::{Result, Version};
use std::collections::{BTreeMap, BTreeSet};
use tierflow_store::{Damage, Identity, PieceInfo, left_behind};

/// A rank's piece of a version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundCopy {
    /// Bytes of the checkpoint.
    pub(super) size: u64,
    /// Bytes that the copy takes on storage.
    pub(super) bytes: u64,
    pub(super) identity: Identity,
    /// The encoded form of the copy; `None` if it is stored as it is.
    pub(super) difference: Option<Difference>,
}

impl FoundCopy {
    fn new(piece: &PieceInfo) -> Self {
        let bytes = piece.bytes;
        let base = piece.identity.base;
        Self {
            size: piece.decoded.unwrap_or(bytes),
            bytes,
            identity: piece.identity,
            difference: piece.decoded.map(|_| Difference { bytes, base }),
        }
    }

    /// Returns the version that this copy builds upon.
    fn base(&self) -> Option<Version> {
        self.identity.base.filter(|_| self.difference.is_some())
    }

    /// Compares this copy's base with the copy of that number that counts. If the copy `beside` this one can be the base, compares
    /// by identity, and otherwise by the epochs.
    fn builds_on(&self, beside: Option<&FoundCopy>, counting: Option<&Identity>) -> BaseState {
        let beside = beside.filter(|beside| self.identity.may_build_on(&beside.identity));
        let is_it = |counts: &Identity| match beside {
            Some(beside) => beside.identity.is_same(counts),
            None => self.identity.may_build_on(counts),
        };
        match counting {
            None => BaseState::OnNothing,
            Some(counts) if is_it(counts) => BaseState::Soundly,
            Some(_) => BaseState::OnAnother,
        }
    }
}

/// The state of a copy's base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BaseState {
    Soundly,
    /// The copy builds upon another copy than the one that counts under that number.
    OnAnother,
    /// The base was not found, or cannot be read now.
    OnNothing,
}

/// The pieces of this rank, by version.
pub(super) type Found = BTreeMap<Version, FoundCopy>;

/// The tiers whose copies are selected, and the known runs that wrote them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidates<'a> {
    pub(super) node_local: Option<&'a DurableTier>,
    pub(super) external: Option<&'a DurableTier>,
    pub(super) group: &'a Group,
    /// The versions that the ranks of a group agreed on, if they met.
    pub(super) agreed: Option<&'a Agreed>,
    pub(super) runs: &'a RunMarks,
}

/// The copies that count, and those that do not.
#[derive(Debug, Default)]
pub(crate) struct CopySelection {
    pub(super) node_local: Found,
    pub(super) external: Found,
    /// Copies on the node that do not count, as other copies count in their place.
    pub(super) outdated: Vec<(Version, FoundCopy)>,
    /// Copies that do not count because their bases were not found.
    pub(super) orphans: Vec<Orphan>,
}

/// Indices of the places of copies: the node, and external storage.
const NEAR: usize = 0;
const FAR: usize = 1;

/// A copy whose base was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) version: Version,
    /// The version that it needs.
    pub(super) base: Version,
    /// True if the copy is on external storage.
    pub(super) is_external: bool,
}

impl CopySelection {
    /// Selects the copies that count, among those that the ranks of a group agreed on, if the ranks met.
    pub(super) fn new(found: Candidates<'_>) -> Result<Self> {
        let Candidates {
            node_local,
            external,
            group,
            agreed,
            runs,
        } = found;
        let last = runs.last;
        let below = match external {
            Some(durable) => copies(durable, group, agreed)?,
            None => Found::new(),
        };
        let mut here = match node_local {
            Some(durable) => copies(durable, group, agreed)?,
            None => Found::new(),
        };
        let has_met = group.ranks == 1 || agreed.is_some();
        if let Some(durable) = node_local.filter(|_| external.is_some() && !has_met) {
            // The group has not met, and this rank cannot see other ranks' pieces on their nodes. So a piece on this node counts
            // only if its version is whole on external storage.
            let pieces = durable.vault().pieces()?.into_iter();
            let known = pieces.filter(|piece| below.contains_key(&piece.version));
            here.extend(known.map(|piece| (piece.version, FoundCopy::new(&piece))));
        }
        // A group has agreed on the runs from which its ranks continue.
        let elsewhere = last == LastWriter::Elsewhere && agreed.is_none();
        let is_unreadable =
            |durable: &DurableTier| durable.vault().damage().iter().any(Damage::is_unreadable);
        if elsewhere && external.is_some_and(is_unreadable) {
            // A run elsewhere may have written these versions anew, but its pieces cannot be read now.
            here.retain(|version, _| below.contains_key(version));
        }
        let elsewhere = elsewhere && group.ranks == 1;
        Ok(Self::merged(here, below, elsewhere, |here, below| {
            has_met && runs.prefers_node_local(here, below)
        }))
    }

    /// Merges the copies of both tiers. Copies of one number with different identities hold different bytes, and `prefers` decides
    /// whether the one on the node counts.
    ///
    /// `elsewhere` is true if the last run was on another node. Versions that the last run [left behind](left_behind) then do not
    /// count.
    fn merged(
        here: Found,
        below: Found,
        elsewhere: bool,
        prefers: impl Fn(&Identity, &Identity) -> bool,
    ) -> Self {
        let mut selection = Self::default();
        let identities = |found: &Found| -> BTreeMap<Version, Identity> {
            let all = found.iter();
            all.map(|(version, one)| (*version, one.identity)).collect()
        };
        let behind = match elsewhere {
            true => left_behind(&identities(&here), &identities(&below)),
            false => BTreeSet::new(),
        };
        let places = [&here, &below];
        let mut counting: BTreeMap<Version, Identity> = BTreeMap::new();
        // Copies that do not count, whatever is found later: on the node, and on external storage.
        let mut gone = [BTreeSet::new(), BTreeSet::new()];
        // The version that each orphan needs.
        let mut missing: BTreeMap<Version, Version> = BTreeMap::new();
        let mut versions: Vec<Version> = here.keys().chain(below.keys()).copied().collect();
        versions.sort_unstable();
        versions.dedup();
        // Bases have smaller numbers.
        for version in versions {
            let builds = |place: usize| {
                let found = places[place];
                let one = found.get(&version)?;
                let base = one.base();
                let on = |base| match one.builds_on(found.get(&base), counting.get(&base)) {
                    BaseState::OnNothing if gone[place].contains(&base) => BaseState::OnAnother,
                    builds => builds,
                };
                Some((*one, base.map_or(BaseState::Soundly, on)))
            };
            let (near, far) = (builds(NEAR), builds(FAR));
            let sound = |found: Option<(FoundCopy, BaseState)>| {
                let (one, _) = found.filter(|(_, builds)| *builds == BaseState::Soundly)?;
                Some(one)
            };
            let (mut one, mut other) = (sound(near), sound(far));
            if let (Some(here), Some(below)) = (one, other)
                && !here.identity.is_same(&below.identity)
            {
                match prefers(&here.identity, &below.identity) {
                    true => other = None,
                    false => one = None,
                }
            }
            let given_up = behind.contains(&version);
            if given_up {
                one = None;
            }
            // A copy whose base only cannot be read now may become usable again, so it is not outdated.
            if let (None, Some((outdated, builds))) = (one, near)
                && (given_up || other.is_some() || builds == BaseState::OnAnother)
            {
                selection.outdated.push((version, outdated));
                gone[NEAR].insert(version);
            }
            if let (None, Some((_, builds))) = (other, far)
                && (one.is_some() || builds == BaseState::OnAnother)
            {
                gone[FAR].insert(version);
            }
            for (place, found) in [(NEAR, near), (FAR, far)] {
                if let (None, Some((orphan, BaseState::OnNothing))) = (one.or(other), found)
                    && !gone[place].contains(&version)
                    && let Some(base) = orphan.base()
                {
                    let base = missing.get(&base).copied().unwrap_or(base);
                    missing.insert(version, base);
                    selection.orphans.push(Orphan {
                        version,
                        base,
                        is_external: place == FAR,
                    });
                }
            }
            if let Some(counts) = one.or(other) {
                counting.insert(version, counts.identity);
            }
            selection.node_local.extend(one.map(|one| (version, one)));
            selection
                .external
                .extend(other.map(|other| (version, other)));
        }
        selection
    }

    pub(super) fn is_empty(&self) -> bool {
        self.node_local.is_empty() && self.external.is_empty()
    }

    /// Returns the newest version of the selection.
    pub(super) fn newest(&self) -> Option<Version> {
        let all = self.node_local.keys().chain(self.external.keys());
        all.copied().max()
    }

    pub(super) fn has_differences(&self) -> bool {
        let all = self.node_local.values().chain(self.external.values());
        all.into_iter().any(|one| one.difference.is_some())
    }

    /// Returns the bytes on the node of versions that no other tier has.
    pub(super) fn required(&self, alignment: u64) -> u64 {
        let alone = self.node_local.iter();
        let alone = alone.filter(|(version, _)| !self.external.contains_key(version));
        alone
            .map(|(_, one)| one.bytes.next_multiple_of(alignment))
            .fold(0, u64::saturating_add)
    }

    /// Divides the copies on the node by `limit` bytes. Returns the copies that stay: first those that no other tier has, in
    /// ascending order, then the newest of the others that fit. Also returns the others that do not fit, with their bytes.
    pub(super) fn node_local_within(
        &self,
        limit: u64,
        alignment: u64,
    ) -> (Vec<Version>, Vec<(Version, u64)>) {
        let (twice, alone): (Vec<Version>, Vec<Version>) = self
            .node_local
            .keys()
            .partition(|version| self.external.contains_key(version));
        let (mut held, mut unfit) = (alone, Vec::new());
        let mut used = self.required(alignment);
        for version in twice.into_iter().rev() {
            let bytes = self.node_local.get(&version).map_or(0, |one| one.bytes);
            let more = used.saturating_add(bytes.next_multiple_of(alignment));
            if more <= limit {
                used = more;
                held.push(version);
            } else {
                unfit.push((version, bytes));
            }
        }
        (held, unfit)
    }
}

/// Returns the copies on a tier: the pieces in the directory of a single rank, otherwise the pieces of whole versions. Leaves out
/// versions of a group of another size, which have no piece for each rank of this group. If the group agreed, returns the agreed
/// versions.
fn copies(durable: &DurableTier, group: &Group, agreed: Option<&Agreed>) -> Result<Found> {
    let ranks = group.ranks;
    if let Some(agreed) = agreed {
        let pieces = durable.vault().pieces()?.into_iter();
        let is_agreed = |one: &PieceInfo| agreed.versions.contains(&one.version);
        let own = pieces.filter(|one| one.ranks == ranks && is_agreed(one));
        return Ok(own
            .map(|piece| (piece.version, FoundCopy::new(&piece)))
            .collect());
    }
    if let Some(pieces) = durable.parts()? {
        let own = pieces.iter().filter(|piece| piece.ranks == ranks);
        return Ok(own
            .map(|piece| (piece.version, FoundCopy::new(piece)))
            .collect());
    }
    let pieces = durable.vault().pieces()?.into_iter();
    let pieces: BTreeMap<Version, PieceInfo> = pieces.map(|piece| (piece.version, piece)).collect();
    let versions = durable.vault().versions()?.into_iter();
    let whole = versions.filter(|info| info.ranks == ranks);
    // A version that cannot be read is reported when a call asks for it, and an older version is offered.
    let found =
        whole.filter_map(|info| Some((info.version, FoundCopy::new(pieces.get(&info.version)?))));
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(epoch: u32, sequence: u64, base: Option<Version>) -> FoundCopy {
        FoundCopy {
            size: 10,
            bytes: 10,
            identity: Identity {
                epoch,
                sequence,
                run: 0,
                created: 0,
                content: u64::from(epoch) << 32 | sequence,
                base,
            },
            difference: base.map(|_| Difference { bytes: 10, base }),
        }
    }

    fn merged(here: &[(Version, FoundCopy)], below: &[(Version, FoundCopy)]) -> [Vec<Version>; 3] {
        merged_since(false, here, below)
    }

    fn merged_since(
        elsewhere: bool,
        here: &[(Version, FoundCopy)],
        below: &[(Version, FoundCopy)],
    ) -> [Vec<Version>; 3] {
        let found = |all: &[(Version, FoundCopy)]| all.iter().copied().collect();
        let selection =
            CopySelection::merged(found(here), found(below), elsewhere, |here, below| {
                !elsewhere && here.is_newer_than(below)
            });
        let outdated = selection.outdated.iter().map(|(version, _)| *version);
        [
            selection.node_local.keys().copied().collect(),
            selection.external.keys().copied().collect(),
            outdated.collect(),
        ]
    }

    #[test]
    fn copies_merge_and_others_give_way() {
        let (old, new) = (one(1, 5, None), one(2, 1, None));
        assert_eq!(merged(&[(7, old)], &[(7, old)]), [vec![7], vec![7], vec![]]);
        assert_eq!(merged(&[(7, old)], &[(7, new)]), [vec![], vec![7], vec![7]]);
        assert_eq!(merged(&[(7, new)], &[(7, old)]), [vec![7], vec![], vec![]]);
    }

    #[test]
    fn differences_go_with_what_they_build_upon() {
        let (base, other) = (one(1, 5, None), one(1, 6, None));
        let on_it = one(1, 4, Some(7));
        let here = [(7, base), (8, on_it)];
        assert_eq!(merged(&here, &[(7, base)]), [vec![7, 8], vec![7], vec![]]);
        // The base below is of the same epoch, but another one.
        assert_eq!(merged(&here, &[(7, other)]), [vec![], vec![7], vec![7, 8]]);
        // The copies below take the places of the outdated ones.
        let below = [(7, other), (8, one(1, 7, Some(7)))];
        assert_eq!(merged(&here, &below), [vec![], vec![7, 8], vec![7, 8]]);
        // If a base only cannot be read, no copy is given up.
        assert!(merged(&here[1..], &[]).iter().all(Vec::is_empty));
        // A base that is below alone may be older or newer than the difference.
        assert_eq!(merged(&here[1..], &[(7, base)]), [vec![8], vec![7], vec![]]);
        let later = [(7, one(2, 1, None))];
        assert_eq!(merged(&here[1..], &later), [vec![], vec![7], vec![8]]);
    }

    #[test]
    fn what_a_run_elsewhere_did_not_go_on_from_goes() {
        let (first, second) = (one(1, 5, None), one(2, 6, None));
        let here = [(1, first), (2, first), (3, first), (4, first)];
        let since = |below: &[_]| merged_since(true, &here, below);
        // The run elsewhere wrote 2 anew, or something else; or 2 is older, or no version of the run that left the others got to
        // the tier.
        let below = [(1, first), (2, second)];
        assert_eq!(since(&below), [vec![1], vec![1, 2], vec![2, 3, 4]]);
        let below = [(0, second), (1, first)];
        assert_eq!(since(&below), [vec![1], vec![0, 1], vec![2, 3, 4]]);
        let below = [(1, first), (2, first)];
        assert_eq!(since(&below), [vec![1, 2, 3, 4], vec![1, 2], vec![]]);
        let below = [(0, second)];
        assert_eq!(since(&below), [vec![1, 2, 3, 4], vec![0], vec![]]);
        // If the last run was here, all versions on the node count.
        let below = [(0, second), (1, first)];
        assert_eq!(merged(&here, &below)[0], [1, 2, 3, 4]);
    }

    #[test]
    fn what_lies_nowhere_else_is_kept_first() {
        let copy = one(1, 1, None);
        let all: Vec<_> = (0..4).map(|version| (version, copy)).collect();
        let found = |all: &[(Version, FoundCopy)]| all.iter().copied().collect();
        let selection = CopySelection::merged(found(&all), found(&all[1..]), false, |_, _| false);
        assert_eq!(selection.required(16), 16);
        let (held, unfit) = selection.node_local_within(40, 16);
        assert_eq!((held, unfit), (vec![0, 3], vec![(2, 10), (1, 10)]));
    }
}
