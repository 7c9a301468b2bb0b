//! Parts of the cache as arrays: what `produce` and `consume` return.

mod consume;
mod layout;
mod lent;
mod own;
mod produce;

pub(crate) use consume::ConsumeSlot;
pub(crate) use layout::Layout;
pub(crate) use lent::Lent;
pub(crate) use produce::ProduceSlot;
