//! x
pub mod machines;
