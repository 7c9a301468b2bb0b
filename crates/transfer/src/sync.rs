//! The flag that stops a copy; `--cfg shuttle` puts shuttle's in its place.

#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicBool, Ordering};
