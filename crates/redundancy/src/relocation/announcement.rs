//! Announcements of ranks to each other about the directories on their nodes.

use crate::truncations::Truncation;
use crate::wire::wire;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The node directory of a rank that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    /// The identity of the node's directory: machine, device and inode.
    place: String,
    /// The last epoch in which the rank wrote there.
    pub(super) epoch: u32,
    /// The ranks that have directories there.
    ranks: Vec<u32>,
}

impl Site {
    pub(super) fn new(path: &Path, epoch: u32, ranks: BTreeSet<u32>) -> Self {
        // The boot id is unique to this machine.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.unwrap_or_default();
        let found = std::fs::metadata(path);
        let found = found.map_or((0, 0), |found| (found.dev(), found.ino()));
        Self {
            place: format!("{} {} {}", boot.trim(), found.0, found.1),
            epoch,
            ranks: ranks.into_iter().collect(),
        }
    }
}

wire!(Site {
    place,
    epoch,
    ranks
});

/// A directory of a rank that runs on another node than the directory's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Misplaced {
    /// The rank whose directory this is.
    pub(super) rank: u32,
    /// The first of the ranks that run on the directory's node.
    pub(super) reader: u32,
}

/// Returns the directories of those ranks of the group that run on other nodes.
pub(super) fn misplaced(sites: &[Site]) -> BTreeSet<Misplaced> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for (reader, site) in (0..).zip(sites) {
        if !seen.insert(&site.place) {
            continue;
        }
        let runs_elsewhere = |rank: &&u32| {
            let now = sites.get(**rank as usize);
            now.is_some_and(|now| now.place != site.place)
        };
        let ranks = site.ranks.iter().filter(runs_elsewhere);
        found.extend(ranks.map(|rank| Misplaced {
            rank: *rank,
            reader,
        }));
    }
    found
}

/// The contents of a rank's directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Holding {
    pub(super) rank: u32,
    /// The pieces, with their epochs and sequences.
    pub(super) pieces: Vec<(u64, (u32, u64))>,
    /// Truncations of the rank's runs in the repository.
    pub(super) truncations: Vec<tierflow_store::Truncation>,
    /// The versions that have manifests, and the starts that protected them.
    pub(super) manifests: Vec<(u64, u64)>,
    /// Truncations of the rank's runs in the parity store.
    pub(super) forgotten: Vec<Truncation>,
    /// The versions that the rank has elsewhere, in ascending order.
    pub(super) elsewhere: Vec<u64>,
}

impl Holding {
    /// Returns the epoch of the last run that wrote to the directory; `None` if no run did.
    pub(super) fn epoch(&self) -> Option<u32> {
        let pieces = self.pieces.iter().map(|(_, (epoch, _))| *epoch);
        let truncations = self.truncations.iter().map(|truncation| truncation.epoch);
        pieces.chain(truncations).max()
    }
}

wire!(Holding {
    rank,
    pieces,
    truncations,
    manifests,
    forgotten,
    elsewhere
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    fn site(place: &str, ranks: &[u32]) -> Site {
        Site {
            place: place.to_owned(),
            epoch: 3,
            ranks: ranks.to_vec(),
        }
    }

    #[test]
    fn what_is_announced_is_understood() {
        let one = site("n", &[1, 7]);
        let bytes = one.encode();
        assert_eq!(Site::decode(&bytes), Some(one));
        let all = vec![
            Holding::default(),
            Holding {
                rank: 3,
                pieces: vec![(7, (1, 9)), (8, (2, 10))],
                truncations: vec![tierflow_store::Truncation { epoch: 2, from: 8 }],
                manifests: vec![(7, 1)],
                forgotten: vec![Truncation::behind(2, 8)],
                elsewhere: vec![4, 5],
            },
        ];
        let encoded = all.encode();
        assert_eq!(Vec::<Holding>::decode(&encoded), Some(all));
        for end in 0..bytes.len() {
            assert_eq!(Site::decode(&bytes[..end]), None);
        }
        for end in 0..encoded.len() {
            assert_eq!(Vec::<Holding>::decode(&encoded[..end]), None);
        }
    }

    #[test]
    fn directories_are_read_by_the_first_rank_where_they_are() {
        // Ranks 0 and 1 run on one node. Ranks 2 and 3 run on each other's nodes, and a larger group left a directory.
        let sites = [
            site("a", &[0, 1]),
            site("a", &[0, 1]),
            site("c", &[2, 3]),
            site("b", &[2, 9]),
        ];
        let one = |rank, reader| Misplaced { rank, reader };
        assert_eq!(misplaced(&sites), [one(2, 3), one(3, 2)].into());
    }
}
