//! The stays that the states of a stream have on each tier: by Belady's rule, which for reversals is that of a stack.
//!
//! The state of the highest step is used first. A full tier therefore gives up the lowest step that it holds. Nothing here
//! depends on time; the replay adds it.

use crate::action::Action;
use crate::machine::Model;
use std::collections::VecDeque;

/// A stay of a state on a tier: from its arrival until it was used so many times. Transfers to other tiers are uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    pub(crate) level: usize,
    /// Slots on the device, bytes below. A state that is forgotten on arrival takes no room there, but the link's time.
    pub(crate) size: u64,
    pub(crate) uses: usize,
    /// The state comes from below and is compressed.
    pub(crate) is_encoded: bool,
    /// Indices of the actions at which the stay begins and ends.
    begin: usize,
    end: usize,
}

/// A transfer over a hop, between two stays. Lists have them in the order in which the stream needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) source: usize,
    pub(crate) target: usize,
    pub(crate) bytes: u64,
    /// Index of the first action beside which it may begin without taking room that others need.
    pub(crate) from: usize,
}

/// The transfers of a hop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transfers {
    pub(crate) down: Vec<Transfer>,
    pub(crate) up: Vec<Transfer>,
}

#[derive(Clone, Debug)]
pub(crate) struct Residency {
    pub(crate) stays: Vec<Stay>,
    /// The stay on the device that each action saves or restarts from.
    pub(crate) of_action: Vec<usize>,
    /// The transfers of each hop.
    pub(crate) transfers: Vec<Transfers>,
}

/// A state that is saved. A step that is saved again has another version.
struct Version {
    step: usize,
    coded: bool,
    /// Bytes below the device.
    bytes: u64,
    /// The last action that uses it on the tier in question.
    last: Option<usize>,
}

/// A version that a tier takes in at an action, or is asked for.
#[derive(Clone, Copy)]
struct Demand {
    at: usize,
    version: usize,
    is_use: bool,
    /// The first action beside which its transfer may begin.
    from: usize,
    /// The stay on the tier above.
    above: usize,
    /// The stay on this tier.
    here: usize,
}

const NONE: usize = usize::MAX;

impl Residency {
    /// Returns `None` if the states do not fit into all tiers, or if the stream uses a state that is not stored. `sent` has the
    /// steps, in ascending order, whose states go down although the sweep forgets them, as nobody knew.
    pub(crate) fn new(model: &Model, actions: &[Action], sent: &[usize]) -> Option<Self> {
        let mut current = vec![NONE; model.steps];
        let (mut versions, mut demands) = (Vec::<Version>::new(), Vec::new());
        let mut sweep_end = actions.len();
        let encoded = (model.state as f64 * model.codec.size).ceil() as u64;
        for (at, action) in actions.iter().enumerate() {
            let (version, is_use) = match *action {
                Action::Save { step, coded } => {
                    *current.get_mut(step)? = versions.len();
                    versions.push(Version {
                        step,
                        coded,
                        bytes: if coded { encoded } else { model.state },
                        last: None,
                    });
                    (versions.len() - 1, false)
                }
                Action::Restart { step } => {
                    let version = *current.get(step)?;
                    versions.get_mut(version)?.last = Some(at);
                    (version, true)
                }
                Action::Forget { step } => {
                    let version = std::mem::replace(current.get_mut(step)?, NONE);
                    if sweep_end == actions.len() && sent.binary_search(&step).is_ok() {
                        versions.get_mut(version)?.last = Some(at);
                    }
                    continue;
                }
                Action::EndForward => {
                    sweep_end = at;
                    continue;
                }
                Action::Forward { .. } | Action::Reverse { .. } => continue,
            };
            demands.push(Demand {
                at,
                version,
                is_use,
                from: at,
                above: NONE,
                here: NONE,
            });
        }
        let mut of_action = vec![NONE; actions.len()];
        let mut transfers = vec![Transfers::default(); model.hops.len()];
        let mut stays = Vec::new();
        for level in 0..=model.hops.len() {
            let mut tier = TierSweep {
                level,
                room: match level {
                    0 => model.slots as u64,
                    _ => model.hops[level - 1].room,
                },
                is_last: level == model.hops.len(),
                versions: &versions,
                first: stays.len(),
                stays: &mut stays,
            };
            let mut below = tier.fill(&mut demands)?;
            tier.advance(&mut below, sweep_end, actions.len());
            for demand in &demands {
                let &Demand {
                    above, here, from, ..
                } = demand;
                let transfer = |source, target| Transfer {
                    source,
                    target,
                    bytes: versions[demand.version].bytes,
                    from,
                };
                match level {
                    0 => of_action[demand.at] = here,
                    _ if demand.is_use => transfers[level - 1].up.push(transfer(here, above)),
                    _ => transfers[level - 1].down.push(transfer(above, here)),
                }
            }
            // The last use of a version on the tier below is its last way up. One that only goes down leaves there on arrival.
            versions.iter_mut().for_each(|version| version.last = None);
            for demand in below.iter().filter(|demand| demand.is_use) {
                versions[demand.version].last = Some(demand.at);
            }
            demands = below;
        }
        for stay in stays
            .iter_mut()
            .filter(|stay| stay.level > 0 && stay.uses == 0)
        {
            stay.size = 0;
        }
        Some(Self {
            stays,
            of_action,
            transfers,
        })
    }
}

/// The sweep over a tier, with the last uses of the versions there.
struct TierSweep<'a> {
    level: usize,
    room: u64,
    is_last: bool,
    versions: &'a [Version],
    /// The stays on all tiers, and the first one on this.
    stays: &'a mut Vec<Stay>,
    first: usize,
}

impl TierSweep<'_> {
    /// Finds the stay of each demand. Returns the demands on the tier below.
    fn fill(&mut self, demands: &mut [Demand]) -> Option<Vec<Demand>> {
        let versions = self.versions.len();
        // In ascending order of their steps: nearly all come last and leave first or last.
        let mut residents = VecDeque::new();
        let mut is_resident = vec![false; versions];
        let mut used = 0;
        let mut open = vec![NONE; versions];
        // Actions at which each version came and left last.
        let (mut arrived, mut left) = (vec![0; versions], vec![0; versions]);
        let mut goes_down = vec![false; versions];
        let mut below = Vec::new();
        for demand in demands {
            let (at, version, is_use) = (demand.at, demand.version, demand.is_use);
            let Version {
                step,
                coded,
                bytes,
                last,
                ..
            } = self.versions[version];
            let key = (step, version);
            if !is_use {
                arrived[version] = at;
            }
            if !std::mem::replace(&mut is_resident[version], true) {
                let lower = residents.iter().rposition(|resident| *resident < key);
                residents.insert(lower.map_or(0, |index| index + 1), key);
                open[version] = self.stays.len();
                if is_use {
                    goes_down[version].then_some(())?;
                    below.push(Demand {
                        from: left[version] + 1,
                        above: open[version],
                        ..*demand
                    });
                }
                let size = if self.level == 0 { 1 } else { bytes };
                used += size;
                self.stays.push(Stay {
                    level: self.level,
                    size,
                    uses: 0,
                    is_encoded: is_use && coded,
                    begin: at,
                    end: at,
                });
            }
            demand.here = open[version];
            if is_use {
                let stay = &mut self.stays[demand.here];
                (stay.uses, stay.end) = (stay.uses + 1, at);
            }
            let is_done = last.is_none_or(|last| last <= at);
            let mut leaves = is_done.then_some(key);
            loop {
                if let Some(gone) = leaves.take() {
                    match residents.front() {
                        Some(lowest) if *lowest == gone => drop(residents.pop_front()),
                        _ => {
                            let index = residents.iter().rposition(|resident| *resident == gone);
                            residents.remove(index?);
                        }
                    }
                    is_resident[gone.1] = false;
                    used -= self.stays[open[gone.1]].size;
                    left[gone.1] = at;
                }
                if used <= self.room {
                    break;
                }
                let lowest = *residents.front()?;
                if lowest == key || self.is_last {
                    return None;
                }
                leaves = Some(lowest);
                let version = lowest.1;
                if !std::mem::replace(&mut goes_down[version], true) {
                    self.stays[open[version]].uses += 1;
                    below.push(Demand {
                        at,
                        version,
                        is_use: false,
                        from: arrived[version] + 1,
                        above: open[version],
                        here: NONE,
                    });
                }
            }
        }
        Some(below)
    }

    /// Lets transfers up begin as early as the room allows, in their order.
    fn advance(&self, demands: &mut [Demand], sweep_end: usize, actions: usize) {
        // The room taken beside each action: first its changes, then their sums.
        let mut load = vec![0i64; actions + 1];
        for stay in self.stays[self.first..].iter().filter(|stay| stay.uses > 0) {
            load[stay.begin] += stay.size as i64;
            load[stay.end + 1] -= stay.size as i64;
        }
        for action in 0..actions {
            load[action + 1] += load[action];
        }
        // Transfers begin in their order. So beside an action, all have begun that are needed later, and the bytes of all transfers
        // up to the last of these are limited there. Limits ascend: an earlier one that is no lower than a later one never counts.
        let mut limits = VecDeque::new();
        let (mut arriving, mut next) = (0, 0);
        let mut earliest = sweep_end;
        for demand in demands.iter_mut().filter(|demand| demand.is_use) {
            for (action, load) in load.iter().enumerate().take(demand.at).skip(next) {
                let limit = self.room as i64 - load + arriving;
                while limits.back().is_some_and(|&(_, before)| before >= limit) {
                    limits.pop_back();
                }
                limits.push_back((action, limit));
            }
            next = demand.at;
            arriving += self.stays[demand.above].size as i64;
            while let Some(&(action, _)) = limits.front().filter(|(_, limit)| *limit < arriving) {
                earliest = earliest.max(action + 1);
                limits.pop_front();
            }
            demand.from = earliest.max(demand.from).min(demand.at);
            earliest = demand.from;
        }
    }
}
