//! How the members of a set send each other bytes.

use crate::{Error, Result};
use std::collections::HashMap;
use std::fmt::Debug;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Messages between the ranks of a group, as the application's MPI has them, or a directory that all nodes see ([`Directory`]).
///
/// Messages of one rank to another arrive once and in their order. [`Transport::send`] may wait until earlier ones were received;
/// it must not wait for this one.
pub trait Transport: Debug + Send + Sync {
    /// Sends bytes to a rank.
    ///
    /// # Errors
    /// [`Error::Absent`] if the rank takes nothing for so long.
    fn send(&self, to: u32, message: &[u8], patience: Duration) -> Result<()>;

    /// The next message of a rank.
    ///
    /// # Errors
    /// [`Error::Absent`] if there is none within `patience`; a later call receives it.
    fn receive(&self, from: u32, patience: Duration) -> Result<Vec<u8>>;

    /// Whether a thread of its own may send and receive while the application computes. An MPI that was not initialised with
    /// `MPI_THREAD_MULTIPLE` is no such transport: nothing is sent then but within calls that all ranks of the application make.
    fn is_concurrent(&self) -> bool {
        true
    }

    /// Whether several threads may receive at the same time, each from another rank, while another sends. What is rebuilt then comes
    /// from all who send it side by side.
    fn is_parallel(&self) -> bool {
        false
    }

    /// Waits until what was sent needs no more calls of this rank to arrive.
    ///
    /// # Errors
    /// [`Error::Absent`] if some rank takes nothing for so long.
    fn flush(&self, _patience: Duration) -> Result<()> {
        Ok(())
    }
}

/// Messages that a rank may have under way to another before it waits.
const WINDOW: u64 = 32;
/// How long to sleep before looking again, at least and at most.
const LOOK: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));

/// Messages as files in a directory that all nodes see: a file for each, which its receiver removes. At most 32 of a sender to a
/// receiver are there at a time.
#[derive(Debug)]
pub struct Directory {
    home: PathBuf,
    rank: u32,
    /// The number of the next message to and from each rank.
    next: Mutex<HashMap<(Way, u32), u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    To,
    From,
}

impl Directory {
    /// Opens this rank's box. `session` is a number that all ranks of one start of the application share and no other start has,
    /// even of a job that is queued again: messages of one that was killed are not to be taken for those of the next. The
    /// directory of a session may be removed when its run has ended.
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

    fn number(&self, way: Way, rank: u32) -> u64 {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.get(&(way, rank)).copied().unwrap_or_default()
    }

    /// A message went this way.
    fn count(&self, way: Way, rank: u32) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next.entry((way, rank)).or_default() += 1;
    }

    fn path(&self, from: u32, to: u32, number: u64) -> PathBuf {
        self.home
            .join(to.to_string())
            .join(format!("{from}-{number}"))
    }
}

/// Looks again and again, ever more seldom, until something is there.
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
        // What comes is seen no later than by an eighth of the time that it took.
        std::thread::sleep((begun.elapsed() / 8).clamp(LOOK.0, LOOK.1));
    }
}

impl Transport for Directory {
    fn is_parallel(&self) -> bool {
        true
    }

    fn send(&self, to: u32, message: &[u8], patience: Duration) -> Result<()> {
        let number = self.number(Way::To, to);
        let path = self.path(self.rank, to, number);
        if let Some(earlier) = number.checked_sub(WINDOW) {
            let earlier = self.path(self.rank, to, earlier);
            wait_for(to, patience, || match earlier.try_exists() {
                Ok(is_there) => Ok((!is_there).then_some(())),
                Err(error) => Err(Error::io(&earlier)(error)),
            })?;
        }
        let part = path.with_extension("part");
        let folder = self.home.join(to.to_string());
        std::fs::create_dir_all(&folder).map_err(Error::io(folder))?;
        std::fs::write(&part, message).map_err(Error::io(&part))?;
        std::fs::rename(&part, &path).map_err(Error::io(path))?;
        self.count(Way::To, to);
        Ok(())
    }

    fn receive(&self, from: u32, patience: Duration) -> Result<Vec<u8>> {
        let path = self.path(from, self.rank, self.number(Way::From, from));
        let message = wait_for(from, patience, || match std::fs::read(&path) {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&path)(error)),
        })?;
        self.count(Way::From, from);
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
