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
pub use file::{create_dir_durably, replace_file, sync_parent, within_limit};
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

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A flat range of bytes on some storage, which many threads read and write at the same time.
///
/// The user keeps the ranges apart: concurrent calls touch the same bytes only if all of them read. Bytes at an offset that was
/// never written are unspecified.
pub trait Storage: Debug + Send + Sync {
    /// Returns the alignment in bytes, a power of two: offsets, lengths and addresses of memory must be multiples of it.
    fn alignment(&self) -> usize;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// [`Error::Full`] and [`Error::Write`] leave the range unspecified and everything else untouched;
    /// [`Error::Unaligned`] changes nothing.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes `bytes`, which consist of parts of these lengths. Later writes replace single parts, so a storage with checksums
    /// keeps separate ones for each part.
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
    /// [`Error::Altered`] if a checksum shows that the bytes are not those that were written; [`Error::Read`] leaves `bytes`
    /// unspecified; [`Error::Unaligned`] changes nothing.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Returns the single file that holds these bytes, each at its own offset, for callers that read and write it by other means,
    /// such as GPUDirect Storage. Such a caller calls [`written_past`](Self::written_past) before it writes. Returns `None` by
    /// default; a storage that limits another one or lets it fail has no file.
    ///
    /// # Errors
    /// [`Error::Open`] if the file cannot be opened a second time.
    fn file(&self) -> Result<Option<NamedFile>> {
        Ok(None)
    }

    /// Announces that the caller will write these bytes into the [file](Self::file) without this storage. The checksums of these bytes become
    /// invalid.
    fn written_past(&self, _offset: u64, _bytes: u64) {}

    /// Returns the number of bytes that were read without a checksum though they should have had one; 0 for storage without
    /// checksums.
    fn unverified(&self) -> u64 {
        0
    }
}
