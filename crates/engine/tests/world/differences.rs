//! What the world knows of versions that are stored as differences.

use super::World;
use tierflow_engine::plan::{Coding, Difference, Event, Place, Stored, TierId};

impl World {
    /// Whether a version is held, or another one that is builds upon it, or is about to.
    pub(super) fn is_needed(&self, version: u64) -> bool {
        let builds = |from: u64| {
            let mut next = Some(from);
            while let Some(at) = next.filter(|&at| at != version) {
                next = self.bases.get(&at).copied().flatten();
            }
            next.is_some()
        };
        let coming = self.codings.values().filter_map(|coding| match coding {
            Coding::Encode { base } => *base,
            _ => None,
        });
        self.held.keys().copied().chain(coming).any(builds)
    }

    /// Versions of `size` bytes that an earlier run left as differences of so many bytes, each to the one before.
    pub(crate) fn adopt_chain(&mut self, size: u64, differences: &[u64], tiers: &[usize]) {
        let mut base = None;
        for &bytes in differences {
            let version = self.next_version;
            self.adopt_as(size, tiers, Some(Difference { bytes, base }));
            base = Some(version);
        }
    }

    /// Says that a version of an earlier run lies somewhere, which may not be true.
    pub(crate) fn tell_adopt(
        &mut self,
        version: u64,
        size: u64,
        tier: usize,
        difference: Option<Difference>,
    ) {
        let tier = TierId(tier);
        self.tell(Event::Adopt {
            version,
            size,
            tier,
            difference,
        });
    }

    /// What a difference that was made builds upon.
    pub(crate) fn base_of(&self, version: u64) -> Option<u64> {
        self.bases[&version]
    }

    /// A difference is read with all that it builds upon, and all of that is there.
    pub(super) fn assert_decodes(&mut self, version: u64, bases: Vec<(u64, Place)>) {
        let mut next = self.bases[&version];
        for (base, place) in bases {
            assert_eq!(next, Some(base), "the wrong base of {version}");
            let span = self.span(&place);
            assert!(
                span.iter().all(|&byte| byte == Some(base)),
                "{version} was made of foreign bytes"
            );
            next = self.bases[&base];
        }
        assert_eq!(next, None, "{version} lacks what it builds upon");
    }

    /// Makes a difference of a version.
    pub(super) fn encode(&mut self, version: u64, base: Option<u64>, to: &Place) -> Stored {
        // The first of a chain takes all its room, the others less by turns, and some begin a chain.
        let alone = version % 4 == 3;
        let base = base.filter(|_| !alone);
        let bytes = match base {
            None => to.size,
            Some(_) => 1 + version * 5 % to.size,
        };
        self.span(to)[..bytes as usize].fill(Some(version));
        self.bases.insert(version, base);
        self.newest = Some(version);
        Stored { bytes, alone }
    }

    /// Where differences lie that others are read with.
    pub(super) fn bases_read(&self) -> impl Iterator<Item = &Place> {
        let coded = self.codings.values().filter_map(|coding| match coding {
            Coding::Decode { bases } => Some(bases),
            _ => None,
        });
        let bases = self.decoded.values().chain(coded).flatten();
        bases.map(|(_, place)| place)
    }
}
