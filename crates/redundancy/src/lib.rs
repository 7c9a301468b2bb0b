#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod code;
mod error;
mod exchange;
mod fresh;
mod keep;
mod known;
mod layout;
mod manifest;
mod meeting;
mod nodes;
mod pieces;
mod protected;
mod rebuilding;
mod scheme;
mod sets;
mod transport;
mod wire;

pub use code::{Code, xor_into};
pub use error::{Error, Lost, Result};
pub use exchange::{Exchange, Rebuilt};
pub use keep::{Keep, Part};
pub use layout::{Layout, Place, Row, Rows};
pub use manifest::{Digest, Manifest};
pub use meeting::Meeting;
pub use nodes::Nodes;
pub use pieces::Pieces;
pub use protected::{Membership, Protected};
pub use scheme::Redundancy;
pub use sets::{Member, Set, Sets};
pub use transport::{Directory, Transport};

/// Bytes of a shard at most: what a member holds in memory of each shard of a row.
pub const CHUNK: usize = 1 << 20;
