use crate::binomial;
use crate::machine::{Coding, Machine, Model};
use crate::simplex;
use std::time::Duration;

/// A time that no schedule beats, and the shares of the states that the bound stores.
///
/// T1 is the time until the state after the last step exists for the first time. A state that exists nowhere then is
/// computed again at least once. A state that exists has used the links on its way down before T1 and uses those on its
/// way up after T1. These are linear constraints; their optimum is the bound. The binomial count of Griewank and Walther
/// (ACM TOMS 26(1), 2000), with the room of all tiers as if it were free, is a second bound; the larger one counts.
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
    /// States that are stored at the end of the forward sweep. All others are computed again.
    #[must_use]
    pub fn stored(&self) -> f64 {
        self.device + self.plain.iter().sum::<f64>() + self.coded.iter().sum::<f64>()
    }
}

impl Machine {
    /// Returns a time that no schedule of `steps` steps beats on this machine.
    #[must_use]
    pub fn bound(&self, steps: usize) -> Bound {
        Bound::of(&Model::new(self, steps))
    }
}

impl Bound {
    pub(crate) fn of(model: &Model) -> Self {
        let steps = model.steps as f64;
        // The sweep goes to the end, one step farther than Revolve's turn.
        let forwards = binomial::forwards(steps, model.all_room()) + 1.0;
        let counted = forwards * model.forward + steps * model.backward;
        let hops = (0..model.hops.len()).map(|hop| Repeated::new(model, hop).least());
        let programme = programme(model);
        let time = hops.map(duration).fold(duration(counted), Duration::max);
        Self {
            time: programme.time.max(time),
            ..programme
        }
    }
}

/// A time that is no more than so many seconds, which are rounded.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds * (1.0 - 1e-9)).unwrap_or(Duration::MAX)
}

/// The bound that counts how often states are produced again after T1.
///
/// Let `c` states fit above the hop, let the hop bring up `k` states after T1, and let `e` of these be the first of different ones that
/// existed below at T1. At most `reach(c, t + 1) - 1 + e reach(c, t) + (k - e) (reach(c, t) - 1)` of the states that are
/// reversed were produced `t` times or less after T1, with the binomial number [`reach`](binomial::reach). All others were produced
/// once more. The book's chapter on schedules has the proof.
struct Repeated {
    steps: f64,
    forward: f64,
    /// Seconds of a reversed step, with the copy from a slot before it.
    backward: f64,
    /// Seconds by which a state that exists below at T1 was copied to a slot.
    copy: f64,
    /// `reach(c, t)` for each `t`, up to the number of steps and the one after it.
    reach: Vec<f64>,
    below: f64,
    down: f64,
    up: f64,
}

impl Repeated {
    fn new(model: &Model, hop: usize) -> Self {
        let size = model.codec.size;
        let above = (model.slots + model.rooms(0..hop) as usize).min(model.steps);
        let steps = model.steps as f64;
        let mut reach = Vec::new();
        while reach.last().is_none_or(|&last| last <= steps) {
            reach.push(binomial::reach(above, reach.len()));
        }
        Self {
            steps,
            forward: model.forward,
            backward: model.backward + model.copy,
            copy: model.copy,
            reach,
            below: model.rooms(hop..model.hops.len()),
            down: model.hops[hop].down * size,
            up: model.hops[hop].up * size,
        }
    }

    /// The least T1 + T2. Both constraints are convex, so the sum is convex in T1.
    fn least(&self) -> f64 {
        let sweep = self.steps * self.forward;
        let total = |wait: f64| sweep + wait + self.second(wait);
        let most = (self.steps * (self.down - self.forward)).max(self.steps * self.copy);
        let (least, width) = minimum(total, most, 1e-5 * sweep);
        // The least total of the interval is below those of its ends by a few widths at most.
        least - 8.0 * width
    }

    /// The least T2 for a wait in T1, from below.
    fn second(&self, wait: f64) -> f64 {
        let computed = self.steps * self.backward;
        let carried = (self.steps * self.forward + wait) / self.down;
        let copied = match self.copy > 0.0 {
            true => wait / self.copy,
            false => f64::INFINITY,
        };
        let existing = self.below.min(carried).min(copied);
        let (mut low, mut high) = (computed, computed + self.repeats(0.0, 0.0) * self.forward);
        for _ in 0..32 {
            let time = (low + high) / 2.0;
            if computed + self.forward * self.repeats(existing, time / self.up) > time {
                low = time;
            } else {
                high = time;
            }
        }
        low
    }

    /// The fewest forward steps after T1, with so many states that exist below at T1 at most, and so many brought up.
    fn repeats(&self, existing: f64, brought: f64) -> f64 {
        let brought = brought.min(self.steps);
        let existing = existing.min(brought);
        let produced = self.reach.windows(2).map(|reach| {
            let held = reach[1] - 1.0 + existing + brought * (reach[0] - 1.0);
            (self.steps - held).max(0.0)
        });
        produced.sum()
    }
}

/// The least value that a convex function has at the ends of an interval around its minimum between 0 and `most`, and the
/// width of that interval, which is `width` or less after 40 rounds at most.
fn minimum(function: impl Fn(f64) -> f64, most: f64, width: f64) -> (f64, f64) {
    let (mut low, mut high) = (0.0, most);
    for _ in 0..40 {
        if high - low <= width {
            break;
        }
        let (left, right) = (low + (high - low) * 0.4, low + (high - low) * 0.6);
        if function(left) <= function(right) {
            high = right;
        } else {
            low = left;
        }
    }
    (function(low).min(function(high)), high - low)
}

/// Solves the programme. Unknowns: states on the device, on each tier plain and coded; the wait `e` beyond the forward
/// steps in T1; the time `z` that T2 saves. It maximises `z - e`, so that the origin is feasible.
///
/// Copies: each reversed step takes a copy from a slot, as the one before it left nothing in the working buffer. A state
/// that does not exist at T1 is copied to a slot, or computed more than once, unless the next state exists.
fn programme(model: &Model) -> Bound {
    let hops = model.hops.len();
    let steps = model.steps as f64;
    // Times in forward steps keep the tableau near 1.
    let unit = model.forward;
    let (copy, back) = (model.copy / unit, model.backward / unit);
    let Coding { size, .. } = model.codec;
    let (encode, decode) = (model.codec.encode / unit, model.codec.decode / unit);
    let (plain, coded) = (|tier: usize| 1 + tier, |tier: usize| 1 + hops + tier);
    let (wait, saved) = (1 + 2 * hops, 2 + 2 * hops);
    let unknowns = 3 + 2 * hops;
    let states = || 0..1 + 2 * hops;
    let mut rows = Vec::new();
    let mut add = |limit: f64, terms: &mut dyn FnMut(&mut [f64])| {
        let mut row = vec![0.0; unknowns + 1];
        terms(&mut row);
        row[unknowns] = limit;
        rows.push(row);
    };
    let inner = copy.min(1.0);
    // T2 without any stored state.
    let most = steps * (1.0 + back + copy + inner);
    // The computation in T1: each stored state is copied to a slot.
    add(0.0, &mut |row| {
        states().for_each(|state| row[state] = copy);
        (0..hops).for_each(|tier| row[coded(tier)] += encode);
        row[wait] = -1.0;
    });
    // The computation in T2: each stored state saves a step, and up to two copies of others.
    for (limit, gain) in [(0.0, 1.0 + 2.0 * inner), (steps * inner, 1.0)] {
        add(limit, &mut |row| {
            states().for_each(|state| row[state] = -gain);
            (0..hops).for_each(|tier| row[coded(tier)] += decode);
            row[saved] = 1.0;
        });
    }
    add(steps, &mut |row| {
        states().for_each(|state| row[state] = 1.0)
    });
    add(model.slots as f64, &mut |row| row[0] = 1.0);
    for hop in 0..hops {
        let link = model.hops[hop];
        let through = |row: &mut [f64], time: f64| {
            for tier in hop..hops {
                row[plain(tier)] = time;
                row[coded(tier)] = time * size;
            }
        };
        add(steps, &mut |row| {
            through(row, link.down / unit);
            row[wait] = -1.0;
        });
        add(most, &mut |row| {
            through(row, link.up / unit);
            row[saved] = 1.0;
        });
        add(model.room(hop), &mut |row| {
            row[plain(hop)] = 1.0;
            row[coded(hop)] = size;
        });
        if size == 1.0 {
            add(0.0, &mut |row| row[coded(hop)] = 1.0);
        }
    }
    let mut gain = vec![0.0; unknowns];
    (gain[wait], gain[saved]) = (-1.0, 1.0);
    let found = simplex::maximise(&rows, &gain);
    Bound {
        time: duration(unit * (steps + most + found[wait] - found[saved])),
        device: found[0],
        plain: (0..hops).map(|tier| found[plain(tier)]).collect(),
        coded: (0..hops).map(|tier| found[coded(tier)]).collect(),
    }
}
