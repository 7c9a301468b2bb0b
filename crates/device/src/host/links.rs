//! The links of a host device. A test or an experiment observes the copies over them, and may slow them down.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tierflow_sync::{Mutex, rank};

use crate::backend::Copy;
use crate::info::Place;

/// A copy over a link of a host device.
#[cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "public with `testing` alone")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCopy {
    /// The number of the peer whose memory is at the other end; `None` for host memory.
    pub peer: Option<usize>,
    /// The number of bytes.
    pub bytes: u64,
}

/// A function that is called before each copy over a link.
#[cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "public with `testing` alone")
)]
pub type OnLink = Arc<dyn Fn(LinkCopy) + Send + Sync>;

/// The function that is called for copies over the links of a device, and the peers' memory that it needs. `None` without
/// a function: then nothing is noted.
#[derive(Clone, Default)]
pub(super) struct Links(Option<Arc<Heard>>);

struct Heard {
    on_link: OnLink,
    /// Memory of peers that is mapped for the device, by its first address: the length and the peer's number.
    mapped: Mutex<BTreeMap<u64, (usize, usize)>, { rank::DEVICE_LEAF }>,
}

impl Links {
    #[cfg(feature = "testing")]
    pub(super) fn heard_by(on_link: OnLink) -> Self {
        Self(Some(Arc::new(Heard {
            on_link,
            mapped: Mutex::default(),
        })))
    }

    /// Notes that memory of the device `owner` is mapped.
    pub(super) fn mapped(&self, address: u64, len: usize, owner: usize) {
        if let Some(heard) = &self.0 {
            heard.mapped.lock().insert(address, (len, owner));
        }
    }

    pub(super) fn unmapped(&self, address: u64) {
        if let Some(heard) = &self.0 {
            heard.mapped.lock().remove(&address);
        }
    }

    /// Calls the function if the copy crosses a link.
    pub(super) fn hear(&self, copy: &Copy) {
        let Some(heard) = &self.0 else {
            return;
        };
        let peer = heard.owner(copy.dst).or_else(|| heard.owner(copy.src));
        let is_host = |place| place == Place::Host;
        if peer.is_some() || is_host(copy.src_place) != is_host(copy.dst_place) {
            let bytes = copy.len as u64;
            (heard.on_link)(LinkCopy { peer, bytes });
        }
    }
}

impl Heard {
    /// Returns the number of the peer whose memory is mapped at this address.
    fn owner(&self, address: u64) -> Option<usize> {
        let mapped = self.mapped.lock();
        let (start, &(len, owner)) = mapped.range(..=address).next_back()?;
        (address - start < len as u64).then_some(owner)
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Links").field(&self.0.is_some()).finish()
    }
}
