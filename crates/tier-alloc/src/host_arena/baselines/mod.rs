//! The strategies that [`Pieces`](super::HostGrowth::Pieces) is measured against: those of HiPC'22, and the driver's own.

mod direct;
mod measured;
mod model;
mod touch_then_pin;
mod vmm_host;

pub(super) use direct::{DirectPin, Managed};
pub(super) use measured::{Concurrency, Flush};
pub use model::{Figures, Touching};
pub(super) use touch_then_pin::{Memset, TouchThenPin};
pub(super) use vmm_host::VmmHost;
