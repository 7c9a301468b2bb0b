//! Putting a piece under its number, and what may be there already.

use super::Objects;
use crate::entry::Content;
use crate::inspect;
use crate::name::{Name, truncation_path};
use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};
use tierflow_store::{Encoded, Error, Heads, Identity, Ready, Result, Truncation};

impl Objects {
    /// Puts a piece where there is none, one that `way` lets it replace, or one of a version that never became whole. If this run
    /// has already written the same bytes there, an earlier answer of the store was lost: that is a success.
    pub(super) fn put(&self, record: &Encoded<'_>, ready: &Ready<'_>, way: Way) -> Result<()> {
        let (head, rank) = (record.head(), self.settings.rank);
        let (version, identity) = (head.version, Identity::of(head));
        let name = Name::piece(version, rank);
        let overwrite = {
            let catalog = self.own()?;
            let there = catalog.identity(version, rank);
            if let Some(there) = there
                && catalog.has_all(version).is_some()
            {
                if self.is_ours(version, &there, &identity) {
                    self.unconfirmed().remove(&version);
                    return Ok(());
                }
                way.may_replace(version, &there, &identity)?;
            }
            // A damaged piece is overwritten, too.
            there.is_some() || catalog.damage(name, &self.prefix).is_some()
        };
        let path = name.path(&self.prefix);
        let put = |overwrite| {
            let put = self.remote.put(&path, record, overwrite, ready);
            match put {
                Ok(_) => self.unconfirmed().remove(&version),
                Err(_) => self.unconfirmed().insert(version),
            };
            put
        };
        let mut tag = put(overwrite)?;
        if tag.is_none() {
            // There is one that the list does not have.
            match self.find(name)? {
                Some(there) if has_same_bytes(&there, &identity) => return Ok(()),
                Some(there) if self.known().is_superseded(version, &there) => self.note(None)?,
                Some(there) => way.may_replace(version, &there, &identity)?,
                // The object is damaged, or was removed meanwhile.
                None => {}
            }
            tag = put(true)?;
        }
        self.enter(
            name,
            head.record_length(),
            tag.flatten().as_deref(),
            Content::piece(head),
        );
        Ok(())
    }

    /// The identity of a piece that the list does not have: it is asked for by its name. `None` if it is damaged or not there.
    fn find(&self, name: Name) -> Result<Option<Identity>> {
        let listed = inspect::by_name(&self.remote, &self.prefix, vec![name])?;
        let heads = inspect::heads(&self.remote, &self.prefix, listed)?;
        let there = heads.into_iter().find_map(|(_, content)| content);
        Ok(there.and_then(|content| content.identity()))
    }

    /// [Notes](Self::note) the pieces that do not count beside those of this run, if there are any.
    pub(super) fn note_superseded(&self) -> Result<()> {
        let has_superseded = self.known().has_superseded();
        match has_superseded {
            true => self.note(None),
            false => Ok(()),
        }
    }

    /// Notes in the store that pieces behind the version from which this run went on do not count.
    pub(super) fn note(&self, before: Option<Truncation>) -> Result<()> {
        let Some(truncation) = self.known().to_note() else {
            return Ok(());
        };
        let rank = self.settings.rank;
        let path = truncation_path(&self.prefix, rank, truncation);
        self.remote.put_empty(&path)?;
        if let Some(before) = before {
            let path = truncation_path(&self.prefix, rank, before);
            self.remote.remove(&path)?;
        }
        self.known().note(truncation, before);
        Ok(())
    }

    fn unconfirmed(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.unconfirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the piece that is there is the one to be written: the same identity, or the same bytes that this run tried to write
    /// before.
    fn is_ours(&self, version: u64, there: &Identity, identity: &Identity) -> bool {
        there.is_same(identity)
            || (self.unconfirmed().contains(&version) && has_same_bytes(there, identity))
    }
}

/// How a piece comes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// As a new one, under a number that is to be free.
    Saved,
    /// As another vault has it: an older one gives way.
    Copied,
}

impl Way {
    /// Refuses to let a piece take the place of another one of a whole version, unless it may.
    fn may_replace(self, version: u64, there: &Identity, identity: &Identity) -> Result<()> {
        let is_newer = identity.is_newer_than(there) && identity.epoch != there.epoch;
        match self {
            Self::Copied if is_newer => Ok(()),
            Self::Copied | Self::Saved => Err(Error::Exists { version }),
        }
    }
}

/// Returns true if two pieces of one number are of one run and hold the same bytes.
fn has_same_bytes(one: &Identity, other: &Identity) -> bool {
    let same = |identity: &Identity| {
        (
            identity.epoch,
            identity.run,
            identity.content,
            identity.base,
        )
    };
    same(one) == same(other)
}
