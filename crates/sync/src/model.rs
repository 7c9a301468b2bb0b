//! The primitives through which an engine's threads interact. `--cfg shuttle` replaces them by shuttle's, so that a test runs whole
//! engines in orders of their steps that no scheduler would choose. Shuttle finds deadlocks by itself, so its locks have no ranks.

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
