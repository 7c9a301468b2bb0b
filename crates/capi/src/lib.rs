#![doc = include_str!("../README.md")]
// What is exported is what `include/` declares: its headers are the documentation.

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
