//! Errors, sorted by what the caller has to do next.

mod build;
mod part;

pub use build::BuildError;
pub use part::PartError;

use crate::Version;
use crate::deadline::Awaited;
use std::sync::Arc;
use thiserror::Error;

/// The result of this crate's fallible calls.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed. No error loses a version that was accepted and not consumed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine cannot be built with these options.
    #[error(transparent)]
    Build(#[from] BuildError),

    // Correct the call.
    /// The call is about durable versions, but the engine has no durable tier.
    #[error(
        "{what} is about versions that outlive the engine: build it with a node-local directory or external storage"
    )]
    NothingLasts {
        /// The engine's method.
        what: &'static str,
    },
    /// A version is stored in a form that this engine cannot decode.
    #[error("the version cannot be put together here: {why}")]
    Undecodable {
        /// The reason, and the option that would help.
        why: &'static str,
    },
    /// Versions are to be restored more than once, but the engine discards restored versions.
    #[error(
        "an adjoint restores states more than once, and this engine discards what was restored: build it with \
         AfterRestore::Keep, which is the default"
    )]
    DiscardsRestored,
    /// The engine has no such cache, or a pool decides its size, or its memory cannot be given back in parts.
    #[error("the {cache} cache cannot be resized: {why}")]
    NotResizable {
        /// "device" or "host".
        cache: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// The engine has no memory to lend: files are not memory.
    #[error("the engine has no memory to lend: give it a device cache or a host cache")]
    NoMemoryTier,
    /// The owner given for a slot does not own the slot's engine.
    #[error(
        "the slot of version {version} was lent by another engine: pass the owner of the one that lent it"
    )]
    OtherEngine {
        /// The slot's version.
        version: Version,
    },
    /// The checkpoint has no bytes.
    #[error("checkpoint {version} has no bytes: pass at least one region that is not empty")]
    Empty {
        /// The version asked for.
        version: Version,
    },
    /// The number was used before: each version has one content.
    #[error("version {version} was used before: give every checkpoint a number of its own")]
    VersionUsed {
        /// The version asked for.
        version: Version,
    },
    /// Fewer than `count` unused numbers are left.
    #[error(
        "{count} numbers cannot be reserved: the greatest version is too close to 2^64; give versions smaller numbers"
    )]
    NoNumbers {
        /// The numbers asked for.
        count: u64,
    },
    /// The engine has no version of that number.
    #[error(
        "there is no version {version}: it was never checkpointed, or a retention gave it up before the engine was built"
    )]
    Unknown {
        /// The version asked for.
        version: Version,
    },
    /// The version was held, but is gone.
    #[error(
        "version {version} is gone: it was discarded, given up by the retention, or restored by an engine that discards what \
         was restored"
    )]
    Discarded {
        /// The version asked for.
        version: Version,
    },
    /// The region is not in its memory, or ends before it starts.
    #[error(
        "region {index} is bytes {} to {} of a memory of {memory} bytes: pass a range that ends where it starts or later, \
         and no later than the memory", range.start, range.end
    )]
    Region {
        /// The region's index in the call, from 0.
        index: usize,
        /// The bytes asked for.
        range: std::ops::Range<usize>,
        /// Bytes of the memory.
        memory: usize,
    },
    /// The name is impossible, or no region has that name and length.
    #[error("region {name:?} of version {version}: {why}")]
    NamedRegion {
        /// The version asked for.
        version: Version,
        /// The name.
        name: String,
        /// The defect.
        why: String,
    },
    /// The regions do not have the version's length.
    #[error(
        "version {version} holds {expected} bytes, and what it is to be restored to has {given}: pass as many as it holds"
    )]
    SizeMismatch {
        /// The version asked for.
        version: Version,
        /// Bytes checkpointed.
        expected: u64,
        /// Bytes of the regions.
        given: u64,
    },
    /// The checkpoint is larger than every tier that it may go to. In place, only the fastest tier counts.
    #[error(
        "checkpoint {version} of {size} bytes fits no tier that it may go to, the largest holds {largest}: enlarge one"
    )]
    TooLarge {
        /// The version asked for.
        version: Version,
        /// The checkpoint's bytes.
        size: u64,
        /// Bytes of the largest tier.
        largest: u64,
    },

    /// A fork copied the engine into another process, without its threads.
    #[error(
        "the engine belongs to process {owner}, of which this one is a fork: build one here, or keep to that process"
    )]
    OtherProcess {
        /// The number of the process that built it.
        owner: u32,
    },

    // Make room, then try again.
    /// Every tier is full of versions that must be kept. No version was accepted, and none is lost.
    #[error(
        "no room for checkpoint {version}: every tier is full of versions that must be kept; discard some, or restore some \
         of an engine that discards what was restored, or enlarge a tier{}, and checkpoint again", cause_text(.cause)
    )]
    NoRoom {
        /// The version asked for.
        version: Version,
        /// The failure of the lowest tier, if it failed.
        #[source]
        cause: Option<Arc<Error>>,
    },
    /// The caller's time is over. Work under way goes on, and the caller can wait for it again.
    #[error("{what} was not over within {patience:?}: wait longer, or go on without it")]
    TimedOut {
        /// The call that was waited for.
        what: Awaited,
        /// The caller's patience.
        patience: std::time::Duration,
    },
    /// The caller's interrupt ended the wait. Work under way goes on, as after [`Error::TimedOut`].
    #[error("the wait was interrupted")]
    Interrupted,
    /// The engine ended before some versions were durable.
    #[error("{}: {}", left_text(.versions, .kept), end_text(.cause))]
    #[non_exhaustive]
    Lost {
        /// The versions that are lost, in ascending order; there may be none.
        versions: Vec<Version>,
        /// The versions that are whole on this node alone, where the next engine finds them, in ascending order.
        kept: Vec<Version>,
        /// The reason why the engine did not wait for them any longer.
        #[source]
        cause: Box<Error>,
    },
    /// Some versions could not reach the lowest tier. The engine still holds them, and can restore them.
    #[error("{versions} versions are not on the lowest tier{}; they stay where they are, try again", cause_text(.cause))]
    Stalled {
        /// Number of versions.
        versions: u64,
        /// The failure of the lowest tier, if it failed.
        #[source]
        cause: Option<Arc<Error>>,
    },

    // The machine failed.
    /// The device or memory failed.
    #[error(transparent)]
    Device(#[from] tierflow_device::Error),
    /// Storage failed, or files there are damaged.
    #[error(transparent)]
    Storage(#[from] tierflow_store::Error),
    /// Stored bytes do not decode to the version: a difference or a compressed version is damaged, or scratch storage returned
    /// other bytes than were written. The text names the version and the tier.
    #[error(transparent)]
    Damaged(PartError),
    /// A cache's memory could not be allocated or given back.
    #[error(transparent)]
    Memory(PartError),
    /// The pool of host memory cannot be used.
    #[error(transparent)]
    Pool(PartError),
    /// A thread could not be started.
    #[error("a thread of the engine could not be started: {0}")]
    Thread(#[source] std::io::Error),
    /// A defect of the engine.
    #[error("a defect of tierflow, please report it: {what}")]
    Internal {
        /// The impossible state.
        what: &'static str,
    },
    /// Signals cannot be received.
    #[error("signals cannot be received: {0}")]
    Signals(#[source] std::io::Error),
}

/// Returns versions as text, with consecutive numbers shortened.
fn versions_text(versions: &[Version]) -> String {
    let runs = versions.chunk_by(|one, next| one + 1 == *next);
    let runs = runs.map(|run| match run {
        [first, .., last] if run.len() > 2 => format!("{first} to {last}"),
        run => {
            let all: Vec<_> = run.iter().map(ToString::to_string).collect();
            all.join(", ")
        }
    });
    let all: Vec<_> = runs.collect();
    match versions {
        [one] => format!("version {one} is"),
        _ => format!("versions {} are", all.join(", ")),
    }
}

/// Returns a text about the versions that were not durable when their engine ended: `lost` ones, and those `kept` on the node.
pub(crate) fn left_text(lost: &[Version], kept: &[Version]) -> String {
    let lost = (!lost.is_empty()).then(|| format!("{} lost", versions_text(lost)));
    let kept = (!kept.is_empty()).then(|| {
        let versions = versions_text(kept);
        format!("{versions} on this node alone, where the next engine finds that")
    });
    let parts: Vec<String> = lost.into_iter().chain(kept).collect();
    let parts = parts.join(", and ");
    format!("{parts}, as the engine ended before that was durable")
}

/// Returns the cause of the end as text, without the hints that versions stay or that a call can be repeated: both would be wrong
/// here.
fn end_text(cause: &Error) -> String {
    match cause {
        Error::Stalled {
            cause: Some(cause), ..
        } => cause.to_string(),
        Error::Stalled { cause: None, .. } => "the lowest tier takes no more".to_owned(),
        Error::TimedOut { patience, .. } => format!("it waited for {patience:?}"),
        cause => cause.to_string(),
    }
}

fn cause_text(cause: &Option<Arc<Error>>) -> String {
    cause
        .as_ref()
        .map(|cause| format!(" (the last failure below: {cause})"))
        .unwrap_or_default()
}
