//! What the policies were told last of each tier, kept for the next time: of a thousand copies, few change in between.

use super::Plan;
use super::bandwidth::Bandwidth;
use super::check::Violation;
use super::event::TierId;
use super::outlook::{Judge, Moment, Standing};
use super::touched::Touched;
use crate::Version;
use std::ops::Range;
use tierflow_evict::{AllocationTable, Candidate, Candidates, Fragment, Outlook};

/// What is known of the copies of one tier, as of the last time that its policy was asked.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Of which something has changed since.
    touched: Touched,
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

    /// Whether the candidates here and there are the same but for those that may have changed.
    fn agrees_with(&self, other: &Self, changed: &[Range<u64>]) -> bool {
        let has_changed = |candidate: &Candidate| {
            let mut changed = changed.iter().chain([&self.changed]);
            changed.any(|bytes| bytes.contains(&candidate.offset))
        };
        let unchanged = |view: &Self| {
            let candidates = view.candidates.iter();
            candidates.filter(|c| !has_changed(c)).collect::<Vec<_>>()
        };
        unchanged(self) == unchanged(other)
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
    /// Tells every tier which versions were touched.
    pub(super) fn note_touched(&mut self) {
        for tier in &mut self.tiers {
            let touched = &mut tier.known.touched;
            touched.note_all(&self.records.touched);
            touched.note_all(&self.order.touched);
            touched.note_all(&tier.flushes.touched);
            tier.flushes.touched.clear();
        }
        self.records.touched.clear();
        self.order.touched.clear();
    }

    /// Learns what has changed on a tier since the last time, before its policy is asked.
    pub(super) fn look_again(&mut self, tier: TierId) {
        self.note_touched();
        let this = &mut self.tiers[tier.0];
        let known = &mut this.known;
        known.measure(&this.fetches);
        known.change(&this.table.take_changed());
        let touched = std::mem::take(&mut known.touched);
        let judge = Judge {
            tier,
            order: &self.order,
            flushes: &this.flushes,
            fetches: &this.fetches,
            after: self.after_restore,
        };
        let mut learn = |fragment: Fragment<Version>| {
            if let Some(version) = fragment.occupant
                && let Some(record) = self.records.get(&version)
            {
                known.learn(fragment, judge.standing(version, record));
            }
        };
        match touched.versions() {
            Some(versions) => {
                let fragments = versions.iter().filter_map(|v| this.table.fragment(v));
                fragments.for_each(learn);
            }
            None => this.table.fragments().iter().for_each(|&f| learn(f)),
        }
        known.touched = touched;
        known.touched.clear();
    }

    /// Whether all that is known, of versions that were not touched since, is what would be found out anew.
    pub(super) fn check_known(&self) -> Result<(), Violation> {
        for (index, this) in self.tiers.iter().enumerate() {
            let known = &this.known;
            let Some(touched) = known.touched.versions() else {
                continue;
            };
            let judge = Judge {
                tier: TierId(index),
                order: &self.order,
                flushes: &this.flushes,
                fetches: &known.fetches,
                after: self.after_restore,
            };
            let mut anew = Known::default();
            let mut changed = vec![this.table.changed()];
            for &fragment in this.table.fragments() {
                let Some(version) = fragment.occupant else {
                    continue;
                };
                let record = self.records.get(&version);
                let standing = record.map(|record| judge.standing(version, record));
                let standing = standing.unwrap_or(Standing::NONE);
                anew.learn(fragment, standing);
                if touched.contains(&version) {
                    changed.push(fragment.offset..fragment.offset + fragment.size);
                } else if known.standings.get(fragment.seat as usize) != Some(&standing) {
                    return Err(Violation::Outdated(index));
                }
            }
            if let Some(asked) = known.rooms.asked {
                anew.for_room(&this.table, asked);
            }
            if let Some((room, head)) = known.flushes.asked {
                anew.for_flush(&this.table, room, head);
            }
            if !known.rooms.agrees_with(&anew.rooms, &changed)
                || !known.flushes.agrees_with(&anew.flushes, &changed)
            {
                return Err(Violation::Outdated(index));
            }
        }
        Ok(())
    }
}
