//! Inventories, which the ranks of a group gather from each other at a start: the node of a rank, its versions, and the versions that
//! its sets protected.

use crate::truncations::Truncation;
use crate::wire::wire;
use crate::{Member, ParityStore, Result, Set};
use std::collections::{BTreeMap, BTreeSet};
use tierflow_store::PieceInfo;

/// The versions and manifests of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Inventory {
    /// The rank's failure domain: its node, unless the user names another.
    pub(crate) node: String,
    /// The versions whose piece is on storage that outlives the nodes.
    elsewhere: Vec<u64>,
    /// The versions whose piece is on the rank's node, readable or not.
    own: Vec<u64>,
    /// The versions of which the rank has manifests, by the sets that protected them.
    protected: Vec<ProtectedBySet>,
    /// Truncations of all runs that the rank knows.
    truncations: Vec<Truncation>,
    /// True if the rank's directory has truncations: then its node was not lost since they were noted, even if the directory has
    /// nothing else.
    has_noted: bool,
}

/// Versions that one set protected in one start of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProtectedBySet {
    start: u64,
    set: Set,
    versions: Vec<u64>,
}

impl ProtectedBySet {
    /// Returns the key of the set: two sets of a start are the same if they have the same ranks and tolerance.
    fn key(&self) -> (u64, usize, Vec<u32>) {
        let ranks = self.set.members.iter().map(|member| member.rank);
        (self.start, self.set.tolerates, ranks.collect())
    }
}

wire!(ProtectedBySet {
    start,
    set,
    versions
});
wire!(Inventory {
    node,
    elsewhere,
    own,
    protected,
    truncations,
    has_noted
});

impl Inventory {
    /// Makes the inventory of a rank. `pieces` are those on its node. Pieces of a group of another size than `ranks` do not count.
    pub(crate) fn of(
        store: &ParityStore,
        node: String,
        elsewhere: &BTreeSet<u64>,
        pieces: &[PieceInfo],
        ranks: u32,
    ) -> Result<Self> {
        let (own, others): (Vec<&PieceInfo>, Vec<_>) =
            pieces.iter().partition(|piece| piece.ranks == ranks);
        let own: Vec<u64> = own.iter().map(|piece| piece.version).collect();
        let others: BTreeSet<u64> = others.iter().map(|piece| piece.version).collect();
        let mut sets: BTreeMap<_, ProtectedBySet> = BTreeMap::new();
        let versions = store.versions()?.into_iter();
        for version in versions.filter(|version| !others.contains(version)) {
            // A damaged manifest is left out: other members have an undamaged copy.
            let Some(manifest) = store.manifest(version)? else {
                continue;
            };
            let one = ProtectedBySet {
                start: manifest.start,
                set: manifest.set(),
                versions: Vec::new(),
            };
            let one = sets.entry(one.key()).or_insert(one);
            one.versions.push(version);
        }
        let truncations = store.truncations();
        Ok(Self {
            node,
            elsewhere: elsewhere.iter().copied().collect(),
            own,
            protected: sets.into_values().collect(),
            truncations: truncations.known().iter().copied().collect(),
            has_noted: truncations.were_noted(),
        })
    }
}

fn protected(all: &[Inventory]) -> impl Iterator<Item = &ProtectedBySet> {
    all.iter().flat_map(|inventory| &inventory.protected)
}

/// Returns the number of this start: one more than the number of any start in which a version was protected or given up.
pub(crate) fn next_start(all: &[Inventory]) -> u64 {
    let starts = protected(all).map(|one| one.start);
    let truncations = all.iter().flat_map(|one| &one.truncations);
    let starts = starts.chain(truncations.map(|one| one.start));
    starts.max().unwrap_or_default().saturating_add(1)
}

/// Removes from the inventories the protected versions that runs gave up, as far as some rank knows. Returns the versions of `rank` that
/// are protected no more.
pub(crate) fn leave_out_given_up(all: &mut [Inventory], rank: u32) -> BTreeSet<u64> {
    let truncations = all.iter().flat_map(|one| &one.truncations);
    let truncations: BTreeSet<Truncation> = truncations.copied().collect();
    let mut own = BTreeSet::new();
    for (other, inventory) in (0..).zip(all) {
        for set in &mut inventory.protected {
            let hit = |version: &u64| truncations.iter().any(|one| one.hits(*version, set.start));
            let given_up = set.versions.extract_if(.., |version| hit(version));
            let given_up: Vec<u64> = given_up.collect();
            if other == rank {
                own.extend(given_up);
            }
        }
    }
    own
}

/// Returns the versions that some rank discarded and that not every rank has any more: no rank needs its piece of these. Versions that a
/// set protects after [`leave_out_given_up`] are not among them, as their numbers were used again.
pub(crate) fn discarded_in_part(all: &[Inventory]) -> BTreeSet<u64> {
    let truncations = all.iter().flat_map(|one| &one.truncations);
    let truncations: BTreeSet<&Truncation> = truncations.collect();
    let is_discarded = |version: &u64| truncations.iter().any(|one| one.has_discarded(*version));
    let has = |rank: &Inventory, version: u64| {
        rank.own.contains(&version) || rank.elsewhere.contains(&version)
    };
    let versions: BTreeSet<u64> = all.iter().flat_map(|one| one.own.iter().copied()).collect();
    let counting = protected(all).flat_map(|one| one.versions.iter().copied());
    let counting: BTreeSet<u64> = counting.collect();
    let versions = versions.difference(&counting).copied();
    let discarded = versions.filter(is_discarded);
    let in_part = discarded.filter(|version| !all.iter().all(|rank| has(rank, *version)));
    in_part.collect()
}

/// A version to be rebuilt.
#[derive(Debug, Clone)]
pub(crate) struct ToRebuild {
    pub(crate) version: u64,
    /// The set that protected the version.
    pub(crate) set: Set,
    /// For each member, true if its piece is on storage that outlives the nodes.
    pub(crate) is_elsewhere: Vec<bool>,
}

/// Returns the versions to be rebuilt, each with a set that protected it, in the order in which all members rebuild them.
///
/// A version is to be rebuilt if a member has its manifest, unless the version was [left out](leave_out_given_up), some member of the
/// set protected it anew in a later start, all members have it elsewhere, or the set has ranks that this group does not have.
pub(crate) fn to_rebuild(all: &[Inventory]) -> Vec<ToRebuild> {
    let mut sets: BTreeMap<_, (Set, BTreeSet<u64>)> = BTreeMap::new();
    for one in protected(all) {
        let fits = |member: &Member| (member.rank as usize) < all.len();
        if one.set.members.iter().all(fits) {
            let set = sets.entry(one.key());
            let (_, versions) = set.or_insert_with(|| (one.set.clone(), BTreeSet::new()));
            versions.extend(&one.versions);
        }
    }
    let elsewhere: Vec<BTreeSet<u64>> = all
        .iter()
        .map(|rank| rank.elsewhere.iter().copied().collect())
        .collect();
    // The latest start in which a rank protected a version.
    let mut latest: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for ((start, ..), (set, versions)) in &sets {
        for (member, version) in set
            .members
            .iter()
            .flat_map(|member| versions.iter().map(move |version| (member, version)))
        {
            let newest = latest.entry((member.rank, *version)).or_default();
            *newest = (*newest).max(*start);
        }
    }
    let mut wanted = Vec::new();
    for ((start, ..), (set, versions)) in &sets {
        for &version in versions {
            let mut ranks = set.members.iter().map(|member| member.rank);
            let is_elsewhere = ranks.clone().map(|rank| {
                let versions = elsewhere.get(rank as usize);
                versions.is_some_and(|versions| versions.contains(&version))
            });
            let one = ToRebuild {
                version,
                set: set.clone(),
                is_elsewhere: is_elsewhere.collect(),
            };
            let is_old = ranks.any(|rank| latest.get(&(rank, version)) > Some(start));
            if !is_old && !one.is_elsewhere.iter().all(|is_elsewhere| *is_elsewhere) {
                wanted.push(one);
            }
        }
    }
    // The sort is stable: for each version, the sets stay in the order of their keys.
    wanted.sort_by_key(|one| one.version);
    wanted
}

/// Returns the versions that some set protected and that other sets lost with all of their members. Each version has the ranks of which
/// neither a piece nor a manifest of their set is left. A rank that has pieces or manifests of other versions, or truncations, is not
/// among them: it never had the version, as it ended before it took this checkpoint.
pub(crate) fn lost_sets(all: &[Inventory]) -> BTreeMap<u64, Vec<u32>> {
    let mut traces: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for one in protected(all) {
        for version in &one.versions {
            let ranks = one.set.members.iter().map(|member| member.rank);
            traces.entry(*version).or_default().extend(ranks);
        }
    }
    for (rank, inventory) in (0..).zip(all) {
        for version in inventory.own.iter().chain(&inventory.elsewhere) {
            if let Some(traces) = traces.get_mut(version) {
                traces.insert(rank);
            }
        }
    }
    let bare = (0_u32..).zip(all);
    let bare =
        bare.filter(|(_, one)| one.own.is_empty() && one.protected.is_empty() && !one.has_noted);
    let bare: Vec<u32> = bare.map(|(rank, _)| rank).collect();
    let without = traces.into_iter().map(|(version, traces)| {
        let without = bare.iter().filter(|rank| !traces.contains(rank));
        let without: Vec<u32> = without.copied().collect();
        (version, without)
    });
    without.filter(|(_, ranks)| !ranks.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    fn by_set(start: u64, ranks: &[u32], versions: &[u64]) -> ProtectedBySet {
        let member = |rank: &u32| Member {
            rank: *rank,
            node: format!("n{rank}"),
        };
        ProtectedBySet {
            start,
            set: Set {
                members: ranks.iter().map(member).collect(),
                tolerates: 1,
            },
            versions: versions.to_vec(),
        }
    }

    fn inventory(protected: &[ProtectedBySet], elsewhere: &[u64]) -> Inventory {
        Inventory {
            node: "n".to_owned(),
            elsewhere: elsewhere.to_vec(),
            own: Vec::new(),
            protected: protected.to_vec(),
            truncations: Vec::new(),
            has_noted: false,
        }
    }

    fn wanted(all: &[Inventory]) -> Vec<(u64, Vec<u32>)> {
        let ranks = |set: Set| set.members.iter().map(|member| member.rank).collect();
        let wanted = to_rebuild(all).into_iter();
        wanted.map(|one| (one.version, ranks(one.set))).collect()
    }

    #[test]
    fn an_inventory_is_decoded_as_it_was_encoded() {
        let mut one = inventory(
            &[by_set(1, &[0, 2], &[4, 5]), by_set(2, &[0, 1], &[6])],
            &[9],
        );
        one.truncations = vec![Truncation::behind(2, 5)];
        let bytes = one.encode();
        assert_eq!(Inventory::decode(&bytes), Some(one));
        for end in 0..bytes.len() {
            assert_eq!(Inventory::decode(&bytes[..end]), None);
        }
    }

    #[test]
    fn the_last_set_of_a_version_counts_and_what_lies_elsewhere_does_not() {
        // Rank 1 did not run in the second start, and rank 3 lost everything.
        let all = [
            inventory(&[by_set(1, &[0, 1], &[7]), by_set(2, &[0, 2], &[8])], &[7]),
            inventory(&[by_set(1, &[0, 1], &[7, 8])], &[7]),
            inventory(&[by_set(1, &[2, 3], &[7]), by_set(2, &[0, 2], &[8])], &[7]),
            inventory(&[], &[]),
        ];
        assert_eq!(wanted(&all), [(7, vec![2, 3]), (8, vec![0, 2])]);
        assert_eq!(lost_sets(&all), BTreeMap::from([(8, vec![3])]));
        assert_eq!(next_start(&all), 3);
        // A smaller group does not rebuild versions of sets with ranks that it does not have.
        assert_eq!(wanted(&all[..3]), [(8, vec![0, 2])]);
    }

    #[test]
    fn what_one_rank_knows_to_be_given_up_counts_for_none() {
        let mut all = [
            inventory(
                &[by_set(1, &[0, 1], &[4, 5]), by_set(2, &[0, 1], &[6])],
                &[],
            ),
            inventory(&[by_set(1, &[0, 1], &[4, 5, 6])], &[]),
        ];
        all[1].truncations = vec![Truncation::behind(2, 5)];
        assert_eq!(next_start(&all), 3);
        assert_eq!(leave_out_given_up(&mut all, 0), BTreeSet::from([5]));
        assert_eq!(wanted(&all), [(4, vec![0, 1]), (6, vec![0, 1])]);
        all[0].truncations = vec![Truncation::behind(9, 0)];
        assert_eq!(next_start(&all), 10);
    }

    #[test]
    fn a_discarded_number_that_was_used_again_is_needed() {
        let mut all = [
            inventory(&[], &[]),
            inventory(&[by_set(3, &[1, 2], &[1])], &[]),
            inventory(&[], &[]),
        ];
        let discarded = Truncation {
            start: 2,
            from: 1,
            last: 2,
            step: 1,
        };
        for rank in &mut all[..2] {
            rank.own = vec![1, 2];
            rank.truncations = vec![discarded];
        }
        assert_eq!(leave_out_given_up(&mut all, 0), BTreeSet::new());
        assert_eq!(discarded_in_part(&all), BTreeSet::from([2]));
    }
}
