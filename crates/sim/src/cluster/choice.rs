//! The least loss that makes room: a covering knapsack with a budget, by dynamic programming.

/// A way of stopping a job: killed, or saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopOption {
    /// The loss if it is chosen.
    pub loss: u64,
    /// Bytes that have to be written before the nodes are free.
    pub bytes: u64,
}

/// A job that may be stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Nodes that it frees.
    pub nodes: u64,
    /// Options of stopping it, one of which is chosen if it is stopped; 255 at most.
    pub options: Vec<StopOption>,
}

/// The jobs to stop, and the option of each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice {
    /// Candidates in ascending order, each with its option.
    pub stopped: Vec<(usize, usize)>,
    /// Sum of their losses.
    pub loss: u64,
}

/// Returns the jobs, and their options, that free at least `nodes` nodes, write at most `budget` bytes and lose the
/// least; `None` if no jobs do.
///
/// Bytes are counted in `steps` equal parts of the budget, each option's rounded up. So the choice is within the
/// budget, and the best of all if all options' bytes are multiples of a part. If the budget suffices for all jobs, or
/// no job writes, bytes do not matter and `steps` has no effect. If it does not suffice and `steps` is 0, no job that
/// writes is chosen.
///
/// The time, and the bytes of memory, grow as the number of candidates times `nodes` times `steps`.
#[must_use]
pub fn least_loss(
    candidates: &[Candidate],
    nodes: u64,
    budget: u64,
    steps: usize,
) -> Option<Choice> {
    let most = |candidate: &Candidate| candidate.options.iter().map(|option| option.bytes).max();
    let all: u128 = candidates.iter().filter_map(most).map(u128::from).sum();
    let ample = all <= u128::from(budget);
    let (steps, nodes) = (if ample { 0 } else { steps }, usize::try_from(nodes).ok()?);
    let step_of = |bytes: u64| -> Option<usize> {
        match (ample, bytes) {
            (true, _) | (_, 0) => Some(0),
            (false, _) if budget == 0 || steps == 0 => None,
            (false, _) => {
                let parts = (u128::from(bytes) * steps as u128).div_ceil(u128::from(budget));
                usize::try_from(parts).ok().filter(|parts| *parts <= steps)
            }
        }
    };
    let row = nodes + 1;
    // The least loss by parts of the budget, then by nodes freed. The last column stands for `nodes` or more.
    let mut least = vec![u64::MAX; row * (steps + 1)];
    for parts in 0..=steps {
        least[parts * row] = 0;
    }
    // By candidate and state: one more than the option by which the state was reached; 0 if the candidate did not change it.
    let mut came: Vec<Vec<u8>> = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let freed = usize::try_from(candidate.nodes).unwrap_or(nodes).min(nodes);
        let mut by = vec![0; least.len()];
        let options = candidate.options.iter().zip(1..=u8::MAX);
        let options: Vec<_> = options
            .filter_map(|(option, number)| Some((option.loss, step_of(option.bytes)?, number)))
            .collect();
        // Parts and nodes fall, so that each state is read before this candidate changes it.
        for parts in (0..=steps).rev() {
            for to in (1..row).rev() {
                let at = parts * row + to;
                for &(loss, takes, number) in options.iter().filter(|option| option.1 <= parts) {
                    let from = (parts - takes) * row + to.saturating_sub(freed);
                    // A job without nodes and bytes does not change the state.
                    let reached = least[from].saturating_add(loss);
                    if from != at && reached < least[at] {
                        (least[at], by[at]) = (reached, number);
                    }
                }
            }
        }
        came.push(by);
    }
    let mut at = steps * row + nodes;
    let loss = Some(least[at]).filter(|loss| *loss < u64::MAX)?;
    let mut stopped = Vec::new();
    for (which, (candidate, by)) in candidates.iter().zip(&came).enumerate().rev() {
        let Some(option) = usize::from(by[at]).checked_sub(1) else {
            continue;
        };
        stopped.push((which, option));
        let takes = step_of(candidate.options[option].bytes).unwrap_or(0);
        let freed = usize::try_from(candidate.nodes).unwrap_or(nodes);
        at = (at / row - takes) * row + (at % row).saturating_sub(freed);
    }
    stopped.reverse();
    Some(Choice { stopped, loss })
}
