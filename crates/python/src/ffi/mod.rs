//! Foreign structures and pointers: the only unsafe code of this crate, with its proofs.
#![allow(
    unsafe_code,
    reason = "foreign structures and pointers are what it is about"
)]

pub(crate) mod buffer;
pub(crate) mod copies;
pub(crate) mod cuda_interface;
pub(crate) mod detached;
pub(crate) mod dlpack;
pub(crate) mod exchange;
pub(crate) mod export;
pub(crate) mod given;
pub(crate) mod pending;
pub(crate) mod streams;
pub(crate) mod view;
pub(crate) mod xla;
