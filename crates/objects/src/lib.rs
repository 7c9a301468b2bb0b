#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod catalog;
#[cfg(feature = "cloud")]
mod cloud;
mod index;
mod look;
mod name;
mod remote;
mod saving;
mod seen;
mod vault;

pub use vault::{Objects, Settings};
