use crate::action::Action;
use crate::binomial;
use crate::machine::{Machine, Model};
use crate::plan::Plan;
use crate::reversal::Sweep;
use crate::stream::Writer;
use std::collections::VecDeque;

/// The rule for a sweep whose length and whose links' rates nobody knows.
///
/// Each state enters a ring of slots on the device. The oldest state of a full ring goes down if the link is idle and the
/// tier below has room. Otherwise the rule forgets the state whose loss repeats the fewest steps. The first state always
/// stays.
#[derive(Clone, Debug)]
pub struct Online {
    slots: usize,
    rooms: Vec<usize>,
    ring: VecDeque<usize>,
    /// States on each tier below, in ascending order. Each tier's are older than those of the tier above.
    tiers: Vec<Vec<usize>>,
    at: usize,
    sent: Vec<usize>,
    /// Transfers begun on each link down.
    begun: Vec<usize>,
    writer: Writer,
}

impl Online {
    /// A rule for the slots and the rooms of a machine. Its rates and times are not looked at.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let model = Model::new(machine, usize::MAX);
        let rooms: Vec<usize> = (0..model.hops.len())
            .map(|hop| model.room(hop) as usize)
            .collect();
        Self {
            slots: model.slots,
            tiers: vec![Vec::new(); rooms.len()],
            rooms,
            ring: VecDeque::new(),
            at: 0,
            sent: Vec::new(),
            begun: vec![0; model.hops.len()],
            writer: Writer::default(),
        }
    }

    /// Returns what is done before the next forward step, and that step. `link_free` tells of the link down to each tier
    /// whether it is idle.
    pub fn step(&mut self, link_free: &[bool]) -> Vec<Action> {
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
        let leaving =
            usize::from(!self.tiers.is_empty() && (!is_free(0) || self.ring.len() >= self.slots));
        if self.ring.len() + leaving >= self.slots {
            self.shrink(is_free(0));
        }
        if self.ring.len() < self.slots {
            self.writer.save(self.at);
            self.ring.push_back(self.at);
        }
        self.writer.forward(self.at, self.at + 1);
        self.at += 1;
        self.writer.actions[before..].to_vec()
    }

    /// Transfers that the rule has begun so far on the link down to each tier.
    #[must_use]
    pub fn moved(&self) -> Vec<usize> {
        self.begun.clone()
    }

    /// Makes room in the ring.
    fn shrink(&mut self, is_free: bool) {
        let below: usize = self.tiers.iter().map(Vec::len).sum();
        let end = below + self.ring.len();
        let open = self.tiers.first().filter(|_| is_free).map(Vec::len);
        let has_room = open.is_some_and(|states| states < self.rooms[0]);
        let first = below - open.unwrap_or(0);
        let lost = (!has_room).then(|| self.cheapest(first, end)).flatten();
        if let Some(index) = lost.filter(|&index| index >= below) {
            if let Some(state) = self.ring.remove(index - below) {
                self.forget(state);
            }
            return;
        }
        if let Some(index) = lost {
            let state = self.tiers[0].remove(index - first);
            self.forget(state);
        }
        if has_room || lost.is_some() {
            let oldest = self.ring.pop_front();
            self.tiers[0].extend(oldest);
            self.sent.extend(oldest);
            self.begun[0] += 1;
        }
    }

    /// Forgets a state of a tier that has more than its room.
    fn thin(&mut self, tier: usize) {
        if self.tiers[tier].len() > self.rooms[tier] {
            let before = self.tiers[tier + 1..].iter().map(Vec::len).sum();
            if let Some(index) = self.cheapest(before, before + self.tiers[tier].len()) {
                let state = self.tiers[tier].remove(index - before);
                self.forget(state);
            }
        }
    }

    /// All stored states in ascending order.
    fn states(&self) -> Vec<usize> {
        self.tiers
            .iter()
            .rev()
            .flatten()
            .chain(&self.ring)
            .copied()
            .collect()
    }

    /// The index among all stored states, from `first` until `end`, of the state whose loss repeats the fewest steps; among
    /// equals, on the device the oldest, below the one whose neighbours are nearest. The first state of all always stays.
    fn cheapest(&self, first: usize, end: usize) -> Option<usize> {
        let states = self.states();
        let below = states.len() - self.ring.len();
        let at = |index: usize| states.get(index).copied().unwrap_or(self.at);
        let repeated = |index: usize, steps: usize| {
            let taken = if index < below { 1 } else { index - below };
            binomial::forwards(steps as f64, self.slots.saturating_sub(taken).max(1))
        };
        let loss = |index: usize| {
            let (before, here, after) = (at(index - 1), at(index), at(index + 1));
            let loss = repeated(index - 1, after - before)
                - repeated(index - 1, here - before)
                - repeated(index, after - here);
            (
                loss,
                if index < below {
                    after - before
                } else {
                    usize::MAX
                },
            )
        };
        (first.max(1)..end)
            .map(|index| (loss(index), index))
            .min_by(|a, b| {
                a.0.0
                    .total_cmp(&b.0.0)
                    .then(a.0.1.cmp(&b.0.1))
                    .then(a.1.cmp(&b.1))
            })
            .map(|(_, index)| index)
    }

    fn forget(&mut self, step: usize) {
        self.writer.actions.push(Action::Forget { step });
    }

    /// Ends the sweep at the step that it stands at, and plans the reversal: the best of a few numbers of slots for gaps on
    /// the machine, whose rates the sweep has measured.
    #[must_use]
    pub fn end(mut self, machine: &Machine) -> Plan {
        if self.at == 0 {
            self.step(&[]);
        }
        let slowest = self.tiers.iter().rfind(|tier| !tier.is_empty());
        let rooms = self.rooms.iter();
        let sweep = Sweep {
            steps: self.at,
            states: self.states(),
            on_device: self.ring.len(),
            slowest: slowest.map_or(0, Vec::len),
            slots: self.slots,
            room: rooms.fold(self.slots, |sum, room| sum.saturating_add(*room)),
            sent: self.sent,
            actions: self.writer.actions,
        };
        let plan = sweep.best(machine, None);
        plan.unwrap_or_else(|| Plan::quick(machine, self.at))
    }
}
