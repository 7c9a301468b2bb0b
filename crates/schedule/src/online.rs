//! The rule for a sweep whose length and whose links' rates nobody knows.

use crate::action::Action;
use crate::binomial;
use crate::machine::{Machine, Model};
use crate::plan::Plan;
use crate::stream::Writer;
use std::collections::VecDeque;

/// Each state enters a ring of slots on the device. The oldest state of a full ring goes down if the link is idle and the
/// tier below has room. Otherwise the rule forgets the state whose loss repeats the fewest steps. The first state always
/// stays.
#[derive(Clone, Debug)]
pub(crate) struct Online {
    slots: usize,
    rooms: Vec<usize>,
    ring: VecDeque<usize>,
    /// States on each tier below, in ascending order. Each tier's are older than those of the tier above.
    tiers: Vec<Vec<usize>>,
    at: usize,
    /// Steps whose states went down.
    sent: Vec<usize>,
    /// Transfers begun on each link down.
    pub(crate) begun: Vec<usize>,
    writer: Writer,
}

impl Online {
    /// A rule for the slots and the rooms of a machine. Its rates and times are not looked at.
    pub(crate) fn new(machine: &Machine) -> Self {
        let model = Model::new(machine, usize::MAX);
        let hops = 0..model.hops.len();
        Self {
            slots: model.slots,
            rooms: hops.clone().map(|hop| model.room(hop) as usize).collect(),
            ring: VecDeque::new(),
            tiers: vec![Vec::new(); hops.len()],
            at: 0,
            sent: Vec::new(),
            begun: vec![0; hops.len()],
            writer: Writer::default(),
        }
    }

    /// Returns what is done before the next forward step, and that step. `link_free` tells of the link down to each tier
    /// whether it is idle.
    pub(crate) fn step(&mut self, link_free: &[bool]) -> Vec<Action> {
        let before = self.writer.actions.len();
        let is_free = |hop: usize| link_free.get(hop).copied().unwrap_or(false);
        for hop in (1..self.tiers.len()).rev() {
            if is_free(hop) && 2 * self.tiers[hop - 1].len() > self.rooms[hop - 1] {
                let oldest = self.tiers[hop - 1].remove(0);
                self.tiers[hop].push(oldest);
                self.begun[hop] += 1;
                self.thin(hop);
            }
        }
        // A state on its way down has its slot until it has arrived.
        let is_leaving = !self.tiers.is_empty() && (!is_free(0) || self.ring.len() >= self.slots);
        if self.ring.len() + usize::from(is_leaving) >= self.slots {
            self.shrink(is_free(0));
        }
        if self.ring.len() < self.slots {
            self.writer.save(self.at, false);
            self.ring.push_back(self.at);
        }
        self.writer.forward(self.at, self.at + 1);
        self.at += 1;
        self.writer.actions[before..].to_vec()
    }

    /// Makes room in the ring.
    fn shrink(&mut self, is_free: bool) {
        let below: usize = self.tiers.iter().map(Vec::len).sum();
        let end = below + self.ring.len();
        let open = self.tiers.first().filter(|_| is_free).map(Vec::len);
        let has_room = open.is_some_and(|states| states < self.rooms[0]);
        if !has_room {
            let first = below - open.unwrap_or(0);
            match self.cheapest(first, end) {
                Some(index) if index < below => self.forget(index),
                Some(index) => return self.forget(index),
                None => return,
            }
        }
        let oldest = self.ring.pop_front();
        self.tiers[0].extend(oldest);
        self.sent.extend(oldest);
        self.begun[0] += 1;
    }

    /// Forgets a state of a tier that has more than its room.
    fn thin(&mut self, tier: usize) {
        let older: usize = self.tiers[tier + 1..].iter().map(Vec::len).sum();
        let end = older + self.tiers[tier].len();
        if end - older > self.rooms[tier]
            && let Some(index) = self.cheapest(older, end)
        {
            self.forget(index);
        }
    }

    /// All stored states in ascending order.
    fn states(&self) -> Vec<usize> {
        let below = self.tiers.iter().rev().flatten();
        below.chain(&self.ring).copied().collect()
    }

    /// The index among all stored states, from `first` until `end`, of the state whose loss repeats the fewest steps; among
    /// equals, on the device the oldest, below the one whose neighbours are nearest. The first state of all always stays.
    fn cheapest(&self, first: usize, end: usize) -> Option<usize> {
        let states = self.states();
        let below = states.len() - self.ring.len();
        let at = |index: usize| states.get(index).copied().unwrap_or(self.at);
        let repeated = |index: usize, steps: usize| {
            let taken = if index < below { 1 } else { index - below };
            binomial::forwards(steps as f64, self.slots.saturating_sub(taken))
        };
        let loss = |index: usize| {
            let (before, here, after) = (at(index - 1), at(index), at(index + 1));
            let loss = repeated(index - 1, after - before)
                - repeated(index - 1, here - before)
                - repeated(index, after - here);
            let distance = if index < below {
                after - before
            } else {
                usize::MAX
            };
            (loss, distance, index)
        };
        let losses = (first.max(1)..end).map(loss);
        let least = losses.min_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        least.map(|(_, _, index)| index)
    }

    /// Forgets the state of an index among all stored ones.
    fn forget(&mut self, mut index: usize) {
        for tier in self.tiers.iter_mut().rev() {
            if index < tier.len() {
                let step = tier.remove(index);
                return self.writer.actions.push(Action::Forget { step });
            }
            index -= tier.len();
        }
        let step = self.ring.remove(index);
        self.writer
            .actions
            .extend(step.map(|step| Action::Forget { step }));
    }

    /// Ends the sweep at the step that it stands at, and plans the reversal on the machine, whose rates the sweep has measured.
    pub(crate) fn end(mut self, machine: &Machine) -> Plan {
        if self.at == 0 {
            self.step(&[]);
        }
        Plan::of_sweep(machine, self.at, self.writer.actions, self.sent)
    }
}
