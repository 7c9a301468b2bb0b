//! Messages between the ranks of a group, which the application's functions send: for redundancy.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use tierflow_redundancy::{CHUNK, Error, Result, Transport};

use crate::failure::{Failure, Outcome, Status};
use crate::group::Group;

/// `tf_send` of the header.
pub(crate) type Send = unsafe extern "C" fn(
    context: *mut c_void,
    to: u32,
    message: *const c_void,
    bytes: usize,
    seconds: f64,
) -> c_int;

/// `tf_receive` of the header.
pub(crate) type Receive = unsafe extern "C" fn(
    context: *mut c_void,
    from: u32,
    message: *mut c_void,
    room: usize,
    bytes: *mut usize,
    seconds: f64,
) -> c_int;

/// `tf_flush` of the header.
pub(crate) type Flush = unsafe extern "C" fn(context: *mut c_void, seconds: f64) -> c_int;

/// Bytes of most messages, at most: a chunk and its description. A longer message is received by a second call.
const ROOM: usize = CHUNK + 64;

/// The application's functions that send and receive messages.
#[derive(Clone, Copy)]
pub(crate) struct Messages {
    pub(crate) send: Send,
    pub(crate) receive: Receive,
    pub(crate) flush: Option<Flush>,
    /// True if any thread may call the functions.
    pub(crate) threads: bool,
    pub(crate) context: *mut c_void,
}

// SAFETY: `tierflow.h` says from which threads the library calls the functions: one at a time, and from threads that do not call the
// engine only if the application allows it.
unsafe impl std::marker::Send for Messages {}

/// Converts the code that a function of the application returned to a result.
fn done(code: c_int, rank: u32, patience: Duration, what: &str) -> Result<()> {
    match code {
        0 => Ok(()),
        code if code == Status::TimedOut as c_int => Err(Error::Absent { rank, patience }),
        code => Err(Error::Transport {
            rank,
            why: format!("the application's {what} returned {code}"),
        }),
    }
}

impl Group {
    /// Fails if the application gave no functions that send messages.
    pub(crate) fn can_send(&self) -> Outcome {
        let missing = "redundancy needs `send` and `receive` of the tf_group, as tf_mpi_group() gives them, or a directory that \
                       all nodes see as `exchange`";
        self.messages
            .as_ref()
            .map(drop)
            .ok_or_else(|| Failure::argument(missing))
    }

    fn with_messages<T>(&self, rank: u32, call: impl FnOnce(&Messages) -> Result<T>) -> Result<T> {
        let missing = || Error::Transport {
            rank,
            why: "the group has no send and receive".to_owned(),
        };
        call(&self.messages.as_ref().ok_or_else(missing)?.lock())
    }
}

impl Transport for Group {
    fn send(&self, to: u32, message: &[u8], patience: Duration) -> Result<()> {
        self.with_messages(to, |with| {
            let (from, seconds) = (message.as_ptr().cast(), patience.as_secs_f64());
            // SAFETY: the application's function, by the contract of `tf_group`: it reads `message.len()` bytes.
            let code = unsafe { (with.send)(with.context, to, from, message.len(), seconds) };
            done(code, to, patience, "send")
        })
    }

    fn receive(&self, from: u32, patience: Duration) -> Result<Vec<u8>> {
        self.with_messages(from, |with| {
            let mut message = vec![0; ROOM];
            loop {
                let (mut bytes, room) = (0, message.len());
                let (into, seconds) = (message.as_mut_ptr().cast(), patience.as_secs_f64());
                // SAFETY: the application's function, by the contract of `tf_group`: it writes at most `room` bytes to `into`, and the
                // length of the message to `bytes`.
                let code = unsafe {
                    (with.receive)(with.context, from, into, room, &raw mut bytes, seconds)
                };
                done(code, from, patience, "receive")?;
                message.resize(bytes, 0);
                if bytes <= room {
                    return Ok(message);
                }
            }
        })
    }

    fn is_concurrent(&self) -> bool {
        let messages = self.messages.as_ref();
        messages.is_some_and(|messages| messages.lock().threads)
    }

    fn flush(&self, patience: Duration) -> Result<()> {
        self.with_messages(self.rank, |with| {
            let Some(flush) = with.flush else {
                return Ok(());
            };
            // SAFETY: the application's function, by the contract of `tf_group`.
            let code = unsafe { flush(with.context, patience.as_secs_f64()) };
            done(code, self.rank, patience, "flush")
        })
    }
}
