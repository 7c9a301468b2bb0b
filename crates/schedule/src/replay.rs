//! A stream of actions in virtual time: one computation, and one transfer at a time on each link each way.

use crate::action::Action;
use crate::machine::Model;
use crate::residency::{Residency, Transfer, Version};

/// Times of a stream, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    pub(crate) total: f64,
    /// Until the state after the last step exists.
    pub(crate) sweep: f64,
}

/// Plays a stream whose states all are used. Returns `None` if it does not fit the tiers.
pub(crate) fn replay(model: &Model, actions: &[Action]) -> Option<Times> {
    replay_sent(model, actions, &|_| false)
}

/// Plays a stream. `sent` has the steps whose states go down although they are forgotten in the sweep.
pub(crate) fn replay_sent(
    model: &Model,
    actions: &[Action],
    sent: &dyn Fn(usize) -> bool,
) -> Option<Times> {
    let residency = Residency::new(model, actions, sent)?;
    Player::new(model, actions, &residency).play()
}

/// A version on a tier.
#[derive(Clone, Copy, Default)]
struct Copy {
    is_present: bool,
    /// Uses left of this stay.
    uses: usize,
    /// Stays so far.
    stays: usize,
    /// The tier below has had it.
    is_below: bool,
}

/// A link in one direction.
#[derive(Clone, Copy, Default)]
struct Link {
    next: usize,
    /// The end of the transfer under way.
    until: Option<f64>,
}

struct Player<'a> {
    model: &'a Model,
    actions: &'a [Action],
    residency: &'a Residency,
    copies: Vec<Vec<Copy>>,
    free: Vec<u64>,
    down: Vec<Link>,
    up: Vec<Link>,
    /// Versions that were decoded on their way, or not encoded.
    is_encoded: Vec<bool>,
    next: usize,
    until: Option<f64>,
    now: f64,
}

impl<'a> Player<'a> {
    fn new(model: &'a Model, actions: &'a [Action], residency: &'a Residency) -> Self {
        let versions = residency.bytes.len();
        let hops = model.hops.len();
        let rooms = model.hops.iter().map(|hop| hop.room);
        Self {
            model,
            actions,
            residency,
            copies: vec![vec![Copy::default(); versions]; hops + 1],
            free: std::iter::once(model.slots as u64).chain(rooms).collect(),
            down: vec![Link::default(); hops],
            up: vec![Link::default(); hops],
            is_encoded: vec![false; versions],
            next: 0,
            until: None,
            now: 0.0,
        }
    }

    fn size(&self, level: usize, version: Version) -> u64 {
        let tier = &self.residency.levels[level];
        match level {
            0 => 1,
            // A version that is forgotten on arrival takes the link's time alone.
            _ if !tier.goes_down[version] && tier.stays[version].iter().all(|&uses| uses == 0) => 0,
            _ => self.residency.bytes[version],
        }
    }

    fn play(mut self) -> Option<Times> {
        let mut sweep = 0.0;
        while self.next < self.actions.len() {
            while self.begin_transfers() | self.begin_action() {}
            let transfers = self
                .down
                .iter()
                .chain(&self.up)
                .filter_map(|link| link.until);
            let soonest = transfers.chain(self.until).min_by(f64::total_cmp)?;
            self.now = soonest;
            for hop in 0..self.down.len() {
                if self.down[hop].until.is_some_and(|until| until <= soonest) {
                    self.down[hop].until = None;
                    self.end_down(hop);
                }
                if self.up[hop].until.is_some_and(|until| until <= soonest) {
                    self.up[hop].until = None;
                    self.end_up(hop);
                }
            }
            if self.until.is_some_and(|until| until <= soonest) {
                self.until = None;
                self.end_action();
                if matches!(self.actions[self.next - 1], Action::EndForward) {
                    sweep = self.now;
                }
            }
        }
        Some(Times {
            total: self.now,
            sweep,
        })
    }

    /// Starts the next action if the device is idle and has what the action needs.
    fn begin_action(&mut self) -> bool {
        let Some(action) = self.actions.get(self.next).filter(|_| self.until.is_none()) else {
            return false;
        };
        let version = self.residency.of_action[self.next];
        let time = match *action {
            Action::Forward { from, to } => to.saturating_sub(from) as f64 * self.model.forward,
            Action::Reverse { .. } => self.model.backward,
            Action::EndForward | Action::Forget { .. } => 0.0,
            Action::Save { .. } => {
                if self.free[0] == 0 {
                    return false;
                }
                self.free[0] -= 1;
                let is_coded = self.residency.coded[version];
                let encode = self.model.codec.filter(|_| is_coded);
                self.model.copy + encode.map_or(0.0, |codec| codec.encode)
            }
            Action::Restart { .. } => {
                if !self.copies[0][version].is_present {
                    return false;
                }
                let is_encoded = std::mem::take(&mut self.is_encoded[version]);
                let decode = self.model.codec.filter(|_| is_encoded);
                self.model.copy + decode.map_or(0.0, |codec| codec.decode)
            }
        };
        self.until = Some(self.now + time);
        true
    }

    fn end_action(&mut self) {
        let version = self.residency.of_action[self.next];
        match self.actions[self.next] {
            Action::Save { .. } => self.arrive(0, version),
            Action::Restart { .. } => self.use_once(0, version),
            _ => {}
        }
        self.next += 1;
    }

    fn transfer(&self, link: &Link, list: &[Transfer]) -> Option<Version> {
        let transfer = list.get(link.next).filter(|_| link.until.is_none())?;
        (self.next >= transfer.from).then_some(transfer.version)
    }

    /// Starts the first transfer of each idle link that may begin.
    fn begin_transfers(&mut self) -> bool {
        let mut any = false;
        for hop in 0..self.down.len() {
            let level = &self.residency.levels[hop];
            let time = self.model.hops[hop];
            if let Some(version) = self.transfer(&self.up[hop], &level.up)
                && self.copies[hop + 1][version].is_present
                && self.free[hop] >= self.size(hop, version)
            {
                self.free[hop] -= self.size(hop, version);
                let link = &mut self.up[hop];
                link.until = Some(
                    self.now
                        + time.up * self.residency.bytes[version] as f64 / self.model.state as f64,
                );
                link.next += 1;
                any = true;
            }
            if let Some(version) = self.transfer(&self.down[hop], &level.down)
                && self.copies[hop][version].is_present
                && self.free[hop + 1] >= self.size(hop + 1, version)
            {
                self.free[hop + 1] -= self.size(hop + 1, version);
                let link = &mut self.down[hop];
                link.until = Some(
                    self.now
                        + time.down * self.residency.bytes[version] as f64
                            / self.model.state as f64,
                );
                link.next += 1;
                any = true;
            }
        }
        any
    }

    fn end_down(&mut self, hop: usize) {
        let version = self.residency.levels[hop].down[self.down[hop].next - 1].version;
        self.arrive(hop + 1, version);
        self.copies[hop][version].is_below = true;
        self.release(hop, version);
    }

    fn end_up(&mut self, hop: usize) {
        let version = self.residency.levels[hop].up[self.up[hop].next - 1].version;
        self.arrive(hop, version);
        if hop == 0 {
            self.is_encoded[version] = self.residency.coded[version];
        }
        self.use_once(hop + 1, version);
    }

    fn arrive(&mut self, level: usize, version: Version) {
        let uses = &self.residency.levels[level].stays[version];
        let copy = &mut self.copies[level][version];
        copy.is_present = true;
        copy.uses = uses.get(copy.stays).copied().unwrap_or(0);
        copy.stays += 1;
        self.release(level, version);
    }

    fn use_once(&mut self, level: usize, version: Version) {
        let copy = &mut self.copies[level][version];
        copy.uses = copy.uses.saturating_sub(1);
        self.release(level, version);
    }

    /// Frees a copy's room once its stay is used up and a later stay has its source on the tier below.
    fn release(&mut self, level: usize, version: Version) {
        let goes_down = self.residency.levels[level].goes_down[version];
        let copy = &mut self.copies[level][version];
        if copy.is_present && copy.uses == 0 && (copy.is_below || !goes_down) {
            copy.is_present = false;
            self.free[level] += self.size(level, version);
        }
    }
}
