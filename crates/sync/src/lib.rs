#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod held;
mod locks;
#[cfg(feature = "model")]
pub mod model;
pub mod rank;

pub use locks::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
