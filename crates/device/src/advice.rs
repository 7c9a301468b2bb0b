//! Advice to the driver on managed memory, and the attributes that the driver reports.

use crate::info::Place;

/// How a program will use bytes of [managed memory](crate::Device::alloc_managed) (`cuMemAdvise`). Advice moves no
/// bytes; the driver follows it at page faults and when it moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Bytes stay at the preferred place once they are there, and other processors access them from afar if they can.
    /// Elsewhere, the driver evicts them first when it needs memory.
    PreferredLocation(Place),
    /// Takes [`PreferredLocation`](Self::PreferredLocation) back.
    NoPreferredLocation,
    /// The device keeps the bytes mapped wherever they lie, and accesses them without a fault, over the bus if need be.
    AccessedByDevice,
    /// Takes [`AccessedByDevice`](Self::AccessedByDevice) back: the device maps the bytes at its first access.
    NotAccessedByDevice,
}

/// Attributes of managed bytes that the driver reports.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RangeAttribute {
    PreferredLocation,
    LastPrefetch,
}
