//! Readings that the application does not hint, predicted from those so far.

use crate::Version;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::collections::VecDeque;

/// Steps in succession that are looked up among the earlier ones.
const CONTEXT: usize = 3;

/// The most readings that are hinted, by the application or for predictions: taking hints back keeps other calls waiting.
pub(crate) const MOST_HINTED: usize = 64;

/// The most steps that are remembered, for the same reason: the table of steps grows all at once.
const MOST_STEPS: usize = 1 << 14;

/// The steps from one read version to the next, and the readings that they predict.
///
/// A program that reads without hints often repeats itself: it goes over its history a second time in the same order, block by
/// block, or in strides. The last three steps are looked up: where they were made before, the steps behind them are expected
/// again (delta correlation: Nesbit and Smith, HPCA 2004). As many readings are predicted as came true in succession since the
/// last checkpoint, so a program without an order is not followed, and a long run is followed far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Predictor {
    /// The version read last.
    last: Option<Version>,
    /// The last steps, as many as versions were ever held at once. The first one has the number `first`.
    steps: VecDeque<u64>,
    first: u64,
    most: usize,
    /// By steps in succession, the number of the step that came behind them last.
    behind: HashMap<[u64; CONTEXT], u64>,
    /// The number of the earlier step that is expected again at the next reading.
    expected: Option<u64>,
    /// Predictions that came true in succession.
    right: usize,
    /// The readings that are hinted, the next one first.
    hinted: VecDeque<Version>,
    /// The sequence number of the first hint that is a prediction; all behind it are.
    from: Option<u64>,
}

impl Predictor {
    /// Takes in the next reading, which begins or is hinted by the application. `held`: number of versions held. Returns true if it was predicted.
    pub(crate) fn read(&mut self, version: Version, held: usize) -> bool {
        self.most = self.most.max(held.min(MOST_STEPS));
        let came_true = self.step(0).zip(self.last);
        let came_true = came_true.is_some_and(|(step, last)| last.wrapping_add(step) == version);
        let Some(last) = self.last.replace(version) else {
            return false;
        };
        self.steps.push_back(version.wrapping_sub(last));
        let before = self.behind_the_last();
        match came_true {
            true => {
                self.right += 1;
                self.expected = self.expected.map(|number| number + 1);
                self.hinted.pop_front();
            }
            false => {
                self.right = 0;
                self.expected = before;
            }
        }
        // The first steps of a second pass are found among those of the first.
        if self.steps.len() > self.most + CONTEXT {
            self.forget_first_step();
        }
        came_true
    }

    fn forget_first_step(&mut self) {
        if let Some(context) = self.context(0)
            && let Entry::Occupied(behind) = self.behind.entry(context)
            && *behind.get() == self.first + CONTEXT as u64
        {
            behind.remove();
        }
        self.steps.pop_front();
        self.first += 1;
    }

    /// Returns the steps in succession from one on.
    fn context(&self, from: usize) -> Option<[u64; CONTEXT]> {
        let is_there = from + CONTEXT <= self.steps.len();
        is_there.then(|| std::array::from_fn(|at| self.steps[from + at]))
    }

    /// Notes that the next step is the one behind the last ones. Returns the number of the step that was it before.
    fn behind_the_last(&mut self) -> Option<u64> {
        let context = self.context(self.steps.len().checked_sub(CONTEXT)?)?;
        let next = self.first + self.steps.len() as u64;
        self.behind.insert(context, next)
    }

    /// Returns the step that is expected behind so many other predicted ones.
    fn step(&self, ahead: usize) -> Option<u64> {
        let at = usize::try_from(self.expected?.checked_sub(self.first)?).ok()? + ahead;
        if let Some(&step) = self.steps.get(at) {
            return Some(step);
        }
        // Behind the last step that was made come the predicted ones.
        let at = at - self.steps.len();
        let before = at
            .checked_sub(1)
            .map_or(self.last, |before| self.hinted.get(before).copied());
        Some(self.hinted.get(at)?.wrapping_sub(before?))
    }

    /// Returns the reading that is expected behind those that are hinted; `None` if as many are hinted as came true.
    pub(crate) fn next(&self) -> Option<Version> {
        let ahead = self.hinted.len();
        let last = self.hinted.back().copied().or(self.last)?;
        (ahead < self.right).then(|| self.step(ahead).map(|step| last.wrapping_add(step)))?
    }

    /// Notes that a predicted reading is hinted under a sequence number, behind those that are.
    pub(crate) fn hinted(&mut self, version: Version, sequence: u64) {
        self.hinted.push_back(version);
        self.from = Some(self.first_hinted().min(sequence));
    }

    /// Returns the sequence number of the first hint that is a prediction: all behind it are, and none before it.
    pub(crate) fn first_hinted(&self) -> u64 {
        self.from.unwrap_or(u64::MAX)
    }

    /// Makes the first prediction, which has this sequence number, a hint of the application.
    pub(crate) fn give_first(&mut self, sequence: u64) {
        self.from = Some(sequence + 1);
    }

    /// Notes that no prediction is hinted any more. Returns the sequence number from which on all hints are predictions, if there may be some.
    pub(crate) fn take_back(&mut self) -> Option<u64> {
        self.hinted.clear();
        self.from.take()
    }

    /// Takes in that the application writes: what was read before says less about the next reading.
    pub(crate) fn write(&mut self) {
        self.right = 0;
    }
}

#[cfg(any(test, feature = "check"))]
impl std::hash::Hash for Predictor {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        let from_first = |number: u64| number.checked_sub(self.first);
        let behind = self.behind.iter();
        let behind = behind.filter_map(|(context, &number)| Some((context, from_first(number)?)));
        let mut behind: Vec<_> = behind.collect();
        behind.sort_unstable();
        (&self.steps, behind, self.expected.map(from_first)).hash(hasher);
        (self.most, self.last, self.right).hash(hasher);
        self.hinted.hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the readings that a predictor hints behind these, one after the other, of so many versions held.
    fn hinted(reads: impl IntoIterator<Item = Version>, held: u64) -> Vec<Version> {
        let mut predictor = Predictor::default();
        for version in reads {
            if !predictor.read(version, held as usize) {
                predictor.take_back();
            }
            while let Some(next) = predictor.next().filter(|&next| next < held) {
                predictor.hinted(next, 0);
            }
        }
        predictor.hinted.into()
    }

    #[test]
    fn a_program_without_an_order_is_not_followed() {
        assert_eq!(hinted([3, 9, 4, 1, 8, 2, 7, 5, 0, 6], 10), []);
    }

    #[test]
    fn strides_are_followed_as_far_as_they_came_true() {
        assert_eq!(hinted([0, 4, 8, 12, 16], 100), []);
        assert_eq!(hinted([0, 4, 8, 12, 16, 20], 100), [24]);
        assert_eq!(hinted([0, 4, 8, 12, 16, 20, 24, 28], 100), [32, 36, 40]);
        assert_eq!(hinted([0, 4, 8, 12, 16, 20, 24, 28], 35), [32]);
    }

    #[test]
    fn blocks_are_followed_over_their_ends() {
        let blocks = |count: u64| {
            (0..10)
                .rev()
                .flat_map(|block| 4 * block..4 * block + 4)
                .take(count as usize)
        };
        let all: Vec<_> = blocks(40).collect();
        assert_eq!(hinted(blocks(19), 40), all[19..30]);
    }

    #[test]
    fn a_second_pass_is_followed_in_the_order_of_the_first() {
        let pass = [3, 9, 4, 1, 8, 2, 7, 5, 0, 6];
        let twice = pass.iter().chain(&pass[..7]).copied();
        assert_eq!(hinted(twice, 10), [5, 0, 6]);
    }

    #[test]
    fn a_wrong_prediction_ends_the_run() {
        assert_eq!(hinted([0, 1, 2, 3, 4, 5, 6, 20], 100), []);
    }

    #[test]
    fn a_checkpoint_ends_the_run() {
        let mut predictor = Predictor::default();
        for version in 0..9 {
            predictor.read(version, 100);
        }
        assert_eq!(predictor.next(), Some(9));
        predictor.write();
        assert_eq!(predictor.next(), None);
    }

    #[test]
    fn no_more_is_remembered_than_was_held() {
        let mut predictor = Predictor::default();
        let mut random = 1_u64;
        for _ in 0..10_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            predictor.read(random >> 56, 100);
        }
        assert!(predictor.steps.len() <= 103 && predictor.behind.len() <= 103);
    }
}
