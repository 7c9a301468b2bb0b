use crate::binomial;
use crate::machine::{Machine, Model};
use crate::simplex;
use std::time::Duration;

/// A time that no schedule beats, and the shares of the states that the bound stores.
///
/// T1 is the time until the state after the last step exists for the first time. A state that exists nowhere at T1 is computed
/// again at least once. A state that exists has used the links on its way down before T1, and uses the links on its way up after
/// T1. All of these constraints are linear, and the bound is their optimum. The binomial count of Griewank and Walther (ACM TOMS
/// 26(1), 2000), in which transfers to all tiers take no time, is a second bound. The larger bound counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Time of forward sweep, recomputation and reversal: no schedule takes less.
    pub time: Duration,
    /// States on the device at the end of the forward sweep, in the optimum of the linear programme.
    pub device: f64,
    /// States on each tier below at that time, uncompressed. Tiers that no state can use are left out.
    pub plain: Vec<f64>,
    /// States on each tier below at that time, compressed.
    pub coded: Vec<f64>,
}

impl Bound {
    /// Returns the number of states that are stored at the end of the forward sweep. All others are computed again.
    #[must_use]
    pub fn stored(&self) -> f64 {
        self.device + self.plain.iter().sum::<f64>() + self.coded.iter().sum::<f64>()
    }

    pub(crate) fn of(model: &Model) -> Self {
        let steps = model.steps as f64;
        // The sweep computes the last step too, at which Revolve turns.
        let forwards = binomial::forwards(steps, model.all_room()) + 1.0;
        let counted = forwards * model.forward + steps * model.backward;
        let hops = (0..model.hops.len()).map(|hop| repeated(model, hop));
        let times = std::iter::once(counted).chain(hops).map(duration);
        let mut bound = programme(model);
        bound.time = times.fold(bound.time, Duration::max);
        bound
    }
}

impl Machine {
    /// Returns a time that no schedule of `steps` steps beats on this machine.
    #[must_use]
    pub fn bound(&self, steps: usize) -> Bound {
        Bound::of(&Model::new(self, steps))
    }
}

/// Returns a time that is not above `seconds`, which have a rounding error.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds * (1.0 - 1e-9)).unwrap_or(Duration::MAX)
}

/// Returns the bound that counts how often states are produced again after T1: the least T1 + T2, in seconds.
///
/// Let `c` states fit above the hop, and let the hop bring up `k` states after T1. Let `e` of these transfers bring a state that
/// existed below at T1 for the first time. At most `reach(c, t + 1) - 1 + e reach(c, t) + (k - e) (reach(c, t) - 1)` of the
/// reversed states were produced `t` times or less after T1, with the binomial number [`reach`](binomial::reach). All others were
/// produced once more. The book's chapter on schedules has the proof.
fn repeated(model: &Model, hop: usize) -> f64 {
    let (steps, forward, copy) = (model.steps as f64, model.forward, model.copy);
    let above = (model.slots + model.rooms(0..hop) as usize).min(model.steps);
    let below = model.rooms(hop..model.hops.len());
    let [down, up] = [model.hops[hop].down, model.hops[hop].up].map(|time| time * model.size);
    // `reach(c, t)` for each `t`, up to the number of steps and the one after it.
    let mut reach = Vec::new();
    while reach.last().is_none_or(|&last| last <= steps) {
        reach.push(binomial::reach(above, reach.len()));
    }
    // The fewest forward steps after T1, if at most `existing` states exist below at T1 and `brought` states are brought up.
    let repeats = |existing: f64, brought: f64| -> f64 {
        let brought = brought.min(steps);
        let existing = existing.min(brought);
        let produced = reach.windows(2).map(|reach| {
            let held = reach[1] - 1.0 + existing + brought * (reach[0] - 1.0);
            (steps - held).max(0.0)
        });
        produced.sum()
    };
    // T2 without repeated steps: each reversed step takes a copy from a slot.
    let computed = steps * (model.backward + copy);
    // A lower limit of the least T2 for a wait in T1. A state that exists below at T1 was copied to a slot.
    let second = |wait: f64| {
        let carried = (steps * forward + wait) / down;
        let copied = match copy > 0.0 {
            true => wait / copy,
            false => f64::INFINITY,
        };
        let existing = below.min(carried).min(copied);
        let (mut low, mut high) = (computed, computed + repeats(0.0, 0.0) * forward);
        for _ in 0..32 {
            let time = (low + high) / 2.0;
            if computed + forward * repeats(existing, time / up) > time {
                low = time;
            } else {
                high = time;
            }
        }
        low
    };
    // Both constraints are convex, so the sum is convex in T1.
    let sweep = steps * forward;
    let total = |wait: f64| sweep + wait + second(wait);
    let (mut low, mut high) = (0.0, (steps * (down - forward)).max(steps * copy));
    for _ in 0..40 {
        if high - low <= 1e-5 * sweep {
            break;
        }
        let (left, right) = (low + (high - low) * 0.4, low + (high - low) * 0.6);
        if total(left) <= total(right) {
            high = right;
        } else {
            low = left;
        }
    }
    // The least total of the interval is below those of its ends by a few widths at most.
    total(low).min(total(high)) - 8.0 * (high - low)
}

/// Solves the programme. Unknowns: states on the device, on each tier plain and coded; the wait `e` beyond the forward
/// steps in T1; the time `z` that T2 saves. The programme maximises `z - e`, so that the origin is feasible.
///
/// Copies: each reversed step needs a copy from a slot, as the reversed step before it destroyed the working buffer. A state
/// that does not exist at T1 is copied to a slot, or computed more than once, unless the next state exists.
fn programme(model: &Model) -> Bound {
    let (steps, hops, size) = (model.steps as f64, model.hops.len(), model.size);
    // Times in forward steps keep the tableau near 1.
    let unit = model.forward;
    let (copy, back) = (model.copy / unit, model.backward / unit);
    let (encode, decode) = (model.encode / unit, model.decode / unit);
    let unknowns: Vec<usize> = (0..3 + 2 * hops).collect();
    let (states, times) = unknowns.split_at(1 + 2 * hops);
    let (plain, coded) = states[1..].split_at(hops);
    let (wait, saved) = times.split_at(1);
    let mut rows = Vec::new();
    let mut add = |limit: f64, terms: &[(&[usize], f64)]| {
        let mut row = vec![0.0; unknowns.len()];
        for (unknowns, factor) in terms {
            unknowns.iter().for_each(|&of| row[of] += factor);
        }
        row.push(limit);
        rows.push(row);
    };
    let inner = copy.min(1.0);
    // T2 without any stored state.
    let most = steps * (1.0 + back + copy + inner);
    // The computation in T1: each stored state is copied to a slot.
    add(0.0, &[(states, copy), (coded, encode), (wait, -1.0)]);
    // The computation in T2: each stored state saves a step, and up to two copies of others.
    for (limit, gain) in [(0.0, 1.0 + 2.0 * inner), (steps * inner, 1.0)] {
        add(limit, &[(states, -gain), (coded, decode), (saved, 1.0)]);
    }
    add(steps, &[(states, 1.0)]);
    add(model.slots as f64, &[(&states[..1], 1.0)]);
    for (hop, link) in model.hops.iter().enumerate() {
        let (plain, coded) = (&plain[hop..], &coded[hop..]);
        let (down, up) = (link.down / unit, link.up / unit);
        add(steps, &[(plain, down), (coded, down * size), (wait, -1.0)]);
        add(most, &[(plain, up), (coded, up * size), (saved, 1.0)]);
        add(model.room(hop), &[(&plain[..1], 1.0), (&coded[..1], size)]);
        if size == 1.0 {
            add(0.0, &[(&coded[..1], 1.0)]);
        }
    }
    add(0.0, &[(wait, -1.0), (saved, 1.0)]);
    let found = simplex::maximise(rows);
    Bound {
        time: duration(unit * (steps + most + found[wait[0]] - found[saved[0]])),
        device: found[0],
        plain: plain.iter().map(|&tier| found[tier]).collect(),
        coded: coded.iter().map(|&tier| found[tier]).collect(),
    }
}
