//! Compares plans for small instances with the optimum of all schedules, which an exhaustive search finds with one tier below the device.

mod dice;

use dice::Dice;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use tierflow_schedule::{Machine, Plan, Tier};

/// An instance in units of a forward step.
#[derive(Clone, Copy, Debug)]
struct Small {
    steps: u32,
    backward: u32,
    slots: u32,
    room: u32,
    down: u32,
    up: u32,
}

/// A transfer or step under way. `left` is 0 if there is none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Busy {
    index: u32,
    left: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    /// Number of steps that are not reversed yet.
    left: u32,
    /// True if the sweep has ended.
    is_swept: bool,
    /// The state in the working buffer, or `NONE`.
    work: u32,
    device: u32,
    host: u32,
    down: Busy,
    up: Busy,
    forward: Busy,
    reverse: Busy,
}

const NONE: u32 = 31;

fn has(set: u32, index: u32) -> bool {
    set & (1 << index) != 0
}

fn members(set: u32) -> impl Iterator<Item = u32> {
    (0..NONE).filter(move |&index| has(set, index))
}

impl Small {
    fn draw(dice: &mut Dice, most: u32) -> Self {
        let mut number =
            |low: u32, high: u32| low + (dice.share() * f64::from(high - low + 1)) as u32;
        let down = number(1, 6);
        Self {
            steps: number(4, most),
            backward: number(1, 3),
            slots: number(1, 4),
            room: number(0, 4),
            down,
            up: (down + number(0, 2)).saturating_sub(1).max(1),
        }
    }

    fn machine(&self) -> Machine {
        let rate = |time: u32| 1e9 / f64::from(time);
        Machine {
            forward: Duration::from_millis(1),
            backward: Duration::from_millis(u64::from(self.backward)),
            state: 1_000_000,
            device: 1_000_000 * u64::from(self.slots),
            tiers: vec![Tier {
                room: 1_000_000 * u64::from(self.room),
                down: rate(self.down),
                up: rate(self.up),
            }],
            copy: f64::INFINITY,
            codec: None,
        }
    }

    /// Returns a lower bound of the time from a state on.
    fn least(&self, state: &State) -> u32 {
        let stored = state.device
            | state.host
            | if state.work < NONE {
                1 << state.work
            } else {
                0
            };
        let coming = if state.forward.left > 0 {
            1 << state.forward.index
        } else {
            0
        };
        let reversing =
            state.reverse.left + (state.left - u32::from(state.reverse.left > 0)) * self.backward;
        if state.is_swept {
            let needed = (1u32 << (state.left - u32::from(state.reverse.left > 0))) - 1;
            return (needed & !(stored | coming)).count_ones() + reversing + state.forward.left;
        }
        let reached = if state.forward.left > 0 {
            state.forward.index
        } else {
            state.work
        };
        let lost = (((1u32 << reached) - 1) & !stored).count_ones();
        let ahead = self.steps - reached;
        lost + ahead + state.forward.left + reversing
    }

    /// Returns the least time of all schedules that take at most `limit`.
    fn optimum(&self, limit: u32) -> Option<u32> {
        let begin = State {
            left: self.steps,
            is_swept: false,
            work: 0,
            device: 0,
            host: 0,
            down: Busy::default(),
            up: Busy::default(),
            forward: Busy::default(),
            reverse: Busy::default(),
        };
        let mut queue = BTreeMap::from([(self.least(&begin), vec![(0, begin)])]);
        let mut seen = HashSet::new();
        while let Some((bound, mut states)) = queue.pop_first() {
            while let Some((time, state)) = states.pop() {
                if state.left == 0 {
                    return Some(time);
                }
                if !seen.insert(state) {
                    continue;
                }
                for (cost, next) in self.next(&state) {
                    let bound = bound.max(time + cost + self.least(&next));
                    if bound > limit || seen.contains(&next) {
                        continue;
                    }
                    queue.entry(bound).or_default().push((time + cost, next));
                }
                // States of this bound that were just found come first.
                if let Some(more) = queue.remove(&bound) {
                    states.extend(more);
                }
            }
        }
        None
    }

    /// Returns the states after each single decision, and after a wait for the next end of a transfer or step.
    fn next(&self, state: &State) -> Vec<(u32, State)> {
        let mut all = Vec::new();
        let s = *state;
        let is_idle = s.forward.left == 0 && s.reverse.left == 0;
        // If the state of the next step to reverse is there, no decision is better than to reverse it.
        if s.is_swept && is_idle && s.work + 1 == s.left {
            let reverse = Busy {
                index: s.work,
                left: self.backward,
            };
            return vec![(
                0,
                State {
                    work: NONE,
                    reverse,
                    ..s
                },
            )];
        }
        let pinned = if s.down.left > 0 {
            1 << s.down.index
        } else {
            0
        };
        // The ways to have a free slot for a state.
        let slots = |state: State| -> Vec<State> {
            let used = state.device.count_ones() + u32::from(state.up.left > 0);
            if used < self.slots {
                return vec![state];
            }
            members(state.device & !pinned)
                .map(|gone| State {
                    device: state.device & !(1 << gone),
                    ..state
                })
                .collect()
        };
        if is_idle && s.work < NONE {
            if !has(s.device, s.work) {
                all.extend(slots(s).into_iter().map(|t| {
                    (
                        0,
                        State {
                            device: t.device | 1 << s.work,
                            ..t
                        },
                    )
                }));
            }
            let end = if s.is_swept { s.left - 1 } else { self.steps };
            if s.work < end {
                let forward = Busy {
                    index: s.work + 1,
                    left: 1,
                };
                all.push((
                    0,
                    State {
                        work: NONE,
                        forward,
                        ..s
                    },
                ));
            }
        }
        if is_idle && s.is_swept {
            for index in members(s.device).filter(|&index| index != s.work) {
                all.push((0, State { work: index, ..s }));
            }
        }
        if s.down.left == 0 {
            let brought = if s.up.left > 0 { 1 << s.up.index } else { 0 };
            let rooms: Vec<State> = if s.host.count_ones() < self.room {
                vec![s]
            } else {
                members(s.host & !brought)
                    .map(|gone| State {
                        host: s.host & !(1 << gone),
                        ..s
                    })
                    .collect()
            };
            for t in rooms {
                for index in members(s.device & !s.host) {
                    all.push((
                        0,
                        State {
                            down: Busy {
                                index,
                                left: self.down,
                            },
                            ..t
                        },
                    ));
                }
            }
        }
        if s.up.left == 0 && s.is_swept {
            for index in members(s.host & !s.device) {
                for t in slots(s) {
                    all.push((
                        0,
                        State {
                            up: Busy {
                                index,
                                left: self.up,
                            },
                            ..t
                        },
                    ));
                }
            }
        }
        let times = [s.down.left, s.up.left, s.forward.left, s.reverse.left];
        if let Some(wait) = times.into_iter().filter(|&left| left > 0).min() {
            all.push((wait, self.wait(s, wait)));
        }
        all
    }

    fn wait(&self, mut s: State, time: u32) -> State {
        let ends = |busy: &mut Busy| {
            let ends = busy.left > 0 && busy.left == time;
            busy.left = busy.left.saturating_sub(time);
            let index = busy.index;
            if busy.left == 0 {
                *busy = Busy::default();
            }
            ends.then_some(index)
        };
        if let Some(index) = ends(&mut s.down) {
            s.host |= 1 << index;
        }
        if let Some(index) = ends(&mut s.up) {
            s.device |= 1 << index;
        }
        if let Some(index) = ends(&mut s.forward) {
            s.work = index;
            if index == self.steps {
                (s.is_swept, s.work) = (true, NONE);
            }
        }
        if ends(&mut s.reverse).is_some() {
            s.left -= 1;
            let needed = (1 << s.left) - 1;
            (s.device, s.host) = (s.device & needed, s.host & needed);
            if s.down.left > 0 && s.down.index >= s.left {
                s.down.index = NONE - 1;
            }
        }
        s
    }
}

#[test]
fn no_plan_is_below_the_optimum_and_no_optimum_below_the_bound() {
    let mut dice = Dice::fresh();
    let (count, most) = dice::long().map_or((40, 9), |count| (count, 14));
    let mut ratios = Vec::new();
    let mut tightness = Vec::new();
    for _ in 0..count {
        let small = Small::draw(&mut dice, most);
        let machine = small.machine();
        let steps = small.steps as usize;
        let plan = Plan::best(&machine, steps);
        let time = plan.expected().unwrap().as_secs_f64() * 1e3;
        let bound = plan.bound().time.as_secs_f64() * 1e3;
        let optimum = f64::from(small.optimum(time.round() as u32 + 1).unwrap());
        assert!(
            bound <= optimum + 1e-6,
            "bound {bound} optimum {optimum} plan {time} of {small:?}"
        );
        assert!(
            optimum <= time + 1e-6,
            "optimum {optimum} plan {time} of {small:?}"
        );
        if time / optimum > 1.1 {
            println!("{small:?}: bound {bound} optimum {optimum} plan {time}");
        }
        ratios.push(time / optimum);
        tightness.push(optimum / bound);
    }
    let plans = dice::Summary::of(ratios);
    println!(
        "plan over optimum: {plans}; optimum over bound: {}",
        dice::Summary::of(tightness)
    );
    assert!(plans.mean <= 1.02 && plans.worst <= 1.15, "{plans}");
}
