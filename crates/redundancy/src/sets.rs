//! Sets of a group's members, which store parity of each other's parts. No two members of a set fail together.

use crate::{Redundancy, Result};
use std::collections::BTreeMap;

/// A rank of a group, and its failure domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The rank in the group.
    pub rank: u32,
    /// The failure domain: the rank's node, or another one that the user names, such as a rack.
    pub node: String,
}

/// Members that store parity of each other's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// The members, in the order of their shards in the code. No two are of the same node.
    pub members: Vec<Member>,
    /// The number of members that may be lost at a time: fewer than the scheme says if the set is small, and 0 for a set of one member.
    pub tolerates: usize,
}

impl Set {
    /// Returns the index of a rank in the set.
    #[must_use]
    pub fn place_of(&self, rank: u32) -> Option<usize> {
        self.members.iter().position(|member| member.rank == rank)
    }
}

/// The sets of a group.
///
/// The sets are as few as the scheme's size allows, but at least as many as the fullest node has members, as no two members of a node
/// may be in one set. Members are assigned to the sets round-robin, node by node, the fullest node first. So the sizes of two sets
/// differ by at most 1, and every rank computes the same sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sets {
    /// All sets; each member is in exactly one.
    pub sets: Vec<Set>,
}

impl Sets {
    /// Chooses the sets of a group.
    ///
    /// # Errors
    /// [`Error::Scheme`](crate::Error::Scheme) if the scheme's sizes are not possible.
    pub fn choose(members: &[Member], scheme: Redundancy) -> Result<Self> {
        scheme.check()?;
        let mut nodes: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
        for member in members {
            nodes.entry(&member.node).or_default().push(member);
        }
        let mut nodes: Vec<Vec<&Member>> = nodes.into_values().collect();
        for node in &mut nodes {
            node.sort_by_key(|member| member.rank);
        }
        // The sort is stable: nodes of equal size stay in the order of their names.
        nodes.sort_by_key(|node| std::cmp::Reverse(node.len()));
        let fullest = nodes.first().map_or(0, Vec::len);
        let mut count = members.len().div_ceil(scheme.set());
        if count > 0 && members.len() / count < 2 {
            // Fewer, larger sets are better than a set of a single member.
            count = (members.len() / scheme.set()).max(1);
        }
        let mut sets = vec![Vec::new(); count.max(fullest)];
        let places = (0..sets.len()).cycle();
        for (member, place) in nodes.into_iter().flatten().zip(places) {
            if let Some(set) = sets.get_mut(place) {
                set.push(member.clone());
            }
        }
        let sets = sets.into_iter().filter(|set| !set.is_empty());
        let sets = sets.map(|members| Set {
            tolerates: scheme.tolerates().min(members.len() - 1),
            members,
        });
        Ok(Self {
            sets: sets.collect(),
        })
    }

    /// Returns the set of a rank.
    #[must_use]
    pub fn of(&self, rank: u32) -> Option<&Set> {
        self.sets.iter().find(|set| set.place_of(rank).is_some())
    }

    /// Returns the sets that tolerate the loss of fewer members than the scheme says, as there are too few nodes.
    pub fn weak(&self, scheme: Redundancy) -> impl Iterator<Item = &Set> {
        let wanted = scheme.tolerates();
        self.sets.iter().filter(move |set| set.tolerates < wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn members(nodes: &[usize]) -> Vec<Member> {
        let nodes = nodes.iter().enumerate();
        let all = nodes.flat_map(|(node, count)| vec![format!("n{node}"); *count]);
        let ranked = (0..).zip(all);
        ranked.map(|(rank, node)| Member { rank, node }).collect()
    }

    fn sizes(nodes: &[usize], scheme: Redundancy) -> Vec<usize> {
        let sets = Sets::choose(&members(nodes), scheme).unwrap().sets;
        sets.iter().map(|set| set.members.len()).collect()
    }

    #[test]
    fn sets_are_as_large_as_asked_for_where_nodes_allow() {
        assert_eq!(sizes(&[1; 8], Redundancy::Xor { set: 4 }), [4, 4]);
        assert_eq!(sizes(&[2; 4], Redundancy::Xor { set: 4 }), [4, 4]);
        assert_eq!(sizes(&[4; 2], Redundancy::Xor { set: 4 }), [2; 4]);
        assert_eq!(
            sizes(&[1; 11], Redundancy::ReedSolomon { data: 8, parity: 2 }),
            [6, 5]
        );
        assert_eq!(sizes(&[1; 5], Redundancy::Partner), [3, 2]);
        assert_eq!(sizes(&[1; 3], Redundancy::Partner), [3]);
        assert_eq!(sizes(&[], Redundancy::Partner), [0; 0]);
    }

    #[test]
    fn a_set_of_one_member_is_weak() {
        let sets = Sets::choose(&members(&[3, 1]), Redundancy::Partner).unwrap();
        let weak: Vec<u32> = sets
            .weak(Redundancy::Partner)
            .map(|set| set.members[0].rank)
            .collect();
        assert_eq!(weak, [1, 2]);
        assert!(sets.of(1).is_some_and(|set| set.tolerates == 0));
        assert!(sets.of(4).is_none());
    }

    #[test]
    fn schemes_that_cannot_be_are_refused() {
        for scheme in [
            Redundancy::Xor { set: 1 },
            Redundancy::ReedSolomon { data: 0, parity: 2 },
            Redundancy::ReedSolomon { data: 3, parity: 0 },
            Redundancy::ReedSolomon {
                data: 254,
                parity: 2,
            },
        ] {
            let error = Sets::choose(&[], scheme).unwrap_err();
            assert!(error.to_string().starts_with(&scheme.to_string()));
        }
    }

    proptest! {
        #[test]
        fn each_member_is_in_one_set_with_none_of_its_node(
            nodes in proptest::collection::vec(0_usize..6, 1..20),
            set in 2_usize..12,
            parity in 1_usize..4,
        ) {
            let all = members(&nodes);
            for scheme in [
                Redundancy::Partner,
                Redundancy::Xor { set },
                Redundancy::ReedSolomon { data: set, parity },
            ] {
                let sets = Sets::choose(&all, scheme).unwrap();
                let ranks: BTreeSet<u32> = sets.sets.iter().flat_map(|set| &set.members).map(|member| member.rank).collect();
                let count: usize = sets.sets.iter().map(|set| set.members.len()).sum();
                prop_assert_eq!((ranks.len(), count), (all.len(), all.len()));
                for set in &sets.sets {
                    let nodes: BTreeSet<&str> = set.members.iter().map(|member| member.node.as_str()).collect();
                    prop_assert_eq!(nodes.len(), set.members.len());
                    prop_assert_eq!(set.tolerates, scheme.tolerates().min(set.members.len() - 1));
                }
                let sizes = sets.sets.iter().map(|set| set.members.len());
                let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
                prop_assert!(most - least <= 1);
            }
        }
    }
}
