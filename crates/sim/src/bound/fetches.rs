//! The least bytes that a cache has to fetch. A cache that knows the future gives up the bytes whose next use is farthest away
//! (Belady 1966).

use super::steps::{NO_READING, Step, StepKind};
use std::collections::BTreeMap;

/// A cache of one capacity that begins with the bytes that serve it best and fetches no more than any other has to.
#[derive(Debug)]
pub(super) struct Fetches {
    capacity: f64,
    used: f64,
    fetched: f64,
    /// Bytes held, by version.
    held: Vec<f64>,
    /// Versions of which bytes are held, by the step of their next reading.
    by_reading: BTreeMap<usize, usize>,
}

impl Fetches {
    /// Makes the cache before step `from`. A cache without a limit, or with a capacity of 0, counts no fetches.
    pub(super) fn new(capacity: f64, steps: &[Step], from: usize) -> Self {
        let mut fetches = Self {
            capacity,
            used: 0.0,
            fetched: 0.0,
            held: Vec::new(),
            by_reading: BTreeMap::new(),
        };
        if fetches.is_limited() {
            for step in &steps[..from] {
                if let Some((version, bytes)) = step.passed()
                    && (from..NO_READING).contains(&step.next_reading)
                {
                    fetches.hold(version, bytes, step.next_reading);
                }
            }
            fetches.give_up();
        }
        fetches
    }

    fn is_limited(&self) -> bool {
        self.capacity > 0.0 && self.capacity.is_finite()
    }

    fn hold(&mut self, version: usize, bytes: f64, reading: usize) {
        if self.held.len() <= version {
            self.held.resize(version + 1, 0.0);
        }
        self.used += bytes - self.held[version];
        self.held[version] = bytes;
        self.by_reading.insert(reading, version);
    }

    /// Gives up the bytes whose next use is farthest away, until the others fit.
    fn give_up(&mut self) {
        while self.used > self.capacity
            && let Some(last) = self.by_reading.last_entry()
        {
            let held = &mut self.held[*last.get()];
            let bytes = held.min(self.used - self.capacity);
            *held -= bytes;
            self.used -= bytes;
            if *held <= 0.0 {
                last.remove();
            }
        }
    }

    /// Goes on by step `at`. Returns the bytes fetched so far.
    pub(super) fn extend(&mut self, step: &Step, at: usize) -> f64 {
        if let Some((version, bytes)) = step.passed().filter(|_| self.is_limited()) {
            if let StepKind::Restore { .. } = step.kind {
                let held = self.held.get_mut(version).map_or(0.0, std::mem::take);
                self.fetched += bytes - held;
                self.used -= held;
                self.by_reading.remove(&at);
            }
            if step.next_reading != NO_READING {
                self.hold(version, bytes, step.next_reading);
                self.give_up();
            }
        }
        self.fetched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The fewest fetches of any choice of the versions, of one byte each, that are held between two readings.
    fn least(capacity: usize, held: &BTreeSet<usize>, readings: &[usize]) -> usize {
        let Some((&read, rest)) = readings.split_first() else {
            return 0;
        };
        let mut held = held.clone();
        let fetched = usize::from(held.insert(read));
        let ways = held.iter().map(|given_up| {
            let mut left = held.clone();
            left.remove(given_up);
            least(capacity, &left, rest)
        });
        match held.len() > capacity {
            true => fetched + ways.min().unwrap_or(0),
            false => fetched + least(capacity, &held, rest),
        }
    }

    fn step(kind: StepKind, next_reading: usize) -> Step {
        Step {
            kind,
            compute_ns: 0.0,
            computed_ns: 0.0,
            copy_ns: 0.0,
            next_reading,
        }
    }

    #[test]
    fn no_choice_of_versions_fetches_fewer_bytes() {
        let mut draws = tierflow_testing::Draws::fresh();
        for _ in 0..300 {
            let (versions, capacity) = (draws.within(2..5) as usize, draws.within(1..4) as usize);
            let count = draws.within(1..8);
            let readings: Vec<usize> = (0..count).map(|_| draws.index(versions)).collect();
            let next = |version, from: usize| {
                let found = readings[from..].iter().position(|&read| read == version);
                found.map_or(NO_READING, |at| versions + from + at)
            };
            let bytes = 1.0;
            let mut steps: Vec<Step> = (0..versions)
                .map(|version| step(StepKind::Checkpoint { version, bytes }, next(version, 0)))
                .collect();
            steps.extend(readings.iter().enumerate().map(|(at, &version)| {
                let last = false;
                let kind = StepKind::Restore {
                    version,
                    bytes,
                    last,
                };
                step(kind, next(version, at + 1))
            }));
            let mut cache = Fetches::new(capacity as f64, &steps, versions);
            let fetched = (versions..).zip(&steps[versions..]);
            let fetched = fetched.map(|(at, step)| cache.extend(step, at)).last();
            let first = (0..1_u32 << versions).map(|set| {
                let held = (0..versions).filter(|version| set >> version & 1 == 1);
                held.collect::<BTreeSet<usize>>()
            });
            let first = first.filter(|held| held.len() <= capacity);
            let expected = first.map(|held| least(capacity, &held, &readings)).min();
            assert_eq!(
                fetched,
                expected.map(|least| least as f64),
                "{readings:?} in {capacity}"
            );
        }
    }
}
