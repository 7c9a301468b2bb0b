//! Reversals of a sweep that is over.

use crate::action::Action;
use crate::machine::Model;
use crate::stream::{Gap, Writer};
use std::ops::Range;

/// A rule by which the gaps of a sweep are reversed.
#[derive(Clone, Debug)]
struct Reversal {
    /// Slots in reserve for fetches.
    reserve: usize,
    /// Slots beyond those of the device.
    spill: usize,
    /// Indices of stored states that are given up, as fetching them takes too long.
    dropped: Range<usize>,
}

/// The streams that begin with this one's sweep, each with another reversal.
pub(crate) fn ways<'a>(
    model: &'a Model,
    actions: &'a [Action],
) -> impl Iterator<Item = Vec<Action>> + 'a {
    let end = actions
        .iter()
        .position(|action| *action == Action::EndForward);
    let sweep = &actions[..end.unwrap_or(actions.len())];
    let mut states = Vec::new();
    for action in sweep {
        match *action {
            Action::Save { step, .. } => states.push(step),
            Action::Forget { step } => states.retain(|&state| state != step),
            _ => {}
        }
    }
    // States on the slowest tier in use.
    let mut slowest = states.len().saturating_sub(model.slots);
    for hop in 0..model.hops.len() {
        slowest = match slowest.saturating_sub(model.room(hop) as usize) {
            0 => break,
            left => left,
        };
    }
    let slots = [(1, 0), (0, 0), (2, 0), (0, 2), (0, 6), (0, 20), (1, 3)];
    // Of the slowest tier, all states, or the oldest ones, or none: the first state of all stays, on a faster tier then.
    let mut kept: Vec<usize> = (0..4).map(|part| slowest - slowest * part / 4).collect();
    kept.extend([slowest.min(1), 0]);
    kept.dedup();
    let ways = kept.into_iter().flat_map(move |kept| {
        let dropped = match kept {
            0 if slowest > 0 => 1..slowest + 1,
            kept => kept..slowest,
        };
        slots.map(|(reserve, spill)| Reversal {
            reserve,
            spill,
            dropped: dropped.clone(),
        })
    });
    ways.map(move |way| reversed(model, sweep, &states, way))
}

fn reversed(model: &Model, sweep: &[Action], states: &[usize], way: Reversal) -> Vec<Action> {
    let mut actions = sweep.to_vec();
    let mut states = states.to_vec();
    let below = states.len().saturating_sub(model.slots + way.dropped.len());
    let dropped = states.drain(way.dropped);
    actions.extend(dropped.map(|step| Action::Forget { step }));
    actions.push(Action::EndForward);
    let mut writer = Writer { actions };
    let (reserve, spill) = match below {
        0 => (0, 0),
        _ => (way.reserve, way.spill),
    };
    let mut end = model.steps;
    for (index, &start) in states.iter().enumerate().rev() {
        let taken = 1 + index.saturating_sub(below) + reserve;
        let free = (model.slots + spill).saturating_sub(taken);
        let inner = free.min(model.all_room().saturating_sub(index + 1));
        writer.gap(Gap { start, end, inner });
        end = start;
    }
    writer.actions
}
