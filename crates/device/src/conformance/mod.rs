//! The conformance suite: cases that every back end must pass, for any device.
//!
//! ```
//! # use tierflow_device::{Choice, conformance, open};
//! let device = open(Choice::Host)?;
//! conformance::run_all(&device)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod copies;
mod host_memory;
mod managed;
mod memory;
mod parts;
mod peers;
mod reservations;

pub use peers::{PEER_CASES, PeerCase};

use crate::device::Device;
use crate::error::Error;
use crate::memory::Memory;
use crate::stream::Stream;

/// A case that a device did not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{case}: {what}")]
pub struct Failed {
    /// The case, by its name.
    pub case: &'static str,
    /// The expectation that was not met.
    pub what: String,
}

/// `Err` names the expectation that was not met.
type CaseResult = Result<(), String>;

/// A case that every device must pass.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The case's name.
    pub name: &'static str,
    check: fn(&Device) -> CaseResult,
}

impl Case {
    /// Puts a device through this case.
    ///
    /// # Errors
    ///
    /// [`Failed`] names the expectation that was not met.
    pub fn run(&self, device: &Device) -> Result<(), Failed> {
        (self.check)(device).map_err(|what| Failed {
            case: self.name,
            what,
        })
    }
}

/// Every case, from simple to involved. Each needs less than 64 MiB of the device's memory and of the host's.
pub const CASES: &[Case] = &[
    Case {
        name: "memory: allocated bytes keep what is written",
        check: memory::keeps_bytes,
    },
    Case {
        name: "memory: impossible lengths are refused",
        check: memory::refuses_lengths,
    },
    Case {
        name: "memory: loans keep each other out",
        check: memory::loans_exclude,
    },
    Case {
        name: "memory: loans split and turn into readers",
        check: memory::loans_change,
    },
    Case {
        name: "memory: it lives as long as a loan",
        check: memory::lives_with_loans,
    },
    Case {
        name: "memory: bytes that others own",
        check: memory::foreign,
    },
    Case {
        name: "reservation: chunks become usable one by one",
        check: reservations::by_chunks,
    },
    Case {
        name: "reservation: wrong ranges are refused",
        check: reservations::refuses_ranges,
    },
    Case {
        name: "reservation: more than there is",
        check: reservations::more_than_there_is,
    },
    Case {
        name: "reservation: chunks are taken away and put back",
        check: reservations::unmaps,
    },
    Case {
        name: "host: pages are given back",
        check: reservations::discards,
    },
    Case {
        name: "host: touching keeps the content",
        check: reservations::touch_keeps,
    },
    Case {
        name: "host: copies cross pinned borders",
        check: reservations::across_pins,
    },
    Case {
        name: "host: pinning while copies run",
        check: reservations::pin_meanwhile,
    },
    Case {
        name: "host: memory pinned in one go",
        check: host_memory::pinned,
    },
    Case {
        name: "host: pinned chunks of the driver's",
        check: host_memory::pinned_chunks,
    },
    Case {
        name: "host: managed memory",
        check: managed::carries,
    },
    Case {
        name: "managed: advice is kept, and changes no byte",
        check: managed::advises,
    },
    Case {
        name: "managed: prefetches move bytes both ways",
        check: managed::prefetches,
    },
    Case {
        name: "managed: what cannot be moved is refused",
        check: managed::refuses,
    },
    Case {
        name: "host: nodes and small pages",
        check: host_memory::nodes,
    },
    Case {
        name: "reservation: shared with peers",
        check: host_memory::shared,
    },
    Case {
        name: "stream: fill, write and read",
        check: copies::fill_write_read,
    },
    Case {
        name: "stream: copy_all copies all or refuses all",
        check: copies::all_or_none,
    },
    Case {
        name: "copies: many parts at once, of any length from anywhere",
        check: parts::gather_and_scatter,
    },
    Case {
        name: "copies: parts that do not fit are refused",
        check: parts::refuses,
    },
    Case {
        name: "stream: transfers own and return loans",
        check: copies::transfers,
    },
    Case {
        name: "stream: wrong copies are refused",
        check: copies::refuses,
    },
    Case {
        name: "stream: events order streams",
        check: copies::events,
    },
    Case {
        name: "stream: threads share a device",
        check: copies::threads,
    },
];

/// Puts a device through every case.
///
/// # Errors
///
/// [`Failed`] names the first case that the device did not pass.
pub fn run_all(device: &Device) -> Result<(), Failed> {
    CASES.iter().try_for_each(|case| case.run(device))
}

/// Ends the case unless the condition holds.
macro_rules! require {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}
use require;

/// Turns an error into the case's failure, with the step that failed.
trait Expect<T> {
    fn expect_ok(self, doing: &str) -> Result<T, String>;
}

impl<T> Expect<T> for Result<T, Error> {
    fn expect_ok(self, doing: &str) -> Result<T, String> {
        self.map_err(|error| format!("{doing}: {error}"))
    }
}

/// Returns `len` bytes that depend on `seed`, without a short period.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    bytes
}

fn write(stream: &Stream, memory: &Memory, at: usize, bytes: &[u8]) -> CaseResult {
    let mut loan = memory
        .lend_mut(at..at + bytes.len())
        .expect_ok("lending to write")?;
    stream.write(bytes, &mut loan).expect_ok("writing")
}

fn holds(stream: &Stream, memory: &Memory, at: usize, bytes: &[u8]) -> CaseResult {
    let loan = memory
        .lend(at..at + bytes.len())
        .expect_ok("lending to read")?;
    let mut seen = vec![0; bytes.len()];
    stream.read(&loan, &mut seen).expect_ok("reading")?;
    if seen == bytes {
        return Ok(());
    }
    let wrong = seen
        .iter()
        .zip(bytes)
        .position(|(seen, wanted)| seen != wanted)
        .unwrap_or(0);
    Err(format!(
        "byte {} is {:#04x}, not {:#04x}",
        at + wrong,
        seen[wrong],
        bytes[wrong]
    ))
}
