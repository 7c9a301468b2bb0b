//! The note that a run leaves before its first change: a start that changes nothing leaves no trace on which later decisions depend.

use crate::Version;
use std::collections::BTreeSet;
use std::sync::Arc;
use tierflow_store::{Error, Identity, Order, Repository, Result};
use tierflow_sync::model::{AtomicBool, Mutex, Ordering};
use tierflow_sync::rank;

/// Writes the decisions of a start when the first version is begun: first the note of the copies that do not count any more, then
/// the marks that make this run the last one. Removes the noted copies once a version of this run is durable.
#[derive(Debug, Default)]
pub(crate) struct FirstWrite {
    order: Order,
    node_local: Option<Arc<Repository>>,
    external: Option<Arc<Repository>>,
    /// The directory in which this rank lists versions for readers of all ranks' pieces, if this rank is the one that lists.
    shared: Option<Arc<Repository>>,
    /// Copies on the node that did not count when the engine was built.
    superseded: Mutex<Vec<(Version, Identity)>, { rank::FIRST_WRITE }>,
    is_noted: AtomicBool,
    is_durable: AtomicBool,
    is_removed: AtomicBool,
    is_listed: AtomicBool,
    /// Held while the versions are listed. A call that needs the list waits for it.
    listing: Mutex<(), { rank::FIRST_WRITE }>,
    /// The reason why external storage has no mark of this run, if the mark could not be left.
    unmarked: Mutex<Option<Error>>,
}

/// The directories of an engine that keep notes and marks.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    pub(crate) node_local: Option<Arc<Repository>>,
    pub(crate) external: Option<Arc<Repository>>,
    /// The directory in which this rank lists versions for readers of all ranks' pieces, if this rank is the one that lists.
    pub(crate) shared: Option<Arc<Repository>>,
}

impl FirstWrite {
    pub(crate) fn new(order: Order, directories: Directories) -> Self {
        let writable = |one: &Arc<Repository>| !one.is_read_only();
        Self {
            order,
            node_local: directories.node_local.filter(writable),
            external: directories.external.filter(writable),
            shared: directories.shared.filter(writable),
            ..Self::default()
        }
    }

    /// Takes the copies on the node that do not count, to be noted before the first change.
    pub(crate) fn supersede(&self, copies: impl IntoIterator<Item = (Version, Identity)>) {
        self.superseded.lock().extend(copies);
    }

    /// Writes the note and the marks at the first call. Callers call it before every change.
    ///
    /// # Errors
    /// The error of the node's directory if the note or the mark cannot be written there. Without them, a later run cannot tell this run
    /// from the one before it, so the caller changes nothing. A mark that external storage does not take is no error: it is left when the
    /// first version is written there.
    pub(super) fn note(&self) -> Result<()> {
        if self.is_noted.load(Ordering::Acquire) {
            return Ok(());
        }
        let superseded = self.superseded.lock();
        if self.is_noted.load(Ordering::Acquire) {
            return Ok(());
        }
        // The node gets its mark first: as long as only the node has the mark, the run before this one is the last one.
        if let Some(node_local) = &self.node_local {
            match node_local.supersede(&superseded) {
                Err(Error::Full { .. }) => without_note(node_local, &superseded),
                noted => noted,
            }?;
            node_local.mark(self.order.mark())?;
        }
        if let Some(external) = &self.external {
            *self.unmarked.lock() = external.mark(self.order.mark()).err();
        }
        self.is_noted.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the reason why external storage has no mark of this run, if the mark could not be left.
    pub(super) fn unmarked(&self) -> Option<Error> {
        self.unmarked.lock().clone()
    }

    /// Notes that a version of this run is durable on some tier.
    pub(super) fn has_written(&self) {
        self.is_durable.store(true, Ordering::Release);
    }

    /// Returns true if found copies that need not stay may be removed.
    pub(super) fn may_remove(&self) -> bool {
        self.is_durable.load(Ordering::Acquire)
    }

    /// Removes the noted copies, once. A later run removes those that cannot be removed now.
    pub(super) fn remove_superseded(&self) {
        if self.is_removed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(node_local) = &self.node_local {
            let _by_a_later_run = node_local.remove_superseded();
        }
        // A worker does not wait for a call that lists, as that may take as long as storage does.
        if let Some(_one_lists) = self.listing.try_lock() {
            self.list();
        }
    }

    /// Returns true until the versions that the group found are listed, in the engine that lists them.
    pub(crate) fn has_unlisted(&self) -> bool {
        self.shared.is_some() && !self.is_listed.load(Ordering::Acquire)
    }

    /// Lists, once, the versions whose last piece came just before the group met: readers of all ranks' pieces see them then.
    pub(crate) fn list_found(&self) {
        let _one_lists = self.listing.lock();
        self.list();
    }

    fn list(&self) {
        if let Some(shared) = self.shared.as_ref().filter(|_| self.has_unlisted()) {
            // Listing completes such versions. After a failure, the next caller lists.
            let is_listed = shared.versions().is_ok();
            self.is_listed.store(is_listed, Ordering::Release);
        }
    }

    /// Removes the noted copies on a full disk. Returns true if there may have been some.
    pub(super) fn make_room(&self) -> bool {
        let is_noted = self.is_noted.load(Ordering::Acquire) && !self.superseded.lock().is_empty();
        let may_help = is_noted && !self.is_removed.load(Ordering::Acquire);
        if may_help {
            self.remove_superseded();
        }
        may_help
    }
}

/// Removes the superseded copies if a full disk has no room for the note. Copies that build upon others go before these: until all are
/// gone, the remaining ones tell that they do not count.
fn without_note(node_local: &Repository, superseded: &[(Version, Identity)]) -> Result<()> {
    let versions: BTreeSet<Version> = superseded.iter().map(|(version, _)| *version).collect();
    let mut versions = versions.into_iter().rev();
    versions.try_for_each(|version| node_local.remove_even_bases(&BTreeSet::from([version])))
}
