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
    /// The node to take pages from, if it matters.
    pub(super) node: Option<u32>,
}

impl Wanted<'_> {
    /// Host addresses, and why they will not be of the wanted node, if so.
    pub(super) fn reserve(&self) -> Result<(HostReservation, Option<tierflow_device::Error>)> {
        let reservation = self.device.reserve_host(self.capacity)?;
        let refused = self
            .node
            .and_then(|node| reservation.prefer_node(node).err());
        Ok((reservation, refused))
    }
}

/// The memory that an arena begins with, and how far it is usable, touched and pinned.
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
    /// Nothing usable, touched or pinned yet.
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

    /// All usable, nothing touched or pinned yet.
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
    /// Addresses of ours.
    Reserved(HostReservation),
    /// Addresses that the driver puts memory behind.
    #[cfg(feature = "baselines")]
    Chunks(Reservation),
    /// Memory of the driver's.
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
