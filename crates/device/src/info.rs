//! What a device is, the ways between devices, and the sides of the bus.

/// Which back end a device runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An NVIDIA GPU.
    Cuda,
    /// Plain memory; copies are made by the calling thread.
    Host,
}

/// What a device is. Everything but [`free_bytes`](Self::free_bytes) stays as it is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// The back end.
    pub kind: Kind,
    /// The GPU's number, 0 on the host back end.
    pub ordinal: usize,
    /// The name to show to people.
    pub name: String,
    /// Bytes of device memory.
    pub total_bytes: u64,
    /// Bytes of device memory that were free when the device was opened;
    /// [`Device::free_bytes`](crate::Device::free_bytes) asks anew.
    pub free_bytes: u64,
    /// Multiprocessors of the GPU; threads that can run at once on the host back end.
    pub multiprocessors: u32,
    /// What a [`Reservation`](crate::Reservation) maps in multiples of, in bytes.
    pub granularity: usize,
    /// The CUDA version that the driver supports, as 1000 × major + 10 × minor; 0 on the host back
    /// end.
    pub driver_version: i32,
    /// Whether the processor can read and write the device's memory in place.
    pub host_accessible: bool,
}

/// What the driver says of the way by which one device reaches another's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PeerLink {
    /// The driver's own figure by which it ranks ways: to be compared within one machine, and with
    /// nothing else.
    pub performance_rank: i32,
    /// Whether atomic operations work across it in hardware: over NVLink they do, over PCIe they do
    /// not.
    pub native_atomics: bool,
}

/// On which side of the bus memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The device's own memory (on the host back end: memory that stands for it).
    Device,
    /// The machine's main memory.
    Host,
}
