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

/// Plays a stream. Returns `None` if it does not fit the tiers. `sent` has the steps, in ascending order, whose states go down
/// although they are forgotten in the sweep.
pub(crate) fn replay(model: &Model, actions: &[Action], sent: &[usize]) -> Option<Times> {
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
}

/// A link in one direction.
struct Link<'a> {
    source: usize,
    target: usize,
    /// Seconds of a whole state.
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
    /// By tier and version.
    copies: Vec<Vec<Copy>>,
    free: Vec<u64>,
    links: Vec<Link<'a>>,
    /// Versions that came to the device encoded and were not decoded since.
    is_encoded: Vec<bool>,
    next: usize,
    until: Option<f64>,
    now: f64,
}

impl<'a> Player<'a> {
    fn new(model: &'a Model, actions: &'a [Action], residency: &'a Residency) -> Self {
        let versions = residency.versions.len();
        let rooms = model.hops.iter().map(|hop| hop.room);
        let link = |source: usize, target: usize, time: f64, transfers: &'a [Transfer]| Link {
            source,
            target,
            time,
            transfers,
            begun: 0,
            until: None,
        };
        let hops = model.hops.iter().zip(&residency.levels).enumerate();
        let links = hops.flat_map(|(at, (hop, level))| {
            let up = link(at + 1, at, hop.up, &level.up);
            [up, link(at, at + 1, hop.down, &level.down)]
        });
        Self {
            model,
            actions,
            residency,
            copies: vec![vec![Copy::default(); versions]; model.hops.len() + 1],
            free: std::iter::once(model.slots as u64).chain(rooms).collect(),
            links: links.collect(),
            is_encoded: vec![false; versions],
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
        let version = self.residency.of_action[self.next];
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
            Action::Restart { .. } if !self.copies[0][version].is_present => return false,
            Action::Restart { .. } => match std::mem::take(&mut self.is_encoded[version]) {
                true => copy + codec.decode,
                false => *copy,
            },
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
        self.until = None;
        self.next += 1;
    }

    /// Starts the first transfer of each idle link that may begin.
    fn begin_transfers(&mut self) -> bool {
        let mut any = false;
        for link in self.links.iter_mut().filter(|link| link.until.is_none()) {
            let Some(&Transfer { version, from, .. }) = link.transfers.get(link.begun) else {
                continue;
            };
            let size = self.residency.size(link.target, version);
            if self.next >= from
                && self.copies[link.source][version].is_present
                && self.free[link.target] >= size
            {
                self.free[link.target] -= size;
                let bytes = self.residency.versions[version].bytes as f64;
                link.until = Some(self.now + link.time * bytes / self.model.state as f64);
                link.begun += 1;
                any = true;
            }
        }
        any
    }

    fn end_transfer(&mut self, link: usize) {
        let link = &mut self.links[link];
        link.until = None;
        let (source, target) = (link.source, link.target);
        let version = link.transfers[link.begun - 1].version;
        self.arrive(target, version);
        self.use_once(source, version);
        if target == 0 {
            self.is_encoded[version] = self.residency.versions[version].coded;
        }
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

    /// Frees a copy's room once its stay is used up.
    fn release(&mut self, level: usize, version: Version) {
        let copy = &mut self.copies[level][version];
        if copy.is_present && copy.uses == 0 {
            copy.is_present = false;
            self.free[level] += self.residency.size(level, version);
        }
    }
}
