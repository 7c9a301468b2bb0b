//! The stored form of a difference. The book's chapter *De-duplicated checkpoints* describes it byte by byte.

mod header;
mod view;
mod write;

pub use header::{HEADER_BYTES, SHIFTED_BYTES, Stored};
pub(crate) use header::{Header, NO_PARENT, REPEATS};
pub use view::Container;
pub(crate) use view::Run;
pub(crate) use write::{Body, full_is_smaller, payload_at, write};
