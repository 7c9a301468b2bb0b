//! The rule for a sweep of unknown length with links of unknown rates.

use crate::action::Action;
use crate::binomial;
use crate::machine::{Machine, Model};
use crate::plan::Plan;

/// A stored state.
#[derive(Clone, Copy, Debug)]
struct State {
    step: usize,
    /// The tier of the state: 0 for the device, 1 for the first tier below, and so on.
    level: usize,
}

/// A transfer down that began.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// The step whose state it carries.
    step: usize,
    /// The step that the sweep stood at.
    at: usize,
}

/// The rule, with the states that it has stored.
///
/// Each state gets a slot on the device. If all slots are taken, the link is idle and the tier below has room, a state goes down.
/// The rule sends the state that is as many steps after the last sent one as the sweep has taken since then, so that the distances
/// of the states below follow the link's rate. Otherwise the rule forgets the state whose loss repeats the fewest steps. The first
/// state always stays.
///
/// If copies are slow, states are not stored much more densely than they will stay: see `Online::spacing`.
#[derive(Clone, Debug)]
pub(crate) struct Online {
    slots: usize,
    /// Time of a copy between the working buffer and a slot, divided by the time of `slots` forward steps.
    copy_share: f64,
    rooms: Vec<usize>,
    /// The stored states in ascending order of their steps.
    states: Vec<State>,
    at: usize,
    /// Transfers begun on each link down.
    sent: Vec<Vec<Sent>>,
    pub(crate) actions: Vec<Action>,
}

impl Online {
    /// Makes a rule from a machine's slots, rooms, and times of a step and of a copy. Rates of links are not used.
    pub(crate) fn new(machine: &Machine) -> Self {
        let model = Model::new(machine, usize::MAX);
        let hops = 0..model.hops.len();
        Self {
            slots: model.slots,
            copy_share: model.copy / (model.forward * model.slots as f64),
            sent: vec![Vec::new(); hops.len()],
            rooms: hops.map(|hop| model.room(hop) as usize).collect(),
            states: Vec::new(),
            at: 0,
            actions: Vec::new(),
        }
    }

    /// Returns the steps of the states, ordered by their tiers, the device first, and on each tier the newest first.
    pub(crate) fn by_tier(&self) -> Vec<usize> {
        let mut states: Vec<&State> = self.states.iter().rev().collect();
        states.sort_by_key(|state| state.level);
        states.into_iter().map(|state| state.step).collect()
    }

    /// Returns the number of transfers that began on each link down.
    pub(crate) fn begun(&self) -> Vec<usize> {
        self.sent.iter().map(Vec::len).collect()
    }

    /// Adds the next forward step and the actions before it. `link_free` has true for each link down that is idle.
    pub(crate) fn step(&mut self, link_free: &[bool]) {
        let is_free = |hop: usize| link_free.get(hop) == Some(&true);
        for hop in (1..self.rooms.len()).rev() {
            if is_free(hop) && 2 * self.count(hop) > self.rooms[hop - 1] {
                self.send(hop);
                if self.count(hop + 1) > self.rooms[hop] {
                    self.forget_cheapest(|level| level == hop + 1);
                }
            }
        }
        let (step, coded) = (self.at, false);
        let newest = self.states.last();
        if newest.is_none_or(|newest| step - newest.step >= self.spacing()) {
            let (has_tiers, is_free) = (!self.rooms.is_empty(), is_free(0));
            // A state on its way down has its slot until it has arrived.
            let is_leaving = has_tiers && (!is_free || self.count(0) >= self.slots);
            if self.count(0) + usize::from(is_leaving) >= self.slots {
                let is_open = has_tiers && is_free;
                let has_room = is_open && self.count(1) < self.rooms[0];
                let is_among = |level| level == 0 || (is_open && level == 1);
                if has_room || self.forget_cheapest(is_among) == Some(1) {
                    self.send(0);
                }
            }
            if self.count(0) < self.slots {
                self.actions.push(Action::Save { step, coded });
                self.states.push(State { step, level: 0 });
            }
        }
        self.at += 1;
        let (from, to) = (step, self.at);
        self.actions.push(Action::Forward { from, to });
    }

    /// Returns the least distance, in steps, between two states that are stored.
    ///
    /// If the sweep ended here, its states would be `apart` steps from each other. If states are stored less than half as far apart,
    /// each second one is forgotten before the sweep is twice as long. The best place for a state saves about a step of the reversal.
    /// Copies of all states are therefore worth their time until together they take as long as `slots` steps.
    fn spacing(&self) -> usize {
        let apart = self.at / self.states.len().max(1);
        match self.at as f64 * self.copy_share > 1.0 {
            true => apart / 2,
            false => 1,
        }
    }

    fn count(&self, level: usize) -> usize {
        let levels = self.states.iter().map(|state| state.level);
        levels.filter(|&of| of == level).count()
    }

    /// Sends a state from `level` to the tier below.
    fn send(&mut self, level: usize) {
        let at = self.at;
        let last = self.sent[level].last();
        let wanted = last.map_or(0, |last| last.step + (at - last.at));
        let here = self.states.iter_mut().filter(|state| state.level == level);
        if let Some(state) = here.min_by_key(|state| state.step.abs_diff(wanted)) {
            state.level += 1;
            let step = state.step;
            self.sent[level].push(Sent { step, at });
        }
    }

    /// Forgets the state on some levels whose loss repeats the fewest steps, and returns its level. Among equal states, forgets the
    /// oldest on the device, or below the device the one whose neighbours are nearest to each other. The first state always stays.
    fn forget_cheapest(&mut self, is_among: impl Fn(usize) -> bool) -> Option<usize> {
        let at = |index: usize| self.states.get(index).map_or(self.at, |state| state.step);
        // Slots that are left for each gap while it is reversed. Older states then still have their slots.
        let mut left = self.slots;
        let slots = self.states.iter().map(|state| {
            let others = left.saturating_sub(1);
            match state.level {
                0 => std::mem::replace(&mut left, others),
                _ => others,
            }
        });
        let slots: Vec<usize> = slots.collect();
        let repeated = |index: usize, from: usize, to: usize| {
            binomial::forwards((to - from) as f64, slots[index])
        };
        let loss = |index: usize| {
            let (before, here, after) = (at(index - 1), at(index), at(index + 1));
            let loss = repeated(index - 1, before, after)
                - repeated(index - 1, before, here)
                - repeated(index, here, after);
            let distance = match self.states[index].level {
                0 => usize::MAX,
                _ => after - before,
            };
            (loss, distance, index)
        };
        let among = (1..self.states.len()).filter(|&index| is_among(self.states[index].level));
        let losses = among.map(loss);
        let (_, _, index) =
            losses.min_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)))?;
        let State { step, level } = self.states.remove(index);
        self.actions.push(Action::Forget { step });
        Some(level)
    }

    /// Ends the sweep at its current step, and plans the reversal on `machine`, whose rates the sweep has measured.
    pub(crate) fn end(mut self, machine: &Machine) -> Plan {
        if self.at == 0 {
            self.step(&[]);
        }
        let sent = self.sent.first().into_iter().flatten();
        let sent = sent.map(|sent| sent.step).collect();
        Plan::of_sweep(machine, self.at, self.actions, sent)
    }
}
