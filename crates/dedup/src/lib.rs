#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! `hash` and `layout` define the digests of chunks and the names of regions. `record` is the index of earlier chunks.
//! `regions` makes metadata from labelled chunks. [`Lineage`] encodes with these modules. `container` is the stored form.
//! [`Chain`] works on stored differences without the lineage that wrote them. [`gpu`] encodes and restores with kernels.
//!
//! # Absent on purpose
//!
//! The tree has no digests of inner nodes: `regions` gives the reason. Differences are not compressed: codecs work on
//! any bytes. The crate opens no files: bytes go in and come out.
#![deny(unsafe_code)]
// Only the kernels use some of the items.
#![cfg_attr(not(feature = "cuda"), allow(dead_code, unused_imports))]

mod chain;
mod config;
mod container;
mod encode;
mod error;
#[cfg(feature = "cuda")]
pub mod gpu;
mod hash;
mod layout;
mod record;
mod regions;
mod sample;

pub use chain::{Chain, Compacted};
pub use config::{Config, Method, Tree};
pub use container::{Container, HEADER_BYTES, SHIFTED_BYTES, Stored};
pub use encode::{Difference, Lineage, Origins, StoredBytes, Summary};
pub use error::{Error, Invalid, Result};

/// Returns the bytes of the longest difference of a checkpoint of `checkpoint_bytes` bytes: a header more than the checkpoint.
pub fn most_stored_bytes(checkpoint_bytes: u64) -> u64 {
    container::payload_at(0).saturating_add(checkpoint_bytes)
}

/// Returns the offset of the payload in a difference, which its first [`HEADER_BYTES`] bytes give. The processor reads the
/// bytes before the payload even if a GPU restores.
///
/// # Errors
///
/// [`Error::Corrupt`] if no difference starts with these bytes.
pub fn payload_start(head: &[u8]) -> Result<u64> {
    Ok(container::Header::read(head)?.payload_at())
}
