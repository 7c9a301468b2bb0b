//! The connection of a client: its requests and the replies. Nothing here blocks: the event loop reads bytes as they come, and other threads
//! do the tasks that take longer.

use super::Server;
use super::removals::Removal;
use crate::flow::Flow;
use crate::home::check_peer;
use crate::protocol::{
    FRAME_LIMIT, Failure, PROTOCOL, Reply, Request, Route, Status, receive, send,
};
use crate::{Error, Result};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between two messages to a waiting client that the agent still works.
const WORKING_EVERY: Duration = Duration::from_millis(500);
/// The longest time that a client may take to greet, to send the rest of a message, or to read an answer.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// The most versions in a [`Status`], shared out among the routes. A frame has room for twice as many.
const LISTED: usize = 20_000;

/// An outcome that a client waits for.
enum Waits {
    ForNothing,
    /// A version to be published.
    For(u64),
    /// A [`SlowTask`].
    ForSlowTask,
}

/// A task for a client that may take long.
pub(super) enum SlowTask {
    Remove(Removal),
    /// Noting the route that the client takes.
    Note(Arc<Flow>),
}

/// A client.
pub(super) struct Connection {
    server: Arc<Server>,
    stream: UnixStream,
    flow: Option<Arc<Flow>>,
    is_greeted: bool,
    waits: Waits,
    /// The time when the client's wait began, or when it was last told that the agent works.
    told: Instant,
    /// Bytes received that are no whole message yet.
    input: Vec<u8>,
    /// Bytes that are still to be sent.
    output: Vec<u8>,
    /// The time when the client last sent or took bytes.
    last_progress: Instant,
    /// True if the client has closed its end: it sends nothing more.
    is_closed: bool,
    /// True if the connection is closed once the output is sent.
    is_ending: bool,
}

impl Connection {
    pub(super) fn new(server: &Arc<Server>, stream: UnixStream) -> Result<Self> {
        check_peer(&stream, Path::new("a connection"))?;
        stream.set_nonblocking(true).map_err(Error::Connection)?;
        Ok(Self {
            server: Arc::clone(server),
            stream,
            flow: None,
            is_greeted: false,
            waits: Waits::ForNothing,
            told: Instant::now(),
            input: Vec::new(),
            output: Vec::new(),
            last_progress: Instant::now(),
            is_closed: false,
            is_ending: false,
        })
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(super) fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Returns true if another request may be read: requests are answered one after the other.
    pub(super) fn may_ask(&self) -> bool {
        !self.is_ending && matches!(self.waits, Waits::ForNothing)
    }

    /// Reads requests, answers them, and sends the outcome that the client waits for. Returns a task that takes longer, if there is one.
    ///
    /// # Errors
    /// [`Error::Connection`] if the client is gone, or takes too long.
    pub(super) fn go_on(&mut self, is_readable: bool) -> Result<Option<SlowTask>> {
        if is_readable {
            self.read()?;
        }
        let mut task = None;
        while task.is_none() && self.may_ask() {
            match self.message() {
                Ok(None) => break,
                Ok(Some(request)) => match self.answer(request) {
                    Ok(asked) => task = asked,
                    Err(error) => self.refuse(&error),
                },
                Err(error) => self.refuse(&error),
            }
        }
        if self.is_closed {
            // The client's requests are still answered; outcomes that it waits for are not sent.
            self.is_ending = true;
        }
        self.tell()?;
        self.write()?;
        let is_slow = !self.is_greeted || !self.input.is_empty() || self.has_output();
        let is_asked = self.may_ask() || self.has_output();
        let is_over = self.is_ending && !self.has_output();
        if is_over || (is_slow && is_asked && self.last_progress.elapsed() > IO_TIMEOUT) {
            return Err(Error::Connection(ErrorKind::TimedOut.into()));
        }
        Ok(task)
    }

    /// Sends the client the result of the task that it waits for.
    pub(super) fn done(&mut self, result: Result<()>) -> Result<()> {
        self.waits = Waits::ForNothing;
        let flow = self.flow.as_ref();
        if flow.is_some_and(|flow| !flow.is_noted.load(Ordering::Acquire)) {
            // The client's route could not be noted.
            self.leave();
        }
        self.say(&result.map_or_else(|error| failed(&error), |()| Reply::Done))
    }

    fn read(&mut self) -> Result<()> {
        let mut bytes = [0; 16 << 10];
        // The input holds little more than the longest message.
        while self.input.len() <= FRAME_LIMIT + 4 {
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    self.is_closed = true;
                    break;
                }
                Ok(read) => {
                    self.input.extend_from_slice(&bytes[..read]);
                    self.last_progress = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Connection(error)),
            }
        }
        Ok(())
    }

    /// Returns the next message, once the input has all of it.
    fn message(&mut self) -> Result<Option<Request>> {
        let Some(length) = self.input.first_chunk().copied() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(length) as usize;
        if length > FRAME_LIMIT {
            return Err(Error::Protocol("a frame is too long"));
        }
        let Some(mut frame) = self.input.get(..4 + length) else {
            return Ok(None);
        };
        let request = receive(&mut frame);
        self.input.drain(..4 + length);
        request
    }

    fn answer(&mut self, request: Request) -> Result<Option<SlowTask>> {
        if !self.is_greeted {
            return match request {
                Request::Hello { protocol: PROTOCOL } => {
                    self.is_greeted = true;
                    self.say(&Reply::Hello { protocol: PROTOCOL })?;
                    Ok(None)
                }
                _ => Err(Error::Protocol("another version, or no greeting")),
            };
        }
        let reply = match request {
            Request::Hello { .. } => return Err(Error::Protocol("a second greeting")),
            Request::Take { route } => match self.take(route) {
                Ok(flow) if flow.is_noted.load(Ordering::Acquire) => Ok(Reply::Done),
                Ok(flow) => {
                    self.wait(Waits::ForSlowTask);
                    return Ok(Some(SlowTask::Note(flow)));
                }
                Err(error) => Err(error),
            },
            Request::Publish { version } => match self.on_route() {
                Ok(flow) => {
                    flow.state.lock().watch(version);
                    self.server.changed.notify_all();
                    self.wait(Waits::For(version));
                    return Ok(None);
                }
                Err(error) => Err(error),
            },
            Request::Remove { versions } => match self.on_route() {
                Ok(flow) => {
                    self.wait(Waits::ForSlowTask);
                    let versions = versions.into_iter().collect();
                    return Ok(Some(SlowTask::Remove(Removal { flow, versions })));
                }
                Err(error) => Err(error),
            },
            Request::Status => Ok(Reply::Status(self.status())),
            Request::Stop => {
                // The client gets its reply first, as the agent may end at once.
                self.say(&Reply::Done)?;
                self.write()?;
                self.server.stop();
                return Ok(None);
            }
        };
        self.say(&reply.unwrap_or_else(|error| failed(&error)))?;
        Ok(None)
    }

    /// Notes what the client waits for from now on.
    fn wait(&mut self, waits: Waits) {
        (self.waits, self.told) = (waits, Instant::now());
    }

    /// Sends the client the outcome that it waits for, or, from time to time, [`Reply::Working`].
    fn tell(&mut self) -> Result<()> {
        let outcome = match (&self.waits, &self.flow) {
            (Waits::ForNothing, _) => return Ok(()),
            (Waits::For(version), Some(flow)) => flow.state.lock().outcome(*version),
            _ => None,
        };
        match outcome {
            Some(outcome) => {
                self.waits = Waits::ForNothing;
                self.say(&outcome.map_or_else(Reply::Failed, |()| Reply::Done))
            }
            None if self.told.elapsed() >= WORKING_EVERY => {
                self.told = Instant::now();
                self.say(&Reply::Working)
            }
            None => Ok(()),
        }
    }

    fn say(&mut self, reply: &Reply) -> Result<()> {
        if self.output.is_empty() {
            self.last_progress = Instant::now();
        }
        send(&mut self.output, reply)
    }

    fn refuse(&mut self, error: &Error) {
        self.is_ending = true;
        // If the connection broke, nobody reads the reply.
        let _unheard = self.say(&failed(error));
    }

    fn write(&mut self) -> Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return Err(Error::Connection(ErrorKind::WriteZero.into())),
                Ok(written) => {
                    self.output.drain(..written);
                    self.last_progress = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Connection(error)),
            }
        }
        Ok(())
    }

    /// Puts the client on a route, after it leaves the one before.
    fn take(&mut self, route: Route) -> Result<Arc<Flow>> {
        let absolute = |path: &str| Path::new(path).is_absolute() && path.len() < 4096;
        if !absolute(&route.local) || !absolute(&route.external) || route.rank >= route.ranks {
            let what = "a route needs two absolute paths and a rank of its group: name another one";
            return Err(Error::Failed(what.to_owned()));
        }
        self.leave();
        let mut shared = self.server.shared.lock();
        if shared.stopping {
            return Err(Error::Failed("the agent is about to end".to_owned()));
        }
        let flows = shared.flows.entry(route.clone());
        let flow = Arc::clone(flows.or_insert_with(|| Arc::new(Flow::new(route))));
        {
            let mut state = flow.state.lock();
            state.clients += 1;
            state.scanned_without_clients = false;
        }
        self.flow = Some(Arc::clone(&flow));
        Ok(flow)
    }

    fn on_route(&self) -> Result<Arc<Flow>> {
        self.flow
            .clone()
            .ok_or(Error::Protocol("no route was named before"))
    }

    fn status(&self) -> Status {
        let shared = self.server.shared.lock();
        let most = LISTED / shared.flows.len().max(1);
        let routes = shared.flows.values().map(|flow| {
            let mut route = flow.status();
            route.unlisted = route.pending.len().saturating_sub(most);
            route.pending.truncate(most);
            route
        });
        Status {
            process: std::process::id(),
            threads: shared.threads,
            routes: routes.collect(),
        }
    }

    /// Takes the client off its route. The node is then scanned at once for pieces that the client left there.
    fn leave(&mut self) {
        let Some(flow) = self.flow.take() else {
            return;
        };
        let mut state = flow.state.lock();
        if let Waits::For(version) = self.waits {
            state.unwatch(version);
        }
        state.clients -= 1;
        state.scan_at = Instant::now();
        state.scanned_without_clients = false;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.leave();
    }
}

fn failed(error: &Error) -> Reply {
    Reply::Failed(Failure::from(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;
    use crate::server::Settings;

    #[test]
    fn a_status_of_many_versions_fits_into_a_reply() {
        let home = tempfile::tempdir().unwrap();
        let opened = Home::open(home.path(), true).unwrap();
        let (server, _wakes) = Server::new(opened, Settings::default()).unwrap();
        let (_client, served) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(&server, served).unwrap();
        for rank in 0..2 {
            let route = Route {
                local: "/local".to_owned(),
                external: "/external".to_owned(),
                rank,
                ranks: 2,
            };
            let flow = Arc::new(Flow::new(route.clone()));
            let many = (0..100_000).map(|version| u64::MAX - version);
            flow.state.lock().waiting.extend(many);
            server.shared.lock().flows.insert(route, flow);
        }
        let status = connection.status();
        connection.say(&Reply::Status(status.clone())).unwrap();
        for route in status.routes {
            assert_eq!(route.pending.len() + route.unlisted, 100_000);
        }
    }

    /// No thread does the task before the client was told that the agent works.
    #[test]
    fn who_waits_for_a_note_or_a_removal_hears_that_the_agent_works() {
        let home = tempfile::tempdir().unwrap();
        let opened = Home::open(home.path(), true).unwrap();
        let (server, _wakes) = Server::new(opened, Settings::default()).unwrap();
        let (mut client, served) = UnixStream::pair().unwrap();
        client.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        let mut connection = Connection::new(&server, served).unwrap();
        let route = Route {
            local: "/local".to_owned(),
            external: "/external".to_owned(),
            rank: 0,
            ranks: 1,
        };
        let requests = [
            Request::Hello { protocol: PROTOCOL },
            Request::Take { route },
            Request::Remove { versions: vec![1] },
        ];
        for request in &requests {
            send(&mut client, request).unwrap();
        }
        let mut replies = || receive::<Reply>(&mut client).unwrap().unwrap();
        // The lock stands for a disk with the agent's notes that hangs.
        let hanging = server.noting.lock();
        let task = connection.go_on(true).unwrap();
        assert!(matches!(task, Some(SlowTask::Note(_))));
        assert_eq!(replies(), Reply::Hello { protocol: PROTOCOL });
        std::thread::sleep(WORKING_EVERY);
        assert!(connection.go_on(false).unwrap().is_none());
        assert_eq!(replies(), Reply::Working);
        drop(hanging);
        let noted = server.note();
        connection.done(noted).unwrap();
        let task = connection.go_on(false).unwrap();
        assert!(matches!(task, Some(SlowTask::Remove(_))));
        assert_eq!(replies(), Reply::Done);
        std::thread::sleep(WORKING_EVERY);
        assert!(connection.go_on(false).unwrap().is_none());
        assert_eq!(replies(), Reply::Working);
        connection.done(Ok(())).unwrap();
        assert!(connection.go_on(false).unwrap().is_none());
        assert_eq!(replies(), Reply::Done);
    }
}
