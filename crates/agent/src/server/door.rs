//! All clients of the agent, served by one thread: who is silent costs a descriptor and nothing else.

use super::connection::{Connection, Removal};
use super::{BEAT, Server, spawn};
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// No more clients are let in at a time: a process has 1 024 descriptors, as a rule. Beyond that, whoever did not greet goes
/// first, and others wait until one goes.
const MOST: usize = 512;

/// Wakes the door's thread.
#[derive(Debug)]
pub(super) struct Bell(UnixStream);

impl Bell {
    /// The bell, and what is heard of it.
    pub(super) fn new() -> Result<(Self, UnixStream)> {
        let (bell, heard) = UnixStream::pair().map_err(Error::Connection)?;
        let quiet = bell.set_nonblocking(true).and(heard.set_nonblocking(true));
        quiet.map_err(Error::Connection)?;
        Ok((Self(bell), heard))
    }

    pub(super) fn ring(&self) {
        // If it cannot be written, it was rung before and not heard yet.
        let _heard_already = (&self.0).write(&[1]);
    }
}

/// Results of what was handed on, by client.
type Done = Arc<Mutex<Vec<(u64, Result<()>)>>>;

/// Lets clients in and serves them until the agent is over.
pub(super) fn open(server: &Arc<Server>, listener: UnixListener, heard: UnixStream) -> Result<()> {
    listener.set_nonblocking(true).map_err(Error::Connection)?;
    let (removals, asked) = channel();
    let done = Done::default();
    let remover = (Arc::clone(server), Arc::clone(&done));
    spawn("tierflow-remove", move || {
        remove(&asked, &remover.0, &remover.1);
    })?;
    let mut door = Door {
        server: Arc::clone(server),
        clients: BTreeMap::new(),
        next: 0,
        removals,
        done,
    };
    spawn("tierflow-listen", move || door.attend(&listener, &heard))
}

/// Removes what clients ask for: that may take as long as external storage takes.
fn remove(asked: &Receiver<(u64, Removal)>, server: &Server, done: &Done) {
    while let Ok((client, removal)) = asked.recv() {
        let result = removal.flow.remove(removal.versions).map_err(Error::from);
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        done.push((client, result));
        drop(done);
        server.bell.ring();
    }
}

struct Door {
    server: Arc<Server>,
    clients: BTreeMap<u64, Connection>,
    next: u64,
    removals: Sender<(u64, Removal)>,
    done: Done,
}

impl Door {
    fn attend(&mut self, listener: &UnixListener, heard: &UnixStream) {
        while !self.server.is_over.load(Ordering::Acquire) {
            let readable = self.wait(listener, heard);
            while (&*heard).read(&mut [0; 256]).is_ok_and(|read| read > 0) {}
            let done =
                std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
            for (client, result) in done {
                if let Some(connection) = self.clients.get_mut(&client)
                    && connection.removed(result).is_err()
                {
                    self.clients.remove(&client);
                }
            }
            let removals = &self.removals;
            let before = self.clients.len();
            self.clients.retain(|client, connection| {
                match connection.go_on(readable.contains(client)) {
                    Ok(None) => true,
                    Ok(Some(removal)) => removals.send((*client, removal)).is_ok(),
                    Err(_) => false,
                }
            });
            let is_changed = self.clients.len() < before || self.let_in(listener);
            if is_changed {
                self.server.shared.lock().connections = self.clients.len();
                self.server.changed.notify_all();
            }
        }
    }

    /// Waits until something is to be done, but not long. Returns the clients of whom something came.
    fn wait(&self, listener: &UnixListener, heard: &UnixStream) -> Vec<u64> {
        let mut files = vec![PollFd::new(heard, PollFlags::IN)];
        if self.clients.len() < MOST || self.silent().is_some() {
            files.push(PollFd::new(listener, PollFlags::IN));
        }
        let first = files.len();
        for connection in self.clients.values() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, connection.may_ask());
            flags.set(PollFlags::OUT, connection.has_output());
            files.push(PollFd::new(connection.stream(), flags));
        }
        let beat = Timespec {
            tv_sec: 0,
            tv_nsec: BEAT.subsec_nanos().into(),
        };
        if poll(&mut files, Some(&beat)).is_err() {
            std::thread::sleep(BEAT / 10);
            return Vec::new();
        }
        let ready = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let clients = self.clients.keys().zip(&files[first..]);
        let readable = clients.filter(|(_, file)| file.revents().intersects(ready));
        readable.map(|(client, _)| *client).collect()
    }

    /// The client that did not greet for longest.
    fn silent(&self) -> Option<u64> {
        let mut clients = self.clients.iter();
        let silent = clients.find(|(_, connection)| !connection.is_greeted());
        silent.map(|(client, _)| *client)
    }

    /// Says whether somebody came.
    fn let_in(&mut self, listener: &UnixListener) -> bool {
        let mut is_new = false;
        while self.clients.len() < MOST || self.silent().is_some() {
            // Too many descriptors in use, and the like: others may go meanwhile.
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    std::thread::sleep(BEAT / 10);
                    break;
                }
            };
            if self.clients.len() >= MOST
                && let Some(silent) = self.silent()
            {
                self.clients.remove(&silent);
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
