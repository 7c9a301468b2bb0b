//! Hints, and the machine's notes about them.

use super::{Call, Machine};
use tierflow_plan::{Event, Version};

impl Machine {
    pub(crate) fn hint(&mut self, versions: Vec<Version>) {
        self.expect(&versions);
        self.tell(Event::Hint { versions });
    }

    pub(crate) fn hint_next(&mut self, versions: Vec<Version>) {
        let hinted = |machine: &Self| machine.plan().hinted().collect::<Vec<_>>();
        let (before, count) = (hinted(self), versions.len());
        self.expect(&versions);
        self.tell(Event::HintNext { versions });
        let after = hinted(self);
        assert!(after.starts_with(&before) && after.len() <= before.len() + count);
    }

    /// Notes that these versions are to be read.
    fn expect(&mut self, versions: &[Version]) {
        self.hinted.extend(versions);
        // A restore under way uses up the hint when it ends.
        let is_unread = |version: &&Version| {
            let mut calls = self.hands.open.values();
            self.hands.held.contains_key(*version)
                && !calls.any(|call| *call == Call::Restore(**version))
        };
        let unread: Vec<Version> = versions.iter().filter(is_unread).copied().collect();
        self.unread.extend(unread);
    }

    pub(crate) fn forget_hints(&mut self) {
        loop {
            let versions: Vec<_> = self.plan().hinted().take(3).collect();
            if versions.is_empty() {
                break;
            }
            self.tell(Event::ForgetHints { versions });
        }
        self.hinted.clear();
        self.unread.clear();
    }
}
