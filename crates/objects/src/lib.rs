#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod catalog;
mod remote;
mod vault;

pub use vault::{Objects, Settings};
