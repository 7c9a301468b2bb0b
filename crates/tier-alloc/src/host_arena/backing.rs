//! The description of an arena to be made, and the memory that it begins with.

#[cfg(feature = "baselines")]
use tierflow_device::Reservation;
use tierflow_device::{Device, HostReservation, Memory, WhyUnpinned};

use crate::error::Result;
use crate::watermark::Watermark;

/// An arena to be made.
pub(super) struct Wanted<'a> {
    pub(super) device: &'a Device,
    pub(super) capacity: usize,
    /// The node to take pages from; `None` for any.
    pub(super) node: Option<u32>,
}

impl Wanted<'_> {
    /// Reserves host addresses. Returns them, and the error if the system refused to take pages from the wanted node.
    pub(super) fn reserve(&self) -> Result<(HostReservation, Option<tierflow_device::Error>)> {
        let reservation = self.device.reserve_host(self.capacity)?;
        let refused = self
            .node
            .and_then(|node| reservation.prefer_node(node).err());
        Ok((reservation, refused))
    }
}

/// The memory that an arena begins with, and the bytes of it that are usable, touched and pinned, as levels.
#[derive(Debug)]
pub(super) struct InitialBacking {
    pub(super) backing: Backing,
    pub(super) usable: Watermark,
    pub(super) touched: Watermark,
    pub(super) pinned: Watermark,
    pub(super) why_unpinned: Option<WhyUnpinned>,
    pub(super) why_not_node: Option<tierflow_device::Error>,
}

impl InitialBacking {
    /// Makes the state in which no byte is usable, touched or pinned.
    pub(super) fn nothing_yet(backing: Backing) -> Self {
        Self {
            backing,
            usable: Watermark::default(),
            touched: Watermark::default(),
            pinned: Watermark::default(),
            why_unpinned: None,
            why_not_node: None,
        }
    }

    /// Makes the state in which all bytes are usable, and none is touched or pinned.
    pub(super) fn usable(backing: Backing) -> Self {
        let usable = Watermark::at(backing.memory().len());
        Self {
            usable,
            ..Self::nothing_yet(backing)
        }
    }
}

/// The kinds of an arena's memory.
#[derive(Debug)]
pub(super) enum Backing {
    /// Addresses that the operating system mapped.
    Reserved(HostReservation),
    /// Addresses that the driver puts memory behind.
    #[cfg(feature = "baselines")]
    Chunks(Reservation),
    /// Memory that the driver allocated in one call.
    #[cfg(feature = "baselines")]
    Whole(Memory),
}

impl Backing {
    pub(super) fn memory(&self) -> &Memory {
        match self {
            Self::Reserved(reservation) => reservation.memory(),
            #[cfg(feature = "baselines")]
            Self::Chunks(reservation) => reservation.memory(),
            #[cfg(feature = "baselines")]
            Self::Whole(memory) => memory,
        }
    }

    pub(super) fn reserved(&self) -> Option<&HostReservation> {
        match self {
            Self::Reserved(reservation) => Some(reservation),
            #[cfg(feature = "baselines")]
            Self::Chunks(_) | Self::Whole(_) => None,
        }
    }
}
