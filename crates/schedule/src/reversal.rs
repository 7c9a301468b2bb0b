//! Reversals of a sweep that has ended.

use crate::action::Action;
use crate::machine::Model;
use crate::shape;
use crate::stream::{Stored, Writer};

/// Slots for the states of gaps, beyond the free slots of the device. A negative number keeps slots for fetches.
const SPILLS: [i32; 6] = [-1, 0, -2, 2, 6, 20];

/// Returns streams that begin with the sweep of `actions`, each with another reversal.
pub(crate) fn ways<'a>(
    model: &'a Model,
    actions: &'a [Action],
) -> impl Iterator<Item = Vec<Action>> + 'a {
    let is_end = |action: &Action| *action == Action::EndForward;
    let sweep = actions.split(is_end).next().unwrap_or_default();
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
    // Number of states that stay on the slowest tier: all, the oldest ones, or none. With none, the first state is on a faster tier.
    let mut kept: Vec<usize> = (0..4).map(|part| slowest - slowest * part / 4).collect();
    kept.extend([slowest.min(1), 0]);
    kept.dedup();
    let ways = kept
        .into_iter()
        .flat_map(|kept| SPILLS.map(|spill| (kept, spill)));
    ways.map(move |(kept, spill)| {
        let (mut actions, mut states) = (sweep.to_vec(), states.clone());
        let dropped = match kept {
            0 if slowest > 0 => states.drain(1..slowest + 1),
            kept => states.drain(kept..slowest),
        };
        actions.extend(dropped.map(|step| Action::Forget { step }));
        let below = states.len().saturating_sub(model.slots);
        let spill = if below > 0 { spill } else { 0 };
        let line = states.iter().enumerate().map(|(index, &at)| Stored {
            at,
            inner: shape::free(model, 1 + index.saturating_sub(below), spill),
            coded: false,
        });
        let line: Vec<Stored> = line.collect();
        Writer::new(actions, model.steps, model.steps).gaps(&line, model)
    })
}
