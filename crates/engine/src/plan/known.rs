//! What the policies were told last of each tier, kept for the next time: of a thousand copies, few change in between.

use super::Plan;
use super::bandwidth::Bandwidth;
use super::check::Violation;
use super::event::TierId;
use super::outlook::{Judge, Moment, Standing};
use crate::Version;
use tierflow_evict::{AllocationTable, Candidates, Fragment, Outlook};

/// What is known of the copies of one tier.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By the seats of the tier's table.
    standings: Vec<Standing>,
    /// What these were measured by.
    fetches: Vec<Bandwidth>,
    /// For who needs room.
    pub(super) rooms: View<Moment>,
    /// For who chooses what to flush: the room that is wanted, and the front of the restore order.
    pub(super) flushes: View<(u64, u64)>,
}

/// A tier's candidates in the eyes of one who asks.
#[derive(Debug)]
pub(super) struct View<A> {
    pub(super) candidates: Candidates,
    /// So many of them are right if the same is asked again.
    right: usize,
    asked: Option<A>,
}

impl<A> Default for View<A> {
    fn default() -> Self {
        Self {
            candidates: Candidates::new(),
            right: 0,
            asked: None,
        }
    }
}

impl<A: PartialEq> View<A> {
    /// The fragments from this one on have changed.
    fn changed(&mut self, from: usize) {
        self.right = self.right.min(from);
    }

    /// Leaves of the candidates those that are right.
    fn ask(&mut self, now: A) {
        if self.asked.as_ref() != Some(&now) {
            self.asked = Some(now);
            self.right = 0;
        }
        self.candidates.truncate(self.right);
    }

    /// Whether what is right here is the same there, where the same was asked.
    fn agrees_with(&self, other: &Self) -> bool {
        let right = |view: &Self| {
            let candidates = view.candidates.iter();
            candidates.take(self.right).collect::<Vec<_>>()
        };
        self.asked != other.asked || right(self) == right(other)
    }
}

impl Known {
    /// The candidates for who needs room at this moment.
    pub(super) fn for_room(
        &mut self,
        table: &AllocationTable<Version>,
        now: Moment,
    ) -> &mut Candidates {
        self.rooms.ask(now);
        let candidates = &mut self.rooms.candidates;
        table.append_candidates(candidates, outlook_for_room(&self.standings, &now));
        self.rooms.right = table.fragments_within_limit().len();
        candidates
    }

    /// The candidates for who chooses what to flush, so that `room` bytes could be had.
    pub(super) fn for_flush(
        &mut self,
        table: &AllocationTable<Version>,
        room: u64,
        head: u64,
    ) -> &mut Candidates {
        self.flushes.ask((room, head));
        let candidates = &mut self.flushes.candidates;
        let within = table.fragments_within_limit();
        let others = within.get(candidates.len()..).unwrap_or_default().iter();
        let outlook = outlook_for_flush(&self.standings, room, head);
        candidates.extend(others.map(|fragment| (fragment.size, outlook(fragment))));
        self.flushes.right = within.len();
        candidates
    }

    /// Takes in what is known of a copy.
    fn learn(&mut self, at: usize, fragment: &Fragment<Version>, standing: Standing) {
        let seat = fragment.seat as usize;
        if self.standings.len() <= seat {
            self.standings.resize(seat + 1, Standing::NONE);
        }
        self.standings[seat] = standing;
        self.changed(at);
    }

    /// The transfers into the tier were measured anew.
    fn measure(&mut self, fetches: &[Bandwidth]) {
        if self.fetches != fetches {
            self.fetches.clear();
            self.fetches.extend_from_slice(fetches);
            let standings = self.standings.iter_mut();
            standings.for_each(|standing| standing.measure(fetches));
            self.changed(0);
        }
    }

    /// The fragments from this one on have changed.
    fn changed(&mut self, from: usize) {
        self.rooms.changed(from);
        self.flushes.changed(from);
    }
}

impl Plan {
    /// Takes note of what has changed since the last time.
    pub(super) fn look_again(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        self.records.touched().drain_into(&mut touched);
        self.order.touched.drain_into(&mut touched);
        for tier in &mut self.tiers {
            tier.flushes.touched.drain_into(&mut touched);
        }
        for (index, this) in self.tiers.iter_mut().enumerate() {
            this.known.measure(&this.fetches);
            this.known.changed(this.table.take_unchanged());
            let judge = Judge {
                tier: TierId(index),
                order: &self.order,
                flushes: &this.flushes,
                fetches: &this.fetches,
                after: self.after_restore,
            };
            for &version in &touched {
                if let Some(at) = this.table.index_of(&version)
                    && let Some(record) = self.records.get(&version)
                {
                    let fragment = &this.table.fragments()[at];
                    let standing = judge.standing(version, record);
                    this.known.learn(at, fragment, standing);
                }
            }
        }
        touched.clear();
        self.touched = touched;
    }

    /// Whether all that is known is what it would be, were it found out anew.
    pub(super) fn check_known(&self) -> Result<(), Violation> {
        for (index, this) in self.tiers.iter().enumerate() {
            let judge = Judge {
                tier: TierId(index),
                order: &self.order,
                flushes: &this.flushes,
                fetches: &this.fetches,
                after: self.after_restore,
            };
            let mut standings = vec![Standing::NONE; this.known.standings.len()];
            for fragment in this.table.fragments() {
                let Some(version) = fragment.occupant else {
                    continue;
                };
                let record = self.records.get(&version);
                let standing = record.map(|record| judge.standing(version, record));
                let seat = fragment.seat as usize;
                if standing.as_ref() != this.known.standings.get(seat) {
                    return Err(Violation::Outdated(index));
                }
                standings[seat] = standing.unwrap_or(Standing::NONE);
            }
            let mut anew = Known {
                standings,
                ..Known::default()
            };
            let (head, drain) = (self.order.head(), this.backlog.drain());
            if let Some(asked) = this.known.rooms.asked {
                let now = Moment {
                    head,
                    drain,
                    ..asked
                };
                anew.for_room(&this.table, now);
            }
            if let Some((room, _)) = this.known.flushes.asked {
                anew.for_flush(&this.table, room, head);
            }
            if !this.known.rooms.agrees_with(&anew.rooms)
                || !this.known.flushes.agrees_with(&anew.flushes)
            {
                return Err(Violation::Outdated(index));
            }
        }
        Ok(())
    }
}

fn outlook_for_room(
    standings: &[Standing],
    now: &Moment,
) -> impl Fn(&Fragment<Version>) -> Option<Outlook> {
    |fragment| {
        fragment.occupant?;
        Some(standings[fragment.seat as usize].outlook(now))
    }
}

fn outlook_for_flush(
    standings: &[Standing],
    room: u64,
    head: u64,
) -> impl Fn(&Fragment<Version>) -> Option<Outlook> {
    move |fragment| match fragment.occupant {
        // Room without any eviction: not the question.
        None if fragment.size >= room => Some(Outlook::NEVER),
        None => None,
        Some(_) => {
            let standing = &standings[fragment.seat as usize];
            Some(standing.outlook_at(head, standing.eligible.then_some(0)))
        }
    }
}
