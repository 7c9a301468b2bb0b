//! Advice to the driver on managed memory, and the attributes that it can be asked for.

use crate::info::Place;

/// How bytes of [managed memory](crate::Device::alloc_managed) will be used (`cuMemAdvise`). Advice moves
/// nothing by itself: it says what the driver does when it moves bytes, or finds them elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Bytes stay where they are preferred, once they are there, and others reach them from afar, as far as they
    /// can; where they are not, the driver moves them away first when it needs room.
    PreferredLocation(Place),
    /// The driver decides again.
    NoPreferredLocation,
    /// The device has the bytes mapped wherever they lie, so that it reaches them without a fault, over the bus if
    /// need be.
    AccessedByDevice,
    /// The device has them mapped when it has touched them.
    NotAccessedByDevice,
}

/// What the driver can be asked about managed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RangeAttribute {
    PreferredLocation,
    LastPrefetch,
}
