#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod blobs;
#[cfg(feature = "cloud")]
mod cloud;
mod history;
mod remote;

pub use blobs::{ObjectBlobs, Settings, open, repository};
pub use history::History;
