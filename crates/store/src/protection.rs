//! Versions that lie on the nodes of a group, and outlive some of the nodes.

use crate::{Collective, Repository, Result, Vault};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A rank's directory on its node, as a group opens it.
#[derive(Debug)]
pub struct NodeDirectory<'a> {
    /// The path of the directory.
    pub path: &'a Path,
    /// The repository in it, open for writing.
    pub repository: Arc<Repository>,
    /// The rank, counted from 0.
    pub rank: u32,
    /// The ranks of the group.
    pub ranks: u32,
    /// Versions that this rank has on storage that outlives the nodes.
    pub elsewhere: &'a BTreeSet<u64>,
    /// How the ranks meet, if that was chosen.
    pub collective: Option<&'a dyn Collective>,
    /// How long they wait for each other.
    pub patience: Duration,
}

/// Keeps the versions of node-local directories though nodes are lost: as copies or codes on other ranks.
pub trait Protection: Debug + Send + Sync {
    /// Brings back what the directory lost, with all ranks of the group.
    ///
    /// # Errors
    /// When the ranks do not meet, or a directory cannot be written.
    fn open(&self, node: NodeDirectory<'_>) -> Result<Arc<dyn Protector>>;
}

/// A version that was protected and cannot be brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostVersion {
    /// The version.
    pub version: u64,
    /// Whose bytes are lost, and where they were.
    pub why: String,
}

/// A node-local vault whose versions others keep, too.
///
/// Saved versions are protected in the background, or in [`protect`](Self::protect) alone if it [is
/// driven](Self::is_driven): then the application makes that call, on all ranks at about the same time.
pub trait Protector: Vault {
    /// The versions that could not be brought back when it was opened, of all ranks' pieces: the same for each rank.
    fn gone(&self) -> Vec<LostVersion>;

    /// Returns the protection that is missing, of the one that was asked for, and the reason; `None` if all is there.
    fn weakness(&self) -> Option<String>;

    /// Returns true if nothing is protected but in calls of [`protect`](Self::protect).
    fn is_driven(&self) -> bool;

    /// Returns true if a version that lies here is protected as far as it can be.
    fn is_protected(&self, version: u64) -> bool;

    /// Waits until what lies here is protected, all of it or one version, and says whether it is before patience is over; not
    /// at all if it is driven.
    ///
    /// # Errors
    /// [`Error::Unprotected`](crate::Error::Unprotected): why nothing is protected any more.
    fn wait(&self, version: Option<u64>, patience: Duration) -> Result<bool>;

    /// A number that grows with the bytes that are protected: as long as it does, other ranks do not hang.
    fn progress(&self) -> u64 {
        0
    }

    /// Protects, on this thread if it is driven, what all members have by now.
    ///
    /// # Errors
    /// Why nothing is protected any more.
    fn protect(&self) -> Result<()>;

    /// Forgets the protection of versions of higher numbers than `after`, from which the group goes on: once this rank begins to
    /// write a version of its own. If none is, the next start finds what was there.
    fn forget_after(&self, after: Option<u64>);

    /// Notes durably, before pieces of these versions are [removed](Vault::remove), that they are discarded: what any rank keeps of them does
    /// not count any more, and a start brings none of them back, though some ranks end before they have removed theirs. Not for pieces
    /// that leave the node because they lie elsewhere, too.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full) if the disk has no room for the note; when it cannot be written.
    fn discard(&self, versions: &BTreeSet<u64>) -> Result<()>;
}
