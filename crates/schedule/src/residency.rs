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
    pub(crate) due: usize,
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

#[derive(Clone, Copy)]
enum Kind {
    Put,
    Use,
}

#[derive(Clone, Copy)]
struct Demand {
    at: usize,
    kind: Kind,
    version: Version,
}

/// The most actions that a transfer to the device begins ahead of the one that needs it.
const AHEAD: usize = 2048;

impl Residency {
    /// Returns `None` if the states do not fit into all tiers, or if the stream uses a state that is not stored.
    /// `sent` has the versions that go down although nobody uses them again, as nobody knew.
    pub(crate) fn new(
        model: &Model,
        actions: &[Action],
        sent: &dyn Fn(usize) -> bool,
    ) -> Option<Self> {
        let mut current = vec![usize::MAX; model.steps];
        let mut steps = Vec::new();
        let mut coded = Vec::new();
        let mut last: Vec<Option<usize>> = Vec::new();
        let mut demands = Vec::new();
        let mut of_action = vec![usize::MAX; actions.len()];
        let mut sweep_end = actions.len();
        for (at, action) in actions.iter().enumerate() {
            match *action {
                Action::Save {
                    step,
                    coded: is_coded,
                } => {
                    let version = steps.len();
                    *current.get_mut(step)? = version;
                    steps.push(step);
                    coded.push(is_coded);
                    last.push(None);
                    of_action[at] = version;
                    demands.push(Demand {
                        at,
                        kind: Kind::Put,
                        version,
                    });
                }
                Action::Restart { step } => {
                    let version = *current.get(step)?;
                    *last.get_mut(version)? = Some(at);
                    of_action[at] = version;
                    demands.push(Demand {
                        at,
                        kind: Kind::Use,
                        version,
                    });
                }
                Action::Forget { step } => {
                    let version = *current.get(step)?;
                    if sweep_end == actions.len() && sent(step) {
                        *last.get_mut(version)? = Some(at);
                    }
                    current[step] = usize::MAX;
                }
                Action::EndForward => sweep_end = at,
                Action::Forward { .. } | Action::Reverse { .. } => {}
            }
        }
        let bytes: Vec<u64> = coded
            .iter()
            .map(|&coded| match model.codec {
                Some(codec) if coded => (model.state as f64 * codec.size).ceil() as u64,
                _ => model.state,
            })
            .collect();
        let mut levels = Vec::new();
        for level in 0..=model.hops.len() {
            let room = if level == 0 {
                model.slots as u64
            } else {
                model.hops[level - 1].room
            };
            let tier = TierSweep {
                room,
                bytes: (level > 0).then_some(&bytes[..]),
                steps: &steps,
                last: &last,
                is_last: level == model.hops.len(),
                sweep_end,
                actions: actions.len(),
            };
            let (found, below) = tier.fill(&demands)?;
            levels.push(found);
            // The last use of a version on the tier below is its last way up.
            last = vec![None; steps.len()];
            for demand in &below {
                if matches!(demand.kind, Kind::Use) {
                    last[demand.version] = Some(demand.at);
                }
            }
            // A version that only goes down ends its stay there on arrival.
            demands = below;
        }
        Some(Self {
            levels,
            of_action,
            coded,
            bytes,
        })
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
        let mut is_below = vec![false; versions];
        let mut arrived = vec![0; versions];
        let mut left = vec![0; versions];
        let mut stays: Vec<Stay> = Vec::new();
        let mut below = Vec::new();
        let mut level = Level {
            stays: vec![Vec::new(); versions],
            ..Level::default()
        };
        for &Demand { at, kind, version } in demands {
            let key = (self.steps[version], version);
            let is_resident = residents.contains(&key);
            match kind {
                Kind::Put => arrived[version] = at,
                Kind::Use if !is_resident => {
                    if !is_below[version] {
                        return None;
                    }
                    level.up.push(Transfer {
                        version,
                        due: at,
                        from: left[version] + 1,
                    });
                    below.push(Demand {
                        at,
                        kind: Kind::Use,
                        version,
                    });
                }
                Kind::Use => {}
            }
            if !is_resident {
                residents.insert(key);
                used += self.size(version);
                open[version] = Some(Stay {
                    version,
                    begin: at,
                    end: at,
                    uses: 0,
                });
            }
            if let (Kind::Use, Some(stay)) = (kind, &mut open[version]) {
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
                let victim = lowest.1;
                if !is_below[victim] {
                    is_below[victim] = true;
                    level.down.push(Transfer {
                        version: victim,
                        due: at,
                        from: arrived[victim] + 1,
                    });
                    below.push(Demand {
                        at,
                        kind: Kind::Put,
                        version: victim,
                    });
                }
                leaves = Some(lowest);
            }
        }
        for stay in open.into_iter().flatten() {
            level.stays[stay.version].push(stay.uses);
            stays.push(stay);
        }
        self.advance(&mut level.up, &stays);
        level.goes_down = is_below;
        Some((level, below))
    }

    /// Lets transfers begin as early as the room allows, in their order.
    fn advance(&self, transfers: &mut [Transfer], stays: &[Stay]) {
        let mut steps = vec![0i64; self.actions + 1];
        for stay in stays.iter().filter(|stay| stay.uses > 0) {
            steps[stay.begin] += self.size(stay.version) as i64;
            steps[stay.end + 1] -= self.size(stay.version) as i64;
        }
        let mut taken = 0;
        let mut load: Vec<u64> = steps
            .iter()
            .map(|step| {
                taken += step;
                taken as u64
            })
            .collect();
        let mut earliest = self.sweep_end;
        for transfer in transfers {
            let size = self.size(transfer.version);
            let ahead = if self.bytes.is_none() {
                AHEAD
            } else {
                self.actions
            };
            let least = earliest
                .max(transfer.from)
                .max(transfer.due.saturating_sub(ahead));
            transfer.from = transfer.due;
            while transfer.from > least && load[transfer.from - 1] + size <= self.room {
                transfer.from -= 1;
                load[transfer.from] += size;
            }
            earliest = transfer.from;
        }
    }
}
