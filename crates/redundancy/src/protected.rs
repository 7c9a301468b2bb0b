//! A rank's repository on its node, whose versions outlive the node.

mod offline;
mod pending;
mod worker;

use crate::inventory::{
    Inventory, discarded_in_part, leave_out_given_up, lost_sets, next_start, to_rebuild,
};
use crate::truncations::Truncation;
use crate::wire::Wire;
use crate::{
    Error, Lost, Member, ParityStore, Redundancy, Result, Set, Sets, Transport, TransportCollective,
};
pub use offline::{NodeDirectories, RebuiltVersion};
use pending::PendingVersions;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tierflow_store::{
    Collective, Damage, Identity, LostVersion, Mark, Piece, PieceInfo, Protector, Ready,
    Repository, Snapshot, Vault, VersionInfo,
};
use tierflow_sync::{Mutex, rank};
use worker::Worker;

/// A rank's part in its group's redundancy.
#[derive(Debug, Clone)]
pub struct Membership {
    /// The rank, counted from 0.
    pub rank: u32,
    /// The number of ranks of the group.
    pub ranks: u32,
    /// The rank's failure domain: its node, or another one, such as a rack.
    pub node: String,
    /// The scheme that protects its versions.
    pub scheme: Redundancy,
    /// The transport of the ranks' messages.
    pub transport: Arc<dyn Transport>,
    /// Longest time that a call waits for a message of another rank.
    pub patience: Duration,
}

/// A vault over a rank's repository on its node, for which the other members of the rank's set store parity. Opening it rebuilds lost
/// versions.
///
/// The repository saves a version. The version is [protected](Protected::is_protected) once every member of the set has stored its share of
/// the parity. A thread of each rank does this; if the transport is not [concurrent](Transport::is_concurrent), [`Protected::protect`] does.
/// The ranks of a group take the same checkpoints: a version that some rank of the set does not have is not protected. Dropping the value
/// waits until the thread has finished its call with the other members, which may take the whole patience if one of them was killed.
#[derive(Debug)]
pub struct Protected {
    repository: Arc<Repository>,
    store: Arc<ParityStore>,
    /// The number under which this run protects its versions, which their manifests have. Higher than all earlier numbers.
    start: u64,
    pending: Arc<PendingVersions>,
    set: Set,
    /// The number of members that may be lost by the scheme.
    wanted: usize,
    lost: Vec<(u64, Error)>,
    /// The versions that some set of the group lost.
    gone: Vec<LostVersion>,
    collective: TransportCollective,
    patience: Duration,
    /// The worker for the application's calls, if the transport is not concurrent.
    driven: Option<Mutex<Worker, { rank::CALL }>>,
    /// The thread that runs the worker, if the transport is concurrent.
    thread: Option<JoinHandle<()>>,
}

impl Protected {
    /// Rebuilds the pieces and the parity that the ranks' repositories (open for writing) and parity stores have lost, then protects the
    /// versions that were saved and not protected. All ranks of the group make this collective call. Versions that cannot be rebuilt are in
    /// [`Protected::lost`]. `elsewhere` has the versions that this rank has on storage that outlives the nodes.
    ///
    /// # Errors
    /// As [`Exchange::rebuild`](crate::Exchange::rebuild), except that a version that cannot be rebuilt is no error; [`Error::Store`] if
    /// `collective` fails.
    pub fn open(
        repository: Arc<Repository>,
        store: ParityStore,
        member: Membership,
        collective: &dyn Collective,
        elsewhere: &BTreeSet<u64>,
    ) -> Result<Self> {
        let store = Arc::new(store);
        let pieces = repository.own_pieces()?;
        let node = member.node.clone();
        let mine = Inventory::of(&store, node, elsewhere, &pieces, member.ranks)?;
        let gathered = collective.all_gather(&mine.encode(), member.patience)?;
        let all: Option<Vec<Inventory>> = gathered
            .iter()
            .map(|bytes| Inventory::decode(bytes))
            .collect();
        let all = all.filter(|all| all.len() == member.ranks as usize);
        let mut all = all.ok_or(Error::Message { rank: 0 })?;
        let start = next_start(&all);
        let mut given_up = leave_out_given_up(&mut all, member.rank);
        let members: Vec<Member> = (0..)
            .zip(&all)
            .map(|(rank, inventory)| Member {
                rank,
                node: inventory.node.clone(),
            })
            .collect();
        let set = Sets::choose(&members, member.scheme)?;
        let set = set.of(member.rank).cloned();
        let set = set.ok_or(Error::Message { rank: member.rank })?;
        let transport = Arc::clone(&member.transport);
        let over_transport = TransportCollective::new(transport, member.rank, member.ranks);
        let mut worker = Worker {
            set: set.clone(),
            rank: member.rank,
            start,
            transport: member.transport,
            repository: Arc::clone(&repository),
            store: Arc::clone(&store),
            pending: Arc::default(),
            patience: member.patience,
        };
        let mut lost = set_losses(&all, &members, &store);
        // If this fails, as on a full disk, later errors name the nodes of an earlier start.
        let _only_named = store.put_nodes(members.iter().map(|member| &member.node));
        for one in to_rebuild(&all) {
            if one.set.place_of(member.rank).is_some() {
                match worker.rebuild(&one)? {
                    Err(error) => lost.push((one.version, error)),
                    // The version now has a manifest of a start that counts.
                    Ok(rebuilt) if rebuilt.is_protected => drop(given_up.remove(&one.version)),
                    Ok(_) => {}
                }
            }
        }
        worker.set = set.clone();
        let need_not = elsewhere | &discarded_in_part(&all);
        worker.protect_rest(&given_up, &need_not)?;
        for version in given_up {
            let given_up = Truncation::discarded(start, version);
            store.truncations().tidy_later(given_up);
        }
        let gone = gone(&lost, member.rank, member.patience, collective)?;
        // Versions from before this run are protected under one number, and this run's versions under the next, as this run may give up
        // the former.
        let own_start = start.saturating_add(1);
        worker.start = own_start;
        let pending = Arc::clone(&worker.pending);
        let (mut thread, mut driven) = (None, None);
        if set.tolerates == 0 {
            // A set of one has nothing to protect.
        } else if worker.transport.is_concurrent() {
            let builder = std::thread::Builder::new().name("tierflow-redundancy".to_owned());
            let started = builder.spawn(move || worker.run());
            thread = Some(started.map_err(Error::io("a thread"))?);
        } else {
            driven = Some(Mutex::new(worker));
        }
        Ok(Self {
            repository,
            store,
            start: own_start,
            pending,
            set,
            wanted: member.scheme.tolerates(),
            lost,
            gone,
            collective: over_transport,
            patience: member.patience,
            driven,
            thread,
        })
    }

    /// Returns the versions that were protected and could not be rebuilt when the value was opened, each with the reason.
    #[must_use]
    pub fn lost(&self) -> &[(u64, Error)] {
        &self.lost
    }

    /// Returns the members that store parity of each other's versions now.
    #[must_use]
    pub fn set(&self) -> &Set {
        &self.set
    }

    /// Returns a text that says how the set falls short of the scheme because there are too few nodes; `None` if it does not.
    #[must_use]
    pub fn weakness(&self) -> Option<String> {
        if self.set.tolerates >= self.wanted {
            return None;
        }
        let members = self.set.members.iter();
        let members = members.map(|member| format!("rank {} on {}", member.rank, member.node));
        let members: Vec<String> = members.collect();
        Some(format!(
            "too few nodes: the set of {} tolerates the loss of {} and not of {}",
            members.join(", "),
            self.set.tolerates,
            self.wanted
        ))
    }

    /// Returns true if versions are protected only in the application's calls of [`Protected::protect`].
    #[must_use]
    pub fn is_driven(&self) -> bool {
        self.driven.is_some()
    }

    /// Returns the error since which nothing is protected any more, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.pending.failure()
    }

    /// Returns true if a version in the repository does not wait to be protected. In a set of one member, no version waits.
    #[must_use]
    pub fn is_protected(&self, version: u64) -> bool {
        !self.pending.is_pending(version)
    }

    /// Waits until one version, or all versions in the repository, are protected.
    ///
    /// # Errors
    /// [`Error::Unprotected`] after `patience`; the [failure](Self::failure) if nothing is protected any more.
    pub fn wait(&self, version: Option<u64>, patience: Duration) -> Result<()> {
        self.pending.wait(version, patience)
    }

    /// Protects the versions that all members of the set have by now. If the value is [driven](Self::is_driven), the members of the set
    /// make this call collectively. Otherwise the call waits for the thread, as [`Protected::wait`] for all versions does.
    ///
    /// # Errors
    /// As [`Exchange::protect`](crate::Exchange::protect): after an error, nothing is protected any more. If the value is not driven, as
    /// [`Protected::wait`].
    pub fn protect(&self) -> Result<()> {
        match &self.driven {
            Some(worker) => worker.lock().protect_all(),
            None => self.wait(None, self.patience),
        }
    }

    /// Forgets the protection of versions above `after`, from which the group goes on. The protection is forgotten for good once this rank
    /// begins to write its first version, and not before.
    pub fn forget_after(&self, after: Option<u64>) {
        let from = after.map_or(Some(0), |after| after.checked_add(1));
        if let Some(from) = from {
            let truncation = Truncation::behind(self.start, from);
            self.store.truncations().give_up(truncation);
        }
    }

    fn forget(&self, version: u64) -> Result<()> {
        self.pending.discard(&BTreeSet::from([version]));
        self.pending.wait_unprotected(version, self.patience);
        self.store.remove(version)
    }
}

/// Returns the versions that whole sets lost, with the nodes on which their ranks ran before, if these are known.
fn set_losses(all: &[Inventory], members: &[Member], store: &ParityStore) -> Vec<(u64, Error)> {
    let before = store.nodes();
    let lost = |rank: &u32| {
        let at = *rank as usize;
        let now = members.get(at).map(|member| &member.node);
        Lost {
            rank: *rank,
            node: before.get(at).or(now).cloned().unwrap_or_default(),
        }
    };
    let lost_sets = lost_sets(all).into_iter();
    lost_sets
        .map(|(version, ranks)| {
            let lost = ranks.iter().map(lost).collect();
            (version, Error::SetLost { version, lost })
        })
        .collect()
}

/// Gathers the losses of all ranks' sets. All ranks get the same list.
fn gone(
    lost: &[(u64, Error)],
    rank: u32,
    patience: Duration,
    collective: &dyn Collective,
) -> Result<Vec<LostVersion>> {
    let mine = lost.iter();
    let mine = mine.map(|(version, error)| (*version, error.why_lost(rank)));
    let mine = mine.collect::<Vec<_>>().encode();
    let mut all: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for (rank, theirs) in (0..).zip(collective.all_gather(&mine, patience)?) {
        let theirs: Option<Vec<(u64, String)>> = Wire::decode(&theirs);
        for (version, why) in theirs.ok_or(Error::Message { rank })? {
            all.entry(version).or_default().insert(why);
        }
    }
    let gone = all.into_iter().map(|(version, whys)| LostVersion {
        version,
        why: Vec::from_iter(whys).join("; "),
    });
    Ok(gone.collect())
}

/// Converts an error for the engine. A full disk becomes `Full`, so that the engine makes room and tries again.
fn remote(error: Error) -> tierflow_store::Error {
    match error {
        Error::Io { path, source }
            if matches!(
                source.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
            ) =>
        {
            tierflow_store::Error::Full {
                place: Some(path),
                offset: 0,
                bytes: 0,
            }
        }
        error => tierflow_store::Error::Remote(error.to_string()),
    }
}

// Every method is forwarded, as the trait's default methods are those of a vault that does nothing.
#[deny(clippy::missing_trait_methods)]
impl Vault for Protected {
    fn versions(&self) -> tierflow_store::Result<Vec<VersionInfo>> {
        Vault::versions(&*self.repository)
    }

    fn piece(&self, version: u64) -> tierflow_store::Result<Piece> {
        Vault::piece(&*self.repository, version)
    }

    fn pieces(&self) -> tierflow_store::Result<Vec<PieceInfo>> {
        Vault::pieces(&*self.repository)
    }

    fn last_run(&self) -> tierflow_store::Result<Mark> {
        self.repository.last_run()
    }

    fn takes_copies_alone(&self) -> bool {
        self.repository.takes_copies_alone()
    }

    fn damage(&self) -> Vec<Damage> {
        self.repository.damage()
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> tierflow_store::Result<()> {
        // The note comes first: without it, redundancy could bring back the pieces that the repository gives up.
        self.store.note_truncation().map_err(remote)?;
        if self.set.tolerates == 0 {
            // A rank alone in its set protects nothing, so no later step takes back the note that the version is discarded. The note
            // would count for all ranks.
            let (version, start) = (snapshot.version, self.start);
            let taken_back = self.store.take_back(version, start, || true);
            taken_back.map_err(remote)?;
            return Vault::save(&*self.repository, snapshot, ready);
        }
        // The version is entered before it is in the repository, so that it never counts as protected in between.
        let saving = self.pending.saving(snapshot.version);
        Vault::save(&*self.repository, snapshot, ready)?;
        saving.saved();
        Ok(())
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> tierflow_store::Result<()> {
        Vault::copy(&*self.repository, piece, ready)
    }

    /// Returns the collective over the transport, as the directory on the node is not shared.
    fn collective(&self) -> Option<&dyn Collective> {
        Some(&self.collective)
    }

    /// Removes this rank's parity and pieces of versions. Unless the versions were [discarded](Protector::discard) before, the pieces and
    /// parity of other ranks count, and the next start rebuilds what this rank removed.
    fn remove(&self, versions: &BTreeSet<u64>) -> tierflow_store::Result<()> {
        for version in versions {
            self.forget(*version).map_err(remote)?;
        }
        self.repository.remove(versions)
    }

    fn truncate(&self, after: Option<u64>) -> tierflow_store::Result<()> {
        self.forget_after(after);
        self.repository.truncate(after)
    }

    fn refuses(&self, version: u64, identity: &Identity) -> tierflow_store::Result<bool> {
        self.repository.refuses(version, identity)
    }

    fn renumber(&self, run: u64) {
        self.repository.renumber(run);
    }
}

impl Protector for Protected {
    fn gone(&self) -> Vec<LostVersion> {
        self.gone.clone()
    }

    fn weakness(&self) -> Option<String> {
        let failure = self.failure().map(|error| error.to_string());
        failure.or_else(|| self.weakness())
    }

    fn is_driven(&self) -> bool {
        self.is_driven()
    }

    fn is_protected(&self, version: u64) -> bool {
        self.is_protected(version)
    }

    fn wait(&self, version: Option<u64>, patience: Duration) -> tierflow_store::Result<bool> {
        match self.is_driven() {
            true => Ok(true),
            false => match self.wait(version, patience) {
                Err(Error::Unprotected { .. }) => Ok(false),
                waited => waited.map(|()| true).map_err(unprotected),
            },
        }
    }

    fn progress(&self) -> u64 {
        self.pending.progress()
    }

    fn protect(&self) -> tierflow_store::Result<()> {
        self.protect().map_err(unprotected)
    }

    fn forget_after(&self, after: Option<u64>) {
        self.forget_after(after);
    }

    fn discard(&self, versions: &BTreeSet<u64>) -> tierflow_store::Result<()> {
        let start = self.start.saturating_add(1);
        let at_once = || self.pending.discard(versions);
        let noted = self.store.note_discarded(versions, start, at_once);
        noted.map_err(remote)
    }
}

fn unprotected(error: Error) -> tierflow_store::Error {
    tierflow_store::Error::Unprotected(error.to_string())
}

impl Drop for Protected {
    fn drop(&mut self) {
        self.pending.end();
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, and so has ended too.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_up_quota_is_a_full_disk() {
        // ENOSPC, EDQUOT and EFBIG.
        for code in [28, 122, 27] {
            let source = std::io::Error::from_raw_os_error(code);
            let error = remote(Error::io("parity")(source));
            assert!(
                matches!(error, tierflow_store::Error::Full { .. }),
                "{error}"
            );
        }
    }
}
