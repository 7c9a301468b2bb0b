//! What the policies were told last of each tier, kept for the next time: of a thousand copies, few change in between.

use super::Plan;
use super::bandwidth::Bandwidth;
use super::check::Violation;
use super::event::TierId;
use super::outlook::{Judge, Moment, Standing};
use crate::Version;
use std::ops::Range;
use tierflow_evict::{AllocationTable, Candidate, Candidates, Fragment, Outlook};

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
    candidates: Candidates,
    /// The bytes in which fragments may have changed since.
    changed: Range<u64>,
    asked: Option<A>,
}

impl<A> Default for View<A> {
    fn default() -> Self {
        Self {
            candidates: Candidates::new(),
            changed: ALL,
            asked: None,
        }
    }
}

const ALL: Range<u64> = 0..u64::MAX;

impl<A: Copy + PartialEq> View<A> {
    fn change(&mut self, bytes: &Range<u64>) {
        if self.changed.is_empty() {
            self.changed = bytes.clone();
        } else if !bytes.is_empty() {
            self.changed.start = self.changed.start.min(bytes.start);
            self.changed.end = self.changed.end.max(bytes.end);
        }
    }

    /// The candidates for one who asks this.
    fn ask(
        &mut self,
        now: A,
        table: &AllocationTable<Version>,
        outlook: impl Fn(&Fragment<Version>) -> Option<Outlook>,
    ) -> &mut Candidates {
        if self.asked != Some(now) {
            self.asked = Some(now);
            self.changed = ALL;
        }
        let changed = std::mem::take(&mut self.changed);
        table.update_candidates(&mut self.candidates, changed, outlook);
        &mut self.candidates
    }

    /// Whether what has not changed here is the same there, if both were asked the same.
    fn agrees_with(&self, other: &Self) -> bool {
        let unchanged = |view: &Self| {
            let candidates = view.candidates.iter();
            let changed = |c: &Candidate| self.changed.contains(&c.offset);
            candidates.filter(|c| !changed(c)).collect::<Vec<_>>()
        };
        self.asked != other.asked || unchanged(self) == unchanged(other)
    }
}

impl Known {
    /// The candidates for who needs room at this moment.
    pub(super) fn for_room(
        &mut self,
        table: &AllocationTable<Version>,
        now: Moment,
    ) -> &mut Candidates {
        let standings = &self.standings;
        self.rooms.ask(now, table, |fragment| {
            fragment.occupant?;
            Some(standings[fragment.seat as usize].outlook(&now))
        })
    }

    /// The candidates for who chooses what to flush, so that `room` bytes could be had.
    pub(super) fn for_flush(
        &mut self,
        table: &AllocationTable<Version>,
        room: u64,
        head: u64,
    ) -> &mut Candidates {
        let (standings, limit) = (&self.standings, table.limit());
        self.flushes.ask((room, head), table, |fragment| {
            // Room without any eviction is not the question.
            let is_room = fragment.size >= room || fragment.offset + fragment.size > limit;
            match fragment.occupant {
                None => is_room.then_some(Outlook::NEVER),
                Some(_) => {
                    let standing = &standings[fragment.seat as usize];
                    Some(standing.outlook_at(head, standing.eligible.then_some(0)))
                }
            }
        })
    }

    /// Takes in what is known of a copy.
    fn learn(&mut self, fragment: Fragment<Version>, standing: Standing) {
        let seat = fragment.seat as usize;
        if self.standings.len() <= seat {
            self.standings.resize(seat + 1, Standing::NONE);
        }
        self.standings[seat] = standing;
        self.change(&(fragment.offset..fragment.offset + fragment.size));
    }

    /// The transfers into the tier were measured anew.
    fn measure(&mut self, fetches: &[Bandwidth]) {
        if self.fetches != fetches {
            self.fetches.clear();
            self.fetches.extend_from_slice(fetches);
            let standings = self.standings.iter_mut();
            standings.for_each(|standing| standing.measure(fetches));
            self.change(&ALL);
        }
    }

    /// Fragments in these bytes have changed.
    fn change(&mut self, bytes: &Range<u64>) {
        self.rooms.change(bytes);
        self.flushes.change(bytes);
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
            this.known.change(&this.table.take_changed());
            let judge = Judge {
                tier: TierId(index),
                order: &self.order,
                flushes: &this.flushes,
                fetches: &this.fetches,
                after: self.after_restore,
            };
            for &version in &touched {
                if let Some(fragment) = this.table.fragment(&version)
                    && let Some(record) = self.records.get(&version)
                {
                    let standing = judge.standing(version, record);
                    this.known.learn(fragment, standing);
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
