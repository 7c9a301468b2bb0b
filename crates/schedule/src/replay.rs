//! A stream of actions in virtual time: one computation, and one transfer at a time on each link each way.

use crate::action::Action;
use crate::machine::Model;
use crate::residency::{Residency, Stay, Transfer};

/// Times of a stream, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    pub(crate) total: f64,
    /// Until the state after the last step exists.
    pub(crate) sweep: f64,
}

/// Plays a stream. Returns `None` if it does not fit the tiers. `sent` has the steps, in ascending order, whose states go down
/// although they are forgotten in the sweep.
pub(crate) fn replay(model: &Model, actions: &[Action], sent: &[usize]) -> Option<Times> {
    let residency = Residency::new(model, actions, sent)?;
    Player::new(model, actions, &residency).play()
}

/// A link in one direction.
struct Link<'a> {
    /// Seconds of a byte.
    time: f64,
    /// The transfers in their order, and the number of them that have begun.
    transfers: &'a [Transfer],
    begun: usize,
    /// The end of the transfer under way.
    until: Option<f64>,
}

struct Player<'a> {
    model: &'a Model,
    actions: &'a [Action],
    residency: &'a Residency,
    /// Tells of each stay if the state is there, and how many uses are left.
    is_there: Vec<bool>,
    uses: Vec<usize>,
    free: Vec<u64>,
    links: Vec<Link<'a>>,
    next: usize,
    until: Option<f64>,
    now: f64,
}

impl<'a> Player<'a> {
    fn new(model: &'a Model, actions: &'a [Action], residency: &'a Residency) -> Self {
        let rooms = model.hops.iter().map(|hop| hop.room);
        let link = |time: f64, transfers: &'a [Transfer]| Link {
            time: time / model.state as f64,
            transfers,
            begun: 0,
            until: None,
        };
        let hops = model.hops.iter().zip(&residency.transfers);
        let links = hops.flat_map(|(hop, of)| [link(hop.up, &of.up), link(hop.down, &of.down)]);
        Self {
            model,
            actions,
            residency,
            is_there: vec![false; residency.stays.len()],
            uses: residency.stays.iter().map(|stay| stay.uses).collect(),
            free: std::iter::once(model.slots as u64).chain(rooms).collect(),
            links: links.collect(),
            next: 0,
            until: None,
            now: 0.0,
        }
    }

    fn play(mut self) -> Option<Times> {
        let mut sweep = 0.0;
        let is_over = |until: Option<f64>, now: f64| until.is_some_and(|until| until <= now);
        while let Some(action) = self.actions.get(self.next) {
            while self.begin_transfers() | self.begin_action() {}
            let transfers = self.links.iter().filter_map(|link| link.until);
            self.now = transfers.chain(self.until).min_by(f64::total_cmp)?;
            for link in 0..self.links.len() {
                if is_over(self.links[link].until, self.now) {
                    self.end_transfer(link);
                }
            }
            if is_over(self.until, self.now) {
                self.end_action();
                if *action == Action::EndForward {
                    sweep = self.now;
                }
            }
        }
        let total = self.now;
        Some(Times { total, sweep })
    }

    /// Starts the next action if the device is idle and has what the action needs.
    fn begin_action(&mut self) -> bool {
        let Some(action) = self.actions.get(self.next).filter(|_| self.until.is_none()) else {
            return false;
        };
        let stay = self.residency.of_action[self.next];
        let Model { copy, codec, .. } = self.model;
        let time = match *action {
            Action::Forward { from, to } => to.saturating_sub(from) as f64 * self.model.forward,
            Action::Reverse { .. } => self.model.backward,
            Action::EndForward | Action::Forget { .. } => 0.0,
            Action::Save { .. } if self.free[0] == 0 => return false,
            Action::Save { coded, .. } => {
                self.free[0] -= 1;
                copy + if coded { codec.encode } else { 0.0 }
            }
            Action::Restart { .. } if !self.is_there[stay] => return false,
            Action::Restart { .. } => {
                let of = &self.residency.stays[stay];
                let is_first = self.uses[stay] == of.uses;
                copy + if of.is_encoded && is_first {
                    codec.decode
                } else {
                    0.0
                }
            }
        };
        self.until = Some(self.now + time);
        true
    }

    fn end_action(&mut self) {
        let stay = self.residency.of_action[self.next];
        match self.actions[self.next] {
            Action::Save { .. } => self.arrive(stay),
            Action::Restart { .. } => self.use_once(stay),
            _ => {}
        }
        self.until = None;
        self.next += 1;
    }

    /// Starts the first transfer of each idle link that may begin.
    fn begin_transfers(&mut self) -> bool {
        let mut any = false;
        for link in self.links.iter_mut().filter(|link| link.until.is_none()) {
            let Some(transfer) = link.transfers.get(link.begun) else {
                continue;
            };
            let target = self.residency.stays[transfer.target];
            let free = &mut self.free[target.level];
            if self.next >= transfer.from && self.is_there[transfer.source] && *free >= target.size
            {
                *free -= target.size;
                link.until = Some(self.now + link.time * transfer.bytes as f64);
                link.begun += 1;
                any = true;
            }
        }
        any
    }

    fn end_transfer(&mut self, link: usize) {
        let link = &mut self.links[link];
        link.until = None;
        let Transfer { source, target, .. } = link.transfers[link.begun - 1];
        self.arrive(target);
        self.use_once(source);
    }

    fn arrive(&mut self, stay: usize) {
        self.is_there[stay] = true;
        self.release(stay);
    }

    fn use_once(&mut self, stay: usize) {
        self.uses[stay] -= 1;
        self.release(stay);
    }

    /// Frees the room of a stay that is used up.
    fn release(&mut self, stay: usize) {
        if self.uses[stay] == 0 {
            let Stay { level, size, .. } = self.residency.stays[stay];
            self.is_there[stay] = false;
            self.free[level] += size;
        }
    }
}
