//! The table of routes.

/// The kind of a medium, by the means that reach its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediumKind {
    /// Memory of the device, which only the device reaches.
    Device,
    /// Memory of other devices, which this device reaches over a link.
    Peer,
    /// A host arena. The device reaches the pinned parts of it.
    Pinned,
    /// Other memory that the processor reaches, such as that of the host's back end.
    Pageable,
    /// Storage that ends with the process, read and written in blocks.
    Scratch,
    /// A directory that keeps records.
    Directory,
    /// An object store that keeps records.
    Objects,
}

impl MediumKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Device,
        Self::Peer,
        Self::Pinned,
        Self::Pageable,
        Self::Scratch,
        Self::Directory,
        Self::Objects,
    ];

    /// Returns true if a device copies bytes of this kind asynchronously and the processor does not reach them.
    #[must_use]
    pub const fn is_on_device(self) -> bool {
        matches!(self, Self::Device | Self::Peer)
    }

    /// Returns true for arenas and other memory.
    #[must_use]
    pub const fn is_memory(self) -> bool {
        matches!(
            self,
            Self::Device | Self::Peer | Self::Pinned | Self::Pageable
        )
    }
}

/// The way in which bytes are copied from one kind of medium to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// The device copies.
    Stream,
    /// The host arena copies: by the device if the arena is pinned there, else through a ring of pinned buffers.
    Arena,
    /// The processor copies.
    Processor,
    /// Storage reads or writes the lent memory itself.
    InPlace,
    /// Two buffers: one is filled while the other is emptied.
    Buffers,
    /// By the device's library for files if that is faster, else by [`Buffers`](Self::Buffers).
    Straight,
    /// From record to record: head, identity and checksums stay the same.
    Verbatim,
}

/// Returns the route between two kinds. A copy takes [`Route::Buffers`] instead if its range does not start at a block of storage,
/// or if an end lends no memory and the route needs some.
#[must_use]
pub const fn route(from: MediumKind, to: MediumKind) -> Route {
    use MediumKind::{Device, Directory, Objects, Pageable, Peer, Pinned, Scratch};
    match (from, to) {
        (Device | Peer, Device | Peer | Pageable) | (Pageable, Device | Peer) => Route::Stream,
        (Device | Peer, Pinned) | (Pinned, Device | Peer) => Route::Arena,
        (Pinned | Pageable, Pinned | Pageable) => Route::Processor,
        (Pinned | Pageable, Scratch) | (Scratch, Pinned | Pageable) => Route::InPlace,
        (Directory | Objects, Pinned | Pageable) => Route::InPlace,
        (Device, Scratch) | (Scratch, Device) => Route::Straight,
        (Peer | Scratch, Scratch) | (Scratch, Peer) => Route::Buffers,
        (Device | Peer | Pinned | Pageable | Scratch, Directory | Objects) => Route::Buffers,
        (Directory | Objects, Device | Peer | Scratch) => Route::Buffers,
        (Directory | Objects, Directory | Objects) => Route::Verbatim,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_needs_no_buffers_and_records_are_copied_as_they_are() {
        for from in MediumKind::ALL {
            for to in MediumKind::ALL {
                let taken = route(from, to);
                let between_memories = from.is_memory() && to.is_memory();
                let is_direct = matches!(taken, Route::Stream | Route::Arena | Route::Processor);
                assert_eq!(is_direct, between_memories, "{from:?} {to:?}");
                let is_record = |kind| matches!(kind, MediumKind::Directory | MediumKind::Objects);
                let between_records = is_record(from) && is_record(to);
                assert_eq!(taken == Route::Verbatim, between_records, "{from:?} {to:?}");
            }
        }
    }

    #[test]
    fn a_route_back_is_the_same_but_for_records() {
        for from in MediumKind::ALL {
            for to in [
                MediumKind::Device,
                MediumKind::Peer,
                MediumKind::Pinned,
                MediumKind::Pageable,
                MediumKind::Scratch,
            ] {
                let is_record = !from.is_memory() && from != MediumKind::Scratch;
                assert!(is_record || route(from, to) == route(to, from));
            }
        }
    }
}
