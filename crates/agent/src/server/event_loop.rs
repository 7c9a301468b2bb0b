//! The event loop that serves all clients of the agent on one thread: an idle client costs a descriptor and nothing else.

use super::connection::{Connection, SlowTask};
use super::{Server, TICK, spawn};
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The most clients at a time, as a process usually has 1 024 descriptors. For more clients, the loop closes those that did not greet, the
/// oldest first. If all have greeted, new clients wait until one leaves.
const MAX_CLIENTS: usize = 512;

/// Wakes the event loop.
#[derive(Debug)]
pub(super) struct Waker(UnixStream);

impl Waker {
    /// Makes a waker, and a stream that is readable after each use of the waker.
    pub(super) fn new() -> Result<(Self, UnixStream)> {
        let (waker, wakes) = UnixStream::pair().map_err(Error::Connection)?;
        let nonblocking = waker.set_nonblocking(true).and(wakes.set_nonblocking(true));
        nonblocking.map_err(Error::Connection)?;
        Ok((Self(waker), wakes))
    }

    pub(super) fn wake(&self) {
        // If the byte cannot be written, the loop has not read earlier bytes yet, and wakes anyway.
        let _is_pending = (&self.0).write(&[1]);
    }
}

/// Starts the thread that accepts clients and serves them until the agent is over.
pub(super) fn start(server: &Arc<Server>, listener: UnixListener, wakes: UnixStream) -> Result<()> {
    listener.set_nonblocking(true).map_err(Error::Connection)?;
    let mut events = EventLoop {
        server: Arc::clone(server),
        clients: BTreeMap::new(),
        next: 0,
    };
    spawn("tierflow-listen", move || events.run(&listener, &wakes))
}

struct EventLoop {
    server: Arc<Server>,
    clients: BTreeMap<u64, Connection>,
    next: u64,
}

impl EventLoop {
    fn run(&mut self, listener: &UnixListener, wakes: &UnixStream) {
        while !self.server.is_over.load(Ordering::Acquire) {
            let readable = self.wait(listener, wakes);
            while (&*wakes).read(&mut [0; 256]).is_ok_and(|read| read > 0) {}
            let done = self.server.removals.lock().take_done();
            for (client, result) in done {
                if let Some(connection) = self.clients.get_mut(&client)
                    && connection.done(result).is_err()
                {
                    self.clients.remove(&client);
                }
            }
            let before = self.clients.len();
            self.clients.retain(|client, connection| {
                match connection.go_on(readable.contains(client)) {
                    Ok(Some(SlowTask::Remove(removal))) => self.server.remove(*client, removal),
                    Ok(Some(SlowTask::Note(flow))) => self.server.note_for(*client, flow),
                    Ok(None) => {}
                    Err(_) => return false,
                }
                true
            });
            let is_changed = self.clients.len() < before || self.accept(listener);
            if is_changed {
                self.server.shared.lock().connections = self.clients.len();
                self.server.changed.notify_all();
            }
        }
    }

    /// Waits for events, for [`TICK`] at most. Returns the clients that have sent something or are gone.
    fn wait(&self, listener: &UnixListener, wakes: &UnixStream) -> Vec<u64> {
        let mut files = vec![PollFd::new(wakes, PollFlags::IN)];
        if self.clients.len() < MAX_CLIENTS || self.ungreeted().is_some() {
            files.push(PollFd::new(listener, PollFlags::IN));
        }
        let first = files.len();
        for connection in self.clients.values() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, connection.may_ask());
            flags.set(PollFlags::OUT, connection.has_output());
            files.push(PollFd::new(connection.stream(), flags));
        }
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: TICK.subsec_nanos().into(),
        };
        if poll(&mut files, Some(&tick)).is_err() {
            std::thread::sleep(TICK / 10);
            return Vec::new();
        }
        let ready = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let clients = self.clients.keys().zip(&files[first..]);
        let readable = clients.filter(|(_, file)| file.revents().intersects(ready));
        readable.map(|(client, _)| *client).collect()
    }

    /// Returns the oldest client that did not greet.
    fn ungreeted(&self) -> Option<u64> {
        let mut clients = self.clients.iter();
        let ungreeted = clients.find(|(_, connection)| !connection.is_greeted());
        ungreeted.map(|(client, _)| *client)
    }

    /// Accepts waiting clients, up to [`MAX_CLIENTS`]. Beyond that, closes a client that did not greet for each new one. Returns true if there
    /// is a new client.
    fn accept(&mut self, listener: &UnixListener) -> bool {
        let mut is_new = false;
        while self.clients.len() < MAX_CLIENTS || self.ungreeted().is_some() {
            // Errors such as too many open descriptors are tried again: other clients may leave meanwhile.
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    std::thread::sleep(TICK / 10);
                    break;
                }
            };
            if self.clients.len() >= MAX_CLIENTS
                && let Some(ungreeted) = self.ungreeted()
            {
                self.clients.remove(&ungreeted);
            }
            if let Ok(connection) = Connection::new(&self.server, stream) {
                self.clients.insert(self.next, connection);
                self.next += 1;
                is_new = true;
            }
        }
        is_new
    }
}
