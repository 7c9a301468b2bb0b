//! What the threads of an engine meet through. `--cfg shuttle` puts shuttle's in its place, and `tests/shuttle.rs` has
//! whole engines run through orders of their steps that no scheduler would choose.

#[cfg(not(shuttle))]
mod answer;
#[cfg(not(shuttle))]
mod monitor;

#[cfg(not(shuttle))]
mod chosen {
    pub(crate) use super::answer::{ReplyReceiver, ReplySender, answer};
    pub(crate) use super::monitor::Monitor;
    pub(crate) use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use std::thread::{Builder, JoinHandle, sleep};
}

#[cfg(shuttle)]
#[path = "sync/shuttle.rs"]
mod chosen;

pub(crate) use chosen::*;
