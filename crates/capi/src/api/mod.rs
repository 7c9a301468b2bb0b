//! What `tierflow.h` declares.

mod engine;
mod named;
mod options;
mod parts;
mod seeing;
mod slots;
mod suspending;

#[cfg(test)]
pub(crate) use engine::RawCall;
pub(crate) use engine::order;
#[cfg(test)]
pub(crate) use named::RawNamed;
pub(crate) use options::close;
pub(crate) use parts::{NAME, scatter};
#[cfg(test)]
pub(crate) use seeing::{RawCalls, RawMetrics};
#[cfg(test)]
pub(crate) use suspending::RawSuspension;
