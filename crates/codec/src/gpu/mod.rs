//! CUDA kernels that encode and decode containers, with the same bytes as the CPU.
//!
//! [`Encoder`] encodes data in device memory, [`Decoder`] decodes to device memory. Containers are in device memory too, or
//! in pinned host memory, which the kernels reach across the bus. Both are asynchronous: they enqueue kernels on the
//! caller's stream, and return a value to wait for. The value owns the loans of all memory that the kernels touch. An input
//! needs no allocation.
//!
//! With the feature `nvcomp`, `NvcompCoder` encodes with the user's nvCOMP.
//!
//! ```no_run
//! # fn main() -> tierflow_codec::Result<()> {
//! use tierflow_codec::{Codec, Element, Method, Planes, gpu};
//! let device = tierflow_device::open(tierflow_device::Choice::Cuda { ordinal: 0 })?;
//! let stream = device.stream()?;
//! let weights = device.alloc(1 << 30)?; // the application's
//!
//! let kernels = gpu::Kernels::load(&device)?;
//! let mut encoder = gpu::Encoder::new(&kernels, 1 << 30)?;
//! let method = Method::from(Planes::new());
//! let room = method.max_encoded_len(1 << 30, Element::Bf16)? as usize;
//! let memory = device.alloc(room)?;
//! let out = gpu::OutputBuffer::device(&memory, 0..room)?;
//!
//! let encoding = encoder.encode(&stream, &method, Element::Bf16, weights.lend(0..1 << 30)?, out);
//! let header = encoding.wait().result?;
//! println!("{} bytes, {:.2} times smaller", header.stored_bytes, header.ratio());
//! # Ok(()) }
//! ```

mod decode;
mod encode;
mod flight;
mod kernels;
mod memory;
#[cfg(feature = "nvcomp")]
mod nvcomp;

pub use decode::{Decoded, Decoder, Decoding};
pub use encode::{Encoded, Encoder, Encoding};
pub use kernels::Kernels;
pub use memory::{Origin, OutputBuffer};
#[cfg(feature = "nvcomp")]
pub use nvcomp::{Nvcomp, NvcompCoder};
