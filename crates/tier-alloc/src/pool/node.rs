//! The registry of a machine's members, as files that are locked while their owners live.
//!
//! ```text
//! $XDG_RUNTIME_DIR/tierflow-pool/    0700, owned by this user
//!     pool                           size and epoch; locked for the microseconds in which a member settles
//!     00000000000000000003           a member's account: locked by its owner for as long as it lives
//! ```
//!
//! A member writes its own account alone, and only while it holds the lock of `pool`. So the holder of that lock sees
//! consistent accounts. The kernel releases a lock when its owner dies, however it dies: an account that can be locked has
//! no owner, and the next member to see it removes it. Half-written files of a dead owner are never used: its account is
//! removed, and the next member to join writes `pool` anew.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::inotify;

use super::share::{Account, settle};
use crate::directory::{self, LockedFile};
use crate::workers::Stop;

/// Longest wait for the lock of `pool`, which a process keeps if it is stopped (`SIGSTOP`) while it holds the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The first word of `pool`, so that no other file is taken for it.
const MAGIC: u64 = u64::from_le_bytes(*b"tierpool");

/// Offset of the epoch in `pool`, in bytes: the header before it is the magic, the number of slabs and the slab's bytes.
const EPOCH_AT: u64 = 24;

#[derive(Debug)]
pub(super) struct NodeRegistry {
    directory: PathBuf,
    total: u64,
    slab: u64,
    /// The file `pool`, opened for reading the epoch without a lock.
    pool: File,
}

/// The file with the account of a member of this process.
#[derive(Debug)]
pub(super) struct Member(LockedFile);

impl NodeRegistry {
    /// Makes the directory if there is none. An error says why it cannot be used.
    pub(super) fn open(directory: PathBuf, total: u64, slab: u64) -> Result<Self, String> {
        directory::open(&directory)?;
        let pool = directory::file(&directory.join("pool"))
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(Self {
            directory,
            total,
            slab,
            pool,
        })
    }

    pub(super) fn join(&self, account: Account) -> Result<(u64, Member), String> {
        let pool = self.lock()?;
        let others = self.others(None).map_err(|error| self.why(error))?;
        self.agree(&pool, others.is_empty())?;
        let number = others.last().map_or(0, |(last, _)| last + 1);
        let made = || {
            let file = directory::new_file(&self.path(number))?;
            file.lock()?;
            let member = Member(LockedFile::held(file));
            member.write(account)?;
            bump(&pool)?;
            Ok(member)
        };
        let member = made().map_err(|error| self.why(error))?;
        Ok((number, member))
    }

    /// Checks that the living members named this pool's size. If there are none, `pool` gets this size.
    fn agree(&self, pool: &LockedFile, is_empty: bool) -> Result<(), String> {
        let mut header = [0; EPOCH_AT as usize];
        let read = pool.file.read_exact_at(&mut header, 0);
        let [magic, total, slab] = words(&header);
        if !is_empty && read.is_ok() && (total, slab) != (self.total, self.slab) {
            return Err(format!(
                "{} is in use with {total} slabs of {slab} bytes, not {} of {}: name the same size, or another directory",
                self.directory.display(),
                self.total,
                self.slab
            ));
        }
        if magic == MAGIC && (total, slab) == (self.total, self.slab) {
            return Ok(());
        }
        let header = [MAGIC, self.total, self.slab].map(u64::to_le_bytes);
        let written = pool.file.write_all_at(header.as_flattened(), 0);
        written.map_err(|error| self.why(error))
    }

    /// Writes the account of member `me`, and settles it with the other accounts. Returns the new account, and the epoch.
    pub(super) fn settle(
        &self,
        account: Account,
        me: u64,
        member: &Member,
    ) -> Result<(Account, u64), String> {
        let pool = self.lock()?;
        let settled = || {
            let others = self.others(Some(me))?;
            let index = others.partition_point(|&(number, _)| number < me);
            let mut accounts: Vec<_> = others.into_iter().map(|(_, account)| account).collect();
            accounts.insert(index, account);
            settle(self.total, &mut accounts, index);
            if member.read()? != accounts[index] {
                member.write(accounts[index])?;
                bump(&pool)?;
            }
            Ok((accounts[index], epoch(&pool.file)))
        };
        settled().map_err(|error| self.why(error))
    }

    pub(super) fn leave(&self, number: u64, member: Option<Member>) {
        // Without the lock, the epoch is not bumped: the others find an account without owner when they settle next.
        let pool = self.lock();
        let _ = std::fs::remove_file(self.path(number));
        drop(member);
        if let Ok(pool) = pool {
            let _ = bump(&pool);
        }
    }

    pub(super) fn accounts(&self) -> Result<Vec<Account>, String> {
        let _pool = self.lock()?;
        let all = self.others(None).map_err(|error| self.why(error))?;
        Ok(all.into_iter().map(|(_, account)| account).collect())
    }

    pub(super) fn epoch(&self) -> u64 {
        epoch(&self.pool)
    }

    /// Returns a file that can be read from once the epoch changed; `None` if this user has no more watches.
    pub(super) fn watch(&self) -> Option<OwnedFd> {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let watch = inotify::init(flags).ok()?;
        let path = self.directory.join("pool");
        inotify::add_watch(&watch, path, inotify::WatchFlags::MODIFY).ok()?;
        Some(watch)
    }

    fn lock(&self) -> Result<LockedFile, String> {
        let opened = directory::file(&self.directory.join("pool"));
        let deadline = Instant::now() + LOCK_TIMEOUT;
        let locked = opened.and_then(|file| LockedFile::wait(file, deadline, &Stop::default()));
        locked.map_err(|error| self.why(error))
    }

    /// Returns the living members other than `me` with their accounts, in the order of their numbers. Removes the accounts of
    /// dead members. A member lives if its lock cannot be taken for whatever reason.
    fn others(&self, me: Option<u64>) -> io::Result<Vec<(u64, Account)>> {
        let mut others = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if me == Some(number) {
                continue;
            }
            let path = self.path(number);
            let Ok(file) = OpenOptions::new().read(true).open(&path) else {
                continue;
            };
            if file.try_lock_shared().is_ok() {
                let _ = file.unlock();
                match std::fs::remove_file(&path) {
                    // A member that leaves without the pool's lock removes its account itself.
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => continue,
                }
            }
            others.push((number, read(&file)?));
        }
        others.sort_unstable_by_key(|&(number, _)| number);
        Ok(others)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:020}"))
    }

    fn why(&self, error: io::Error) -> String {
        format!("{}: {error}", self.directory.display())
    }
}

impl Member {
    fn read(&self) -> io::Result<Account> {
        read(&self.0.file)
    }

    fn write(&self, account: Account) -> io::Result<()> {
        let Account {
            wanted,
            most,
            held,
            keep,
        } = account;
        let bytes = [wanted, most, held, keep].map(u64::to_le_bytes);
        self.0.file.write_all_at(bytes.as_flattened(), 0)
    }
}

fn read(file: &File) -> io::Result<Account> {
    let mut bytes = [0; 32];
    file.read_exact_at(&mut bytes, 0)?;
    let [wanted, most, held, keep] = words(&bytes);
    Ok(Account {
        wanted,
        most,
        held,
        keep,
    })
}

fn epoch(pool: &File) -> u64 {
    let mut bytes = [0; 8];
    match pool.read_exact_at(&mut bytes, EPOCH_AT) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}

fn bump(pool: &LockedFile) -> io::Result<()> {
    let next = epoch(&pool.file).wrapping_add(1);
    pool.file.write_all_at(&next.to_le_bytes(), EPOCH_AT)
}

/// Decodes little-endian words.
fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    words
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
