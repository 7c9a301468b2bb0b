//! The search visits the state with the lowest bound first, and skips states that another one dominates.

use super::bound::least;
use super::model::{App, Model, State};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A state without its times.
type Shape = (usize, App, u8, Vec<u8>, Vec<[usize; 3]>);

fn shape_and_times(state: &State) -> (Shape, Vec<u64>) {
    let flights = state.flights.iter();
    let ways = flights
        .clone()
        .map(|flight| [flight.version, flight.from, flight.to]);
    let shape = (
        state.call,
        state.app,
        state.app_links,
        state.on.clone(),
        ways.collect(),
    );
    let until = match state.app {
        App::Waiting => state.now,
        App::Computing | App::Copying { .. } => state.until,
    };
    let times = [state.now, until].into_iter();
    (
        shape,
        times.chain(flights.map(|flight| flight.end)).collect(),
    )
}

/// The reason why a search found no plan.
#[derive(Debug, PartialEq)]
pub(crate) enum Failure {
    /// The search visited as many states as it may.
    Limit,
    /// No plan is as fast as the limit.
    NoPlan,
}

/// Searches for the least makespan in ns, of at most `most`. Visits at most `limit` states.
pub(crate) fn optimum(model: &Model, most: u64, limit: usize) -> Result<u64, Failure> {
    let no_later = |one: &[u64], other: &[u64]| one.iter().zip(other).all(|(a, b)| a <= b);
    let mut known: HashMap<Shape, Vec<Vec<u64>>> = HashMap::new();
    let mut states = vec![model.start()];
    let mut open = BinaryHeap::from([(Reverse(least(model, &states[0])), 0, 0, 0)]);
    let mut looked = 0;
    while let Some((Reverse(makespan), _, _, at)) = open.pop() {
        let state = states[at].clone();
        if model.is_done(&state) {
            return Ok(makespan);
        }
        let (shape, times) = shape_and_times(&state);
        let others = known.get(&shape).into_iter().flatten();
        if others
            .clone()
            .any(|other| *other != times && no_later(other, &times))
        {
            continue;
        }
        looked += 1;
        if looked > limit {
            return Err(Failure::Limit);
        }
        for next in model.successors(&state) {
            let hope = match model.is_done(&next) {
                true => next.now + model.tail,
                false => least(model, &next).max(makespan),
            };
            let (shape, times) = shape_and_times(&next);
            let others = known.entry(shape).or_default();
            if hope > most || others.iter().any(|other| no_later(other, &times)) {
                continue;
            }
            others.retain(|other| !no_later(&times, other));
            others.push(times);
            open.push((Reverse(hope), next.call, next.now, states.len()));
            states.push(next);
        }
    }
    Err(Failure::NoPlan)
}
