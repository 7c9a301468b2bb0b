//! Why an engine could not be built as it was asked for.

use super::PartError;
use crate::Version;
use thiserror::Error;

/// What is to be changed about an engine to be, or about what its storage holds, before it can be built: what
/// [`EngineBuilder::build`](crate::EngineBuilder::build) fails with, apart from failures of the machine.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    // Mend what was chosen.
    /// The engine needs at least one tier.
    #[error("the engine has no tier: give it a device cache, a host cache or a scratch directory")]
    NoTier,
    /// Peers have their memory back when it is flushed.
    #[error(
        "below the peer cache there is no tier to flush to: give the engine a host cache or a scratch directory"
    )]
    NothingBelowPeers,
    /// A cache that others may ask to shrink needs somewhere to flush to.
    #[error(
        "the engine shares a pool of host memory and has no tier below: give it a scratch directory, to empty what others \
         want"
    )]
    NothingBelowPool,
    /// A cache that holds no checkpoint of any size.
    #[error(
        "a {cache} cache of {bytes} bytes holds nothing: give it {least} at least, or 0 for none"
    )]
    SmallCache {
        /// "device" or "host".
        cache: &'static str,
        /// The bytes chosen.
        bytes: usize,
        /// The bytes of the smallest one.
        least: u64,
    },
    /// A tier cannot be laid out.
    #[error(transparent)]
    Tier(PartError),
    /// Storage of the application's cannot be written in blocks of that size.
    #[error(
        "the storage's alignment of {alignment} bytes is none: return a power of two from 1 to {most} from \
         Storage::alignment"
    )]
    Alignment {
        /// What the storage says.
        alignment: usize,
        /// The most bytes that it may say.
        most: u64,
    },
    /// Several scratch directories cannot be used as one tier.
    #[error(transparent)]
    Scratch(PartError),
    /// Checkpoints cannot be made smaller in that way: a chunk size, a bound of an error.
    #[error(transparent)]
    Reduction(PartError),
    /// Copies are to go straight between the device and the scratch file, and cannot.
    #[error(
        "nothing goes straight between the device and the scratch file here: {why}; choose DirectIo::Measured to go through \
         pinned buffers then"
    )]
    DirectIo {
        /// What is missing.
        why: String,
    },
    /// Differences are asked for where there can be none.
    #[error("versions cannot be stored as differences or compressed here: {why}")]
    NoDifferences {
        /// What to change.
        why: &'static str,
    },
    /// Something was chosen for versions that outlive the engine, and none do.
    #[error(
        "{what} is about versions that outlive the engine: give it node_local, external or external_vault, too"
    )]
    NothingLasts {
        /// The builder's method.
        what: &'static str,
    },
    /// Redundancy needs something that is not there.
    #[error("redundancy needs {needs}")]
    NoProtection {
        /// What, and how to give it.
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

    // Ask the group, or look at its storage.
    /// A group of another size wrote the newest version there.
    #[error(
        "version {version} there was written by a group of {found} ranks, and this engine is one of {ranks}: build it in a \
         group of {found}, or read the pieces with tierflow_store::Repository::piece_of and go on in another directory"
    )]
    OtherGroup {
        /// The ranks of that group.
        found: u32,
        /// Its newest version.
        version: Version,
        /// The ranks of this group.
        ranks: u32,
    },
    /// Versions are lost that the redundancy protected, and such losses are [refused](crate::EngineBuilder::refuse_losses).
    #[error(
        "more is lost than the nodes protect: {losses}; start again with the nodes that are missing, or without refuse_losses to \
         go on from what there is"
    )]
    Losses {
        /// The versions, and the ranks and nodes that lost them.
        losses: String,
    },
    /// The ranks of a group do not agree which run of the application this is.
    #[error(
        "rank {rank} says that this is run {run}, and rank 0 run {first}: give all ranks the same number"
    )]
    OtherRun {
        /// A rank that is not of rank 0's run.
        rank: u32,
        /// Its run.
        run: u64,
        /// Rank 0's.
        first: u64,
    },
    /// A group cannot tell whether it has to go back: some of what a rank has cannot be read now.
    #[error(
        "rank {rank} cannot read some files on the storage of the group now, and pieces of versions up to {newest} may lie \
         there, of which all ranks have {}: try again, or remove the files that `tierflow list` names to go on from that one",
        agreed.map_or_else(|| "none".to_owned(), |agreed| format!("up to {agreed}"))
    )]
    Unreadable {
        /// The first such rank.
        rank: u32,
        /// The newest version of which some rank has its piece.
        newest: Version,
        /// The newest of which all have theirs.
        agreed: Option<Version>,
    },
}
