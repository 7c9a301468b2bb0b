//! The agent: the routes that clients ask for, and elastic threads that bring pieces along them.

mod connection;
mod event_loop;
mod removals;

use crate::elastic::Elastic;
use crate::flow::Flow;
use crate::home::Home;
use crate::protocol::Route;
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use removals::Removals;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The settings of an agent.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The most threads that bring pieces at a time.
    pub most_threads: usize,
    /// Time after which a copy or a scan that is not done counts as hanging. Another thread then replaces its thread.
    pub patience: Duration,
    /// Time without work and without clients after which the agent ends; `None`: it ends only when it is told to.
    pub idle: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            most_threads: 8,
            patience: Duration::from_secs(120),
            idle: None,
        }
    }
}

/// Time between two scans of a node for pieces that no client asked for, such as the pieces of an application that crashed.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// The longest patience, which every clock can measure.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1 << 32);
/// Time between two looks of the agent at its threads.
const TICK: Duration = Duration::from_millis(100);

struct Server {
    home: Home,
    settings: Settings,
    shared: Mutex<ServerState>,
    removals: Mutex<Removals>,
    /// Held while a thread notes the routes, which may take as long as the disk takes.
    noting: Mutex<()>,
    /// Notified when there may be a new task, or a task is done.
    changed: Condvar,
    /// Wakes the event loop when there may be replies for clients.
    waker: event_loop::Waker,
    is_over: AtomicBool,
}

/// The routes that an agent serves, and its threads and connections.
struct ServerState {
    flows: BTreeMap<Route, Arc<Flow>>,
    elastic: Elastic,
    threads: usize,
    /// Number of the `threads` that wait for storage that hangs.
    hanging: usize,
    connections: usize,
    stopping: bool,
    idle_since: Instant,
    /// The index of the flow that gives the next task (round robin).
    turn: usize,
}

enum Task {
    Scan(Arc<Flow>),
    Bring(Arc<Flow>, u64),
}

/// Serves the scratch directory `scratch` until a client tells the agent to stop, or it is idle for as long as the settings say. Resumes the
/// routes that an earlier agent did not finish.
///
/// # Errors
/// [`Error::Busy`] if another agent serves the directory; [`Error::Refused`] if the agent's directory in it is open to others or not this
/// user's; [`Error::File`] if it cannot be made or read.
pub fn serve(scratch: &Path, settings: Settings) -> Result<()> {
    let home = Home::open(scratch, true)?;
    let _lock = home.lock()?;
    let routes = home.routes()?;
    let listener = home.listen()?;
    let (server, wakes) = Server::new(home, settings)?;
    let flows = routes.into_iter().map(|route| {
        let flow = Flow::new(route.clone());
        flow.is_noted.store(true, Ordering::Release);
        (route, Arc::new(flow))
    });
    server.shared.lock().flows.extend(flows);
    event_loop::start(&server, listener, wakes)?;
    server.supervise();
    server.is_over.store(true, Ordering::Release);
    server.waker.wake();
    Ok(())
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).map_err(|source| Error::File {
        doing: "starting a thread of",
        path: name.into(),
        source,
    })
}

impl Server {
    /// Makes an agent without routes, and the stream that is readable when its event loop has to wake.
    fn new(home: Home, mut settings: Settings) -> Result<(Arc<Self>, UnixStream)> {
        settings.patience = settings.patience.min(LONGEST_PATIENCE);
        let (waker, wakes) = event_loop::Waker::new()?;
        let shared = ServerState {
            flows: BTreeMap::new(),
            elastic: Elastic::new(settings.most_threads),
            threads: 0,
            hanging: 0,
            connections: 0,
            stopping: false,
            idle_since: Instant::now(),
            turn: 0,
        };
        let server = Arc::new(Self {
            settings,
            shared: Mutex::new(shared),
            removals: Mutex::default(),
            noting: Mutex::default(),
            changed: Condvar::new(),
            waker,
            is_over: AtomicBool::new(false),
            home,
        });
        Ok((server, wakes))
    }

    /// Starts threads while there are tasks, tells clients of storage that hangs, and ends routes that are done. Returns when the agent has to
    /// end.
    fn supervise(self: &Arc<Self>) {
        loop {
            let mut shared = self.shared.lock();
            let now = Instant::now();
            let (mut hanging, mut busy) = (0, 0);
            for flow in shared.flows.values() {
                let mut state = flow.state.lock();
                hanging += state.name_hanging(now);
                busy += state.waiting.len() + usize::from(state.is_to_scan(now));
            }
            shared.hanging = hanging;
            // Threads that hang are replaced by others.
            let wanted = shared.elastic.threads() + hanging;
            for _ in shared.threads..wanted.min(shared.threads + busy) {
                let server = Arc::clone(self);
                if spawn("tierflow-bring", move || server.work()).is_ok() {
                    shared.threads += 1;
                }
            }
            if end_finished_routes(&mut shared) {
                // If this fails, the next agent resumes the finished routes once, and finds nothing to do.
                let _noted_with_the_next = MutexGuard::unlocked(&mut shared, || self.note());
            }
            if self.is_over(&mut shared, now) {
                return;
            }
            self.changed.notify_all();
            self.changed.wait_for(&mut shared, TICK);
        }
    }

    fn is_over(&self, shared: &mut ServerState, now: Instant) -> bool {
        let is_used = shared.connections > 0 || !shared.flows.is_empty();
        if is_used {
            shared.idle_since = now;
        }
        let idle = self.settings.idle.filter(|_| !is_used);
        let is_idle = idle.is_some_and(|idle| now - shared.idle_since >= idle);
        // The routes of versions that cannot be brought now are noted, and the next agent resumes them.
        let mut is_stopped = shared.stopping;
        if shared.stopping {
            for flow in shared.flows.values() {
                is_stopped &= flow.state.lock().may_end(now);
            }
        }
        is_idle || is_stopped || !self.home.is_there()
    }

    /// Writes all routes to the note for the next agent. May take long.
    fn note(&self) -> Result<()> {
        let _one_at_a_time = self.noting.lock();
        let flows = self.shared.lock().flows.clone();
        let routes: Vec<Route> = flows.keys().cloned().collect();
        self.home.note(&routes)?;
        let noted = flows.values().map(|flow| &flow.is_noted);
        noted.for_each(|is_noted| is_noted.store(true, Ordering::Release));
        Ok(())
    }

    /// Runs the loop of a worker thread: does tasks until there are none, or until there are too many threads.
    fn work(&self) {
        loop {
            let (task, threads, waiting) = {
                let mut shared = self.shared.lock();
                let task = if shared.threads <= shared.elastic.threads() + shared.hanging {
                    self.next(&mut shared)
                } else {
                    None
                };
                let Some(task) = task else {
                    shared.threads -= 1;
                    return;
                };
                let waiting = shared
                    .flows
                    .values()
                    .map(|flow| flow.state.lock().waiting.len());
                (task, shared.threads, waiting.sum())
            };
            match task {
                Task::Scan(flow) => flow.scan(),
                Task::Bring(flow, version) => {
                    let begun = Instant::now();
                    if let Some(bytes) = flow.bring(version) {
                        let nanos = begun.elapsed().as_nanos().max(1);
                        let rate = u128::from(bytes) * 1_000_000_000 * threads as u128 / nanos;
                        let rate = u64::try_from(rate).unwrap_or(u64::MAX >> 8);
                        let mut shared = self.shared.lock();
                        shared.elastic.measured(threads, rate, waiting);
                    }
                }
            }
            self.notify();
        }
    }

    /// Wakes the threads that wait for a change. Takes the lock first, so that a thread that is about to wait is woken, too.
    fn notify(&self) {
        drop(self.shared.lock());
        self.changed.notify_all();
        self.waker.wake();
    }

    /// Returns the next task. The routes take turns.
    fn next(&self, shared: &mut ServerState) -> Option<Task> {
        let now = Instant::now();
        let count = shared.flows.len();
        // An agent that was told to end scans each route once, unless a client leaves it or the scan fails.
        let pause = match shared.stopping {
            true => LONGEST_PATIENCE,
            false => SCAN_INTERVAL,
        };
        for step in 0..count {
            let at = (shared.turn + step) % count;
            let Some(flow) = shared.flows.values().nth(at) else {
                continue;
            };
            let mut state = flow.state.lock();
            let task = if state.is_to_scan(now) {
                state.scanning = Some(now + self.settings.patience);
                state.scan_at = now + pause;
                Task::Scan(Arc::clone(flow))
            } else if let Some(version) = state.next(now, self.settings.patience) {
                Task::Bring(Arc::clone(flow), version)
            } else {
                continue;
            };
            drop(state);
            shared.turn = at + 1;
            return Some(task);
        }
        None
    }

    /// Accepts no more routes, and scans each node for the pieces that are left. Pieces that failed before are tried once more; pieces that fail
    /// from now on are left to the next agent. A second call changes nothing.
    fn stop(&self) {
        let mut shared = self.shared.lock();
        if std::mem::replace(&mut shared.stopping, true) {
            return;
        }
        for flow in shared.flows.values() {
            flow.state.lock().end_pause();
        }
        self.changed.notify_all();
    }
}

/// Removes the routes that are done: without clients, pieces to copy and unreadable pieces, and scanned after their last client left. Returns
/// true if there were some.
fn end_finished_routes(shared: &mut ServerState) -> bool {
    let before = shared.flows.len();
    shared.flows.retain(|_, flow| {
        let state = flow.state.lock();
        let is_done = state.is_idle() && state.unreadable.is_empty();
        !(state.clients == 0 && is_done && state.scanned_without_clients)
    });
    shared.flows.len() < before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::tests::{Hanging, fail, until, with_version};
    use crate::{AgentConnection, Client};
    use tierflow_device::{Choice, open};
    use tierflow_engine::{Engine, Region, Tier};
    use tierflow_store::{Faults, Options, Repository};

    /// The agent has a single thread, and replaces it when it hangs.
    #[test]
    fn a_scan_that_hangs_holds_up_no_other_route() {
        let home = tempfile::tempdir().unwrap();
        let opened = Home::open(home.path(), true).unwrap();
        let settings = Settings {
            most_threads: 1,
            patience: Duration::ZERO,
            idle: None,
        };
        let (server, _wakes) = Server::new(opened, settings).unwrap();
        let (hanging, other) = (with_version(), with_version());
        let faults = Arc::<Faults>::default();
        fail(&hanging.1, &faults);
        faults.reads_hang.store(true, Ordering::Relaxed);
        for flow in [&hanging.1, &other.1] {
            // A route with a client is not ended.
            flow.state.lock().clients = 1;
            let mut shared = server.shared.lock();
            shared.flows.insert(flow.route.clone(), Arc::clone(flow));
        }
        let agent = Arc::clone(&server);
        let agent = std::thread::spawn(move || agent.supervise());
        until(|| hanging.1.status().trouble.is_some());
        until(|| other.1.state.lock().brought == 1);
        assert!(hanging.1.state.lock().scanning.is_some());
        faults.reads_hang.store(false, Ordering::Relaxed);
        server.stop();
        agent.join().unwrap();
    }

    /// Scans the next route, and returns it.
    fn scan_next(server: &Server) -> Arc<Flow> {
        let task = server.next(&mut server.shared.lock());
        let Some(Task::Scan(flow)) = task else {
            panic!("nothing is to be scanned");
        };
        flow.scan();
        flow
    }

    /// The test passes the time to `is_over`, so that scans seem to take long.
    #[test]
    fn scans_that_take_long_do_not_keep_an_agent_that_was_told_to_end() {
        let home = tempfile::tempdir().unwrap();
        let opened = Home::open(home.path(), true).unwrap();
        let (server, _wakes) = Server::new(opened, Settings::default()).unwrap();
        let routes = [with_version(), with_version()];
        let faults = Arc::<Faults>::default();
        for (_, flow) in &routes {
            fail(flow, &faults);
            flow.state.lock().clients = 1;
            let mut shared = server.shared.lock();
            shared.flows.insert(flow.route.clone(), Arc::clone(flow));
        }
        let is_over = |now: Instant| server.is_over(&mut server.shared.lock(), now);
        let begun = Instant::now();
        let minute = begun + Duration::from_secs(60);
        server.stop();
        let first = scan_next(&server);
        assert_eq!(next_of(&first), Some(1));
        first.bring(1);
        assert!(!is_over(minute), "one is not scanned");
        // The external storage of the second route fails, again and again after each pause.
        let second = scan_next(&server);
        assert_eq!(next_of(&second), Some(1));
        faults.writes_fail.store(true, Ordering::Relaxed);
        assert_eq!(second.bring(1), None);
        // The pause of the second route ends later than `begun`.
        assert!(is_over(begun));
        assert!(is_over(minute));
        // A second call of `stop` changes nothing.
        server.stop();
        assert!(is_over(minute));
    }

    /// Returns the next version of a route.
    fn next_of(flow: &Flow) -> Option<u64> {
        let mut state = flow.state.lock();
        state.next(Instant::now(), Duration::from_secs(600))
    }

    /// External storage is full until a version that the engine gave up is removed there.
    #[test]
    fn an_engine_makes_room_where_external_storage_is_full_for_the_agent() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let (near, far) = (path("near"), path("far"));
        drop(Repository::open(&near, Options::default()).unwrap());
        let route = Route {
            local: near.to_str().unwrap().to_owned(),
            external: far.to_str().unwrap().to_owned(),
            rank: 0,
            ranks: 1,
        };
        let opened = Home::open(home.path(), true).unwrap();
        let (server, wakes) = Server::new(opened, Settings::default()).unwrap();
        let flow = Flow::new(route.clone());
        let faults = Arc::<Faults>::default();
        fail(&flow, &faults);
        server.shared.lock().flows.insert(route, Arc::new(flow));
        let listener = server.home.listen().unwrap();
        event_loop::start(&server, listener, wakes).unwrap();
        let vault = AgentConnection::new(home.path(), &near, &far)
            .open()
            .unwrap();
        let agent = std::thread::spawn(move || {
            server.supervise();
            server.is_over.store(true, Ordering::Release);
        });
        let device = open(Choice::Host).unwrap();
        let builder = Engine::builder(&device).host_cache(16 << 20);
        let builder = builder.node_local(&near).tier(Tier::vault(vault));
        let engine = builder.build().unwrap();
        let checkpoint = |version: u64| {
            let bytes = [7; 1000];
            let regions = [Region::from(bytes.as_slice())];
            engine.checkpoint(version, &regions).unwrap();
        };
        checkpoint(1);
        engine.wait().unwrap();
        engine.discard(1).unwrap();
        let hanging = Hanging::new(&faults);
        faults.full.store(true, Ordering::Relaxed);
        let before = faults.removals.load(Ordering::Relaxed);
        checkpoint(2);
        until(|| faults.removals.load(Ordering::Relaxed) > before);
        faults.full.store(false, Ordering::Relaxed);
        drop(hanging);
        engine.wait().unwrap();
        let far = Repository::read_only(&far, Options::default()).unwrap();
        let versions = far.versions().unwrap().into_iter();
        let versions: Vec<u64> = versions.map(|info| info.version).collect();
        assert_eq!(versions, [2]);
        drop(engine);
        Client::connect(home.path()).unwrap().stop().unwrap();
        agent.join().unwrap();
    }
}
