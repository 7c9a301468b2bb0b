//! The two ends of a route, for the agent and for an application without an agent.

use crate::notes::Folder;
use crate::protocol::Route;
use crate::{Error, Result};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use tierflow_store::{Identity, Options, PieceInfo, Repository};

/// The version and the identity of a piece. The identity distinguishes the piece from an older piece of the same version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) struct PieceKey {
    pub(crate) version: u64,
    #[serde(with = "IdentityFields")]
    pub(crate) identity: Identity,
}

impl From<&PieceInfo> for PieceKey {
    fn from(piece: &PieceInfo) -> Self {
        Self {
            version: piece.version,
            identity: piece.identity,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Identity")]
struct IdentityFields {
    epoch: u32,
    sequence: u64,
    run: u64,
    created: u64,
    content: u64,
    base: Option<u64>,
}

/// Returns the newest identity of each version.
pub(crate) fn identities(pieces: impl IntoIterator<Item = PieceKey>) -> BTreeMap<u64, Identity> {
    let mut newest: BTreeMap<u64, Identity> = BTreeMap::new();
    for PieceKey { version, identity } in pieces {
        let known = newest.entry(version).or_insert(identity);
        if identity.is_newer_than(known) {
            *known = identity;
        }
    }
    newest
}

pub(crate) fn keys(pieces: &[PieceInfo]) -> impl Iterator<Item = PieceKey> {
    pieces.iter().map(Into::into)
}

/// The name of a file beside the pieces on a node that an agent serves. The epilogue of a job looks for this file.
const SERVED: &str = "served";

/// A route's two ends. The node is opened when it is first needed, so that a failure of the node does not hold up external storage.
///
/// Pieces that were removed from external storage are noted in a file beside the pieces on the node, so the note exists as long as the pieces
/// do. Only the process that has external storage open writes the note, and no other process can open it meanwhile.
#[derive(Debug)]
pub(crate) struct Ends {
    route: Route,
    options: Options,
    pub(crate) external: Arc<Repository>,
    node: Mutex<Option<Arc<Repository>>>,
    unnoted: Unnoted,
}

/// Pieces of a route whose note could not be written. All [`Ends`] of the route share them, one after the other. Locked while the note is read
/// or written.
pub(crate) type Unnoted = Arc<Mutex<BTreeSet<PieceKey>>>;

impl Ends {
    pub(crate) fn open(
        route: &Route,
        options: Options,
        unnoted: Unnoted,
    ) -> tierflow_store::Result<Self> {
        let external = Repository::open(Path::new(&route.external), options.clone())?;
        Ok(Self {
            external: Arc::new(external),
            route: route.clone(),
            options,
            node: Mutex::default(),
            unnoted,
        })
    }

    /// Returns the repository of the node's pieces.
    pub(crate) fn node(&self) -> tierflow_store::Result<Arc<Repository>> {
        let mut node = self.node.lock();
        if let Some(node) = &*node {
            return Ok(Arc::clone(node));
        }
        let opened = Repository::read_only(Path::new(&self.route.local), self.options.clone())?;
        Ok(Arc::clone(node.insert(Arc::new(opened))))
    }

    /// Sets the time of the mark beside the node's pieces. A job's epilogue that cleans the node up sees by the mark that the agent brings all
    /// pieces that are not newer.
    pub(crate) fn mark_served(&self) -> Result<()> {
        let path = Path::new(&self.route.local).join(format!("rank-{}", self.route.rank));
        let folder = Folder::open(&path, OFlags::NOFOLLOW);
        let folder = folder.map_err(|source| failed(&path, source))?;
        folder.touch(SERVED)
    }

    /// Drops the repository of the node. The next use opens the directory again.
    pub(crate) fn forget_node(&self) {
        if let Some(mut node) = self.node.try_lock() {
            *node = None;
        }
    }

    /// Removes versions from external storage, and notes their pieces on the node, so that they are not brought again.
    pub(crate) fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        let there = keys(&self.external.own_pieces()?).collect();
        // The removal goes on if the node cannot be read, or the note finds no room. The client gets the error, and repeats the request.
        let noted = self.note(versions, there);
        self.external.remove(versions)?;
        noted
    }

    /// Notes the pieces that are removed with these versions. `there` has the pieces on external storage.
    ///
    /// A client repeats a removal whose answer failed or was lost. The repetition must not remove a piece that was saved since. Therefore
    /// the note has a bound for each version: the identity of the piece that was `there`, or an identity older than all if there was none. The
    /// pieces on the node up to this bound are noted, too.
    fn note(&self, versions: &BTreeSet<u64>, there: BTreeSet<PieceKey>) -> Result<()> {
        let mut unnoted = self.unnoted.lock();
        let before = self.read(&unnoted)?;
        let up_to = identities(before.union(&there).copied());
        let bounds = versions.iter().map(|version| PieceKey {
            version: *version,
            identity: up_to.get(version).copied().unwrap_or_default(),
        });
        let mut noted: BTreeSet<PieceKey> = bounds.collect();
        let here = self.here();
        let is_removed = |piece: &&PieceKey| {
            let up_to = up_to.get(&piece.version);
            let is_newer = up_to.is_some_and(|up_to| piece.identity.is_newer_than(up_to));
            versions.contains(&piece.version) && !is_newer
        };
        match &here {
            Ok((here, are_all)) => {
                noted.extend(here.iter().filter(is_removed));
                // If some pieces cannot be read now, an earlier noted piece may still exist, and stays noted.
                let stays = |piece: &&PieceKey| !are_all || here.contains(piece);
                noted.extend(before.iter().filter(stays));
            }
            Err(_) => noted.extend(&before),
        }
        if noted != before || !unnoted.is_empty() {
            self.write(noted, &mut unnoted)?;
        }
        Ok(here.map(drop)?)
    }

    /// Returns the pieces on the node, and true if these are all.
    fn here(&self) -> tierflow_store::Result<(BTreeSet<PieceKey>, bool)> {
        let node = match self.node() {
            Err(_) if is_gone(&self.route.local) => return Ok((BTreeSet::new(), false)),
            node => node?,
        };
        let here = keys(&node.own_pieces()?).collect();
        Ok((here, node.damage().is_empty()))
    }

    /// Returns true if a piece was not removed. If a client asks for the version again, its removals are forgotten first.
    pub(crate) fn may_bring(
        &self,
        piece: &PieceKey,
        asks_for: impl FnOnce() -> bool,
    ) -> Result<bool> {
        let mut unnoted = self.unnoted.lock();
        let mut noted = self.read(&unnoted)?;
        let count = noted.len();
        if asks_for() {
            noted.retain(|other| other.version != piece.version);
        }
        let may = !noted.contains(piece);
        if noted.len() < count {
            self.write(noted, &mut unnoted)?;
        }
        Ok(may)
    }

    /// Returns the noted pieces: they were removed, and may still be on the node.
    pub(crate) fn removed(&self) -> Result<BTreeSet<PieceKey>> {
        self.read(&self.unnoted.lock())
    }

    /// Removes the pieces of these versions from external storage that are noted as removed: a copy that was under way published them again.
    pub(crate) fn remove_returned(&self, versions: &BTreeSet<u64>) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        let removed = self.removed()?;
        let there = self.external.own_pieces()?;
        let returned = keys(&there).filter(|piece| removed.contains(piece));
        let returned: BTreeSet<u64> = returned.map(|piece| piece.version).collect();
        Ok(self.external.remove(&(&returned & versions))?)
    }

    /// Returns the name of the note. There is one for each external storage and rank.
    fn name(&self) -> String {
        let Route {
            external,
            rank,
            ranks,
            ..
        } = &self.route;
        // FNV-1a.
        let hash = external.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        format!("removed-{rank}-{ranks}-{hash:016x}.json")
    }

    fn read(&self, unnoted: &BTreeSet<PieceKey>) -> Result<BTreeSet<PieceKey>> {
        let path = Path::new(&self.route.local);
        let noted = match Folder::open(path, OFlags::empty()) {
            Err(Errno::NOENT) => Vec::new(),
            folder => folder
                .map_err(|source| failed(path, source))?
                .read(&self.name())?,
        };
        Ok(noted.into_iter().chain(unnoted.iter().copied()).collect())
    }

    fn write(&self, noted: BTreeSet<PieceKey>, unnoted: &mut BTreeSet<PieceKey>) -> Result<()> {
        let path = Path::new(&self.route.local);
        let written = match Folder::open(path, OFlags::empty()) {
            Ok(folder) => folder.write(&self.name(), &noted),
            Err(source) => Err(failed(path, source)),
        };
        *unnoted = match written {
            Ok(()) => BTreeSet::new(),
            Err(_) => noted,
        };
        match written {
            // Without a directory on the node, there is no piece that could come back.
            Err(_) if is_gone(&self.route.local) => Ok(()),
            written => written,
        }
    }
}

/// A directory's file system and inode, which identify it at any path.
pub(crate) type DirectoryId = (u64, u64);

/// Returns the directory of a node if it has no directory of the rank. The first engine makes that one, so the node's file system may not be
/// mounted.
pub(crate) fn unused(route: &Route) -> Option<DirectoryId> {
    let node = Path::new(&route.local);
    let found = node.metadata().ok()?;
    let of_rank = node.join(format!("rank-{}", route.rank));
    matches!(of_rank.try_exists(), Ok(false)).then(|| (found.dev(), found.ino()))
}

/// Returns true if the directory does not exist; false if the file system returns another error.
pub(crate) fn is_gone(directory: &str) -> bool {
    matches!(Path::new(directory).try_exists(), Ok(false))
}

fn failed(path: &Path, source: Errno) -> Error {
    Error::File {
        doing: "opening",
        path: path.to_path_buf(),
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::SERVED;
    use crate::flow::tests::{bring, with_version};
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};
    use tierflow_store::{Options, Region, Repository, Snapshot};

    #[test]
    fn an_agent_leaves_its_mark_beside_the_pieces() {
        let (_home, flow) = with_version();
        let mark = Path::new(&flow.route.local).join("rank-0").join(SERVED);
        flow.scan();
        assert!(!mark.exists(), "the route is not noted");
        flow.is_noted.store(true, Ordering::Release);
        flow.scan();
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let file = std::fs::File::options().write(true).open(&mark).unwrap();
        file.set_modified(long_ago).unwrap();
        flow.scan();
        assert!(mark.metadata().unwrap().modified().unwrap() > long_ago);
        bring(&flow);
        assert_eq!(flow.status().trouble, None);
    }

    /// The note cannot be written, and then external storage is away for a while.
    #[test]
    fn a_removal_without_a_note_is_remembered_though_external_storage_was_gone() {
        let (home, flow) = with_version();
        bring(&flow);
        let (local, external) = (Path::new(&flow.route.local), &flow.route.external);
        let note = flow.ends().unwrap().name();
        std::fs::create_dir(local.join(format!("{note}.tmp"))).unwrap();
        assert!(flow.remove(&BTreeSet::from([1])).is_err());
        let node = Repository::open(local, Options::default()).unwrap();
        let regions = [Region::new("state", &[8; 1000])];
        node.save(&Snapshot::new(2, &regions)).unwrap();
        flow.scan();
        let minute = Duration::from_secs(60);
        let version = flow.state.lock().next(Instant::now(), minute);
        assert_eq!(version, Some(2));
        let away = home.path().join("away");
        std::fs::rename(external, &away).unwrap();
        assert_eq!(flow.bring(2), None);
        std::fs::rename(&away, external).unwrap();
        flow.scan();
        assert_eq!(flow.state.lock().waiting, BTreeSet::from([2]));
    }
}
