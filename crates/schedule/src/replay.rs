//! A stream of actions in virtual time: one computation, and one transfer at a time on each link each way.

use crate::action::Action;
use crate::machine::Model;
use crate::residency::{Residency, Stay, Transfer};

/// Times of a stream, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    pub(crate) total: f64,
    /// Seconds until the state after the last step exists.
    pub(crate) sweep: f64,
}

/// Plays a stream. Returns `None` if it does not fit the tiers. `sent` has the steps, in ascending order, whose states go down
/// although they are forgotten in the sweep.
pub(crate) fn replay(model: &Model, actions: &[Action], sent: &[usize]) -> Option<Times> {
    let residency = Residency::new(model, actions, sent)?;
    let times = model.hops.iter().flat_map(|hop| [hop.up, hop.down]);
    let links = times.zip(&residency.links).map(|(time, transfers)| Link {
        time: time / model.state as f64,
        transfers,
        begun: 0,
        until: None,
    });
    let mut player = Player {
        model,
        is_there: vec![false; residency.stays.len()],
        stays: residency.stays,
        free: residency.rooms,
        links: links.collect(),
        next: 0,
        until: None,
        now: 0.0,
    };
    let mut sweep = 0.0;
    while let Some(action) = actions.get(player.next) {
        let stay = residency.of_action[player.next];
        while player.begin_transfers() | player.begin_action(action, stay) {}
        let transfers = player.links.iter().filter_map(|link| link.until);
        let now = transfers.chain(player.until).min_by(f64::total_cmp)?;
        player.now = now;
        let is_over = |until: &mut f64| *until <= now;
        for link in 0..player.links.len() {
            let link = &mut player.links[link];
            if link.until.take_if(is_over).is_some() {
                let Transfer { source, target, .. } = link.transfers[link.begun - 1];
                player.arrive(target);
                player.use_once(source);
            }
        }
        if player.until.take_if(is_over).is_some() {
            match *action {
                Action::Save { .. } => player.arrive(stay),
                Action::Restart { .. } => player.use_once(stay),
                Action::EndForward => sweep = now,
                _ => {}
            }
            player.next += 1;
        }
    }
    let total = player.now;
    Some(Times { total, sweep })
}

/// A link in one direction.
struct Link<'a> {
    /// Seconds of a byte.
    time: f64,
    /// The transfers in their order.
    transfers: &'a [Transfer],
    /// Number of transfers that have begun.
    begun: usize,
    /// The end of the transfer under way.
    until: Option<f64>,
}

struct Player<'a> {
    model: &'a Model,
    /// The stays, with the uses that are left.
    stays: Vec<Stay>,
    /// True for each stay whose state is on its tier.
    is_there: Vec<bool>,
    free: Vec<u64>,
    links: Vec<Link<'a>>,
    next: usize,
    until: Option<f64>,
    now: f64,
}

impl Player<'_> {
    /// Starts the next action if the device is idle, and has the slot or the state that the action needs. Returns true if it did.
    fn begin_action(&mut self, action: &Action, stay: usize) -> bool {
        let Model { copy, .. } = self.model;
        let time = match *action {
            _ if self.until.is_some() => return false,
            Action::Forward { from, to } => to.saturating_sub(from) as f64 * self.model.forward,
            Action::Reverse { .. } => self.model.backward,
            Action::EndForward | Action::Forget { .. } => 0.0,
            Action::Save { .. } if self.free[0] == 0 => return false,
            Action::Save { coded, .. } => {
                self.free[0] -= 1;
                copy + if coded { self.model.encode } else { 0.0 }
            }
            Action::Restart { .. } if !self.is_there[stay] => return false,
            Action::Restart { .. } if self.stays[stay].is_encoded => copy + self.model.decode,
            Action::Restart { .. } => *copy,
        };
        self.until = Some(self.now + time);
        true
    }

    /// Starts the next transfer of each idle link, if it may begin. Returns true if any started.
    fn begin_transfers(&mut self) -> bool {
        let mut any = false;
        for link in self.links.iter_mut().filter(|link| link.until.is_none()) {
            let Some(transfer) = link.transfers.get(link.begun) else {
                continue;
            };
            let Stay { level, size, .. } = self.stays[transfer.target];
            let free = &mut self.free[level];
            if self.next >= transfer.from && self.is_there[transfer.source] && *free >= size {
                *free -= size;
                link.until = Some(self.now + link.time * transfer.bytes as f64);
                link.begun += 1;
                any = true;
            }
        }
        any
    }

    fn arrive(&mut self, stay: usize) {
        self.is_there[stay] = true;
        self.release(stay);
    }

    /// Counts a use of a state. The first use decodes the state.
    fn use_once(&mut self, stay: usize) {
        self.stays[stay].uses -= 1;
        self.stays[stay].is_encoded = false;
        self.release(stay);
    }

    /// Frees the room of a stay that is used up.
    fn release(&mut self, stay: usize) {
        let Stay {
            level, size, uses, ..
        } = self.stays[stay];
        if uses == 0 {
            self.is_there[stay] = false;
            self.free[level] += size;
        }
    }
}
