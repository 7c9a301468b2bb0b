//! The primitives that threads meet through. `tests/loom.rs` puts loom's in their place and runs the watermark and
//! the gate through every order of their steps.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering, fence};

pub(crate) use parking_lot::{Condvar, Mutex};
