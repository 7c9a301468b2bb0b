#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod atomic_file;
mod code;
mod collective;
mod error;
mod exchange;
mod inventory;
mod layout;
mod manifest;
mod node_protection;
mod parity_store;
mod part_and_parity;
mod pieces;
mod protected;
mod rebuilding;
mod relocation;
mod scheme;
mod sets;
mod transport;
mod truncations;
mod wire;

pub use code::{Code, xor_into};
pub use collective::TransportCollective;
pub use error::{Error, Lost, Result};
pub use exchange::{Exchange, Rebuilt};
pub use layout::{Layout, Place, Row, Rows};
pub use manifest::{Digest, Manifest};
pub use node_protection::NodeProtection;
pub use parity_store::{ParityStore, Part};
pub use pieces::Pieces;
pub use protected::{Membership, NodeDirectories, Protected, RebuiltVersion};
pub use scheme::Redundancy;
pub use sets::{Member, Set, Sets};
pub use transport::{Directory, Transport};

/// Bytes of the longest shard: a member holds as many in memory of each shard of a row.
pub const CHUNK: usize = 1 << 20;
