//! The synchronisation primitives of the watermark and the gate. `tests/loom.rs` replaces them with loom's, and runs both
//! through every order of their steps.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering, fence};

pub(crate) use tierflow_sync::Condvar;
use tierflow_sync::rank;

/// The lock of a value of an arena.
pub(crate) type Mutex<T> = tierflow_sync::Mutex<T, { rank::ARENA_LEAF }>;
