//! A lower bound of the makespan from a state on, which guides the search.

use super::model::{App, DEVICE, DISK, HOST, Kind, Model, State};

/// The moves of one version that the later calls need.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead {
    /// For each hop, true if no tier below it has the version or is about to have it.
    only_above: [bool; 3],
    /// For each hop, true if the version must come up over it before its next reading.
    is_below: [bool; 3],
}

/// Returns a makespan that no plan can beat from this state on. The bound treats bytes as a fluid: it counts the bytes that must have
/// passed each hop by the end of each call.
pub(crate) fn least(model: &Model, state: &State) -> u64 {
    let mut ahead = versions_ahead(model, state);
    let free = links_free(model, state);
    let room = [0, model.capacity[0], model.capacity[0] + model.capacity[1]];
    let (mut end, first) = match state.app {
        App::Waiting => (state.now as f64, state.call),
        App::Computing => (state.until as f64, state.call),
        App::Copying { .. } => (state.until as f64, state.call + 1),
    };
    let mut up = [0.0; 3];
    for call in first..model.calls.len() {
        if call > state.call {
            end += model.calls[call].compute as f64;
        }
        end += model.copy(call) as f64;
        let mut down = [0.0; 3];
        match model.calls[call].kind {
            Kind::Write(version) => {
                ahead[version].only_above = [true; 3];
                for (hop, down) in down.iter_mut().enumerate().skip(1) {
                    let above = ahead.iter().zip(&model.sizes);
                    let above = above.filter(|(ahead, _)| ahead.only_above[hop]);
                    let above: u64 = above.map(|(_, bytes)| bytes).sum();
                    *down = above.saturating_sub(room[hop]) as f64;
                }
            }
            Kind::Read(version) => {
                for (hop, up) in up.iter_mut().enumerate().skip(1) {
                    if std::mem::take(&mut ahead[version].is_below[hop]) {
                        *up += model.sizes[version] as f64;
                    }
                }
                if model.discards() {
                    ahead[version] = Ahead::default();
                }
            }
            Kind::Drop(version) => ahead[version] = Ahead::default(),
        }
        for hop in [HOST, DISK] {
            let times = [
                down[hop] / model.rates[hop][0],
                up[hop] / model.rates[hop][1],
            ];
            let needs = match model.shared[hop] {
                true => [times[0] + times[1], 0.0],
                false => times,
            };
            for (need, free) in needs.into_iter().zip(free[hop]) {
                if need > 0.0 {
                    end = end.max(free as f64 + need);
                }
            }
        }
    }
    (end + model.tail as f64).floor() as u64
}

/// Returns the times at which the transfers under way leave the links of each hop, down and up.
fn links_free(model: &Model, state: &State) -> [[u64; 2]; 3] {
    let flights = state.flights.iter();
    let flights = flights.map(|flight| (model.links(flight.from, flight.to), flight.end));
    let mut free = [[state.now; 2]; 3];
    for (links, end) in flights.chain([(state.app_links, state.until)]) {
        for (hop, free) in free.iter_mut().enumerate().skip(1) {
            for (up, free) in [false, true].into_iter().zip(free) {
                if links & model.link(hop, up) != 0 {
                    *free = end.max(*free);
                }
            }
        }
    }
    free
}

fn versions_ahead(model: &Model, state: &State) -> Vec<Ahead> {
    let mut on = state.on.clone();
    for flight in &state.flights {
        on[flight.version] |= 1 << flight.to;
    }
    if let (App::Copying { to }, Kind::Write(version)) = (state.app, model.calls[state.call].kind) {
        on[version] = 1 << to;
    }
    let ahead = on.into_iter().map(|on| match on {
        0 => Ahead::default(),
        on => Ahead {
            only_above: [false, on >> HOST == 0, on >> DISK == 0],
            is_below: [false, on >> DEVICE & 1 == 0, on & 0b11 == 0],
        },
    });
    ahead.collect()
}
