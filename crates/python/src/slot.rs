//! Slots: parts of the cache that `produce` and `consume` lend as arrays.

mod class;
mod layout;
mod lent;
mod own;

pub(crate) use class::{ConsumeSlot, ProduceSlot};
pub(crate) use layout::Layout;
pub(crate) use lent::LentSlot;
