//! CUDA kernels that make and restore differences, with the same bytes as the CPU.
//!
//! [`GpuLineage`] encodes checkpoints in device memory, [`Resident`] restores versions from differences in device
//! memory. Both are asynchronous: they enqueue kernels on the caller's stream, and return a value to wait for. The value
//! owns the loans of all memory that the kernels touch. A checkpoint needs no allocation, and no wait for a result between
//! its kernels.
//!
//! The order in which threads run does not change a difference: the bytes are those of [`crate::Lineage`].
//!
//! ```no_run
//! # fn main() -> tierflow_dedup::Result<()> {
//! use tierflow_dedup::{Config, Method, gpu};
//! let device = tierflow_device::open(tierflow_device::Choice::Cuda { ordinal: 0 })?;
//! let stream = device.stream()?;
//! let state = device.alloc(1 << 30)?; // the application's
//!
//! let kernels = gpu::Kernels::load(&device)?;
//! let mut lineage = gpu::GpuLineage::new(&kernels, Config::new(Method::Tree), 1 << 30)?;
//! // Pinned host memory for one difference, so that the kernels can write to it.
//! let room = gpu::pinned(&device, lineage.most_stored_bytes())?;
//! let output = gpu::OutputBuffer::pinned(&room, 0..lineage.most_stored_bytes())?;
//!
//! let encoding = lineage.encode(&stream, 1, state.lend(0..1 << 30)?, output);
//! let done = encoding.wait();
//! println!("{} bytes to store", done.result?.stored_bytes);
//! # Ok(()) }
//! ```

mod encode;
mod flight;
mod kernels;
mod lineage;
mod output_buffer;
mod past;
mod plan;
mod report;
mod resident;
mod state;

pub use encode::{Encoded, Encoding};
pub use kernels::Kernels;
pub use lineage::GpuLineage;
pub use output_buffer::{OutputBuffer, pinned};
pub use resident::{Resident, Restored, Restoring, head};
