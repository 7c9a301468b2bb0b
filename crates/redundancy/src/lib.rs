#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod code;
mod error;
mod exchange;
mod keep;
mod layout;
mod manifest;
mod pieces;
mod protected;
mod scheme;
mod sets;
mod transport;

pub use code::{Code, xor_into};
pub use error::{Error, Lost, Result};
pub use exchange::{Exchange, Rebuilt};
pub use keep::{Keep, Part};
pub use layout::{Layout, Place};
pub use manifest::{Digest, Manifest};
pub use pieces::Pieces;
pub use protected::{Protected, Rank};
pub use scheme::Redundancy;
pub use sets::{Member, Set, Sets};
pub use transport::{Directory, Transport};

/// Bytes of a shard that are encoded at a time: what a member holds in memory of each shard of a stripe.
pub const CHUNK: usize = 256 << 10;
