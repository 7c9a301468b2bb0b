//! The ranks of a group, which meet by the application's all-gather of equal parts.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tierflow_bind::Ranks;
use tierflow_store::{Collective, Error as StoreError};

use crate::failure::{Failure, Outcome, Status};
use crate::transport::{Flush, Messages, Receive, Send};

/// `tf_all_gather` of the header.
type AllGather = unsafe extern "C" fn(
    context: *mut c_void,
    mine: *const c_void,
    all: *mut c_void,
    bytes: usize,
    seconds: f64,
) -> c_int;

/// `tf_group` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawGroup {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) run: u64,
    pub(crate) all_gather: Option<AllGather>,
    pub(crate) release: Option<unsafe extern "C" fn(context: *mut c_void)>,
    pub(crate) context: *mut c_void,
    pub(crate) send: Option<Send>,
    pub(crate) receive: Option<Receive>,
    pub(crate) flush: Option<Flush>,
    pub(crate) threads: c_int,
}

/// The longest wait that the application's functions are given: no clock measures longer ones.
const LONGEST_WAIT: Duration = Duration::from_secs(1_000_000_000);
/// Time after which a rank that waits for the others writes so to the log, again and again.
const SILENCE: Duration = Duration::from_secs(60);

/// A rank of a group.
pub(crate) struct Group {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    run: u64,
    /// The application's functions for meetings. The lock lets one call run at a time.
    calls: Mutex<Calls>,
    /// The error of the first failed meeting. The ranks do not meet after it, as those that gave it up know less than those that did not.
    lost: Mutex<Option<String>>,
    /// The functions for redundancy. If the application allows threads, the library calls them during all-gathers, too.
    pub(crate) messages: Option<Mutex<Messages>>,
}

struct Calls {
    all_gather: AllGather,
    release: Option<unsafe extern "C" fn(context: *mut c_void)>,
    context: *mut c_void,
}

// SAFETY: `tierflow.h` says that any thread that calls the engine may call the functions, one at a time.
unsafe impl std::marker::Send for Calls {}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.ranks)
    }
}

impl Group {
    /// Takes the application's group over. Releases a group that it refuses.
    ///
    /// # Errors
    /// `Status::Argument` if `rank` is not below `ranks`, there is no `all_gather`, or only one of `send` and `receive`.
    pub(crate) fn new(raw: &RawGroup) -> Outcome<Self> {
        // The ranks may wait for each other before an engine is opened.
        crate::ending::prepare();
        let checked = Self::checked(raw);
        if let (Err(_), Some(release)) = (&checked, raw.release) {
            // SAFETY: the application's function, by the contract of `tf_group`: called once, as there is no `Group` that calls it.
            unsafe { release(raw.context) };
        }
        checked
    }

    fn checked(raw: &RawGroup) -> Outcome<Self> {
        let all_gather = raw.all_gather;
        let missing = || Failure::argument("the group has no all_gather");
        if raw.rank >= raw.ranks {
            let (rank, ranks) = (raw.rank, raw.ranks);
            return Err(Failure::argument(format!(
                "rank {rank} is none of {ranks}: they are counted from 0"
            )));
        }
        let messages = match (raw.send, raw.receive) {
            (Some(send), Some(receive)) => Some(Messages {
                send,
                receive,
                flush: raw.flush,
                threads: raw.threads != 0,
                context: raw.context,
            }),
            (None, None) => None,
            _ => {
                let text = "the group has one of send and receive: give it both, or none";
                return Err(Failure::argument(text));
            }
        };
        Ok(Self {
            messages: messages.map(Mutex::new),
            rank: raw.rank,
            ranks: raw.ranks,
            run: raw.run,
            lost: Mutex::default(),
            calls: Mutex::new(Calls {
                all_gather: all_gather.ok_or_else(missing)?,
                release: raw.release,
                context: raw.context,
            }),
        })
    }

    /// Returns the bytes of all ranks, one rank after the other. Each rank gives as many bytes. Once a call has failed, all later calls fail.
    fn gather(&self, mine: &[u8], patience: Duration) -> Result<Vec<u8>, StoreError> {
        let calls = self.calls.lock();
        // Another thread's meeting may have failed while this one waited for the lock.
        if let Some(why) = self.lost.lock().clone() {
            return Err(StoreError::Remote(why));
        }
        let mut all = vec![0; mine.len().saturating_mul(self.ranks as usize)];
        if mine.is_empty() {
            return Ok(all);
        }
        let patience = patience.min(LONGEST_WAIT);
        let (context, to) = (calls.context, all.as_mut_ptr().cast());
        let (from, seconds) = (mine.as_ptr().cast(), patience.as_secs_f64());
        let code = self.waiting(patience, || {
            // SAFETY: the application's function, by the contract of `tf_group`: it reads `mine.len()` bytes from `mine`, and writes as
            // many for each rank to `all`.
            unsafe { (calls.all_gather)(context, from, to, mine.len(), seconds) }
        });
        match code {
            0 => Ok(all),
            code => {
                let why = format!(
                    "{self:?} did not meet the others within {patience:?}: the application's all_gather returned {code}"
                );
                *self.lost.lock() = Some(why.clone());
                Err(StoreError::Remote(why))
            }
        }
    }

    /// Makes a call that waits for the other ranks. Meanwhile, writes to the log every [`SILENCE`] that this rank still waits.
    fn waiting<T>(&self, patience: Duration, call: impl FnOnce() -> T) -> T {
        let (over, is_over) = channel::<()>();
        let say = move || {
            for waited in 1_u64.. {
                if is_over.recv_timeout(SILENCE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let seconds = SILENCE.as_secs().saturating_mul(waited);
                tracing::warn!("{self:?} has waited for the other ranks for {seconds} s");
            }
        };
        std::thread::scope(|scope| {
            if patience > SILENCE && self.ranks > 1 {
                let thread = std::thread::Builder::new().name("tierflow-waits".to_owned());
                // Without the thread, the log says nothing, and the call goes on.
                let _begun_or_not = thread.spawn_scoped(scope, say);
            }
            let done = call();
            drop(over);
            done
        })
    }

    /// Returns one number of each rank.
    pub(crate) fn numbers(&self, mine: i64, patience: Duration) -> Outcome<Vec<i64>> {
        let all = self.gather(&mine.to_le_bytes(), patience).map_err(absent)?;
        Ok(words(&all).map(u64::cast_signed).collect())
    }

    /// Returns the numbers of each rank. Ranks may give lists of different lengths.
    pub(crate) fn lists(&self, mine: &[u64], patience: Duration) -> Outcome<Vec<Vec<u64>>> {
        let bytes: Vec<u8> = mine.iter().flat_map(|one| one.to_le_bytes()).collect();
        let all = self.all_gather(&bytes, patience).map_err(absent)?;
        Ok(all.iter().map(|bytes| words(bytes).collect()).collect())
    }

    /// Returns once every rank has called this function. A rank that is late for a meeting which the others gave up may still read their
    /// bytes there, but fails here.
    pub(crate) fn confirm(&self, patience: Duration) -> Outcome {
        self.numbers(0, patience).map(drop)
    }

    /// Fails once a meeting has failed.
    pub(crate) fn is_complete(&self) -> Outcome {
        let lost = self.lost.lock().clone();
        lost.map_or(Ok(()), |why| Err(absent(StoreError::Remote(why))))
    }

    /// Returns this rank and its group, with a number of this run that all ranks agree on.
    pub(crate) fn ranks(self: &Arc<Self>, patience: Duration) -> Outcome<Ranks> {
        let mut ranks = Ranks {
            rank: self.rank,
            ranks: self.ranks,
            run: self.run,
            collective: Some(Arc::clone(self) as _),
            transport: self.messages.as_ref().map(|_| Arc::clone(self) as _),
        };
        ranks.agree_on_run(patience).map_err(absent)?;
        Ok(ranks)
    }

    /// Returns the number of ranks on this machine.
    pub(crate) fn ranks_here(&self, patience: Duration) -> Outcome<usize> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits = id.chars().filter_map(|digit| digit.to_digit(16));
        let mine = digits.fold(0_i64, |sum, digit| {
            sum.wrapping_mul(31).wrapping_add(i64::from(digit))
        });
        let all = self.numbers(mine, patience)?;
        Ok(all.iter().filter(|other| **other == mine).count())
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let words = bytes.as_chunks().0.iter();
    words.map(|word| u64::from_le_bytes(*word))
}

fn absent(error: StoreError) -> Failure {
    Failure::new(Status::Group, error.to_string())
}

/// The ranks first exchange the lengths of their bytes, as these may differ, and then the bytes, padded to the longest.
impl Collective for Group {
    fn all_gather(&self, mine: &[u8], patience: Duration) -> tierflow_store::Result<Vec<Vec<u8>>> {
        let begun = Instant::now();
        let lengths = self.gather(&(mine.len() as u64).to_le_bytes(), patience)?;
        let lengths: Vec<usize> = words(&lengths).map(|length| length as usize).collect();
        let longest = lengths.iter().copied().max().unwrap_or_default();
        let mut padded = mine.to_vec();
        padded.resize(longest, 0);
        let left = patience.saturating_sub(begun.elapsed());
        let all = self.gather(&padded, left)?;
        let part = |(rank, length): (usize, &usize)| {
            let start = rank * longest;
            all[start..start + length].to_vec()
        };
        Ok(lengths.iter().enumerate().map(part).collect())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let calls = self.calls.get_mut();
        if let Some(release) = calls.release {
            // SAFETY: the application's function, by the contract of `tf_group`: called once, and no other function is called after it.
            unsafe { release(calls.context) };
        }
    }
}
