//! The reversal of a sweep that is over: the best of a few ways, by replay.

use crate::action::Action;
use crate::machine::{Machine, Model};
use crate::plan::Plan;
use crate::stream::{Gap, Writer};
use std::ops::Range;
use std::time::Duration;

/// Seconds of the replay of an action, as an order of magnitude.
const REPLAY: f64 = 1e-6;

/// A sweep that is over.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) actions: Vec<Action>,
    pub(crate) steps: usize,
    /// Stored states in ascending order.
    pub(crate) states: Vec<usize>,
    /// The last of them, which are on the device.
    pub(crate) on_device: usize,
    /// The first of them, which are on the slowest tier in use.
    pub(crate) slowest: usize,
    pub(crate) slots: usize,
    /// States that all tiers hold.
    pub(crate) room: usize,
    /// Steps whose states went down before they were forgotten.
    pub(crate) sent: Vec<usize>,
}

/// How a sweep's gaps are reversed.
struct Reversal {
    /// Slots in reserve for fetches.
    reserve: usize,
    /// Slots beyond those of the device.
    spill: usize,
    /// Indices of stored states that are given up, as fetching them takes too long.
    dropped: Range<usize>,
}

impl Sweep {
    /// The sweep of a plan.
    pub(crate) fn of(model: &Model, actions: &[Action]) -> Self {
        let is_sweep = |action: &&Action| **action != Action::EndForward;
        let actions: Vec<Action> = actions.iter().take_while(is_sweep).copied().collect();
        let mut states = Vec::new();
        for action in &actions {
            match *action {
                Action::Save { step, .. } => states.push(step),
                Action::Forget { step } => states.retain(|&state| state != step),
                _ => {}
            }
        }
        let on_device = states.len().min(model.slots);
        let mut slowest = states.len() - on_device;
        for hop in 0..model.hops.len() {
            slowest = match slowest.saturating_sub(model.room(hop) as usize) {
                0 => break,
                left => left,
            };
        }
        Self {
            steps: model.steps,
            sent: states.clone(),
            states,
            on_device,
            slowest,
            slots: model.slots,
            room: model.all_room(),
            actions,
        }
    }

    /// The best way, or the first plan if none is better. With a first plan, no more replays are made than take half of the
    /// time that it is above the bound.
    pub(crate) fn best(&self, machine: &Machine, first: Option<Plan>) -> Option<Plan> {
        let bound = machine.bound(self.steps);
        let time = |plan: &Plan| plan.expected().unwrap_or(Duration::MAX);
        let replays = first.as_ref().map_or(f64::INFINITY, |first| {
            let gain = time(first).saturating_sub(bound.time).as_secs_f64();
            gain / 2.0 / (REPLAY * first.actions().len() as f64)
        });
        let slots = [(1, 0), (0, 0), (2, 0), (0, 2), (0, 6), (0, 20), (1, 3)];
        // Of the slowest tier in use, all states, or the oldest ones.
        let mut kept: Vec<usize> = (0..=4)
            .map(|part| self.slowest - self.slowest * part / 4)
            .collect();
        kept[4] = self.slowest.min(1);
        kept.dedup();
        let ways = kept.into_iter().flat_map(|kept| {
            slots.map(|(reserve, spill)| Reversal {
                reserve,
                spill,
                dropped: kept..self.slowest,
            })
        });
        let mut best = first;
        for way in ways.take(replays as usize) {
            let actions = self.reversed(way);
            let plan = Plan::judged(machine, &bound, self.steps, actions, self.sent.clone());
            if best.as_ref().is_none_or(|best| time(&plan) < time(best)) {
                best = Some(plan);
            }
        }
        best
    }

    /// The sweep and its reversal.
    fn reversed(&self, way: Reversal) -> Vec<Action> {
        let mut writer = Writer {
            actions: self.actions.clone(),
        };
        let mut states = self.states.clone();
        let below = states.len() - self.on_device - way.dropped.len();
        for step in states.drain(way.dropped) {
            writer.actions.push(Action::Forget { step });
        }
        writer.actions.push(Action::EndForward);
        let (reserve, spill) = match below {
            0 => (0, 0),
            _ => (way.reserve, way.spill),
        };
        let mut end = self.steps;
        for (index, &start) in states.iter().enumerate().rev() {
            let taken = 1 + index.saturating_sub(below) + reserve;
            let free = self.slots.saturating_add(spill).saturating_sub(taken);
            let inner = free.min(self.room.saturating_sub(index + 1));
            writer.gap(Gap { start, end, inner });
            end = start;
        }
        writer.actions
    }
}
