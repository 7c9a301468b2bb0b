//! Binomial checkpointing (Griewank and Walther, ACM TOMS 26(1), 2000), in closed form.

/// Returns the most steps that `slots` slots reverse if no step is computed more than `times` times: the binomial coefficient
/// `(slots + times)` over `times`.
pub(crate) fn reach(slots: usize, times: usize) -> f64 {
    let (few, many) = (slots.min(times), slots.max(times));
    // Each factor is at least 2, so 50 of them are beyond the limit.
    let factors = (1..=few.min(50)).map(|index| (many + index) as f64 / index as f64);
    factors.product::<f64>().round().min(1e15)
}

/// Returns the most times that a step is computed: the least number of times with which `slots` slots reach `steps` steps.
fn repetitions(steps: f64, slots: usize) -> usize {
    let is_enough = |&times: &usize| reach(slots, times) >= steps;
    (0..).find(is_enough).unwrap_or(0)
}

/// Returns the forward steps of a reversal of `steps` steps with `slots` slots, one of which holds the first state. The
/// reversal starts at the first state and turns at the last step. The function is convex, and linear between whole numbers of
/// steps.
pub(crate) fn forwards(steps: f64, slots: usize) -> f64 {
    let slots = slots.max(1);
    match repetitions(steps, slots) {
        0 => 0.0,
        times => times as f64 * steps - reach(slots + 1, times - 1),
    }
}

/// Returns the steps from the first state, which has one of the `slots`, to the next stored state.
pub(crate) fn split(steps: usize, slots: usize) -> usize {
    if slots < 2 || steps < 2 {
        return steps;
    }
    let times = repetitions(steps as f64, slots);
    let most_after = reach(slots - 1, times);
    let least_before = reach(slots, times.saturating_sub(2));
    let before = (steps as f64 - most_after).max(least_before);
    (before as usize).clamp(1, steps - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recurrence that the closed form solves.
    fn table(steps: usize, slots: usize) -> Vec<Vec<f64>> {
        let mut costs = vec![
            (0..=steps)
                .map(|n| (n * n.saturating_sub(1) / 2) as f64)
                .collect::<Vec<_>>(),
        ];
        for s in 1..slots {
            let mut row = vec![0.0; steps + 1];
            for n in 2..=steps {
                row[n] = (1..n)
                    .map(|k| k as f64 + costs[s - 1][n - k] + row[k])
                    .fold(f64::INFINITY, f64::min);
            }
            costs.push(row);
        }
        costs
    }

    #[test]
    fn counts_and_splits_are_the_least_of_the_recurrence() {
        let costs = table(120, 9);
        for slots in 1..=9 {
            for steps in 1..=120 {
                let least = costs[slots - 1][steps];
                assert_eq!(
                    forwards(steps as f64, slots),
                    least,
                    "{steps} steps, {slots} slots"
                );
                if slots > 1 && steps > 1 {
                    let k = split(steps, slots);
                    let by_split = k as f64 + costs[slots - 2][steps - k] + costs[slots - 1][k];
                    assert_eq!(by_split, least, "split of {steps} steps with {slots} slots");
                }
            }
        }
    }

    #[test]
    fn published_count() {
        // Griewank and Walther's figure for 10 steps and 3 snapshots has 15 steps before each step's own one.
        assert_eq!(forwards(10.0, 3), 15.0);
    }
}
