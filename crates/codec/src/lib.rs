#![doc = include_str!("../README.md")]
//!
//! # How it is laid out
//!
//! `header` is what a container says of itself, and `container` how blocks become one, on all threads.
//! [`Planes`] and [`Bounded`] say what a block is made of. [`gpu`] is the same with kernels. [`Governor`]
//! decides whether to encode at all.
//!
//! # What is deliberately absent
//!
//! No sums of the content: what is stored is summed by who stores it. No shapes of fields: a codec sees
//! values in the order of memory. No clock: times are measured by who moves the bytes.
#![deny(unsafe_code)]

mod bits;
mod bounded;
mod codec;
mod container;
mod decode;
mod element;
mod error;
mod governor;
#[cfg(feature = "cuda")]
pub mod gpu;
mod header;
mod method;
mod planes;

pub use bounded::{Bound, Bounded};
pub use codec::Codec;
pub use decode::{decode, decode_all, decode_to_vec, decoded_len};
pub use element::Element;
pub use error::{Error, Invalid, Result};
pub use governor::{Decision, Figures, Governor, Policy};
pub use header::{CodecId, HEADER_BYTES, Header};
pub use method::Method;
pub use planes::{Planes, Predictor};
