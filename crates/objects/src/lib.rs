#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod catalog;
#[cfg(feature = "cloud")]
mod cloud;
mod entry;
mod history;
mod index;
mod inspect;
mod maintenance;
mod name;
mod remote;
mod vault;
mod version_locks;

pub use history::History;
pub use vault::{Objects, Settings};
