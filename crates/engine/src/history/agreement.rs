//! The versions from which a group continues: all its ranks can restore them, and all ranks agree on them.

use super::copy_selection::CopySelection;
use super::nodes::{left_by_other_rank, not_agreed, rows};
use super::run_marks::RunMarks;
use super::{Damage, Group, HistoryOptions};
use crate::run::DurableTier;
use crate::{BuildError, Result, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierflow_store::{
    Collective, Damage as StoreDamage, Error as StoreError, Identity, PieceInfo, Protector,
    Repository, Vault,
};

/// Largest number of versions that a rank can name.
const MOST: u64 = 1 << 26;

/// The pieces of one rank, and the facts that it knows of other groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct GroupInventory {
    /// The application's number of this run.
    run: u64,
    /// The ranks and the number of the newest whole version that a group of another size wrote.
    other: Option<(u32, Version)>,
    /// True if the rank may have more pieces that cannot be read now.
    is_unreadable: bool,
    /// True if an earlier run had the same number: the batch system queued this run again.
    is_again: bool,
    /// A random number, which no other run has.
    drawn: u64,
    /// The rank's pieces, each with the run that wrote it.
    pieces: BTreeMap<Version, u64>,
}

/// The lowest tier of a group.
#[derive(Clone, Copy)]
pub(super) struct Lowest<'a> {
    pub(super) vault: &'a dyn Vault,
    /// The directory of the vault; `None` if the vault is not a directory.
    pub(super) directory: Option<&'a Repository>,
}

/// The pieces of a rank on its node, above external storage.
#[derive(Debug, Default)]
struct Near {
    /// All pieces, damaged ones included.
    pieces: Vec<PieceInfo>,
    /// The pieces that count, as external storage has no copy that counts.
    counting: Vec<PieceInfo>,
    is_unreadable: bool,
}

impl Near {
    /// Reads and verifies the pieces that count before external storage. A damaged piece does not count.
    fn of(
        local: &Repository,
        external: &dyn Vault,
        there: &[PieceInfo],
        runs: &RunMarks,
    ) -> Result<Self> {
        let there: BTreeMap<Version, &Identity> = there
            .iter()
            .map(|piece| (piece.version, &piece.identity))
            .collect();
        let mut near = Self {
            pieces: local.own_pieces()?,
            is_unreadable: local.damage().iter().any(StoreDamage::is_unreadable),
            ..Self::default()
        };
        for piece in &near.pieces {
            let (version, identity) = (piece.version, &piece.identity);
            let counts = match there.get(&version) {
                Some(other) => !other.is_same(identity) && runs.prefers_node_local(identity, other),
                None => true,
            };
            if !counts || external.refuses(version, identity)? {
                continue;
            }
            let read = local.own_piece(version);
            match read.and_then(|piece| piece.verify(&|_| {})) {
                Ok(()) => near.counting.push(*piece),
                Err(StoreError::Damaged { .. } | StoreError::NoVersion { .. }) => {}
                Err(_) => near.is_unreadable = true,
            }
        }
        Ok(near)
    }
}

impl GroupInventory {
    /// Lists the rank's pieces. Rank 0 also looks for versions of other groups, as each group has a piece of rank 0.
    fn of(vault: &dyn Vault, pieces: &[PieceInfo], near: &Near, group: &Group) -> Result<Self> {
        let is_own = |piece: &&PieceInfo| piece.ranks == group.ranks;
        let whole = match group.rank == 0 && !pieces.iter().all(|piece| is_own(&piece)) {
            true => vault.versions()?,
            false => Vec::new(),
        };
        let mut others = whole.iter().rev().filter(|info| info.ranks != group.ranks);
        let mut all = pieces.iter().chain(&near.pieces);
        let is_again = all.any(|piece| piece.identity.run == group.run);
        let own = pieces.iter().chain(&near.counting).filter(is_own);
        let is_unreadable = vault.damage().iter().any(StoreDamage::is_unreadable);
        // The keys of the hasher are random, and differ each time.
        let drawn = RandomState::new().hash_one(std::process::id());
        Ok(Self {
            run: group.run,
            other: others.next().map(|info| (info.ranks, info.version)),
            is_unreadable: is_unreadable || near.is_unreadable,
            is_again,
            drawn,
            pieces: own
                .map(|piece| (piece.version, piece.identity.run))
                .collect(),
        })
    }

    /// Returns the inventory as bytes. Versions mostly follow each other at equal distances, so each such row is stored as its
    /// first version, its distance, its length and its run.
    fn encode(&self) -> Vec<u8> {
        let (ranks, version) = self.other.unwrap_or_default();
        let mut words = vec![self.run, u64::from(ranks), version];
        words.push(u64::from(self.is_unreadable) | u64::from(self.is_again) << 1);
        words.push(self.drawn);
        let mut pieces = self.pieces.iter().peekable();
        while let Some((&first, &run)) = pieces.next() {
            let (mut last, mut step, mut length) = (first, 0, 1);
            while let Some((&next, _)) =
                pieces.next_if(|(next, its)| **its == run && (length == 1 || **next - last == step))
            {
                (step, last, length) = (next - last, next, length + 1);
            }
            words.extend([first, step, length, run]);
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks() else {
            return None;
        };
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let ([run, ranks, version, flags, drawn], rows) = words.split_first_chunk()?;
        let (rows, []) = rows.as_chunks() else {
            return None;
        };
        let lengths = rows.iter().map(|[_, _, length, _]| *length);
        if lengths.fold(0, u64::saturating_add) > MOST {
            return None;
        }
        let mut pieces = BTreeMap::new();
        for [first, step, length, run] in rows {
            for number in 0..*length {
                let version = number.checked_mul(*step)?.checked_add(*first)?;
                pieces.insert(version, *run);
            }
        }
        Some(Self {
            run: *run,
            other: match u32::try_from(*ranks).ok()? {
                0 => None,
                ranks => Some((ranks, *version)),
            },
            is_unreadable: flags & 1 != 0,
            is_again: flags & 2 != 0,
            drawn: *drawn,
            pieces,
        })
    }
}

/// Returns the versions of which every rank has its piece, all of the same run.
fn common(all: &[GroupInventory]) -> BTreeSet<Version> {
    let Some((first, others)) = all.split_first() else {
        return BTreeSet::new();
    };
    let pieces = first.pieces.iter();
    let by_all = pieces.filter(|(version, run)| {
        let mut others = others.iter();
        others.all(|other| other.pieces.get(version) == Some(run))
    });
    by_all.map(|(version, _)| *version).collect()
}

/// Fails if the group cannot continue from `common`. The result is the same on every rank.
fn check(all: &[GroupInventory], common: &BTreeSet<Version>, ranks: u32) -> Result<()> {
    let run = all.first().map_or(0, |has| has.run);
    if let Some((rank, has)) = (0_u32..).zip(all).find(|(_, has)| has.run != run) {
        return Err(BuildError::OtherRun {
            rank,
            run: has.run,
            first: run,
        }
        .into());
    }
    let agreed = common.last().copied();
    let others = all.iter().filter_map(|has| has.other);
    other_group(others.max_by_key(|(_, version)| *version), agreed, ranks)?;
    let newest = all.iter().filter_map(|has| has.pieces.keys().last()).max();
    let unreadable = (0_u32..).zip(all).find(|(_, has)| has.is_unreadable);
    if let (Some((rank, _)), Some(newest)) =
        (unreadable, newest.filter(|_| newest > agreed.as_ref()))
    {
        return Err(BuildError::Unreadable {
            rank,
            newest: *newest,
            agreed,
        }
        .into());
    }
    Ok(())
}

/// The versions from which a group continues.
#[derive(Debug)]
pub(super) struct Agreed {
    /// The versions that all ranks have.
    pub(super) versions: BTreeSet<Version>,
    /// The given-up pieces on a lowest tier that is not a directory, with their bytes.
    pub(super) to_remove: Vec<(Version, u64)>,
    /// True if the lowest tier has versions of groups of another size.
    has_others: bool,
}

/// Returns the numbers that groups of another size used. Fails if one of them is newer than all versions of this group.
pub(super) fn taken(
    tiers: [Option<&DurableTier>; 2],
    group: &Group,
    selection: &CopySelection,
    agreed: Option<&Agreed>,
) -> Result<BTreeSet<Version>> {
    let mut others = BTreeMap::new();
    // Most directories have versions of one group only. Such engines need not read the directories of all ranks to know that.
    let is_other = |piece: &PieceInfo| piece.ranks != group.ranks;
    for durable in tiers.into_iter().flatten() {
        let vault = durable.vault();
        let whole = match agreed {
            // An engine that met no other goes on without a tier that cannot be listed, which its damage names.
            None => vault.versions().unwrap_or_default(),
            Some(agreed) if agreed.has_others || vault.pieces()?.iter().any(is_other) => {
                vault.versions()?
            }
            Some(_) => Vec::new(),
        };
        let other = whole.into_iter().filter(|info| info.ranks != group.ranks);
        others.extend(other.map(|info| (info.version, info.ranks)));
    }
    if agreed.is_none() {
        let newest = others.last_key_value();
        let newest = newest.map(|(version, ranks)| (*ranks, *version));
        other_group(newest, selection.newest(), group.ranks)?;
    }
    Ok(others.into_keys().collect())
}

/// Returns a damage entry for each other group size whose pieces lie on this rank's storage. The entry names the pieces and the
/// reason why they are not used.
fn of_others(tier: &'static str, pieces: &[PieceInfo], ranks: u32) -> Vec<Damage> {
    let mut others: BTreeMap<u32, Vec<Version>> = BTreeMap::new();
    for piece in pieces.iter().filter(|piece| piece.ranks != ranks) {
        others.entry(piece.ranks).or_default().push(piece.version);
    }
    let line = |(found, versions): (u32, Vec<Version>)| Damage {
        tier,
        path: PathBuf::new(),
        version: None,
        what: format!(
            "{} there are of a group of {found} ranks, and this engine is one of {ranks}: they are not used, and give way to what \
             this run writes; to go on from them, build it in a group of {found}; to read them, use \
             tierflow_store::Repository::piece_of or `tierflow export`",
            rows(&versions)
        ),
    };
    others.into_iter().map(line).collect()
}

/// Fails if a group of another size wrote a version that is newer than all versions of this group.
fn other_group(other: Option<(u32, Version)>, own: Option<Version>, ranks: u32) -> Result<()> {
    match other {
        Some((found, version)) if Some(version) > own => Err(BuildError::OtherGroup {
            found,
            version,
            ranks,
        }
        .into()),
        _ => Ok(()),
    }
}

impl HistoryOptions {
    /// Returns the versions that the ranks of the group agree on; `None` if the group has no way to meet. `local` is the tier above
    /// the lowest one, or the lowest tier itself. If `local` cannot give up newer versions, it becomes `None`.
    pub(super) fn agree(
        &self,
        lowest: Lowest<'_>,
        local: &mut Option<Arc<Repository>>,
        protected: &Option<Arc<dyn Protector>>,
        runs: &RunMarks,
        damage: &mut Vec<Damage>,
    ) -> Result<Option<Agreed>> {
        let (vault, group) = (lowest.vault, self.group());
        let pieces = vault.pieces()?;
        let near = match (&self.external, &*local) {
            (Some(_), Some(local)) => Near::of(local, vault, &pieces, runs)?,
            _ => Near::default(),
        };
        let tier = match self.external {
            Some(_) => "external",
            None => "node-local",
        };
        damage.extend(of_others(tier, &pieces, group.ranks));
        damage.extend(of_others("node-local", &near.pieces, group.ranks));
        let collective = group.collective.as_deref().or_else(|| vault.collective());
        let Some(collective) = collective else {
            damage.extend(not_agreed(&near.counting));
            return Ok(None);
        };
        // No version is given up on storage that cannot be written: all ranks see the same versions there.
        let may_write = lowest.directory.is_none_or(|one| !one.is_read_only());
        let own = GroupInventory::of(vault, &pieces, &near, &group)?;
        let mut to_remove = Vec::new();
        let mut give_up = |after, again: Option<u64>| {
            if let Some(drawn) = again {
                // Pieces of this run must not make versions with pieces of the earlier run that had the same number.
                vault.renumber(drawn);
                local.iter().for_each(|local| local.renumber(drawn));
            }
            // First, as the redundancy could bring given-up versions back.
            if let Some(protected) = protected {
                protected.forget_after(after);
            }
            if may_write {
                vault.truncate(after)?;
            }
            // A directory removes these pieces itself.
            if lowest.directory.is_none() {
                let above = pieces.iter().filter(|piece| Some(piece.version) > after);
                to_remove.extend(above.map(|piece| (piece.version, piece.bytes)));
            }
            let own = local.as_ref().filter(|local| !local.is_read_only());
            if let Some(Err(error)) = own.map(|local| local.truncate(after)) {
                damage.push(Damage::unusable("node-local", Path::new(""), &error));
                *local = None;
            }
            Ok(())
        };
        let agreed = agree(collective, own, &group, &mut give_up)?;
        // With redundancy, all pieces are already on the nodes of their ranks. All ranks have opened their nodes by now.
        if let (Some(local), Some(node), None) = (&*local, &self.node_local, protected) {
            damage.extend(left_by_other_rank(local, node, &group));
        }
        Ok(Some(Agreed {
            to_remove,
            ..agreed
        }))
    }
}

/// Agrees on the versions from which all ranks can continue, and gives up newer ones by `give_up`. As with
/// [`Repository::truncate`](tierflow_store::Repository::truncate), the newer versions of a rank stay on its disk until the rank
/// starts to write its first version: until then, a later start of the group may still find them, and after that they are refused
/// for good. Every rank of the group calls this, and no call returns before all ranks have met.
fn agree(
    collective: &dyn Collective,
    own: GroupInventory,
    group: &Group,
    give_up: &mut dyn FnMut(Option<Version>, Option<u64>) -> Result<()>,
) -> Result<Agreed> {
    let given = collective.all_gather(&own.encode(), group.patience)?;
    let all: Option<Vec<GroupInventory>> = given
        .iter()
        .map(|bytes| GroupInventory::decode(bytes))
        .collect();
    let all = all.filter(|all| all.len() == group.ranks as usize);
    let all = all.ok_or_else(|| {
        let why = "the ranks of the group do not understand each other: run the same release as all of them, and open what they share as ranks of this group";
        StoreError::Argument(why.to_owned())
    })?;
    let common = common(&all);
    check(&all, &common, group.ranks)?;
    let drawn = all.first().map(|first| first.drawn);
    let is_again = all.iter().any(|has| has.is_again);
    give_up(common.last().copied(), drawn.filter(|_| is_again))?;
    // No rank continues before all ranks have given up the same versions.
    collective.all_gather(&[], group.patience)?;
    Ok(Agreed {
        versions: common,
        to_remove: Vec::new(),
        has_others: all.iter().any(|has| has.other.is_some()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(pieces: &[(Version, u64)]) -> GroupInventory {
        GroupInventory {
            run: 3,
            pieces: pieces.iter().copied().collect(),
            ..GroupInventory::default()
        }
    }

    #[test]
    fn what_a_rank_has_is_understood_by_the_others() {
        let mut many = has(&[(0, 1), (u64::MAX, 1), (7, 2), (8, 2), (10, 2), (12, 3)]);
        many.pieces
            .extend((100..50_000).step_by(10).map(|version| (version, 1)));
        many.other = Some((8, 41));
        (many.is_unreadable, many.drawn) = (true, 77);
        let bytes = many.encode();
        assert!(bytes.len() < 400, "{}", bytes.len());
        assert_eq!(GroupInventory::decode(&bytes), Some(many));
        assert_eq!(GroupInventory::decode(&has(&[]).encode()), Some(has(&[])));
        for hostile in [&bytes[..8], &bytes[1..], &bytes[..bytes.len() - 8]] {
            assert_eq!(GroupInventory::decode(hostile), None);
        }
        let mut endless = has(&[(5, 1)]).encode();
        endless[7 * 8..8 * 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(GroupInventory::decode(&endless), None);
    }

    #[test]
    fn common_is_what_all_have_of_one_run() {
        let all = [
            has(&[(1, 1), (2, 1), (3, 1), (4, 2)]),
            has(&[(1, 1), (3, 1), (4, 1)]),
            has(&[(1, 1), (2, 1), (3, 1)]),
        ];
        assert_eq!(common(&all), BTreeSet::from([1, 3]));
        assert!(check(&all, &common(&all), 3).is_ok());
    }

    #[test]
    fn nothing_that_may_be_there_is_given_up() {
        let mut all = [has(&[(1, 1), (2, 1)]), has(&[(1, 1)])];
        all[1].is_unreadable = true;
        let error = check(&all, &common(&all), 2).unwrap_err();
        assert!(
            matches!(
                error,
                crate::Error::Build(BuildError::Unreadable {
                    rank: 1,
                    newest: 2,
                    agreed: Some(1)
                })
            ),
            "{error}"
        );
        // No piece is newer than the versions that all ranks have.
        all[0] = has(&[(1, 1)]);
        assert!(check(&all, &common(&all), 2).is_ok());
    }

    #[test]
    fn other_runs_and_groups_are_told() {
        let mut all = [has(&[(1, 1)]), has(&[(1, 1)])];
        all[1].run = 4;
        let error = check(&all, &common(&all), 2).unwrap_err();
        assert!(
            matches!(
                error,
                crate::Error::Build(BuildError::OtherRun {
                    rank: 1,
                    run: 4,
                    first: 3
                })
            ),
            "{error}"
        );
        all[1].run = 3;
        all[0].other = Some((8, 1));
        assert!(check(&all, &common(&all), 2).is_ok(), "it is no newer one");
        all[1].other = Some((8, 2));
        let error = check(&all, &common(&all), 2).unwrap_err();
        assert!(
            matches!(
                error,
                crate::Error::Build(BuildError::OtherGroup {
                    found: 8,
                    version: 2,
                    ranks: 2
                })
            ),
            "{error}"
        );
    }
}
