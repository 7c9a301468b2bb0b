//! Errors of building an engine.

use super::PartError;
use crate::Version;
use thiserror::Error;

/// The options or the storage that must be changed before an engine can be built.
/// [`EngineBuilder::build`](crate::EngineBuilder::build) fails with this error, except when the machine fails.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    // Correct the options.
    /// The engine needs at least one tier.
    #[error("the engine has no tier: give it a device cache, a host cache or a scratch directory")]
    NoTier,
    /// The peer cache has no tier below, to which versions could be flushed when peers take their memory back.
    #[error(
        "below the peer cache there is no tier to flush to: give the engine a host cache or a scratch directory"
    )]
    NothingBelowPeers,
    /// The pool has no tier below, to which versions could be flushed when others need memory.
    #[error(
        "the engine shares a pool of host memory and has no tier below: give it a scratch directory, to empty what others \
         want"
    )]
    NothingBelowPool,
    /// The cache is too small for any checkpoint.
    #[error(
        "a {cache} cache of {bytes} bytes holds nothing: give it {least} at least, or 0 for none"
    )]
    SmallCache {
        /// "device" or "host".
        cache: &'static str,
        /// The cache's bytes.
        bytes: usize,
        /// The bytes of the smallest possible cache.
        least: u64,
    },
    /// The host cache is larger than the memory and swap that the process may use.
    #[error(
        "a host cache, or a pool of host memory, of {bytes} bytes is more than the {usable} bytes of memory and swap that this process may use, by its machine and its control group: give it less"
    )]
    LargeCache {
        /// Bytes of the cache or the pool.
        bytes: u64,
        /// Bytes of memory and swap that the process may use: those of the machine, or the limit of its control group if lower.
        usable: u64,
    },
    /// A tier cannot be laid out, or its memory cannot be allocated in the chosen way.
    #[error(transparent)]
    Tier(PartError),
    /// The application's storage has an alignment that the engine cannot use.
    #[error(
        "the storage's alignment of {alignment} bytes is none: return a power of two from 1 to {most} from \
         Storage::alignment"
    )]
    Alignment {
        /// The storage's alignment, in bytes.
        alignment: usize,
        /// The largest possible alignment, in bytes.
        most: u64,
    },
    /// A tier was given an option that its kind does not have.
    #[error(
        "a tier was given the option {option}, which its kind does not have: leave it out there"
    )]
    Option {
        /// The method of [`Tier`](crate::Tier).
        option: &'static str,
    },
    /// Several scratch directories cannot be used as one tier.
    #[error(transparent)]
    Scratch(PartError),
    /// The options of differences or compression are wrong: a chunk size, an error bound, or nvCOMP where it cannot be loaded.
    #[error(transparent)]
    Reduction(PartError),
    /// Direct copies between the device and the scratch file are required, but not possible.
    #[error(
        "nothing goes straight between the device and the scratch file here: {why}; measured direct I/O goes through pinned buffers \
         then"
    )]
    DirectIo {
        /// The missing part.
        why: String,
    },
    /// Differences or compression are not possible with these options.
    #[error("versions cannot be stored as differences or compressed here: {why}")]
    NoDifferences {
        /// The reason, and the change that would help.
        why: &'static str,
    },
    /// An option is about durable versions, but the engine has no durable tier.
    #[error(
        "{what} is about versions that outlive the engine: give it node-local or external storage, too"
    )]
    NothingLasts {
        /// The builder's method.
        what: &'static str,
    },
    /// Redundancy needs an option that is missing.
    #[error("redundancy needs {needs}")]
    NoProtection {
        /// The option, and how to set it.
        needs: &'static str,
    },
    /// A group does not have that rank.
    #[error("rank {rank} is none of {ranks}: they are counted from 0")]
    NoRank {
        /// The rank chosen.
        rank: u32,
        /// The ranks of the group.
        ranks: u32,
    },

    // Ask the group, or check its storage.
    /// A group of another size wrote the newest version there.
    #[error(
        "version {version} there was written by a group of {found} ranks, and this engine is one of {ranks}: build it in a \
         group of {found}, or read the pieces of its ranks one by one and go on in another directory"
    )]
    OtherGroup {
        /// The ranks of that group.
        found: u32,
        /// The newest version of that group.
        version: Version,
        /// The ranks of this group.
        ranks: u32,
    },
    /// Versions that the redundancy protected are lost, and the options [refuse](crate::Group::refuse_losses) such losses.
    #[error(
        "more is lost than the nodes protect: {losses}; start again with the nodes that are missing, or without refuse_losses to \
         go on from what there is"
    )]
    Losses {
        /// The versions, and the ranks and nodes that lost them.
        losses: String,
    },
    /// Ranks of the group give different numbers for the run.
    #[error(
        "rank {rank} says that this is run {run}, and rank 0 run {first}: give all ranks the same number"
    )]
    OtherRun {
        /// The first rank whose number differs from rank 0's.
        rank: u32,
        /// The number that it gives.
        run: u64,
        /// The number that rank 0 gives.
        first: u64,
    },
    /// Some files of a rank cannot be read now, so the group cannot decide from which version to continue.
    #[error(
        "rank {rank} cannot read some files on the storage of the group now, and pieces of versions up to {newest} may lie \
         there, of which all ranks have {}: try again, or remove the files that `tierflow list` names to go on from that one",
        agreed.map_or_else(|| "none".to_owned(), |agreed| format!("up to {agreed}"))
    )]
    Unreadable {
        /// The first rank with such files.
        rank: u32,
        /// The newest version of which some rank has its piece.
        newest: Version,
        /// The newest version of which all ranks have their pieces.
        agreed: Option<Version>,
    },
}
