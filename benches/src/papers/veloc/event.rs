use std::fmt;

use tierflow_placement::stores::StoreId;

macro_rules! ids {
    ($($(#[$about:meta])* $name:ident($of:ty), $word:literal;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $of);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }
    )*};
}

ids! {
    /// A writer of checkpoints, by a number that the caller chooses.
    ProducerId(u64), "producer";
    /// A chunk on a local store, numbered by the backend.
    ChunkId(u64), "chunk";
}

/// An event for the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A producer will ask for chunks of so many bytes altogether, the first of which it has not asked for yet.
    /// Announcing is optional; it lets [`ShortestWait`](tierflow_placement::stores::ShortestWait) look ahead. It takes the place of what was
    /// announced before; with 0 bytes, nothing is left of that.
    Announced {
        /// The producer.
        producer: ProducerId,
        /// How many bytes.
        bytes: u64,
    },
    /// A producer wants to write its next chunk (Algorithm 1, line 6).
    ChunkAsked {
        /// The producer.
        producer: ProducerId,
        /// How many bytes; the last chunk of a checkpoint may be smaller than the others.
        bytes: u64,
    },
    /// A chunk is on its local store (Algorithm 1, lines 9 and 10).
    ChunkWritten {
        /// The chunk.
        chunk: ChunkId,
    },
    /// A chunk is on the external storage, and its local store was freed of it (Algorithm 3).
    ChunkFlushed {
        /// The chunk.
        chunk: ChunkId,
    },
}

/// A command of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A producer is to write its chunk to a store, and report [`ChunkWritten`](Event::ChunkWritten).
    Write {
        /// The producer.
        producer: ProducerId,
        /// The name that the chunk has from now on.
        chunk: ChunkId,
        /// The store that it is written to.
        store: StoreId,
    },
    /// A chunk is to be flushed, and [`ChunkFlushed`](Event::ChunkFlushed) reported.
    Flush {
        /// The chunk.
        chunk: ChunkId,
        /// The store that has it.
        store: StoreId,
        /// How many bytes.
        bytes: u64,
    },
}
