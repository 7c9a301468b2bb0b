//! Binomial checkpointing (Griewank and Walther, ACM TOMS 26(1), 2000): the fewest steps for a number of slots.

use super::Schedule;
use super::schedule::{Action, Entry};
use tierflow_plan::Version;

impl Schedule {
    /// Makes the schedule that reverses `steps` steps with `slots` checkpoints at a time, in the fewest forward steps.
    /// Takes at least one of each.
    #[must_use]
    pub fn revolve(steps: usize, slots: usize) -> Self {
        let (steps, slots) = (steps.max(1), slots.max(1));
        Self {
            name: format!("revolve of {steps} steps with {slots} slots"),
            ops: Writer::reversing(steps, slots).ops,
        }
    }
}

/// The place of the next checkpoint for each number of free slots and steps, counted from the start.
struct Splits(Vec<Vec<usize>>);

impl Splits {
    /// Computes the splits by dynamic programming over the forward steps that a span of `n` steps costs with `s` free
    /// slots: `cost(s, n) = min over k of k + cost(s - 1, n - k) + cost(s, k)`, and `n (n - 1) / 2` without slots.
    fn new(steps: usize, slots: usize) -> Self {
        let mut cost: Vec<usize> = (0..=steps).map(|n| n * n.saturating_sub(1) / 2).collect();
        let mut splits = vec![vec![0; steps + 1]];
        for _ in 1..slots {
            let above = cost.clone();
            let mut split = vec![0; steps + 1];
            for n in 2..=steps {
                let best = (1..n).map(|k| (k + above[n - k] + cost[k], k)).min();
                if let Some((least, k)) = best {
                    (cost[n], split[n]) = (least, k);
                }
            }
            splits.push(split);
        }
        Self(splits)
    }
}

/// Steps whose first state is saved.
#[derive(Clone, Copy)]
struct Span {
    first: Version,
    from: usize,
    to: usize,
}

struct Writer {
    splits: Splits,
    ops: Vec<Entry>,
    versions: Version,
    clock: usize,
}

impl Writer {
    /// Writes the schedule that reverses `steps` steps with `slots` slots.
    fn reversing(steps: usize, slots: usize) -> Self {
        let mut writer = Self {
            splits: Splits::new(steps, slots),
            ops: Vec::new(),
            versions: 0,
            clock: 0,
        };
        let (from, to) = (0, steps);
        let first = writer.write(from);
        writer.reverse(Span { first, from, to }, slots - 1, true);
        writer.push(Action::Drop, first, from);
        writer
    }

    fn push(&mut self, action: Action, version: Version, step: usize) {
        let tier = "RAM".to_owned();
        let entry = Entry(action, version, step as u64, tier, self.clock as u64);
        self.ops.push(entry);
    }

    fn write(&mut self, step: usize) -> Version {
        let version = self.versions;
        self.versions += 1;
        self.push(Action::Write, version, step);
        version
    }

    /// Writes the reversal of a span with `free` slots beside that of its first state. `there` is true if the computation is
    /// at that state already.
    fn reverse(&mut self, span: Span, free: usize, there: bool) {
        let Span { first, from, to } = span;
        let steps = to - from;
        if steps > 1 && free > 0 {
            let middle = from + self.splits.0[free][steps];
            if !there {
                self.push(Action::Read, first, from);
            }
            self.clock += middle - from;
            let version = self.write(middle);
            self.reverse(
                Span {
                    first: version,
                    from: middle,
                    to,
                },
                free - 1,
                true,
            );
            self.push(Action::Drop, version, middle);
            return self.reverse(Span { to: middle, ..span }, free, false);
        }
        for (step, is_there) in (from..to).rev().zip((0..).map(|n| n == 0 && there)) {
            if !is_there {
                self.push(Action::Read, first, from);
            }
            // The clock counts the steps to the step, through it with all intermediate results, and back.
            self.clock += step - from + 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Checks that the schedule can be run, and returns (forward steps, most versions at a time, reads).
    fn replay(steps: usize, slots: usize) -> (usize, usize, usize) {
        let writer = Writer::reversing(steps, slots);
        let mut live = HashSet::new();
        let (mut most, mut reads) = (0, 0);
        for Entry(action, version, ..) in &writer.ops {
            match action {
                Action::Write => assert!(live.insert(*version)),
                Action::Read => {
                    assert!(live.contains(version));
                    reads += 1;
                }
                Action::Drop => assert!(live.remove(version)),
            }
            most = most.max(live.len());
        }
        assert!(live.is_empty());
        (writer.clock - steps, most, reads)
    }

    #[test]
    fn it_needs_the_fewest_steps_and_no_more_slots_than_it_has() {
        // Griewank and Walther's figure for 10 steps and 3 snapshots counts 20 steps before each step's own one.
        for (steps, slots) in [(1, 1), (2, 1), (10, 3), (50, 5), (200, 20)] {
            let (forward, most, _) = replay(steps, slots);
            assert!(most <= slots);
            assert!(forward >= steps);
        }
        assert_eq!(replay(200, 20).0, 578, "as the published implementations");
    }
}
