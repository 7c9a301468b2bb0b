//! Hints of the plan's own, for readings that it predicts.

use super::Ledger;
use crate::Version;
use crate::config::AfterRestore;
use crate::hints::Hints;
use crate::predictor::MOST_HINTED;

impl Ledger {
    /// Adds a reading that the application names. A prediction of it becomes its hint; else predictions are taken back.
    pub(crate) fn hint_given(&mut self, version: Version) {
        if self.discarded.contains(version) {
            return;
        }
        let is_predicted = self.predicts() && self.predictor.read(version, self.records.len());
        let first = self.hints.from(self.predictor.first_hinted()).next();
        if let Some(at) = self.hints.next(version)
            && (is_predicted && first == Some(version) && self.hints.after_next(version).is_none())
        {
            return self.predictor.give_first(at);
        }
        self.forget_predictions();
        self.change_hints(version, Hints::push_back);
    }

    /// Takes in that a reading of a version begins. Hints the readings that are predicted behind it and those that the application hints.
    pub(crate) fn predict(&mut self, version: Version) {
        if !self.predicts() {
            return;
        }
        if !self.is_hinted(version) && !self.predictor.read(version, self.records.len()) {
            self.forget_predictions();
        }
        while self.hints.len() < MOST_HINTED
            && let Some(next) = self.predictor.next()
        {
            let is_left = match self.after_restore {
                AfterRestore::Keep => !self.is_hinted(next),
                AfterRestore::Discard => next != version && self.hints.next(next).is_none(),
            };
            if !is_left || self.held(next).is_none() {
                break;
            }
            let sequence = self.hints.behind();
            self.change_hints(next, Hints::push_back);
            self.predictor.hinted(next, sequence);
        }
    }

    fn predicts(&self) -> bool {
        self.tiers.len() > 1 && self.policy.predicts()
    }

    /// Returns true if the application hints a reading of a version.
    pub(crate) fn is_hinted(&self, version: Version) -> bool {
        let first = self.hints.next(version);
        first.is_some_and(|first| first < self.predictor.first_hinted())
    }

    /// Takes the hint of a predicted reading back, which ended and consumed nothing.
    pub(crate) fn forget_prediction(&mut self, version: Version) {
        if !self.is_hinted(version) {
            self.change_hints(version, Hints::consume);
        }
    }

    /// Takes the hints of predicted readings back.
    pub(crate) fn forget_predictions(&mut self) {
        let Some(from) = self.predictor.take_back() else {
            return;
        };
        // Also those whose readings are under way.
        let predicted: Vec<_> = self.hints.from(from).collect();
        predicted
            .into_iter()
            .for_each(|version| self.forget_hints(version));
    }
}
