//! The ranks of a group, as the application lets them meet: by one all-gather of equal parts.

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

/// A wait that is longer is given to the application's functions as this: no clock tells longer ones.
const LONGEST_WAIT: Duration = Duration::from_secs(1_000_000_000);
/// A rank that has waited so long for the others says so, and once more each time that this has passed.
const SILENCE: Duration = Duration::from_secs(60);

/// A rank of a group.
pub(crate) struct Group {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    run: u64,
    /// One call at a time.
    calls: Mutex<Calls>,
    /// Why the ranks do not meet any more: the ranks that gave a meeting up know less than those that did not.
    lost: Mutex<Option<String>>,
    /// For redundancy. Beside all-gathers if the application allows threads.
    pub(crate) messages: Option<Mutex<Messages>>,
}

struct Calls {
    all_gather: AllGather,
    release: Option<unsafe extern "C" fn(context: *mut c_void)>,
    context: *mut c_void,
}

// SAFETY: `tierflow.h` says that the functions are called from whichever thread calls the engine, one at a time.
unsafe impl std::marker::Send for Calls {}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.ranks)
    }
}

impl Group {
    /// Takes the group over. One that is refused is released at once.
    ///
    /// # Errors
    /// The argument that makes it no group.
    pub(crate) fn new(raw: &RawGroup) -> Outcome<Self> {
        // The ranks may wait for each other before an engine is opened.
        crate::ending::prepare();
        let checked = Self::checked(raw);
        if let (Err(_), Some(release)) = (&checked, raw.release) {
            // SAFETY: the application's function, by the contract of `tf_group`: called once, as no group came of it.
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

    /// Every rank's bytes, of which each gives as many. Fails for good once a meeting has failed.
    fn gather(&self, mine: &[u8], patience: Duration) -> Result<Vec<u8>, StoreError> {
        if let Some(why) = self.lost.lock().clone() {
            return Err(StoreError::Remote(why));
        }
        let mut all = vec![0; mine.len().saturating_mul(self.ranks as usize)];
        if mine.is_empty() {
            return Ok(all);
        }
        let patience = patience.min(LONGEST_WAIT);
        let calls = self.calls.lock();
        let (context, to) = (calls.context, all.as_mut_ptr().cast());
        let (from, seconds) = (mine.as_ptr().cast(), patience.as_secs_f64());
        let code = self.waiting(patience, || {
            // SAFETY: the application's function, by the contract of `tf_group`: it reads as many bytes as `mine` has, and writes
            // as many for each rank.
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

    /// Makes a call that waits for the other ranks, and says in the log now and then that this one still does.
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
                // Without the thread, nothing is said.
                let _begun_or_not = thread.spawn_scoped(scope, say);
            }
            let done = call();
            drop(over);
            done
        })
    }

    /// A number of every rank's.
    pub(crate) fn numbers(&self, mine: i64, patience: Duration) -> Outcome<Vec<i64>> {
        let all = self.gather(&mine.to_le_bytes(), patience).map_err(absent)?;
        Ok(words(&all).map(u64::cast_signed).collect())
    }

    /// Every rank's numbers, of which each may give as many as it has.
    pub(crate) fn lists(&self, mine: &[u64], patience: Duration) -> Outcome<Vec<Vec<u64>>> {
        let bytes: Vec<u8> = mine.iter().flat_map(|one| one.to_le_bytes()).collect();
        let all = self.all_gather(&bytes, patience).map_err(absent)?;
        Ok(all.iter().map(|bytes| words(bytes).collect()).collect())
    }

    /// Returns once every rank has called this. A rank that comes late to a meeting that the others gave up gets what they
    /// gave there, and fails here.
    pub(crate) fn confirm(&self, patience: Duration) -> Outcome {
        self.numbers(0, patience).map(drop)
    }

    /// Fails once a meeting has failed.
    pub(crate) fn is_complete(&self) -> Outcome {
        let lost = self.lost.lock().clone();
        lost.map_or(Ok(()), |why| Err(absent(StoreError::Remote(why))))
    }

    /// This rank and its group, with a number of this run that all have.
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

    /// How many ranks are on this machine.
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

/// What each rank gives may have another length: first they tell each other which.
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
            // SAFETY: the application's function, by the contract of `tf_group`: called once, when nothing else will be.
            unsafe { release(calls.context) };
        }
    }
}
