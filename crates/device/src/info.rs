//! Properties of devices and of links between them, and the sides of the bus.

/// The back end of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An NVIDIA GPU.
    Cuda,
    /// Plain memory; the calling thread makes the copies.
    Host,
}

/// Properties of a device. All but [`free_bytes`](Self::free_bytes) are constant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// The back end.
    pub kind: Kind,
    /// The GPU's number. On the host back end, the number that it was opened with: 0, unless a test chose another.
    pub ordinal: usize,
    /// A name for people.
    pub name: String,
    /// Bytes of device memory.
    pub total_bytes: u64,
    /// Bytes of device memory that were free when the device was opened; on the host back end without a limit, the memory that the
    /// system had available then.
    /// [`Device::free_bytes`](crate::Device::free_bytes) asks anew.
    pub free_bytes: u64,
    /// Multiprocessors of the GPU; on the host back end, threads that can run at once.
    pub multiprocessors: u32,
    /// Granularity of a [`Reservation`](crate::Reservation) in bytes: mapped ranges begin and end at multiples of it.
    pub granularity: usize,
    /// The CUDA version that the driver supports, as 1000 × major + 10 × minor; 0 on the host back end.
    pub driver_version: i32,
    /// True if the processor can read and write the device's memory in place.
    pub host_accessible: bool,
}

/// The driver's description of a link over which one device reaches another's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PeerLink {
    /// The driver's rank of the link, comparable only with other links of the machine.
    pub performance_rank: i32,
    /// True if the link has atomic operations in hardware, as NVLink has and PCIe has not.
    pub native_atomics: bool,
}

/// The side of the bus on which memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The device's own memory; on the host back end, memory that stands for it.
    Device,
    /// The machine's main memory.
    Host,
}
