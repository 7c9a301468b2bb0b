//! A rank's directory on its node, whose versions outlive the node.

mod rounds;

use crate::known::{self, Known, next_start, to_rebuild};
use crate::{Error, Keep, Lost, Meeting, Member, Redundancy, Result, Set, Sets, Transport};
use rounds::{Rounds, Shared};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tierflow_store::{
    Collective, Damage, Gone, Mark, Piece, PieceInfo, Protect, Ready, Repository, Snapshot, Vault,
    VersionInfo,
};

/// A rank of a group whose versions are to outlive its node.
#[derive(Debug, Clone)]
pub struct Membership {
    /// Its rank, counted from 0.
    pub rank: u32,
    /// The ranks of the group.
    pub ranks: u32,
    /// The node that it is on, or whatever else fails as one, such as a rack.
    pub node: String,
    /// What others keep of its versions.
    pub scheme: Redundancy,
    /// How the ranks send each other bytes.
    pub transport: Arc<dyn Transport>,
    /// How long a rank waits for another, each time that it needs something of it.
    pub patience: Duration,
}

/// A rank's repository on its node as a vault, for which the other members of a set keep redundancy. Opening it brings back
/// what was lost.
///
/// A version is saved as the repository saves it, and [protected](Protected::is_protected) once every member of the set keeps its
/// share of the redundancy: by a thread of each rank, or in [`Protected::protect`] where the transport is not for
/// [any thread](Transport::is_concurrent). The ranks of a group take the same checkpoints; a version that some rank of the set
/// does not have is not protected. Dropping it waits for what the thread has under way with other members, which may take as long
/// as its patience if one of them was killed.
#[derive(Debug)]
pub struct Protected {
    repository: Arc<Repository>,
    keep: Arc<Keep>,
    shared: Arc<Shared>,
    set: Set,
    wanted: usize,
    lost: Vec<(u64, Error)>,
    meeting: Meeting,
    patience: Duration,
    /// Those of the application's threads, if its transport is for them alone.
    rounds: Option<Mutex<Rounds>>,
    thread: Option<JoinHandle<()>>,
}

impl Protected {
    /// Brings back what this rank's repository, open for writing, and what it keeps for others on the same node have lost, with all
    /// ranks of the group; what they saved and did not come to protect is protected. What cannot be brought back is in
    /// [`Protected::lost`]. `elsewhere`: versions that this rank has on storage that outlives the nodes.
    ///
    /// # Errors
    /// As [`Exchange::rebuild`](crate::Exchange::rebuild) but for what is lost for good; [`Error::Store`] if the ranks do not meet.
    pub fn open(
        repository: Arc<Repository>,
        keep: Keep,
        member: Membership,
        meeting: &dyn Collective,
        elsewhere: &BTreeSet<u64>,
    ) -> Result<Self> {
        let keep = Arc::new(keep);
        let own = repository.own_pieces()?.into_iter();
        let own = own.map(|piece| piece.version).collect();
        let mine = Known::of(&keep, member.node.clone(), elsewhere, own)?;
        let given = meeting.all_gather(&mine.encode(), member.patience)?;
        let all: Option<Vec<Known>> = given.iter().map(|bytes| Known::decode(bytes)).collect();
        let all = all.filter(|all| all.len() == member.ranks as usize);
        let all = all.ok_or(Error::Message { rank: 0 })?;
        let members: Vec<Member> = (0..)
            .zip(&all)
            .map(|(rank, known)| Member {
                rank,
                node: known.node.clone(),
            })
            .collect();
        let set = Sets::choose(&members, member.scheme)?;
        let set = set.of(member.rank).cloned();
        let set = set.ok_or(Error::Message { rank: member.rank })?;
        let transport = Arc::clone(&member.transport);
        let own_meeting = Meeting::new(transport, member.rank, member.ranks);
        let mut rounds = Rounds {
            set: set.clone(),
            rank: member.rank,
            start: next_start(&all),
            transport: member.transport,
            repository: Arc::clone(&repository),
            keep: Arc::clone(&keep),
            shared: Arc::default(),
            patience: member.patience,
        };
        let mut lost = without_trace(&all, &members, &keep);
        keep.put_nodes(members.iter().map(|member| member.node.as_str()))?;
        for (version, set) in to_rebuild(&all) {
            if set.place_of(member.rank).is_some() {
                let error = rounds.rebuild(version, set)?;
                lost.extend(error.map(|error| (version, error)));
            }
        }
        rounds.set = set.clone();
        rounds.protect_rest(elsewhere)?;
        let shared = Arc::clone(&rounds.shared);
        let (mut thread, mut driven) = (None, None);
        if set.bears == 0 {
            // Nobody keeps anything for it.
        } else if rounds.transport.is_concurrent() {
            let builder = std::thread::Builder::new().name("tierflow-redundancy".to_owned());
            let started = builder.spawn(move || rounds.run());
            thread = Some(started.map_err(Error::io("a thread"))?);
        } else {
            driven = Some(Mutex::new(rounds));
        }
        Ok(Self {
            repository,
            keep,
            shared,
            set,
            wanted: member.scheme.bears(),
            lost,
            meeting: own_meeting,
            patience: member.patience,
            rounds: driven,
            thread,
        })
    }

    /// Versions that were protected and could not be brought back when it was opened, and why.
    #[must_use]
    pub fn lost(&self) -> &[(u64, Error)] {
        &self.lost
    }

    /// The members that keep each other's redundancy now.
    #[must_use]
    pub fn set(&self) -> &Set {
        &self.set
    }

    /// What is missing of the redundancy that was asked for, for want of nodes; `None` if nothing is.
    #[must_use]
    pub fn weakness(&self) -> Option<String> {
        if self.set.bears >= self.wanted {
            return None;
        }
        let members = self.set.members.iter();
        let members = members.map(|member| format!("rank {} on {}", member.rank, member.node));
        let members: Vec<String> = members.collect();
        Some(format!(
            "too few nodes: the set of {} bears the loss of {} and not of {}",
            members.join(", "),
            self.set.bears,
            self.wanted
        ))
    }

    /// Whether the application has to call [`Protected::protect`] for anything to be protected.
    #[must_use]
    pub fn is_driven(&self) -> bool {
        self.rounds.is_some()
    }

    /// Why nothing is protected any more, if that is so.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure()
    }

    /// Whether a version that lies here outlives the node; so it does as far as ever where a set has one member.
    #[must_use]
    pub fn is_protected(&self, version: u64) -> bool {
        !self.shared.is_pending(version)
    }

    /// Waits until what lies here is protected, all of it or one version.
    ///
    /// # Errors
    /// [`Error::Unprotected`] after `patience`; else why nothing is protected any more.
    pub fn wait(&self, version: Option<u64>, patience: Duration) -> Result<()> {
        self.shared.wait(version, patience)
    }

    /// Protects what all members of the set have by now, on this thread if it is [driven](Self::is_driven); all of them call this
    /// then, at about the same time. Else the same as [`Protected::wait`] for all.
    ///
    /// # Errors
    /// As [`Exchange::protect`](crate::Exchange::protect): nothing is protected from then on.
    pub fn protect(&self) -> Result<()> {
        match &self.rounds {
            Some(rounds) => {
                let rounds = rounds.lock().unwrap_or_else(PoisonError::into_inner);
                rounds.all()
            }
            None => self.wait(None, self.patience),
        }
    }

    /// Gives up what is kept of versions of higher numbers than `after`: the group goes on from there.
    ///
    /// # Errors
    /// [`Error::Io`] if some is still there.
    pub fn forget_after(&self, after: Option<u64>) -> Result<()> {
        let kept = self.keep.versions()?;
        let above = kept.into_iter().filter(|version| Some(*version) > after);
        above
            .into_iter()
            .try_for_each(|version| self.forget(version))
    }

    fn forget(&self, version: u64) -> Result<()> {
        self.shared.give_up(version, self.patience);
        self.keep.remove(version)
    }
}

/// The versions that are lost with all who kept redundancy of some ranks', by what these were on as far as that is known.
fn without_trace(all: &[Known], members: &[Member], keep: &Keep) -> Vec<(u64, Error)> {
    let before = keep.nodes();
    let lost = |rank: &u32| {
        let at = *rank as usize;
        let now = members.get(at).map(|member| &member.node);
        Lost {
            rank: *rank,
            node: before.get(at).or(now).cloned().unwrap_or_default(),
        }
    };
    let gone = known::without_trace(all).into_iter();
    gone.map(|(version, ranks)| {
        let lost = ranks.iter().map(lost).collect();
        (version, Error::SetLost { version, lost })
    })
    .collect()
}

/// It is what storage elsewhere did not do.
fn remote(error: Error) -> tierflow_store::Error {
    tierflow_store::Error::Remote(error.to_string())
}

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

    fn damage(&self) -> Vec<Damage> {
        self.repository.damage()
    }

    fn save(&self, snapshot: &Snapshot<'_>) -> tierflow_store::Result<()> {
        self.save_when(snapshot, &|| Ok(()))
    }

    fn save_when(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> tierflow_store::Result<()> {
        if self.set.bears == 0 {
            return Vault::save_when(&*self.repository, snapshot, ready);
        }
        // Before it is there, so that it is never taken to be protected in between.
        let claim = self.shared.expect(snapshot.version);
        Vault::save_when(&*self.repository, snapshot, ready)?;
        claim.saved();
        Ok(())
    }

    fn copy(&self, piece: &Piece) -> tierflow_store::Result<()> {
        Vault::copy(&*self.repository, piece)
    }

    fn copy_when(&self, piece: &Piece, ready: &Ready<'_>) -> tierflow_store::Result<()> {
        Vault::copy_when(&*self.repository, piece, ready)
    }

    /// Over the transport: a directory on the node is not shared.
    fn collective(&self) -> Option<&dyn Collective> {
        Some(&self.meeting)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> tierflow_store::Result<()> {
        for version in versions {
            self.forget(*version).map_err(remote)?;
        }
        self.repository.remove(versions)
    }

    fn truncate(&self, after: Option<u64>) -> tierflow_store::Result<()> {
        self.forget_after(after).map_err(remote)?;
        self.repository.truncate(after)
    }
}

impl Protect for Protected {
    fn gone(&self) -> Vec<Gone> {
        let lost = self.lost.iter();
        let gone = lost.map(|(version, error)| Gone {
            version: *version,
            why: error.why_lost(),
        });
        gone.collect()
    }

    fn weakness(&self) -> Option<String> {
        let broken = self.failure().map(|error| error.to_string());
        broken.or_else(|| self.weakness())
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

    fn protect(&self) -> tierflow_store::Result<()> {
        self.protect().map_err(unprotected)
    }

    fn forget_after(&self, after: Option<u64>) -> tierflow_store::Result<()> {
        self.forget_after(after).map_err(remote)
    }
}

fn unprotected(error: Error) -> tierflow_store::Error {
    tierflow_store::Error::Unprotected(error.to_string())
}

impl Drop for Protected {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing left to do.
            let _ended = thread.join();
        }
    }
}
