//! Messages between the ranks of a group.

use crate::{Error, Result};
use std::collections::HashMap;
use std::fmt::Debug;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tierflow_store::replace_file;
use tierflow_sync::Mutex;

/// A transport of messages between the ranks of a group, over the application's MPI, or in a directory that all nodes see ([`Directory`]).
///
/// Messages from one rank to another arrive once and in order. [`Transport::send`] may wait until earlier messages were received, but
/// must not wait until its own message is received.
pub trait Transport: Debug + Send + Sync {
    /// Sends a message to a rank.
    ///
    /// # Errors
    /// [`Error::Absent`] if the rank receives nothing within `patience`.
    fn send(&self, to: u32, message: &[u8], patience: Duration) -> Result<()>;

    /// Receives the next message from a rank.
    ///
    /// # Errors
    /// [`Error::Absent`] if no message arrives within `patience`; a later call receives the message.
    fn receive(&self, from: u32, patience: Duration) -> Result<Vec<u8>>;

    /// Returns true if a background thread may send and receive while the application computes. Returns false with an MPI that was initialised
    /// without `MPI_THREAD_MULTIPLE`: then messages are sent only within calls that all ranks of the application make.
    fn is_concurrent(&self) -> bool {
        true
    }

    /// Returns true if several threads may receive at the same time, each from another rank, while another sends. A rebuild then receives from
    /// all sending members in parallel.
    fn is_parallel(&self) -> bool {
        false
    }

    /// Waits until all sent messages arrive without another call of this rank.
    ///
    /// # Errors
    /// [`Error::Absent`] if some rank receives nothing within `patience`.
    fn flush(&self, _patience: Duration) -> Result<()> {
        Ok(())
    }
}

/// Largest number of messages from one rank to another that are not received yet. The sender of a further message waits.
const WINDOW: u64 = 32;
/// Shortest and longest time between two checks for a file.
const POLL: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));

/// A transport of messages as files in a directory that all nodes see. Each message is a file, which its receiver removes. At most 32
/// messages from one rank to another are in the directory at a time.
#[derive(Debug)]
pub struct Directory {
    home: PathBuf,
    rank: u32,
    /// The number of the next message to and from each rank.
    next: Mutex<HashMap<(Direction, u32), u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Direction {
    To,
    From,
}

impl Directory {
    /// Opens the directory for this rank. `session` is a number that all ranks of one start of the application share, and that no other
    /// start has, not even of a job that is queued again. So a run does not receive messages of a killed run. The subdirectory of a session
    /// may be removed when its run has ended.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be made.
    pub fn open(directory: &Path, session: u64, rank: u32) -> Result<Self> {
        let home = directory.join(format!("session-{session:016x}"));
        let own = home.join(rank.to_string());
        std::fs::create_dir_all(&own).map_err(Error::io(own))?;
        Ok(Self {
            home,
            rank,
            next: Mutex::default(),
        })
    }

    fn number(&self, direction: Direction, rank: u32) -> u64 {
        let next = self.next.lock();
        next.get(&(direction, rank)).copied().unwrap_or_default()
    }

    /// Counts a message in this direction.
    fn count(&self, direction: Direction, rank: u32) {
        let mut next = self.next.lock();
        *next.entry((direction, rank)).or_default() += 1;
    }

    fn path(&self, from: u32, to: u32, number: u64) -> PathBuf {
        self.home
            .join(to.to_string())
            .join(format!("{from}-{number}"))
    }
}

/// Polls until `look` finds something, at growing intervals.
fn wait_for<T>(
    rank: u32,
    patience: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if begun.elapsed() >= patience {
            return Err(Error::Absent { rank, patience });
        }
        // So the delay until something is found is at most an eighth of the time that it took to come.
        std::thread::sleep((begun.elapsed() / 8).clamp(POLL.0, POLL.1));
    }
}

impl Transport for Directory {
    fn is_parallel(&self) -> bool {
        true
    }

    fn send(&self, to: u32, message: &[u8], patience: Duration) -> Result<()> {
        let number = self.number(Direction::To, to);
        let path = self.path(self.rank, to, number);
        if let Some(earlier) = number.checked_sub(WINDOW) {
            let earlier = self.path(self.rank, to, earlier);
            wait_for(to, patience, || match earlier.try_exists() {
                Ok(is_there) => Ok((!is_there).then_some(())),
                Err(error) => Err(Error::io(&earlier)(error)),
            })?;
        }
        let folder = self.home.join(to.to_string());
        std::fs::create_dir_all(&folder).map_err(Error::io(folder))?;
        replace_file(&path, message, false).map_err(Error::io(path))?;
        self.count(Direction::To, to);
        Ok(())
    }

    fn receive(&self, from: u32, patience: Duration) -> Result<Vec<u8>> {
        let path = self.path(from, self.rank, self.number(Direction::From, from));
        let message = wait_for(from, patience, || match std::fs::read(&path) {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&path)(error)),
        })?;
        self.count(Direction::From, from);
        std::fs::remove_file(&path).map_err(Error::io(path))?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn messages_arrive_once_and_in_order() {
        let home = tempfile::tempdir().unwrap();
        let open = |rank| Directory::open(home.path(), 7, rank).unwrap();
        let (zero, one) = (open(0), open(1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..100_u8 {
                    zero.send(1, &[n; 3], LONG).unwrap();
                }
            });
            for n in 0..100_u8 {
                assert_eq!(one.receive(0, LONG).unwrap(), [n; 3]);
            }
        });
    }

    #[test]
    fn a_rank_that_does_not_answer_is_named() {
        let home = tempfile::tempdir().unwrap();
        let zero = Directory::open(home.path(), 7, 0).unwrap();
        let error = zero.receive(5, Duration::ZERO).unwrap_err();
        assert!(matches!(error, Error::Absent { rank: 5, .. }));
        let five = Directory::open(home.path(), 7, 5).unwrap();
        five.send(0, b"late", LONG).unwrap();
        assert_eq!(zero.receive(5, LONG).unwrap(), b"late");
        for _ in 0..WINDOW {
            zero.send(3, b"", Duration::ZERO).unwrap();
        }
        let error = zero.send(3, b"", Duration::ZERO).unwrap_err();
        assert!(matches!(error, Error::Absent { rank: 3, .. }));
    }

    #[test]
    fn another_sessions_messages_are_not_seen() {
        let home = tempfile::tempdir().unwrap();
        let open = |session, rank| Directory::open(home.path(), session, rank).unwrap();
        open(1, 0).send(1, b"old", LONG).unwrap();
        open(2, 0).send(1, b"new", LONG).unwrap();
        assert_eq!(open(2, 1).receive(0, LONG).unwrap(), b"new");
    }
}
