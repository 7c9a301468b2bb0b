#![doc = include_str!("../README.md")]
// The library exports the functions that the headers in `include/` declare. The headers are the documentation.

mod api;
mod core;
mod ending;
mod failure;
mod ffi;
mod group;
mod handles;
#[cfg(test)]
mod layout;
mod memory;
mod transport;
mod veloc;
