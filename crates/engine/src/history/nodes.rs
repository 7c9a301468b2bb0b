//! The protection of this node's versions by other ranks.

use super::damage::LOSSES;
use super::{Damage, Group};
use crate::Version;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierflow_store::{Error as StoreError, LostVersion, Options, PieceInfo, Protector, Repository};

/// The protection of this node's versions by other ranks, and the versions that are lost.
#[derive(Debug, Default)]
pub(crate) struct ProtectionState {
    pub(super) protected: Option<Arc<dyn Protector>>,
    /// True if versions outlive the engine on the nodes alone.
    pub(super) is_lowest: bool,
    /// Versions that were protected but are lost, with the errors that name the reasons.
    pub(super) lost: BTreeMap<Version, StoreError>,
    /// The directory of all ranks' pieces.
    pub(super) directory: Option<Arc<Repository>>,
}

impl ProtectionState {
    /// Adds the lost versions to `damage`. Rank 0 also adds one entry that names all of them. `newest` is the newest version from
    /// which all ranks can continue.
    pub(super) fn name_losses(
        &mut self,
        rank: u32,
        newest: Option<Version>,
        damage: &mut Vec<Damage>,
    ) {
        let gone = self.losses();
        if let (0, Some(what)) = (rank, losses(&gone)) {
            damage.push(Damage {
                tier: "node-local",
                path: PathBuf::new(),
                version: None,
                what: format!("{LOSSES}: {what}"),
            });
        }
        for gone in gone {
            let (version, why) = (gone.version, gone.why);
            let error = StoreError::Lost {
                version,
                why,
                newest,
            };
            damage.push(Damage {
                tier: "node-local",
                path: PathBuf::new(),
                version: Some(version),
                what: error.to_string(),
            });
            self.lost.insert(version, error);
        }
    }

    /// Returns the versions that were protected but are lost.
    pub(crate) fn losses(&self) -> Vec<LostVersion> {
        let protected = self.protected.as_ref();
        protected.map(|it| it.gone()).unwrap_or_default()
    }

    /// Returns a number that grows with the bytes that other ranks protect.
    pub(crate) fn progress(&self) -> u64 {
        let protected = self.protected.as_ref();
        protected.map_or(0, |protected| protected.progress())
    }

    /// Returns the reason why not all versions are protected, if that is so.
    pub(crate) fn weakness(&self) -> Option<String> {
        self.protected.as_ref()?.weakness()
    }

    /// Returns the reason why a protected version is lost, if it is.
    pub(crate) fn lost(&self, version: Version) -> Option<StoreError> {
        self.lost.get(&version).cloned()
    }

    /// Returns the protection of durable versions, if they are on the nodes alone.
    pub(super) fn protector(&self) -> Option<&dyn Protector> {
        self.protected.as_deref().filter(|_| self.is_lowest)
    }
}

/// Returns damage that names a rank whose versions are on this node, if this rank has no versions here: the ranks may have run on
/// each other's nodes.
pub(super) fn left_by_other_rank(local: &Repository, node: &Path, group: &Group) -> Option<Damage> {
    if !local.own_pieces().ok()?.is_empty() {
        return None;
    }
    let newest_of = |rank: u32| {
        let options = Options::default().rank(rank, group.ranks);
        let other = Repository::read_only(node, options).ok()?;
        // The other rank runs on this node, too, so its versions belong here.
        if other.has_writer().ok()? {
            return None;
        }
        let pieces = other.own_pieces().ok()?.into_iter();
        let newest = pieces.filter(|piece| piece.ranks == group.ranks);
        Some((rank, newest.map(|piece| piece.version).max()?))
    };
    let (other, newest) = local.ranks().ok()?.into_iter().find_map(newest_of)?;
    Some(Damage {
        tier: "node-local",
        path: node.to_path_buf(),
        version: None,
        what: format!(
            "versions up to {newest} of rank {other} lie on this node, and none of rank {}, which runs here: they stay, and are used again once \
             each rank starts on the node that it had; with redundancy, the ranks send each other what they have",
            group.rank
        ),
    })
}

/// Returns damage that names the versions that this rank does not use, as it cannot ask the other ranks for their pieces.
pub(super) fn not_agreed(pieces: &[PieceInfo]) -> Option<Damage> {
    let versions: Vec<Version> = pieces.iter().map(|piece| piece.version).collect();
    (!versions.is_empty()).then(|| Damage {
        tier: "node-local",
        path: PathBuf::new(),
        version: None,
        what: format!(
            "{} lie on this node and not on external storage: they are not used, as the ranks have no way to agree on them; to go \
             on from them, give the engine a `collective`",
            rows(&versions)
        ),
    })
}

/// Returns the lost versions and the reasons as one line; `None` if no version is lost.
pub(super) fn losses(gone: &[LostVersion]) -> Option<String> {
    let mut by_reason: BTreeMap<&str, Vec<Version>> = BTreeMap::new();
    for gone in gone {
        by_reason.entry(&gone.why).or_default().push(gone.version);
    }
    let reasons = by_reason.into_iter();
    let lines = reasons.map(|(why, versions)| format!("{}: {why}", rows(&versions)));
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Returns versions in ascending order as text, such as `versions 0 to 7, 12`.
pub(super) fn rows(versions: &[Version]) -> String {
    let follows = |one: &Version, next: &Version| one.checked_add(1) == Some(*next);
    let rows = versions.chunk_by(follows).map(|row| match row {
        [first, .., last] => format!("{first} to {last}"),
        row => row.iter().map(Version::to_string).collect(),
    });
    let rows: Vec<String> = rows.collect();
    let word = if versions.len() == 1 {
        "version"
    } else {
        "versions"
    };
    format!("{word} {}", rows.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_in_a_line() {
        let gone = |version, why: &str| LostVersion {
            version,
            why: why.to_owned(),
        };
        assert_eq!(losses(&[]), None);
        let all = [gone(0, "b"), gone(1, "b"), gone(3, "b"), gone(7, "a")];
        let line = losses(&all).unwrap();
        assert_eq!(line, "version 7: a; versions 0 to 1, 3: b");
    }
}
