//! Small copies that the processor makes between the application's memory and the fastest tier. The plan is told of each such call in one
//! event, under one lock.

use super::call_table::PlanState;
use super::core::EngineCore;
use crate::blocked::{CallClock, Cause};
use crate::plan::{Event, Place};
use crate::{Region, RegionMut, Version};
use smallvec::SmallVec;
use std::hint::black_box;
use tierflow_device::{Access, Device, Memory, Place as Side, ReadLoan, WriteLoan};
use tierflow_store::container::RegionInfo;

/// Bytes that the processor copies in less time than the plan takes for a call.
const MOST_BYTES: u64 = 4096;

/// A checkpoint that is not taken in yet.
#[derive(Debug)]
pub(crate) struct NewVersion {
    pub(crate) version: Version,
    pub(crate) size: u64,
    /// True for a checkpoint without bytes, which the plan counts as one byte.
    pub(crate) is_empty: bool,
    pub(crate) layout: Option<Vec<RegionInfo>>,
    /// The error that its call allows.
    pub(crate) error: Option<f64>,
}

impl NewVersion {
    /// Returns a version of `size` bytes without named regions.
    pub(crate) fn plain(version: Version, size: u64) -> Self {
        Self {
            version,
            size,
            is_empty: false,
            layout: None,
            error: None,
        }
    }
}

impl EngineCore {
    /// Takes in a version that is small, and for which the fastest tier has room now. Returns false if the plan has to be asked.
    pub(crate) fn write_at_once(
        &self,
        new: &mut NewVersion,
        regions: &[Region<'_>],
        clock: &mut CallClock<'_>,
    ) -> bool {
        let NewVersion { version, size, .. } = *new;
        let is_reached = |region: &Region<'_>| match region.plain() {
            Region::Memory(memory, _) => memory.host_accessible(),
            Region::Bytes(_) | Region::Named { .. } => true,
        };
        if size > MOST_BYTES || !regions.iter().all(is_reached) {
            return false;
        }
        touch_to_read(regions);
        let Some(mut core) = self.try_lock() else {
            return false;
        };
        let place = core.plan().place_to_write(version, size);
        let is_free = |place: &Place| !self.pending.is_any_before(place, Access::Write);
        let Some(place) = place.filter(is_free) else {
            return false;
        };
        clock.part(Cause::Plan);
        let medium = &self.tiers[place.tier.0].medium;
        let lent = medium.lend_mapped_mut(place.offset..place.offset + size);
        let copied = lent.and_then(|mut lent| gather(regions, &mut lent));
        if copied.is_none() {
            return false;
        }
        clock.part(Cause::Copy);
        self.note(Some(&core), new);
        let written = Event::WrittenAtOnce { version, size };
        self.handle_all(&mut core, clock.last_ns(), [written]);
        true
    }

    /// Reads a version that is small and lies on the fastest tier. Returns false if the plan has to be asked.
    pub(crate) fn read_at_once(
        &self,
        core: &mut PlanState,
        version: Version,
        regions: &mut [RegionMut<'_>],
        clock: &mut CallClock<'_>,
    ) -> bool {
        let place = core.plan().place_to_read(version);
        let is_near = |place: &Place| {
            place.size <= MOST_BYTES && !self.pending.is_any_before(place, Access::Read)
        };
        let Some(place) = place.filter(is_near) else {
            return false;
        };
        clock.part(Cause::Plan);
        let medium = &self.tiers[place.tier.0].medium;
        let lent = medium.lend_mapped(place.offset..place.offset + place.size);
        let copied = lent.and_then(|lent| scatter(&lent, regions));
        if copied.is_none() {
            return false;
        }
        clock.part(Cause::Copy);
        self.handle_all(core, clock.last_ns(), [Event::ReadAtOnce { version }]);
        true
    }

    /// Notes the layout of a new version, and whether it has bytes. `core`: the plan's lock, if the caller has it.
    pub(crate) fn note(&self, core: Option<&PlanState>, new: &mut NewVersion) {
        let version = new.version;
        let are_many = self.empties.note(version, new.is_empty);
        let some = self.layouts.note(version, new.layout.take(), new.error);
        let forget = |core: &PlanState| {
            // The plan may not know the new version yet.
            let is_held = |one| one == version || core.plan().size_of(one).is_some();
            self.layouts.retain(&some, is_held);
            if are_many {
                self.empties.retain(is_held);
            }
        };
        match core {
            _ if some.is_empty() && !are_many => {}
            Some(core) => forget(core),
            None => forget(&self.lock()),
        }
    }
}

/// Touches small memory that a version is made of, so that its page faults are served before the lock is taken.
fn touch_to_read(regions: &[Region<'_>]) {
    for region in regions {
        if let Region::Bytes(bytes) = region.plain() {
            black_box((bytes.first().copied(), bytes.last().copied()));
        }
    }
}

/// Touches small memory to which a version is restored, so that its page faults are served before the lock is taken.
pub(crate) fn touch_to_write(bytes: u64, regions: &mut [RegionMut<'_>]) {
    if bytes > MOST_BYTES {
        return;
    }
    for region in regions {
        if let RegionMut::Bytes(bytes) = region {
            for at in [0, bytes.len().saturating_sub(1)] {
                // Only a write gives a page memory of its own.
                bytes
                    .get_mut(at)
                    .into_iter()
                    .for_each(|byte| *byte = black_box(*byte));
            }
        }
    }
}

/// Copies the bytes of all regions to `into`, one region after the other. Returns `None` if the processor does not reach all regions and
/// `into`. A part of `into` may be written then.
fn gather(regions: &[Region<'_>], into: &mut WriteLoan) -> Option<()> {
    let (side, device) = (into.place(), into.device().clone());
    let mut rest = into.bytes_mut().ok()?;
    for region in regions {
        let (part, behind) = std::mem::take(&mut rest).split_at_mut_checked(region.len())?;
        rest = behind;
        match region.plain() {
            Region::Bytes(bytes) => part.copy_from_slice(bytes),
            Region::Memory(memory, of) if is_beside(memory, side, &device) => {
                part.copy_from_slice(memory.lend(of.clone()).ok()?.bytes().ok()?);
            }
            // A plain region is not named.
            Region::Memory(..) | Region::Named { .. } => return None,
        }
    }
    Some(())
}

/// Copies the bytes of `from` to all regions, one region after the other. Returns `None`, and changes no region, if a region is lent
/// already, or if the processor does not reach all regions and `from`.
fn scatter(from: &ReadLoan, regions: &mut [RegionMut<'_>]) -> Option<()> {
    let mut loans: SmallVec<[Option<WriteLoan>; 2]> = SmallVec::new();
    for region in &*regions {
        loans.push(match region {
            RegionMut::Memory(memory, of) if is_beside(memory, from.place(), from.device()) => {
                Some(memory.lend_mut(of.clone()).ok()?)
            }
            RegionMut::Memory(..) => return None,
            RegionMut::Bytes(_) => None,
        });
    }
    let mut rest = from.bytes().ok()?;
    for (region, loan) in regions.iter_mut().zip(&mut loans) {
        let (part, behind) = rest.split_at_checked(region.len())?;
        rest = behind;
        match (region, loan) {
            (_, Some(loan)) => loan.bytes_mut().ok()?.copy_from_slice(part),
            (RegionMut::Bytes(bytes), None) => bytes.copy_from_slice(part),
            // Each region of memory is lent.
            (RegionMut::Memory(..), None) => return None,
        }
    }
    Some(())
}

/// Returns true if the processor reaches `memory`, and no link lies between that and other memory of this side and device.
fn is_beside(memory: &Memory, side: Side, device: &Device) -> bool {
    memory.host_accessible()
        && memory.place() == side
        && (side == Side::Host || memory.device().is_same(device))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use crate::{Engine, Region, RegionMut};
    use std::io::{Read, Seek, SeekFrom};
    use std::time::{Duration, Instant};
    use tierflow_device::{Choice, open};

    const PAGE: usize = 4096;

    /// Returns true if the page of a byte has memory: the highest bit of its entry in the page map.
    fn is_resident(address: usize) -> bool {
        let mut map = std::fs::File::open("/proc/self/pagemap").unwrap();
        map.seek(SeekFrom::Start((address / PAGE * 8) as u64))
            .unwrap();
        let mut entry = [0; 8];
        map.read_exact(&mut entry).unwrap();
        u64::from_le_bytes(entry) >> 63 == 1
    }

    /// Calls while the plan's lock is held. Returns true if each page has memory while the call waits for the lock.
    fn is_touched(engine: &Engine, addresses: [usize; 2], call: impl FnOnce() + Send) -> bool {
        assert!(!addresses.into_iter().any(is_resident));
        let held = engine.shared.lock();
        std::thread::scope(|scope| {
            let called = scope.spawn(call);
            let begun = Instant::now();
            let are_resident = || addresses.into_iter().all(is_resident);
            while !are_resident() && begun.elapsed() < Duration::from_secs(30) {
                std::thread::yield_now();
            }
            let touched = are_resident();
            drop(held);
            called.join().unwrap();
            touched
        })
    }

    #[test]
    fn small_memory_of_the_caller_is_touched_before_the_lock_is_taken() {
        let device = open(Choice::Host).unwrap();
        let engine = Engine::builder(&device)
            .device_cache(1 << 20)
            .build()
            .unwrap();
        // So much memory comes from the system, and nobody used it yet. The bytes lie on two pages of it.
        let (from, mut to) = (vec![0_u8; 64 << 20], vec![0_u8; 64 << 20]);
        let inside = (32 << 20) + 7..(32 << 20) + PAGE + 7;
        let ends = |bytes: &[u8]| {
            let first = bytes.as_ptr() as usize;
            [first, first + bytes.len() - 1]
        };
        let (from, to) = (&from[inside.clone()], &mut to[inside]);
        let write = || engine.checkpoint(1, &[Region::from(from)]).unwrap();
        assert!(is_touched(&engine, ends(from), write));
        let ends = ends(to);
        let read = || engine.restore(1, &mut [RegionMut::from(to)]).unwrap();
        assert!(is_touched(&engine, ends, read));
    }
}
