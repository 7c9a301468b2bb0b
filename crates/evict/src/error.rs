use thiserror::Error;

/// Why an [`AllocationTable`](crate::AllocationTable) refused; it is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// No table can be made from these figures.
    #[error(
        "a cache of {capacity} bytes aligned to {alignment} cannot be laid out: the alignment must \
         be at least 1 and the capacity between the alignment and {max}", max = crate::MAX_CAPACITY
    )]
    BadCapacity {
        /// The capacity asked for, in bytes.
        capacity: u64,
        /// The alignment asked for, in bytes.
        alignment: u64,
    },
    /// An empty copy has no place; do not cache it.
    #[error("a copy of 0 bytes cannot be inserted: do not cache empty checkpoints")]
    ZeroSize,
    /// The copy can never be inserted, whatever is evicted; go past this cache.
    #[error(
        "{size} bytes do not fit a cache of {capacity} bytes, even an empty one: bypass it or make it larger"
    )]
    TooLarge {
        /// The size asked for, in bytes.
        size: u64,
        /// The capacity of the cache, in bytes.
        capacity: u64,
    },
    /// The key is in the table already; remove it first.
    #[error("the key is in the table already: remove its copy first")]
    Duplicate,
    /// The key is not in the table.
    #[error("the key is not in the table")]
    Unknown,
    /// The offset breaks the alignment; take the offset of a window.
    #[error(
        "offset {offset} is not a multiple of the alignment {alignment}: insert at the offset of a window"
    )]
    Misaligned {
        /// The offset asked for, in bytes.
        offset: u64,
        /// The alignment of the cache, in bytes.
        alignment: u64,
    },
    /// The bytes are not free; remove every copy of the window first.
    #[error(
        "the {reserved} bytes at offset {offset} are not one gap: remove every copy of the window first"
    )]
    NotAGap {
        /// The offset asked for, in bytes.
        offset: u64,
        /// The bytes that the copy would occupy there.
        reserved: u64,
    },
    /// The bytes are free, and out of use; take the offset of a window, or raise the limit.
    #[error(
        "the {reserved} bytes at offset {offset} reach beyond the limit of {limit}: insert within it, or raise it"
    )]
    BeyondLimit {
        /// The offset asked for, in bytes.
        offset: u64,
        /// The bytes that the copy would occupy there.
        reserved: u64,
        /// The limit, in bytes.
        limit: u64,
    },
}
