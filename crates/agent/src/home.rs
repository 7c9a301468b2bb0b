//! The agent's own directory within the scratch directory: its lock, its socket, the routes that it serves, and the pieces that clients
//! had removed.
//!
//! Only its owner can enter. Everything is reached through the open directory, so no process can put another in its place, and
//! no path is too long for a socket. Users may share the scratch directory, if it is sticky: each finds the directory that belongs to them,
//! whatever others have put under its name.

use crate::protocol::Route;
use crate::{Error, Result};
use parking_lot::Mutex;
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tierflow_store::{Identity, PieceInfo};

/// The directory's name. A number follows it where other users have taken the names before.
const NAME: &str = ".tierflow-agent";
const SOCKET: &str = "socket";
const LOCK: &str = "lock";
const ROUTES: &str = "routes.json";
const REMOVED: &str = "removed.json";
/// No note is longer.
const NOTE_LIMIT: u64 = 64 << 20;

/// Distinguishes a piece from an older one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) struct PieceKey {
    pub(crate) version: u64,
    #[serde(with = "IdentityFields")]
    pub(crate) identity: Identity,
}

impl From<&PieceInfo> for PieceKey {
    fn from(piece: &PieceInfo) -> Self {
        Self {
            version: piece.version,
            identity: piece.identity,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Identity")]
struct IdentityFields {
    epoch: u32,
    sequence: u64,
    run: u64,
    created: u64,
    content: u64,
    base: Option<u64>,
}

/// The open directory.
#[derive(Debug)]
pub(crate) struct Home {
    /// By route: pieces that clients had removed from its end, and that may still lie at its start.
    removed: Mutex<BTreeMap<Route, BTreeSet<PieceKey>>>,
    descriptor: OwnedFd,
    path: PathBuf,
    scratch: PathBuf,
}

impl Home {
    /// Opens this user's directory in `scratch`, after making it if `create`.
    pub(crate) fn open(scratch: &Path, create: bool) -> Result<Self> {
        let absent = |source| Error::Absent {
            directory: scratch.to_path_buf(),
            source,
        };
        let path = match own(scratch) {
            Ok(Some(path)) => path,
            Ok(None) if create => make(scratch)?,
            Ok(None) => return Err(absent(Errno::NOENT.into())),
            Err(source) if source.kind() == ErrorKind::NotFound && !create => {
                return Err(absent(source));
            }
            Err(source) => {
                return Err(Error::File {
                    doing: "looking through",
                    path: scratch.to_path_buf(),
                    source,
                });
            }
        };
        let failed = |doing| {
            let path = path.clone();
            move |source: Errno| Error::File {
                doing,
                path,
                source: source.into(),
            }
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let descriptor = match fs::open(&path, flags, Mode::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(refused(&path, "it is no directory"));
            }
            Err(source @ Errno::NOENT) => return Err(absent(source.into())),
            Err(source) => return Err(failed("opening")(source)),
        };
        let stat = fs::fstat(&descriptor).map_err(failed("looking at"))?;
        if stat.st_uid != me() {
            return Err(refused(&path, "it belongs to another user"));
        }
        if !(Mode::from_raw_mode(stat.st_mode) & (Mode::RWXG | Mode::RWXO)).is_empty() {
            return Err(refused(&path, "others may enter it"));
        }
        Ok(Self {
            removed: Mutex::default(),
            descriptor,
            path,
            scratch: scratch.to_path_buf(),
        })
    }

    /// Takes the lock that makes this the one agent of the directory, until the result is dropped.
    pub(crate) fn lock(&self) -> Result<OwnedFd> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.descriptor, LOCK, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|source| self.failed("opening", LOCK, source))?;
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(Errno::WOULDBLOCK) => Err(Error::Busy {
                directory: self.scratch.clone(),
            }),
            Err(source) => Err(self.failed("locking", LOCK, source)),
        }
    }

    /// The socket's path through the open directory.
    fn socket(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/self/fd/{}/{SOCKET}",
            self.descriptor.as_raw_fd()
        ))
    }

    /// Makes the socket anew. The lock must be held.
    pub(crate) fn listen(&self) -> Result<UnixListener> {
        match fs::unlinkat(&self.descriptor, SOCKET, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(source) => return Err(self.failed("removing", SOCKET, source)),
        }
        let listener = UnixListener::bind(self.socket());
        listener.map_err(|source| Error::File {
            doing: "making",
            path: self.path.join(SOCKET),
            source,
        })
    }

    /// Connects to the agent, if it is one of this user's.
    pub(crate) fn connect(&self) -> Result<UnixStream> {
        let absent = |source: std::io::Error| Error::Absent {
            directory: self.scratch.clone(),
            source,
        };
        let stat = fs::statat(&self.descriptor, SOCKET, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|source| absent(source.into()))?;
        let path = self.path.join(SOCKET);
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(refused(&path, "it is no socket"));
        }
        if stat.st_uid != me() {
            return Err(refused(&path, "it belongs to another user"));
        }
        let stream = UnixStream::connect(self.socket()).map_err(absent)?;
        check_peer(&stream, &path)?;
        Ok(stream)
    }

    /// Reads what an earlier agent noted. Returns the routes that it served and did not finish.
    pub(crate) fn routes(&self) -> Result<Vec<Route>> {
        let removed: Vec<(Route, BTreeSet<PieceKey>)> = self.read(REMOVED)?;
        self.removed.lock().extend(removed);
        self.read(ROUTES)
    }

    /// Writes the list of routes, durably.
    pub(crate) fn note(&self, routes: &[Route]) -> Result<()> {
        self.write(ROUTES, routes)
    }

    /// The pieces at the start of a route that clients had removed from its end, by this agent or an earlier one.
    pub(crate) fn removed(&self, route: &Route) -> BTreeSet<PieceKey> {
        let removed = self.removed.lock();
        removed.get(route).cloned().unwrap_or_default()
    }

    /// Notes, durably, that clients had pieces removed. Of all that were noted for the route, those stay that are `here`, at its start.
    pub(crate) fn note_removed(
        &self,
        route: &Route,
        new: BTreeSet<PieceKey>,
        here: &BTreeSet<PieceKey>,
    ) -> Result<()> {
        let mut removed = self.removed.lock();
        let mut noted = removed.clone();
        let of_route = noted.entry(route.clone()).or_default();
        let has_new = !new.is_subset(of_route);
        of_route.extend(new);
        of_route.retain(|piece| here.contains(piece));
        noted.retain(|_, pieces| !pieces.is_empty());
        if has_new {
            self.write(REMOVED, &noted.iter().collect::<Vec<_>>())?;
        }
        *removed = noted;
        Ok(())
    }

    /// Reads a list that was noted under a name; it is empty if none was.
    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match fs::openat(&self.descriptor, name, flags, Mode::empty()) {
            Ok(file) => std::fs::File::from(file),
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(Errno::LOOP) => {
                return Err(refused(&self.path.join(name), "it is a symbolic link"));
            }
            Err(source) => return Err(self.failed("opening", name, source)),
        };
        let mut bytes = Vec::new();
        let read = file.take(NOTE_LIMIT).read_to_end(&mut bytes);
        read.map_err(|source| self.failed_io("reading", name, source))?;
        serde_json::from_slice(&bytes)
            .map_err(|_| refused(&self.path.join(name), "it is no note of an agent"))
    }

    /// Writes a list under a name, durably.
    fn write(&self, name: &str, note: &(impl Serialize + ?Sized)) -> Result<()> {
        let new = &format!("{name}.tmp");
        let bytes =
            serde_json::to_vec(note).map_err(|_| Error::Protocol("a note cannot be written"))?;
        let flags =
            OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.descriptor, new, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|source| self.failed("making", new, source))?;
        let mut file = std::fs::File::from(file);
        let written = file.write_all(&bytes).and_then(|()| file.sync_all());
        written.map_err(|source| self.failed_io("writing", new, source))?;
        fs::renameat(&self.descriptor, new, &self.descriptor, name)
            .and_then(|()| fs::fsync(&self.descriptor))
            .map_err(|source| self.failed("renaming", new, source))
    }

    /// Returns true if the directory is still at its path.
    pub(crate) fn is_there(&self) -> bool {
        fs::fstat(&self.descriptor).is_ok_and(|stat| stat.st_nlink > 0)
    }

    fn failed(&self, doing: &'static str, name: &str, source: Errno) -> Error {
        self.failed_io(doing, name, source.into())
    }

    fn failed_io(&self, doing: &'static str, name: &str, source: std::io::Error) -> Error {
        Error::File {
            doing,
            path: self.path.join(name),
            source,
        }
    }
}

/// Returns this user's directory in `scratch`; `None` if there is none yet.
fn own(scratch: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut first = None;
    for entry in std::fs::read_dir(scratch)? {
        let entry = entry?;
        let is_named = entry.file_name().as_bytes().starts_with(NAME.as_bytes());
        if is_named && is_own(&entry.path()) {
            first = first.into_iter().chain([entry.path()]).min();
        }
    }
    Ok(first)
}

/// Makes this user's directory in `scratch`, by the first name that no other user has taken.
fn make(scratch: &Path) -> Result<PathBuf> {
    let mut path = scratch.join(NAME);
    for number in 1_u64.. {
        match fs::mkdir(&path, Mode::RWXU) {
            Err(Errno::EXIST) if !is_own(&path) => {}
            // Another process of this user may have made it meanwhile.
            Ok(()) | Err(Errno::EXIST) => break,
            Err(source) => {
                return Err(Error::File {
                    doing: "making",
                    path,
                    source: source.into(),
                });
            }
        }
        path = scratch.join(format!("{NAME}.{number}"));
    }
    Ok(path)
}

/// Returns true if there is a directory of this user's at the path. Nobody else can make one, but perhaps a link to a file.
fn is_own(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.uid() == me())
}

/// The other end must be this user's process.
pub(crate) fn check_peer(stream: &UnixStream, path: &Path) -> Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    let peer = peer.map_err(|source| Error::Connection(source.into()))?;
    if peer.uid.as_raw() == me() {
        Ok(())
    } else {
        Err(refused(path, "the process behind it is another user's"))
    }
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn refused(path: &Path, why: &'static str) -> Error {
    Error::Refused {
        path: path.to_path_buf(),
        why,
    }
}
