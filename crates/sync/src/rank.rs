//! The order of the locks: a thread locks only ranks above those that it holds. `docs/src/threads.md` names the locks of each rank.

/// Locks that admit one call of a kind at a time: a list of hints, a reservation of numbers, a resize, a group commit.
pub const CALL: u8 = 1;
/// The plan. No thread holds it across a copy of more than a page, I/O or a wait.
pub const PLAN: u8 = 2;
/// Transfers that no worker has taken.
pub const QUEUE: u8 = 3;
/// A durable tier: the order of publishing, and removals.
pub const DURABLE: u8 = 4;
/// The notes and marks that a run leaves before its first change.
pub const FIRST_WRITE: u8 = 5;
/// Locks that admit one thread to a chore of a repository: settling after a crash, writing an index.
pub const CHORE: u8 = 6;
/// The records between the disk and the catalog of a repository. No segment is rewritten while a thread holds it for reading.
pub const GATE: u8 = 7;
/// The catalog of a repository.
pub const REPOSITORY: u8 = 8;
/// Records that are gathered for one synchronisation, files that can be overwritten, and parts that threads pass on in turn.
pub const PACKER: u8 = 9;
/// A copy or an encoding that one thread makes.
pub const COPY: u8 = 10;
/// A list of work or of memory, held while an entry is examined.
pub const LIST: u8 = 11;
/// A value that is read or changed in place. A thread that holds a leaf locks nothing but arenas and devices.
pub const LEAF: u8 = 12;
/// The growth of an arena.
pub const ARENA: u8 = 13;
/// The pieces of an arena that are touched.
pub const PIECES: u8 = 14;
/// A value of an arena.
pub const ARENA_LEAF: u8 = 15;
/// Locks that admit one mapping or pinning at a time.
pub const DEVICE: u8 = 16;
/// The chunks behind a reservation.
pub const CHUNKS: u8 = 17;
/// A value of a back end: loans, pins, a stream's counts.
pub const DEVICE_LEAF: u8 = 18;
