//! Versions of which something has changed that the policies are told.

use crate::Version;

/// Versions that were touched since somebody looked, some of them several times; or so many that each may have been.
#[derive(Debug, Default)]
pub(super) struct Touched {
    versions: Vec<Version>,
    too_many: bool,
}

/// To look at more of them than this, one by one, would take longer than to look at what there is.
const MOST: usize = 1024;

impl Touched {
    pub(super) fn note(&mut self, version: Version) {
        // What happens now happens to few versions, again and again.
        let mut last = self.versions.iter().rev().take(8);
        if self.too_many || last.any(|&noted| noted == version) {
            return;
        }
        self.versions.push(version);
        if self.versions.len() > MOST {
            self.versions.clear();
            self.too_many = true;
        }
    }

    pub(super) fn note_all(&mut self, others: &Self) {
        self.too_many |= others.too_many;
        others
            .versions
            .iter()
            .for_each(|&version| self.note(version));
    }

    /// The versions; `None` if they are too many.
    pub(super) fn versions(&self) -> Option<&[Version]> {
        (!self.too_many).then_some(&self.versions)
    }

    pub(super) fn clear(&mut self) {
        self.versions.clear();
        self.too_many = false;
    }
}
