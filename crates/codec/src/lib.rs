#![doc = include_str!("../README.md")]
//!
//! # How it is laid out
//!
//! `header` is the header of a container, and `container` joins blocks to one, on all threads.
//! [`Planes`] and [`Bounded`] encode blocks. [`gpu`] is the same with kernels. [`Frame`] is a file of another format,
//! encoded. [`NvcompCodec`] is for the user's nvCOMP. [`Governor`] decides whether to encode at all.
//!
//! # What is deliberately absent
//!
//! No checksums of the content: the store that holds a container has them. No shapes of fields: a codec sees
//! values in the order of memory. No clock: the caller that moves the bytes measures the times.
#![deny(unsafe_code)]

mod bits;
mod bounded;
mod codec;
mod container;
mod decode;
mod element;
mod error;
mod frame;
mod governor;
#[cfg(feature = "cuda")]
pub mod gpu;
mod header;
mod method;
mod nvcomp;
mod planes;

pub use bounded::{Bound, Bounded};
pub use codec::Codec;
pub use decode::{decode, decode_all, decode_to_vec, decoded_len};
pub use element::Element;
pub use error::{Error, Invalid, Result};
pub use frame::Frame;
pub use governor::{Decision, Figures, Governor, Policy};
pub use header::{CodecId, HEADER_BYTES, Header};
pub use method::Method;
pub use nvcomp::NvcompCodec;
pub use planes::{Planes, Predictor};
