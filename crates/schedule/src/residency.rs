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

#[derive(Clone, Debug)]
pub(crate) struct Level {
    /// For each version, the uses of each of its stays. The way down, which it takes once, is a use of the first stay.
    pub(crate) stays: Vec<Vec<usize>>,
    /// Transfers to the tier below.
    pub(crate) down: Vec<Transfer>,
    /// Transfers from the tier below.
    pub(crate) up: Vec<Transfer>,
}

/// A state that is saved.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    step: usize,
    pub(crate) coded: bool,
    /// Bytes below the device.
    pub(crate) bytes: u64,
    /// The last action that uses it on the tier in question.
    last: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Residency {
    pub(crate) levels: Vec<Level>,
    /// The version that each action saves or restarts from.
    pub(crate) of_action: Vec<Version>,
    pub(crate) versions: Vec<Saved>,
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
        let (mut versions, mut demands) = (Vec::<Saved>::new(), Vec::new());
        let mut of_action = vec![usize::MAX; actions.len()];
        let mut sweep_end = actions.len();
        let encoded = (model.state as f64 * model.codec.size).ceil() as u64;
        for (at, action) in actions.iter().enumerate() {
            let version = match *action {
                Action::Save { step, coded } => {
                    *current.get_mut(step)? = versions.len();
                    versions.push(Saved {
                        step,
                        coded,
                        bytes: if coded { encoded } else { model.state },
                        last: None,
                    });
                    versions.len() - 1
                }
                Action::Restart { step } => {
                    let version = *current.get(step)?;
                    versions.get_mut(version)?.last = Some(at);
                    version
                }
                Action::Forget { step } => {
                    let version = std::mem::replace(current.get_mut(step)?, usize::MAX);
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
            of_action[at] = version;
            demands.push(Demand {
                at,
                version,
                is_use: matches!(action, Action::Restart { .. }),
            });
        }
        let mut levels = Vec::new();
        for level in 0..=model.hops.len() {
            let tier = TierSweep {
                room: match level {
                    0 => model.slots as u64,
                    _ => model.hops[level - 1].room,
                },
                is_device: level == 0,
                is_last: level == model.hops.len(),
                versions: &versions,
                sweep_end,
                actions: actions.len(),
            };
            let (found, below) = tier.fill(&demands)?;
            levels.push(found);
            // The last use of a version on the tier below is its last way up. One that only goes down leaves there on arrival.
            versions.iter_mut().for_each(|version| version.last = None);
            for demand in below.iter().filter(|demand| demand.is_use) {
                versions[demand.version].last = Some(demand.at);
            }
            demands = below;
        }
        Some(Self {
            levels,
            of_action,
            versions,
        })
    }

    /// Room that a version takes: slots on the device, bytes below.
    pub(crate) fn size(&self, level: usize, version: Version) -> u64 {
        match level {
            0 => 1,
            // A version that is forgotten on arrival takes the link's time alone.
            _ if self.levels[level].stays[version]
                .iter()
                .all(|&uses| uses == 0) =>
            {
                0
            }
            _ => self.versions[version].bytes,
        }
    }
}

/// The sweep over a tier, with the last uses of the versions there.
struct TierSweep<'a> {
    room: u64,
    is_device: bool,
    is_last: bool,
    versions: &'a [Saved],
    sweep_end: usize,
    actions: usize,
}

impl TierSweep<'_> {
    /// Each version takes one slot of the device.
    fn size(&self, version: Version) -> u64 {
        match self.is_device {
            true => 1,
            false => self.versions[version].bytes,
        }
    }

    /// Returns the tier's transfers and what it asks of the tier below.
    fn fill(&self, demands: &[Demand]) -> Option<(Level, Vec<Demand>)> {
        let versions = self.versions.len();
        let mut residents = BTreeSet::new();
        let mut used = 0;
        let mut open: Vec<Option<Stay>> = vec![None; versions];
        // Actions at which each version came and left last.
        let (mut arrived, mut left) = (vec![0; versions], vec![0; versions]);
        let mut goes_down = vec![false; versions];
        let (mut ended, mut below) = (Vec::new(), Vec::new());
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for &demand in demands {
            let (at, version, is_use) = (demand.at, demand.version, demand.is_use);
            let key = (self.versions[version].step, version);
            if !is_use {
                arrived[version] = at;
            }
            if residents.insert(key) {
                if is_use {
                    let (due, from) = (at, left[version] + 1);
                    goes_down[version].then_some(())?;
                    up.push(Transfer { version, due, from });
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
            let is_done = self.versions[version].last.is_none_or(|last| last <= at);
            let mut leaves = is_done.then_some(key);
            loop {
                if let Some(gone) = leaves.take() {
                    residents.remove(&gone);
                    used -= self.size(gone.1);
                    left[gone.1] = at;
                    ended.extend(open[gone.1].take());
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
                if !std::mem::replace(&mut goes_down[version], true) {
                    let (due, from, is_use) = (at, arrived[version] + 1, false);
                    down.push(Transfer { version, due, from });
                    below.push(Demand {
                        at,
                        version,
                        is_use,
                    });
                }
            }
        }
        ended.extend(open.into_iter().flatten());
        self.advance(&mut up, &ended);
        let mut stays = vec![Vec::new(); versions];
        for stay in ended {
            let of: &mut Vec<usize> = &mut stays[stay.version];
            let way_down = of.is_empty() && goes_down[stay.version];
            of.push(stay.uses + usize::from(way_down));
        }
        Some((Level { stays, down, up }, below))
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
        let ahead = match self.is_device {
            true => AHEAD,
            false => self.actions,
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
