//! The stays that the states of a stream have on each tier, by Belady's rule. For reversals, it is the rule of a stack.
//!
//! The state of the highest step is used first. A full tier therefore gives up the lowest step that it holds. Stays do not
//! depend on time, which the replay adds.

use crate::action::Action;
use crate::machine::Model;
use std::collections::VecDeque;

/// A stay of a state on a tier: from its arrival until it was used `uses` times. Transfers to other tiers are uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    pub(crate) level: usize,
    /// Slots on the device, bytes below; 0 for a state that is forgotten on arrival, which costs the link's time only.
    pub(crate) size: u64,
    pub(crate) uses: usize,
    /// True if the state comes from below and is compressed.
    pub(crate) is_encoded: bool,
    /// Index of the action at which the stay begins.
    begin: usize,
    /// Index of the action at which the stay ends.
    end: usize,
}

/// A transfer over a hop, between two stays. Lists of transfers have the order in which the stream needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) source: usize,
    pub(crate) target: usize,
    pub(crate) bytes: u64,
    /// Index of the first action beside which the transfer may begin without taking room that others need.
    pub(crate) from: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Residency {
    pub(crate) stays: Vec<Stay>,
    /// The stay on the device that each action saves or restarts from.
    pub(crate) of_action: Vec<usize>,
    /// Slots on the device, and bytes of each tier below.
    pub(crate) rooms: Vec<u64>,
    /// Two lists for each hop: its transfers up, then its transfers down.
    pub(crate) links: Vec<Vec<Transfer>>,
}

/// A state that is saved. A step that is saved again is another version.
struct Version {
    step: usize,
    coded: bool,
    /// Bytes below the device.
    bytes: u64,
    /// The last action that uses the version on the tier that is being filled.
    last: Option<usize>,
}

/// A version that a tier takes in at an action, or has to provide for one (`is_use`).
#[derive(Clone, Copy)]
struct Demand {
    at: usize,
    version: usize,
    is_use: bool,
    /// The first action beside which the version's transfer may begin.
    from: usize,
    /// The stay on the tier above.
    above: usize,
}

const NONE: usize = usize::MAX;

impl Residency {
    /// Computes the stays. Returns `None` if the states do not fit into all tiers, or if the stream uses a state that is not stored.
    /// `sent` has the steps, in ascending order, whose states went down before the sweep forgot them.
    pub(crate) fn new(model: &Model, actions: &[Action], sent: &[usize]) -> Option<Self> {
        let mut current = vec![NONE; model.steps];
        let (mut versions, mut demands) = (Vec::<Version>::new(), Vec::new());
        let mut sweep_end = actions.len();
        let encoded = (model.state as f64 * model.size).ceil() as u64;
        for (at, action) in actions.iter().enumerate() {
            let demand = |version, is_use| Demand {
                at,
                version,
                is_use,
                from: at,
                above: NONE,
            };
            match *action {
                Action::Save { step, coded } => {
                    *current.get_mut(step)? = versions.len();
                    demands.push(demand(versions.len(), false));
                    versions.push(Version {
                        step,
                        coded,
                        bytes: if coded { encoded } else { model.state },
                        last: None,
                    });
                }
                Action::Restart { step } => {
                    let version = *current.get(step)?;
                    versions.get_mut(version)?.last = Some(at);
                    demands.push(demand(version, true));
                }
                Action::Forget { step } => {
                    let version = std::mem::replace(current.get_mut(step)?, NONE);
                    if sweep_end == actions.len() && sent.binary_search(&step).is_ok() {
                        versions.get_mut(version)?.last = Some(at);
                    }
                }
                Action::EndForward => sweep_end = at,
                Action::Forward { .. } | Action::Reverse { .. } => {}
            }
        }
        let rooms = model.hops.iter().map(|hop| hop.room);
        let mut residency = Self {
            stays: Vec::new(),
            of_action: vec![NONE; actions.len()],
            rooms: std::iter::once(model.slots as u64).chain(rooms).collect(),
            links: vec![Vec::new(); 2 * model.hops.len()],
        };
        for level in 0..residency.rooms.len() {
            let mut below = residency.fill(level, &versions, &demands)?;
            residency.advance(level, &mut below, sweep_end);
            // The last use of a version on the tier below is its last transfer up. A version without transfers up leaves that tier on
            // arrival.
            versions.iter_mut().for_each(|version| version.last = None);
            for demand in below.iter().filter(|demand| demand.is_use) {
                versions[demand.version].last = Some(demand.at);
            }
            demands = below;
        }
        let is_unused = |stay: &&mut Stay| stay.level > 0 && stay.uses == 0;
        let unused = residency.stays.iter_mut().filter(is_unused);
        unused.for_each(|stay| stay.size = 0);
        Some(residency)
    }

    /// Finds the stays on a tier, and the transfers to and from the tier above, by the demands on it and the last uses of the
    /// versions there. Returns the demands on the tier below.
    fn fill(
        &mut self,
        level: usize,
        versions: &[Version],
        demands: &[Demand],
    ) -> Option<Vec<Demand>> {
        // The versions on the tier in ascending order of their steps. Nearly all are inserted last and removed first or last.
        let mut residents = VecDeque::new();
        let mut used = 0;
        // By version: the stay on this tier, and the action at which the version last left for the tier below.
        let (mut open, mut left) = (vec![None; versions.len()], vec![None; versions.len()]);
        let mut below = Vec::new();
        for &demand in demands {
            let (at, version, is_use) = (demand.at, demand.version, demand.is_use);
            let of = &versions[version];
            let key = (of.step, version);
            let here = *open[version].get_or_insert(self.stays.len());
            if here == self.stays.len() {
                residents.insert(residents.partition_point(|other| *other < key), key);
                if is_use {
                    below.push(Demand {
                        from: left[version]? + 1,
                        above: here,
                        ..demand
                    });
                }
                let size = if level == 0 { 1 } else { of.bytes };
                used += size;
                self.stays.push(Stay {
                    level,
                    size,
                    uses: 0,
                    is_encoded: is_use && of.coded,
                    begin: at,
                    end: at,
                });
            }
            if is_use {
                let stay = &mut self.stays[here];
                (stay.uses, stay.end) = (stay.uses + 1, at);
            }
            let (source, target) = match is_use {
                true => (here, demand.above),
                false => (demand.above, here),
            };
            match level {
                0 => self.of_action[at] = here,
                _ => self.links[2 * level - 1 - usize::from(is_use)].push(Transfer {
                    source,
                    target,
                    bytes: of.bytes,
                    from: demand.from,
                }),
            }
            let mut is_done = of.last.is_none_or(|last| last <= at);
            while is_done || used > self.rooms[level] {
                let gone = if is_done { key } else { *residents.front()? };
                residents.remove(residents.binary_search(&gone).ok()?);
                let (_, version) = gone;
                let above = open[version].take()?;
                let stay = &mut self.stays[above];
                used -= stay.size;
                if std::mem::take(&mut is_done) {
                    continue;
                }
                if gone == key || level + 1 == self.rooms.len() {
                    return None;
                }
                if left[version].replace(at).is_none() {
                    stay.uses += 1;
                    below.push(Demand {
                        at,
                        version,
                        is_use: false,
                        from: stay.begin + 1,
                        above,
                    });
                }
            }
        }
        Some(below)
    }

    /// Lets transfers up begin as early as the room allows, in their order.
    fn advance(&self, level: usize, demands: &mut [Demand], sweep_end: usize) {
        // Changes of the used room, by action.
        let mut changes = vec![0i64; self.of_action.len() + 1];
        let is_here = |stay: &&Stay| stay.level == level && stay.uses > 0;
        for stay in self.stays.iter().filter(is_here) {
            changes[stay.begin] += stay.size as i64;
            changes[stay.end + 1] -= stay.size as i64;
        }
        // Transfers begin in their order. The room that is free beside an action therefore limits the bytes of all transfers that have
        // begun by then. `limits` ascends: an earlier limit that is not below a later one never counts.
        let mut limits = VecDeque::new();
        let (mut free, mut arriving, mut next) = (self.rooms[level] as i64, 0, 0);
        let mut earliest = sweep_end;
        for demand in demands.iter_mut().filter(|demand| demand.is_use) {
            for (action, change) in changes.iter().enumerate().take(demand.at).skip(next) {
                free -= change;
                let limit = free + arriving;
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
