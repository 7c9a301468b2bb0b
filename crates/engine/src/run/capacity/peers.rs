//! Memory that peers lend. When its owner wants it back, or is gone, the plan empties it first: versions with a lower copy are
//! given up, the others are flushed.

use super::{CapacityOwner, EngineCore, EventFd, Notices, PeerMemory, start as start_thread};
use crate::builder::tier::AnyTier;
use crate::plan::TierId;
use crate::{Error, Result, Tier};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tierflow_device::Device;
use tierflow_peers::PeerCache;
use tierflow_sync::model::JoinHandle;
use tierflow_transfer::MemoryMedium;

impl Tier {
    /// Returns a tier of peers' spare memory, between the device's memory and the host's. Versions that overflow the device's memory go
    /// there over the links between devices, several times as fast as to the host, and come back that way. A peer that wants its memory
    /// back has it once the versions there were flushed, or given up where a lower copy exists; so the tier needs another one below.
    #[must_use]
    pub fn peers(cache: PeerCache) -> Self {
        let medium = MemoryMedium::of_peers(cache.memory().clone());
        let cache = Arc::new(cache);
        Self(AnyTier::Peers(Arc::new(Peers { cache, medium })))
    }
}

impl From<tierflow_peers::Error> for Error {
    fn from(error: tierflow_peers::Error) -> Self {
        match error {
            tierflow_peers::Error::Device { why, .. } => Self::Device(why),
            error => Self::Memory(Box::new(error)),
        }
    }
}

impl PeerMemory for Peers {
    fn medium(&self) -> &MemoryMedium {
        &self.medium
    }

    fn part_end(&self, offset: u64) -> u64 {
        self.cache.part_end(offset)
    }

    fn is_of(&self, device: &Device) -> bool {
        self.cache.memory().device().is_same(device)
    }

    fn start(&self, shared: &Arc<EngineCore>, tier: TierId) -> Result<JoinHandle<()>> {
        let cache = Arc::clone(&self.cache);
        let usable = cache.usable() as u64;
        let join = |wake| {
            cache.wake_by(&wake);
            PeerOwner(cache)
        };
        start_thread(shared, tier, usable, 0, join, drop)
    }
}

/// Memory of peers as a tier.
#[derive(Debug)]
struct Peers {
    cache: Arc<PeerCache>,
    medium: MemoryMedium,
}

/// The peers that lend the memory of a tier.
struct PeerOwner(Arc<PeerCache>);

impl CapacityOwner for PeerOwner {
    fn wait(&mut self, event: &EventFd, limit: Option<Duration>) {
        let recalls = self.0.recalls();
        let recalls: Vec<_> = recalls.iter().map(AsFd::as_fd).collect();
        event.wait(&recalls, limit);
    }

    fn terms(&mut self, _: &EngineCore, _: &Notices) -> Result<Option<u64>> {
        Ok(self.0.wanted().map(|bytes| bytes as u64))
    }

    fn grow(&mut self, _: &EngineCore, _: u64) -> Result<()> {
        Ok(())
    }

    fn take_back(&mut self, shared: &EngineCore, durable: u64) -> Result<u64> {
        match self.0.give_back(durable as usize) {
            // A part could not be moved up, and is gone.
            Err(error) if self.0.wanted().is_none() => {
                shared.lock().calls.last_failure = Some(Arc::new(error.into()));
                Ok(self.0.usable() as u64)
            }
            given => Ok(given? as u64),
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::super::super::housekeeping::Housekeeping;
    use super::*;
    use crate::Engine;
    use std::sync::OnceLock;
    use tierflow_device::host;
    use tierflow_peers::Part;

    /// Memory of peers whose thread cannot be started. Keeps the engine's housekeeping.
    #[derive(Debug)]
    struct Unstarted(MemoryMedium, OnceLock<Arc<Housekeeping>>);

    impl PeerMemory for Unstarted {
        fn medium(&self) -> &MemoryMedium {
            &self.0
        }

        fn part_end(&self, _: u64) -> u64 {
            u64::MAX
        }

        fn is_of(&self, _: &Device) -> bool {
            true
        }

        fn start(&self, shared: &Arc<EngineCore>, _: TierId) -> Result<JoinHandle<()>> {
            self.1.get_or_init(|| Arc::clone(&shared.housekeeping));
            Err(Error::Internal { what: "a test" })
        }
    }

    #[test]
    fn an_engine_that_cannot_be_built_leaves_no_thread() {
        let directory = tempfile::tempdir().unwrap();
        let device = host::open(host::Options::default()).unwrap();
        let medium = MemoryMedium::of_peers(device.alloc(1 << 20).unwrap());
        let peers = Arc::new(Unstarted(medium, OnceLock::new()));
        let tier = Tier(AnyTier::Peers(Arc::clone(&peers) as _));
        let builder = Engine::builder(&device).tier(tier);
        builder.node_local(directory.path()).build().unwrap_err();
        let housekeeping = peers.1.get().unwrap();
        assert_eq!(Arc::strong_count(housekeeping), 1);
    }

    #[test]
    fn memory_recalled_while_other_memory_goes_back_stays_until_it_is_empty() {
        let device = |ordinal| host::open(host::Options::default().ordinal(ordinal)).unwrap();
        let own = device(0);
        let engine = Engine::builder(&own).host_cache(1 << 20).build().unwrap();
        let (parts, recalls): (Vec<_>, Vec<_>) = [1, 2]
            .map(|peer| Part::on(&device(peer), 1 << 20))
            .into_iter()
            .unzip();
        let cache = Arc::new(PeerCache::new(&own, parts).unwrap());
        let mut owner = PeerOwner(Arc::clone(&cache));
        recalls[1].ask();
        let limit = cache.wanted().unwrap() as u64;
        // Versions lie below the limit.
        recalls[0].ask();
        assert_eq!(owner.take_back(&engine.shared, limit).unwrap(), limit);
        assert!(recalls[1].is_returned() && !recalls[0].is_returned());
        assert_eq!(cache.usable() as u64, limit);
        assert_eq!(owner.take_back(&engine.shared, 0).unwrap(), 0);
        assert!(recalls[0].is_returned());
    }
}
