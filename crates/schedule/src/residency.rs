//! The states that a stream of actions has on each tier: by Belady's rule, which for reversals is that of a stack.
//!
//! The state of the highest step is used first. A full tier therefore gives up the lowest step that it holds. Nothing here
//! depends on time; the replay adds it.

use crate::action::Action;
use crate::machine::Model;
use std::collections::BTreeSet;

/// The index of a `Save` among those of the stream.
pub(crate) type Version = usize;

/// A transfer over a hop. Lists have them in the order in which the stream needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) version: Version,
    /// Index of the action that needs it done.
    due: usize,
    /// Index of the first action beside which it may begin without taking room that others need.
    pub(crate) from: usize,
}

/// A stay on a tier: from its arrival until it was used so many times.
#[derive(Clone, Copy, Debug)]
struct Stay {
    version: Version,
    begin: usize,
    end: usize,
    uses: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    /// For each version, the uses of each of its stays.
    pub(crate) stays: Vec<Vec<usize>>,
    /// The versions that go to the tier below once.
    pub(crate) goes_down: Vec<bool>,
    /// Transfers to the tier below.
    pub(crate) down: Vec<Transfer>,
    /// Transfers from the tier below.
    pub(crate) up: Vec<Transfer>,
}

#[derive(Clone, Debug)]
pub(crate) struct Residency {
    pub(crate) levels: Vec<Level>,
    /// The version that each action saves or restarts from.
    pub(crate) of_action: Vec<Version>,
    pub(crate) coded: Vec<bool>,
    /// Bytes of each version below the device.
    pub(crate) bytes: Vec<u64>,
}

/// A version that a tier takes in at an action, or is asked for.
#[derive(Clone, Copy)]
struct Demand {
    at: usize,
    version: Version,
    is_use: bool,
}

/// The most actions that a transfer to the device begins ahead of the one that needs it.
const AHEAD: usize = 2048;

impl Residency {
    /// Returns `None` if the states do not fit into all tiers, or if the stream uses a state that is not stored. `sent` has the
    /// steps, in ascending order, whose states go down although the sweep forgets them, as nobody knew.
    pub(crate) fn new(model: &Model, actions: &[Action], sent: &[usize]) -> Option<Self> {
        let mut current = vec![usize::MAX; model.steps];
        let (mut steps, mut coded, mut demands) = (Vec::new(), Vec::new(), Vec::new());
        let mut last: Vec<Option<usize>> = Vec::new();
        let mut of_action = vec![usize::MAX; actions.len()];
        let mut sweep_end = actions.len();
        for (at, action) in actions.iter().enumerate() {
            let is_use = matches!(action, Action::Restart { .. });
            match *action {
                Action::Save {
                    step,
                    coded: is_coded,
                } => {
                    *current.get_mut(step)? = steps.len();
                    of_action[at] = steps.len();
                    steps.push(step);
                    coded.push(is_coded);
                    last.push(None);
                }
                Action::Restart { step } => {
                    of_action[at] = *current.get(step)?;
                    *last.get_mut(of_action[at])? = Some(at);
                }
                Action::Forget { step } => {
                    let version = std::mem::replace(current.get_mut(step)?, usize::MAX);
                    if sweep_end == actions.len() && sent.binary_search(&step).is_ok() {
                        *last.get_mut(version)? = Some(at);
                    }
                }
                Action::EndForward => sweep_end = at,
                Action::Forward { .. } | Action::Reverse { .. } => {}
            }
            let version = of_action[at];
            if version != usize::MAX {
                demands.push(Demand {
                    at,
                    version,
                    is_use,
                });
            }
        }
        let whole = model.state as f64;
        let size = model.codec.map_or(1.0, |codec| codec.size);
        let bytes = coded.iter().map(|&coded| match coded {
            true => (whole * size).ceil() as u64,
            false => model.state,
        });
        let bytes: Vec<u64> = bytes.collect();
        let mut levels = Vec::new();
        for level in 0..=model.hops.len() {
            let tier = TierSweep {
                room: match level {
                    0 => model.slots as u64,
                    _ => model.hops[level - 1].room,
                },
                bytes: (level > 0).then_some(&bytes[..]),
                steps: &steps,
                last: &last,
                is_last: level == model.hops.len(),
                sweep_end,
                actions: actions.len(),
            };
            let (found, below) = tier.fill(&demands)?;
            levels.push(found);
            // The last use of a version on the tier below is its last way up. One that only goes down leaves there on arrival.
            last = vec![None; steps.len()];
            for demand in below.iter().filter(|demand| demand.is_use) {
                last[demand.version] = Some(demand.at);
            }
            demands = below;
        }
        Some(Self {
            levels,
            of_action,
            coded,
            bytes,
        })
    }

    /// Room that a version takes: slots on the device, bytes below.
    pub(crate) fn size(&self, level: usize, version: Version) -> u64 {
        let tier = &self.levels[level];
        match level {
            0 => 1,
            // A version that is forgotten on arrival takes the link's time alone.
            _ if !tier.goes_down[version] && tier.stays[version].iter().all(|&uses| uses == 0) => 0,
            _ => self.bytes[version],
        }
    }
}

/// The sweep over a tier, with the steps and last uses of the versions.
struct TierSweep<'a> {
    room: u64,
    /// `None` on the device, where each version takes one slot.
    bytes: Option<&'a [u64]>,
    steps: &'a [usize],
    last: &'a [Option<usize>],
    is_last: bool,
    sweep_end: usize,
    actions: usize,
}

impl TierSweep<'_> {
    fn size(&self, version: Version) -> u64 {
        self.bytes.map_or(1, |bytes| bytes[version])
    }

    /// Returns the tier's transfers and what it asks of the tier below.
    fn fill(&self, demands: &[Demand]) -> Option<(Level, Vec<Demand>)> {
        let versions = self.steps.len();
        let mut residents = BTreeSet::new();
        let mut used = 0;
        let mut open: Vec<Option<Stay>> = vec![None; versions];
        // Actions at which each version came and left last.
        let (mut arrived, mut left) = (vec![0; versions], vec![0; versions]);
        let mut stays: Vec<Stay> = Vec::new();
        let mut below = Vec::new();
        let mut level = Level {
            stays: vec![Vec::new(); versions],
            goes_down: vec![false; versions],
            ..Level::default()
        };
        for &demand in demands {
            let Demand {
                at,
                version,
                is_use,
            } = demand;
            let key = (self.steps[version], version);
            if !is_use {
                arrived[version] = at;
            }
            if residents.insert(key) {
                if is_use {
                    let (due, from) = (at, left[version] + 1);
                    level.goes_down[version].then_some(())?;
                    level.up.push(Transfer { version, due, from });
                    below.push(demand);
                }
                used += self.size(version);
                open[version] = Some(Stay {
                    version,
                    begin: at,
                    end: at,
                    uses: 0,
                });
            }
            if let (true, Some(stay)) = (is_use, &mut open[version]) {
                stay.uses += 1;
                stay.end = at;
            }
            let is_done = self.last[version].is_none_or(|last| last <= at);
            let mut leaves = is_done.then_some(key);
            loop {
                if let Some(gone) = leaves.take() {
                    residents.remove(&gone);
                    used -= self.size(gone.1);
                    left[gone.1] = at;
                    if let Some(stay) = open[gone.1].take() {
                        level.stays[gone.1].push(stay.uses);
                        stays.push(stay);
                    }
                }
                if used <= self.room {
                    break;
                }
                let lowest = *residents.first()?;
                if lowest == key || self.is_last {
                    return None;
                }
                leaves = Some(lowest);
                let version = lowest.1;
                if !std::mem::replace(&mut level.goes_down[version], true) {
                    let (due, from, is_use) = (at, arrived[version] + 1, false);
                    level.down.push(Transfer { version, due, from });
                    below.push(Demand {
                        at,
                        version,
                        is_use,
                    });
                }
            }
        }
        for stay in open.into_iter().flatten() {
            level.stays[stay.version].push(stay.uses);
            stays.push(stay);
        }
        self.advance(&mut level.up, &stays);
        Some((level, below))
    }

    /// Lets transfers begin as early as the room allows, in their order.
    fn advance(&self, transfers: &mut [Transfer], stays: &[Stay]) {
        // The room taken beside each action: first its changes, then their sums.
        let mut load = vec![0i64; self.actions + 1];
        for stay in stays.iter().filter(|stay| stay.uses > 0) {
            load[stay.begin] += self.size(stay.version) as i64;
            load[stay.end + 1] -= self.size(stay.version) as i64;
        }
        for action in 0..self.actions {
            load[action + 1] += load[action];
        }
        let ahead = if self.bytes.is_none() {
            AHEAD
        } else {
            self.actions
        };
        let mut earliest = self.sweep_end;
        for transfer in transfers {
            let size = self.size(transfer.version) as i64;
            let least = earliest
                .max(transfer.from)
                .max(transfer.due.saturating_sub(ahead));
            transfer.from = transfer.due;
            while transfer.from > least && (load[transfer.from - 1] + size) as u64 <= self.room {
                transfer.from -= 1;
                load[transfer.from] += size;
            }
            earliest = transfer.from;
        }
    }
}
