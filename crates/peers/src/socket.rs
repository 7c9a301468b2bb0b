//! Sends messages and descriptors between processes of one machine. Every wait has an end.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
};

use crate::error::{Error, Result};

/// Bytes of a message: its kind, and a number.
const LENGTH: usize = 16;

/// The longest patience, which every clock can measure.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1 << 32);

/// Returns the end of a patience that begins now.
pub(crate) fn deadline(patience: Duration) -> Instant {
    Instant::now() + patience.min(LONGEST_PATIENCE)
}

/// Time between two tries of a call that would block.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The longest wait for other processes that begin to listen in the same directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// An end of a connection.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
}

/// A socket that others connect to. Dropping it removes the path.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    path: PathBuf,
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: u64,
    pub(crate) value: u64,
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Listener {
    /// Listens at a path. Replaces a socket that a killed process left there. Fails if another process listens there, or if a file is there.
    pub(crate) fn bind(path: &Path) -> Result<Self> {
        let doing = "listening on a socket";
        let failed = |errno| system(doing, errno);
        let (fd, address) = (new(doing)?, address(path)?);
        // The lock is held until others can connect, as a socket on which nobody listens yet looks like one that was left. If the directory
        // cannot be locked, two processes that begin to listen at the same path at the same time may disturb each other.
        let _alone = locked(path).ok();
        let bind = || rustix::net::bind(&fd, &address);
        match bind() {
            Err(Errno::ADDRINUSE) if is_left(path, &address)? => {
                fs::unlink(path).and_then(|()| bind())
            }
            bound => bound,
        }
        .map_err(failed)?;
        rustix::net::listen(&fd, 64).map_err(failed)?;
        let path = path.to_owned();
        Ok(Self { fd, path })
    }

    /// Waits for the next process that connects. Refuses a process of another user.
    pub(crate) fn accept(&self, patience: Duration) -> Result<Socket> {
        let doing = "waiting for a process that borrows";
        let deadline = deadline(patience);
        let fd = loop {
            match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC) {
                Ok(fd) => break fd,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED)
                    if Instant::now() < deadline =>
                {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {
                    return Err(timed_out(doing, patience));
                }
                Err(errno) => return Err(system(doing, errno)),
            }
        };
        Socket::of_this_user(fd, doing)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The path may have been removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// Refuses a connection whose other end is a process of another user.
    fn of_this_user(fd: OwnedFd, doing: &'static str) -> Result<Self> {
        let theirs = sockopt::socket_peercred(&fd).map_err(|errno| system(doing, errno))?;
        match theirs.uid == rustix::process::getuid() {
            true => Ok(Self { fd }),
            false => Err(Error::Protocol("it belongs to another user".to_owned())),
        }
    }

    /// Connects to a listener. Waits if it does not exist yet. Refuses a listener of another user.
    pub(crate) fn connect(path: &Path, patience: Duration) -> Result<Self> {
        let doing = "connecting to a process that lends";
        let deadline = deadline(patience);
        let address = address(path)?;
        let fd = new(doing)?;
        loop {
            match rustix::net::connect(&fd, &address) {
                Ok(()) => break,
                Err(Errno::AGAIN | Errno::NOENT | Errno::CONNREFUSED | Errno::INTR)
                    if Instant::now() < deadline =>
                {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Err(Errno::AGAIN | Errno::NOENT | Errno::CONNREFUSED | Errno::INTR) => {
                    return Err(timed_out(doing, patience));
                }
                Err(errno) => return Err(system(doing, errno)),
            }
        }
        rustix::io::ioctl_fionbio(&fd, false).map_err(|errno| system(doing, errno))?;
        Self::of_this_user(fd, doing)
    }

    pub(crate) fn send(
        &self,
        doing: &'static str,
        kind: u64,
        value: u64,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&kind.to_le_bytes());
        bytes[8..].copy_from_slice(&value.to_le_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        let descriptors: Vec<_> = descriptors.into_iter().flatten().collect();
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        // A message is far smaller than a socket's buffer, so the call need not wait. If the buffer is full, the other process does not read, and
        // the call fails at once.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::sendmsg(&self.fd, &[IoSlice::new(&bytes)], &mut ancillary, flags) {
            Ok(_) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(Error::Gone { doing }),
            Err(errno) => Err(system(doing, errno)),
        }
    }

    /// Tells the other process that no further message comes. Messages of that process still arrive.
    pub(crate) fn end(&self) {
        // A connection that is over needs no end.
        let _over = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    /// Waits for the next message. With a patience of 0, returns only a message that has arrived.
    pub(crate) fn receive(&self, doing: &'static str, patience: Duration) -> Result<Message> {
        let deadline = deadline(patience);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        let mut bytes = [0; LENGTH];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                flags |= RecvFlags::DONTWAIT;
            } else {
                let left = Some(left.max(POLL_INTERVAL));
                sockopt::set_socket_timeout(&self.fd, Timeout::Recv, left)
                    .map_err(|errno| system(doing, errno))?;
            }
            let mut into = [IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(&self.fd, &mut into, &mut ancillary, flags) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(timed_out(doing, patience)),
                Err(Errno::CONNRESET) => return Err(Error::Gone { doing }),
                Err(errno) => return Err(system(doing, errno)),
            }
        };
        let mut descriptor = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                descriptor = fds.last();
            }
        }
        let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
        match received.bytes {
            0 => Err(Error::Gone { doing }),
            LENGTH if !received.flags.intersects(cut) => {
                let number = |at: usize| {
                    let mut word = [0; 8];
                    word.copy_from_slice(&bytes[at..at + 8]);
                    u64::from_le_bytes(word)
                };
                Ok(Message {
                    kind: number(0),
                    value: number(8),
                    descriptor,
                })
            }
            other => Err(Error::Protocol(format!("a message of {other} bytes"))),
        }
    }
}

/// Makes a socket for whole messages (`SEQPACKET`) that does not block.
fn new(doing: &'static str) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(family, kind, flags, None).map_err(|errno| system(doing, errno))
}

/// Locks the directory of a path, so that no other process begins to listen there until the result is dropped.
fn locked(path: &Path) -> rustix::io::Result<OwnedFd> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = fs::open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(POLL_INTERVAL);
            }
            locked => return locked.map(|()| directory),
        }
    }
}

/// Returns true for a socket on which nobody listens.
fn is_left(path: &Path, address: &SocketAddrUnix) -> Result<bool> {
    let is_socket =
        fs::lstat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
    let connected = rustix::net::connect(new("looking at a socket")?, address);
    Ok(is_socket && connected == Err(Errno::CONNREFUSED))
}

fn address(path: &Path) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|errno| system("naming a socket", errno))
}

fn timed_out(doing: &str, patience: Duration) -> Error {
    Error::TimedOut {
        doing: doing.to_owned(),
        patience,
    }
}

fn system(doing: &'static str, errno: Errno) -> Error {
    let why = errno.into();
    Error::System { doing, why }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_socket_that_a_killed_process_left_gives_way() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lender");
        let killed = new("").unwrap();
        rustix::net::bind(&killed, &address(&path).unwrap()).unwrap();
        rustix::net::listen(&killed, 1).unwrap();
        drop(killed);
        let listener = Listener::bind(&path).unwrap();
        let _borrower = Socket::connect(&path, PATIENCE).unwrap();
        listener.accept(PATIENCE).unwrap();
    }

    #[test]
    fn a_process_that_listens_and_what_is_no_socket_do_not_give_way() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lender");
        let listener = Listener::bind(&path).unwrap();
        Listener::bind(&path).unwrap_err();
        let _borrower = Socket::connect(&path, PATIENCE).unwrap();
        listener.accept(PATIENCE).unwrap();
        let file = home.path().join("file");
        std::fs::write(&file, "bytes").unwrap();
        Listener::bind(&file).unwrap_err();
        assert_eq!(std::fs::read(&file).unwrap(), b"bytes");
    }
}
