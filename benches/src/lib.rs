//! The measurements of Tierflow, and their reports.
//!
//! - Criterion benches of single functions are files in `benches/`.
//! - [`experiments`] are the measurements of whole parts and of the papers' claims: one file each.
//! - [`report`] turns both into one table, `report.json` and pages: all rows, and the papers' figures beside ours.
//!
//! `cargo xtask bench` runs them all; docs/src/report.md describes the report.
#![forbid(unsafe_code)]

pub mod experiments;
pub mod machine;
pub mod papers;
mod process;
pub mod processor;
pub mod random;
pub mod report;
mod threads;

/// The example of the README at the root, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
