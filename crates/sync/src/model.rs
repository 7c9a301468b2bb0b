//! The primitives that an engine's threads meet through. `--cfg shuttle` puts shuttle's in their place, so that a test runs whole
//! engines through orders of their steps that no scheduler would choose. Shuttle finds deadlocks by itself, so its locks have no ranks.

#[cfg(not(shuttle))]
mod answer;
#[cfg(not(shuttle))]
mod monitor;

#[cfg(not(shuttle))]
mod chosen {
    pub use super::answer::{ReplyReceiver, ReplySender, answer};
    pub use super::monitor::Monitor;
    pub use crate::{Mutex, MutexGuard};
    pub use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub use std::thread::{Builder, JoinHandle, sleep};
}

#[cfg(shuttle)]
#[path = "model/shuttle.rs"]
mod chosen;

pub use chosen::*;
