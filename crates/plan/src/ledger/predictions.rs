//! Hints of the plan's own, for readings that it predicts.

use super::Ledger;
use crate::Version;
use crate::config::AfterRestore;

impl Ledger {
    /// Takes in that a reading of a version begins. Hints the readings that are predicted behind it, if the application hints none.
    pub(crate) fn predict(&mut self, version: Version) {
        if self.tiers.len() == 1 || !self.policy.predicts() {
            return;
        }
        if !self.predictor.is_hinting() && !self.hints.is_empty() {
            return;
        }
        if !self.predictor.read(version, self.records.len()) {
            self.forget_predictions();
        }
        while let Some(next) = self.predictor.next() {
            let is_left = match self.after_restore {
                AfterRestore::Keep => true,
                AfterRestore::Discard => next != version && self.hints.next(next).is_none(),
            };
            if !is_left || self.held(next).is_none() {
                break;
            }
            self.predictor.hinted(next);
            self.hint(next);
        }
    }

    /// Returns true if the application hints a reading of a version.
    pub(crate) fn is_hinted(&self, version: Version) -> bool {
        !self.predictor.is_hinting() && self.hints.next(version).is_some()
    }

    /// Takes the hint of a predicted reading back, which ended and consumed nothing.
    pub(crate) fn forget_prediction(&mut self, version: Version) {
        if self.predictor.is_hinting() && self.hints.consume(version).is_some() {
            self.change_record(version, |_, _| ());
        }
    }

    /// Takes the hints of predicted readings back.
    pub(crate) fn forget_predictions(&mut self) {
        if !self.predictor.take_back() {
            return;
        }
        // All hints are predictions: also those whose readings are under way.
        let hinted: Vec<_> = self.hints.last().collect();
        hinted
            .into_iter()
            .for_each(|version| self.forget_hints(version));
    }
}
