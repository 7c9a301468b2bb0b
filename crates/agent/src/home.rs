//! The agent's directory within the scratch directory: the lock, the socket, and the routes that the agent serves.
//!
//! Only its owner can enter the directory. All files are reached through the open directory, so no process can put another directory in its
//! place, and no path is too long for a socket. Users may share the scratch directory, if it is sticky: each user finds the directory that
//! belongs to them, even if others took the name.

use crate::notes::{Folder, me};
use crate::protocol::Route;
use crate::{Error, Result};
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The directory's name. If another user has taken it, a number follows.
const NAME: &str = ".tierflow-agent";
const SOCKET: &str = "socket";
const LOCK: &str = "lock";
const ROUTES: &str = "routes.json";

/// The agent's directory, open.
#[derive(Debug)]
pub(crate) struct Home {
    folder: Folder,
    scratch: PathBuf,
}

impl Home {
    /// Opens this user's directory in `scratch`. Makes the directory first if `create` is true.
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
        let folder = match Folder::open(&path, OFlags::NOFOLLOW) {
            Ok(folder) => folder,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(refused(&path, "it is no directory"));
            }
            Err(source @ Errno::NOENT) => return Err(absent(source.into())),
            Err(source) => return Err(failed("opening")(source)),
        };
        let stat = fs::fstat(&folder.descriptor).map_err(failed("looking at"))?;
        if stat.st_uid != me() {
            return Err(refused(&path, "it belongs to another user"));
        }
        if !(Mode::from_raw_mode(stat.st_mode) & (Mode::RWXG | Mode::RWXO)).is_empty() {
            return Err(refused(&path, "others may enter it"));
        }
        Ok(Self {
            folder,
            scratch: scratch.to_path_buf(),
        })
    }

    /// Takes the lock of the directory, which only one agent can hold. Dropping the result releases it.
    pub(crate) fn lock(&self) -> Result<OwnedFd> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(
            &self.folder.descriptor,
            LOCK,
            flags,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(|source| self.folder.failed("opening", LOCK, source))?;
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(Errno::WOULDBLOCK) => Err(Error::Busy {
                directory: self.scratch.clone(),
            }),
            Err(source) => Err(self.folder.failed("locking", LOCK, source)),
        }
    }

    /// Returns the socket's path through the open directory.
    fn socket(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/self/fd/{}/{SOCKET}",
            self.folder.descriptor.as_raw_fd()
        ))
    }

    /// Removes the old socket and makes a new one. The lock must be held.
    pub(crate) fn listen(&self) -> Result<UnixListener> {
        match fs::unlinkat(&self.folder.descriptor, SOCKET, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(source) => return Err(self.folder.failed("removing", SOCKET, source)),
        }
        let listener = UnixListener::bind(self.socket());
        listener.map_err(|source| Error::File {
            doing: "making",
            path: self.folder.path.join(SOCKET),
            source,
        })
    }

    /// Connects to the agent. Refuses a socket or a process of another user.
    pub(crate) fn connect(&self) -> Result<UnixStream> {
        let absent = |source: std::io::Error| Error::Absent {
            directory: self.scratch.clone(),
            source,
        };
        let stat = fs::statat(&self.folder.descriptor, SOCKET, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|source| absent(source.into()))?;
        let path = self.folder.path.join(SOCKET);
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

    /// Reads the routes that an earlier agent served and did not finish.
    pub(crate) fn routes(&self) -> Result<Vec<Route>> {
        self.folder.read(ROUTES)
    }

    /// Writes the list of routes, durably.
    pub(crate) fn note(&self, routes: &[Route]) -> Result<()> {
        self.folder.write(ROUTES, routes)
    }

    /// Returns true if the directory was not removed.
    pub(crate) fn is_there(&self) -> bool {
        fs::fstat(&self.folder.descriptor).is_ok_and(|stat| stat.st_nlink > 0)
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

/// Makes this user's directory in `scratch`, under the first name that no other user has taken.
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

/// Returns true if there is a directory of this user at the path. No other user can make such a directory; a link does not count.
fn is_own(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.uid() == me())
}

/// Refuses a connection whose other end is not a process of this user.
pub(crate) fn check_peer(stream: &UnixStream, path: &Path) -> Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    let peer = peer.map_err(|source| Error::Connection(source.into()))?;
    if peer.uid.as_raw() == me() {
        Ok(())
    } else {
        Err(refused(path, "the process behind it is another user's"))
    }
}

fn refused(path: &Path, why: &'static str) -> Error {
    Error::Refused {
        path: path.to_path_buf(),
        why,
    }
}
