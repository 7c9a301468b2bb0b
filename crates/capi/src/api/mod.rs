//! The functions that `tierflow.h` declares.

mod comparing;
mod engine;
mod options;
mod parts;
mod schedules;
mod seeing;
mod slots;
mod suspending;

#[cfg(test)]
pub(crate) use comparing::RawDifference;
pub(crate) use engine::order;
#[cfg(test)]
pub(crate) use engine::{RawCall, RawNamed};
pub(crate) use options::close;
pub(crate) use parts::scatter;
#[cfg(test)]
pub(crate) use schedules::{RawAction, RawMachine, RawTier};
#[cfg(test)]
pub(crate) use seeing::{RawCalls, RawMetrics};
#[cfg(test)]
pub(crate) use suspending::RawSuspension;
