#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod catalog;
#[cfg(feature = "cloud")]
mod cloud;
mod history;
mod index;
mod look;
mod name;
mod remote;
mod saving;
mod seen;
mod upkeep;
mod vault;

pub use history::History;
pub use vault::{Objects, Settings};
