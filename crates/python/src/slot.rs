//! Parts of the cache as arrays: what `produce` and `consume` return.

mod class;
mod layout;
mod lent;
mod own;

pub(crate) use class::{ConsumeSlot, ProduceSlot};
pub(crate) use layout::Layout;
pub(crate) use lent::LentSlot;
