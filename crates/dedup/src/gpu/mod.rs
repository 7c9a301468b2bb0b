//! The same differences, made and restored by CUDA kernels.
//!
//! [`Lineage`] encodes checkpoints that lie in device memory, [`Resident`] restores versions from
//! differences that do. Both are asynchronous: they enqueue kernels on the caller's stream and return
//! what can be waited for, which owns the loans of all that the kernels touch. Nothing is allocated for
//! a checkpoint, and no result is waited for between the kernels.
//!
//! What a difference is made of is decided by the data alone, never by the order in which threads
//! come: the bytes are those of [`crate::Lineage`].
//!
//! ```no_run
//! # fn main() -> tierflow_dedup::Result<()> {
//! use tierflow_dedup::{Config, Method, gpu};
//! let device = tierflow_device::open(tierflow_device::Choice::Cuda { ordinal: 0 })?;
//! let stream = device.stream()?;
//! let state = device.alloc(1 << 30)?; // the application's
//!
//! let kernels = gpu::Kernels::load(&device)?;
//! let mut lineage = gpu::Lineage::new(&kernels, Config::new(Method::Tree), 1 << 30)?;
//! // Host memory for one difference, which is pinned so that the kernels can write to it.
//! let room = gpu::pinned(&device, lineage.most_stored_bytes())?;
//! let landing = gpu::Landing::pinned(&room, 0..lineage.most_stored_bytes())?;
//!
//! let encoding = lineage.encode(&stream, 1, state.lend(0..1 << 30)?, landing);
//! let done = encoding.wait();
//! println!("{} bytes to store", done.result?.stored_bytes);
//! # Ok(()) }
//! ```

mod encode;
mod flight;
mod kernels;
mod landing;
mod lineage;
mod past;
mod plan;
mod report;
mod resident;
mod state;

pub use encode::{Encoded, Encoding};
pub use kernels::Kernels;
pub use landing::{Landing, pinned};
pub use lineage::Lineage;
pub use resident::{Resident, Restored, Restoring, head};
