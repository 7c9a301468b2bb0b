//! What the ranks of a group tell each other when they start again: what they are on, and which versions which set protected.

use crate::wire::{Reader, Writer};
use crate::{Keep, Member, Result, Set};
use std::collections::{BTreeMap, BTreeSet};

/// What one rank knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Known {
    /// Its node, or whatever else fails as one.
    pub(crate) node: String,
    /// The versions of which its own piece lies on storage that outlives the nodes.
    elsewhere: Vec<u64>,
    /// Those of which it lies on its node, whether or not it can be read.
    own: Vec<u64>,
    kept: Vec<Kept>,
}

/// Versions that one set protected.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    start: u64,
    set: Set,
    versions: Vec<u64>,
}

impl Kept {
    /// What tells two sets apart: their ranks, and how many may be lost.
    fn key(&self) -> (u64, usize, Vec<u32>) {
        let ranks = self.set.members.iter().map(|member| member.rank);
        (self.start, self.set.bears, ranks.collect())
    }

    fn encode(&self, to: &mut Writer) {
        to.word(self.start);
        to.word(self.set.bears as u64);
        to.word(self.set.members.len() as u64);
        for member in &self.set.members {
            to.word(u64::from(member.rank));
            to.text(&member.node);
        }
        to.words(&self.versions);
    }

    fn decode(from: &mut Reader<'_>) -> Option<Self> {
        let start = from.word()?;
        let bears = usize::try_from(from.word()?).ok()?;
        let mut members = Vec::new();
        for _ in 0..from.word()? {
            let rank = u32::try_from(from.word()?).ok()?;
            let node = from.text()?;
            members.push(Member { rank, node });
        }
        let set = Set { members, bears };
        let versions = from.words()?;
        Some(Self {
            start,
            set,
            versions,
        })
    }
}

impl Known {
    pub(crate) fn of(
        keep: &Keep,
        node: String,
        elsewhere: &BTreeSet<u64>,
        own: Vec<u64>,
    ) -> Result<Self> {
        let mut sets: BTreeMap<_, Kept> = BTreeMap::new();
        for version in keep.versions()? {
            // What was damaged is known to others.
            let Some(manifest) = keep.manifest(version)? else {
                continue;
            };
            let kept = Kept {
                start: manifest.start,
                set: manifest.set(),
                versions: Vec::new(),
            };
            let kept = sets.entry(kept.key()).or_insert(kept);
            kept.versions.push(version);
        }
        Ok(Self {
            node,
            elsewhere: elsewhere.iter().copied().collect(),
            own,
            kept: sets.into_values().collect(),
        })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.text(&self.node);
        to.words(&self.elsewhere);
        to.words(&self.own);
        to.word(self.kept.len() as u64);
        for kept in &self.kept {
            kept.encode(&mut to);
        }
        to.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let (node, elsewhere, own) = (from.text()?, from.words()?, from.words()?);
        let mut kept = Vec::new();
        for _ in 0..from.word()? {
            kept.push(Kept::decode(&mut from)?);
        }
        from.is_over().then_some(Self {
            node,
            elsewhere,
            own,
            kept,
        })
    }
}

/// The number of the start that follows all that are known.
pub(crate) fn next_start(all: &[Known]) -> u64 {
    let starts = all.iter().flat_map(|known| &known.kept);
    starts
        .map(|kept| kept.start)
        .max()
        .unwrap_or_default()
        .saturating_add(1)
}

/// The versions to be rebuilt, each with a set that protected it, in the order in which all members do it.
///
/// Left out is what some member protected anew in a later start, what all members have elsewhere, and sets of ranks that this
/// group does not have.
pub(crate) fn to_rebuild(all: &[Known]) -> Vec<(u64, Set)> {
    let mut sets: BTreeMap<_, (Set, BTreeSet<u64>)> = BTreeMap::new();
    for kept in all.iter().flat_map(|known| &known.kept) {
        let fits = |member: &Member| (member.rank as usize) < all.len();
        if kept.set.members.iter().all(fits) {
            let set = sets.entry(kept.key());
            let (_, versions) = set.or_insert_with(|| (kept.set.clone(), BTreeSet::new()));
            versions.extend(&kept.versions);
        }
    }
    let elsewhere: Vec<BTreeSet<u64>> = all
        .iter()
        .map(|known| known.elsewhere.iter().copied().collect())
        .collect();
    // The latest start in which a rank protected a version.
    let mut latest: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for ((start, ..), (set, versions)) in &sets {
        for (member, version) in set
            .members
            .iter()
            .flat_map(|member| versions.iter().map(move |version| (member, version)))
        {
            let known = latest.entry((member.rank, *version)).or_default();
            *known = (*known).max(*start);
        }
    }
    let mut wanted = Vec::new();
    for ((start, ..), (set, versions)) in &sets {
        for &version in versions {
            let mut ranks = set.members.iter().map(|member| member.rank);
            let is_old = ranks
                .clone()
                .any(|rank| latest.get(&(rank, version)) > Some(start));
            let is_elsewhere = ranks.all(|rank| {
                let there = elsewhere.get(rank as usize);
                there.is_some_and(|there| there.contains(&version))
            });
            if !is_old && !is_elsewhere {
                wanted.push((version, set.clone()));
            }
        }
    }
    // Stable: sets are in the order of their ranks.
    wanted.sort_by_key(|(version, _)| *version);
    wanted
}

/// The versions that some set protected and of which some ranks have nothing, and nobody has anything for them: they were lost
/// with all who kept their redundancy.
pub(crate) fn without_trace(all: &[Known]) -> BTreeMap<u64, Vec<u32>> {
    let mut traces: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for kept in all.iter().flat_map(|known| &known.kept) {
        for version in &kept.versions {
            let ranks = kept.set.members.iter().map(|member| member.rank);
            traces.entry(*version).or_default().extend(ranks);
        }
    }
    for (rank, known) in (0..).zip(all) {
        for version in known.own.iter().chain(&known.elsewhere) {
            if let Some(traces) = traces.get_mut(version) {
                traces.insert(rank);
            }
        }
    }
    let ranks = || (0_u32..).take(all.len());
    let without = traces.into_iter().map(|(version, traces)| {
        let without: Vec<u32> = ranks().filter(|rank| !traces.contains(rank)).collect();
        (version, without)
    });
    without.filter(|(_, ranks)| !ranks.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(start: u64, ranks: &[u32], versions: &[u64]) -> Kept {
        let member = |rank: &u32| Member {
            rank: *rank,
            node: format!("n{rank}"),
        };
        Kept {
            start,
            set: Set {
                members: ranks.iter().map(member).collect(),
                bears: 1,
            },
            versions: versions.to_vec(),
        }
    }

    fn known(kept: &[Kept], elsewhere: &[u64]) -> Known {
        Known {
            node: "n".to_owned(),
            elsewhere: elsewhere.to_vec(),
            own: Vec::new(),
            kept: kept.to_vec(),
        }
    }

    fn wanted(all: &[Known]) -> Vec<(u64, Vec<u32>)> {
        let ranks = |set: Set| set.members.iter().map(|member| member.rank).collect();
        let wanted = to_rebuild(all).into_iter();
        wanted.map(|(version, set)| (version, ranks(set))).collect()
    }

    #[test]
    fn what_a_rank_knows_is_understood() {
        let one = known(&[kept(1, &[0, 2], &[4, 5]), kept(2, &[0, 1], &[6])], &[9]);
        let bytes = one.encode();
        assert_eq!(Known::decode(&bytes), Some(one));
        for end in 0..bytes.len() {
            assert_eq!(Known::decode(&bytes[..end]), None);
        }
    }

    #[test]
    fn the_last_set_of_a_version_counts_and_what_lies_elsewhere_does_not() {
        // Rank 1 was away in the second start, and rank 3 lost everything.
        let all = [
            known(&[kept(1, &[0, 1], &[7]), kept(2, &[0, 2], &[8])], &[7]),
            known(&[kept(1, &[0, 1], &[7, 8])], &[7]),
            known(&[kept(1, &[2, 3], &[7]), kept(2, &[0, 2], &[8])], &[7]),
            known(&[], &[]),
        ];
        assert_eq!(wanted(&all), [(7, vec![2, 3]), (8, vec![0, 2])]);
        assert_eq!(without_trace(&all), BTreeMap::from([(8, vec![3])]));
        assert_eq!(next_start(&all), 3);
        // A smaller group cannot do what needs ranks that it does not have.
        assert_eq!(wanted(&all[..3]), [(8, vec![0, 2])]);
    }
}
