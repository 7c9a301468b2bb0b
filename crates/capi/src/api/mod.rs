//! What `tierflow.h` declares.

mod engine;
mod options;
mod parts;
mod seeing;
mod slots;

pub(crate) use engine::order;
pub(crate) use options::close;
pub(crate) use parts::{NAME, scatter};
