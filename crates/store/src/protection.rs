//! Versions that lie on the nodes of a group, and survive the loss of some nodes.

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
    /// Number of ranks of the group.
    pub ranks: u32,
    /// Versions of this rank that also lie on storage that outlives the nodes.
    pub elsewhere: &'a BTreeSet<u64>,
    /// The way in which the ranks exchange bytes, if one was chosen.
    pub collective: Option<&'a dyn Collective>,
    /// The longest time that the ranks wait for each other.
    pub patience: Duration,
}

/// Keeps copies or codes of the versions of node-local directories on other ranks, so that they survive the loss of nodes.
pub trait Protection: Debug + Send + Sync {
    /// Restores what the directory lost, together with all ranks of the group.
    ///
    /// # Errors
    /// [`Error::Absent`](crate::Error::Absent) if the ranks do not meet, and the store's errors if a directory cannot be written.
    fn open(&self, node: NodeDirectory<'_>) -> Result<Arc<dyn Protector>>;
}

/// A version that was protected and cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostVersion {
    /// The version.
    pub version: u64,
    /// The rank whose bytes are lost, and the place where they were.
    pub why: String,
}

/// A node-local vault whose versions other ranks protect.
///
/// Saved versions are protected in the background or, if the vault [is driven](Self::is_driven), only in
/// [`protect`](Self::protect): the application makes that call on all ranks at about the same time.
pub trait Protector: Vault {
    /// Returns the versions that could not be restored when the vault was opened, for the pieces of all ranks. The list is the same
    /// on each rank.
    fn gone(&self) -> Vec<LostVersion>;

    /// Returns the part of the requested protection that is missing, with the reason; `None` if nothing is.
    fn weakness(&self) -> Option<String>;

    /// Returns true if versions are protected only in calls of [`protect`](Self::protect).
    fn is_driven(&self) -> bool;

    /// Returns true if a version of this vault is protected as far as possible.
    fn is_protected(&self, version: u64) -> bool;

    /// Waits until one version, or all versions of this vault if `version` is `None`, are protected. Returns true if they are
    /// before `patience` is over. A driven vault returns true at once.
    ///
    /// # Errors
    /// [`Error::Unprotected`](crate::Error::Unprotected) if nothing can be protected any more, with the reason.
    fn wait(&self, version: Option<u64>, patience: Duration) -> Result<bool>;

    /// Returns a number that grows with the protected bytes: while it grows, other ranks do not hang.
    fn progress(&self) -> u64 {
        0
    }

    /// Protects the versions that all members have by now. If the vault is driven, the call is collective and does the work on the
    /// calling thread. Otherwise the call waits for the background thread.
    ///
    /// # Errors
    /// [`Error::Unprotected`](crate::Error::Unprotected) if a version is not protected, with the reason.
    fn protect(&self) -> Result<()>;

    /// Forgets the protection of versions of higher numbers than `after`, from which the group continues. The protection is
    /// forgotten once this rank starts to write a new version; if it never does, the next start finds the old versions and their
    /// protection.
    fn forget_after(&self, after: Option<u64>);

    /// Writes a durable note that these versions are discarded; the caller makes this call before it [removes](Vault::remove) their
    /// pieces. The protection data of any rank does not count any more, and no start restores the versions, even if some ranks end
    /// before they have removed their pieces. Pieces that leave the node because they also lie elsewhere are not discarded.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full) if the disk has no room for the note, and the errors of a failed write.
    fn discard(&self, versions: &BTreeSet<u64>) -> Result<()>;
}
