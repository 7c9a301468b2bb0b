#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("tierflow-store, and all that depends on it, builds for Linux alone");

mod blobs;
mod collective;
mod compare;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod container;
mod error;
#[cfg(feature = "testing")]
mod faulty;
mod file;
mod guarded;
mod injected;
mod named;
mod panics;
mod place;
mod protection;
mod repository;
mod scratch;
#[cfg(feature = "testing")]
mod throttled;
mod vault;
pub mod veloc;
mod verified;

pub use blobs::{BlobStamp, Blobs, PutRule, Written};
pub use collective::Collective;
pub use compare::{Comparison, Difference};
pub use error::Error;
#[cfg(feature = "testing")]
pub use faulty::{Faults, Faulty};
pub use file::{replace_file, within_limit};
pub use guarded::Guarded;
pub use named::NamedFile;
pub use panics::guarded;
pub use place::Place;
pub use protection::{LostVersion, NodeDirectory, Protection, Protector};
pub use repository::{
    ByteSource, Damage, Identity, Mark, Marks, Options, Order, Piece, PieceDifference, PieceInfo,
    Pruned, Pull, Ready, RecordBytes, Region, RegionDifference, RegionPairs, Repository, Retention,
    Scrubbed, Snapshot, Truncation, VersionInfo, last_restorable, left_behind, with_bases,
};
pub use scratch::{GrantedProperties, Scratch};
#[cfg(feature = "testing")]
pub use throttled::Throttled;
pub use vault::Vault;
pub use verified::Verified;

use std::fmt::Debug;

/// The result of every fallible call here.
pub type Result<T> = std::result::Result<T, Error>;

/// A flat range of bytes on some storage, read and written by many threads at a time.
///
/// The user keeps the ranges apart: two calls at the same time touch the same bytes only if both read. What lies at
/// an offset that was never written is unspecified.
pub trait Storage: Debug + Send + Sync {
    /// Offsets, lengths and the addresses of the memory must be multiples of this many bytes, a power of two.
    fn alignment(&self) -> usize;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// [`Error::Full`] and [`Error::Write`] leave the range unspecified and everything else untouched;
    /// [`Error::Unaligned`] changes nothing.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes `bytes`, which consist of parts of these lengths that will be written over one by one. Storage that keeps checksums
    /// keeps those of each part apart.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn write_parts(&self, offset: u64, bytes: &[u8], parts: &[usize]) -> Result<()> {
        let _alike_without_checksums = parts;
        self.write_at(offset, bytes)
    }

    /// Fills `bytes` from `offset`.
    ///
    /// # Errors
    /// [`Error::Altered`] if they are known not to be what was written; [`Error::Read`] leaves `bytes` unspecified; [`Error::Unaligned`] changes nothing.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// The one file in which these bytes lie, each at its own offset, for who reads and writes them there by other means, such as
    /// GPUDirect Storage; none unless a storage has one and says so. What stands in front of another storage, to limit it or to
    /// let it fail, has none. Who writes there calls [`written_past`](Self::written_past) before.
    ///
    /// # Errors
    /// [`Error::Open`] if the file is not to be had a second time.
    fn file(&self) -> Result<Option<NamedFile>> {
        Ok(None)
    }

    /// Tells that these bytes are about to be written past this storage, into its [file](Self::file). Checksums of them do not hold any
    /// more.
    fn written_past(&self, _offset: u64, _bytes: u64) {}

    /// Bytes that were read and should have had a checksum, and had none; 0 for storage without checksums.
    fn unverified(&self) -> u64 {
        0
    }
}
