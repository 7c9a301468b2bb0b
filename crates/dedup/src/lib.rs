#![doc = include_str!("../README.md")]
//!
//! # How it is laid out
//!
//! `hash` and `layout` say what a chunk is known by and which regions have names; `record` is the
//! history's index; `regions` makes metadata out of labelled chunks. [`Lineage`] encodes with them.
//! `container` is the stored form, and [`Chain`] all that can be done with stored differences without
//! the lineage that wrote them. [`gpu`] is the same with kernels.
//!
//! # What is deliberately absent
//!
//! No digests of inner nodes of the tree: `regions` says why none are needed. No compression: codecs
//! work on the payload of a difference as on anything else. No files: bytes go in and come out.
#![deny(unsafe_code)]
// What only the kernels' half asks of the other.
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
pub use container::{Container, HEADER_BYTES, Stored};
pub use encode::{Difference, Lineage, Summary};
pub use error::{Error, Invalid, Result};

/// Bytes of the longest difference of a checkpoint of `checkpoint_bytes` bytes, whatever it holds: a
/// header more than the checkpoint.
pub fn most_stored_bytes(checkpoint_bytes: u64) -> u64 {
    container::payload_at(0).saturating_add(checkpoint_bytes)
}

/// Where the payload starts in a difference, by its first [`HEADER_BYTES`]: before it is all that a processor reads of one that a
/// GPU puts checkpoints together of.
///
/// # Errors
///
/// [`Error::Corrupt`] if no difference starts with these bytes.
pub fn payload_start(head: &[u8]) -> Result<u64> {
    Ok(container::Header::read(head)?.payload_at())
}
