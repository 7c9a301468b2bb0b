#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! `header` defines the header of a container, and `container` joins blocks to containers, on all threads. [`Planes`] and
//! [`Bounded`] encode blocks, and [`gpu`] does so with kernels. [`Frame`] is an encoded file of another format.
//! [`NvcompCodec`] names the codecs of the user's nvCOMP. [`Governor`] decides whether to encode.
//!
//! # Absent on purpose
//!
//! Containers have no checksums of their content, as the store that holds them has. A codec knows no shapes of fields: it
//! encodes values in the order of memory. A governor has no clock: the caller that moves the bytes measures times.
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
