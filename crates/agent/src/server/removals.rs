//! The removals that clients ask for. Separate threads do them, as each may take as long as external storage takes.
//!
//! The removals of a route are done one after the other, by one thread at a time. So storage that hangs holds up the removals of the
//! routes that lead there, and no others, as long as fewer than [`MOST`] routes hang. A thread does one removal after the other, and ends
//! when there is none that may begin.

use super::{Server, spawn};
use crate::Result;
use crate::flow::Flow;
use crate::protocol::Route;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// The most threads that remove at a time.
const MOST: usize = 64;

/// A removal that a client asked for.
pub(super) struct Removal {
    pub(super) flow: Arc<Flow>,
    pub(super) versions: BTreeSet<u64>,
}

/// The removals of all clients, each with its client.
#[derive(Default)]
pub(super) struct Removals {
    /// The removals that did not begin yet, in the order of the requests.
    waiting: VecDeque<(u64, Removal)>,
    /// The routes from which a thread removes. The number of these threads is the number of routes.
    routes: BTreeSet<Route>,
    done: Vec<(u64, Result<()>)>,
}

impl Removals {
    /// Returns the results since the last call, with the clients.
    pub(super) fn take_done(&mut self) -> Vec<(u64, Result<()>)> {
        std::mem::take(&mut self.done)
    }

    /// Begins the first removal that may begin, unless [`MOST`] threads remove already.
    fn begin(&mut self) -> Option<(u64, Removal)> {
        if self.routes.len() >= MOST {
            return None;
        }
        let mut waiting = self.waiting.iter();
        let is_free = |(_, removal): &(u64, Removal)| !self.routes.contains(&removal.flow.route);
        let first = waiting.position(is_free)?;
        let (client, removal) = self.waiting.remove(first)?;
        self.routes.insert(removal.flow.route.clone());
        Some((client, removal))
    }
}

impl Server {
    /// Lets a thread do a client's removal. The thread wakes the event loop when it has the result.
    pub(super) fn remove(self: &Arc<Self>, client: u64, removal: Removal) {
        let waiting = (client, removal);
        self.removals.lock().waiting.push_back(waiting);
        loop {
            let Some((client, removal)) = self.removals.lock().begin() else {
                return;
            };
            let server = Arc::clone(self);
            let route = removal.flow.route.clone();
            let work = move || server.remove_all((client, removal));
            match spawn("tierflow-remove", work) {
                Ok(()) => return,
                // The next removal is tried, too: starting a thread may succeed then.
                Err(error) => self.removed(client, &route, Err(error)),
            }
        }
    }

    /// Runs the loop of a removal thread. `begun` is the first removal.
    fn remove_all(&self, mut begun: (u64, Removal)) {
        loop {
            let (client, removal) = begun;
            let result = removal.flow.remove(&removal.versions);
            self.removed(client, &removal.flow.route, result);
            match self.removals.lock().begin() {
                Some(next) => begun = next,
                None => return,
            }
        }
    }

    fn removed(&self, client: u64, route: &Route, result: Result<()>) {
        let mut removals = self.removals.lock();
        removals.routes.remove(route);
        removals.done.push((client, result));
        drop(removals);
        self.waker.wake();
    }

    /// Lets a thread note all routes, after a client took the route of `flow`. The thread wakes the event loop when it has done so.
    pub(super) fn note_for(self: &Arc<Self>, client: u64, flow: Arc<Flow>) {
        let server = Arc::clone(self);
        let done = move |server: &Self, result| {
            server.removals.lock().done.push((client, result));
            server.waker.wake();
        };
        let note = move || {
            flow.look();
            done(&server, server.note());
        };
        if let Err(error) = spawn("tierflow-note", note) {
            done(self, Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::tests::{Hanging, bring, fail, until, with_version};
    use crate::home::Home;
    use crate::server::Settings;
    use tierflow_store::Faults;

    #[test]
    fn a_route_whose_storage_hangs_holds_up_no_other() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::open(scratch.path(), true).unwrap();
        let (server, _wakes) = Server::new(home, Settings::default()).unwrap();
        let flows = [with_version(), with_version()];
        let faults = Arc::<Faults>::default();
        fail(&flows[0].1, &faults);
        let removal_of = |at: usize| {
            let flow = Arc::clone(&flows[at].1);
            let versions = BTreeSet::from([1]);
            Removal { flow, versions }
        };
        flows.iter().for_each(|(_, flow)| bring(flow));
        let mut done = Vec::new();
        let mut wait_for = |count: usize| {
            until(|| {
                done.append(&mut server.removals.lock().take_done());
                done.len() >= count
            });
            let done = done.drain(..);
            let done = done.map(|(client, result)| result.map(|()| client).unwrap());
            done.collect::<Vec<_>>()
        };
        let hanging = Hanging::new(&faults);
        server.remove(10, removal_of(0));
        server.remove(11, removal_of(0));
        server.remove(12, removal_of(1));
        assert_eq!(wait_for(1), [12]);
        drop(hanging);
        assert_eq!(wait_for(2), [10, 11]);
        until(|| server.removals.lock().routes.is_empty());
    }
}
