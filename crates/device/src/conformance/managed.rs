//! Cases for managed memory: advice, and moves ahead of use. The host back end has no driver that moves bytes, and
//! refuses it.

use super::{CaseResult, Expect, holds, host_memory, pattern, require, write};
use crate::advice::Advice;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::info::Kind;
use crate::info::Place;
use crate::memory::Memory;

const MIB: usize = 1 << 20;

/// Allocates the memory of a case. Returns `None` on the host back end, after checking that it refuses.
fn managed(device: &Device, len: usize) -> Result<Option<Memory>, String> {
    let allocated = device.alloc_managed(len);
    if device.info().kind == Kind::Cuda {
        return allocated.expect_ok("allocating").map(Some);
    }
    let refused = matches!(allocated, Err(Error::Invalid(Invalid::NotCuda { .. })));
    require!(refused, "memory managed by a driver that is not there");
    Ok(None)
}

pub(super) fn carries(device: &Device) -> CaseResult {
    let Some(memory) = managed(device, 5 * MIB)? else {
        return Ok(());
    };
    host_memory::carries(device, &memory, 60)?;
    let free = device.free_bytes().expect_ok("asking")? as usize;
    let most = device.alloc_managed(free + (1 << 30));
    require!(
        matches!(most, Err(Error::OutOfMemory { .. })),
        "more than the free memory is managed"
    );
    Ok(())
}

pub(super) fn advises(device: &Device) -> CaseResult {
    let Some(memory) = managed(device, 8 * MIB)? else {
        return Ok(());
    };
    let stream = device.stream().expect_ok("making a stream")?;
    let bytes = pattern(61, 8 * MIB);
    write(&stream, &memory, 0, &bytes)?;
    let half = 4 * MIB;
    let preferred = |range| memory.preferred_location(range).expect_ok("asking");
    require!(
        preferred(0..8 * MIB)?.is_none(),
        "preferred before any advice was given"
    );
    for place in [Place::Host, Place::Device] {
        let advice = Advice::PreferredLocation(place);
        memory.advise(0..half, advice).expect_ok("advising")?;
        require!(
            preferred(0..half)? == Some(place),
            "{place:?} is not preferred"
        );
        require!(
            preferred(half..2 * half)?.is_none(),
            "the other half is preferred too"
        );
        require!(
            preferred(0..2 * half)?.is_none(),
            "both halves are preferred at one place"
        );
    }
    for advice in [
        Advice::AccessedByDevice,
        Advice::NoPreferredLocation,
        Advice::NotAccessedByDevice,
    ] {
        memory.advise(0..half, advice).expect_ok("advising")?;
    }
    require!(preferred(0..half)?.is_none(), "advice was not taken back");
    holds(&stream, &memory, 0, &bytes)
}

pub(super) fn prefetches(device: &Device) -> CaseResult {
    let Some(memory) = managed(device, 8 * MIB)? else {
        return Ok(());
    };
    let stream = device.stream().expect_ok("making a stream")?;
    let near = memory.seen_from(Place::Device).expect_ok("seeing it")?;
    require!(
        near.place() == Place::Device && memory.place() == Place::Host,
        "a place changed, or did not"
    );
    let all = 0..8 * MIB;
    let own = device.alloc(8 * MIB).expect_ok("allocating")?;
    for (round, place) in [Place::Device, Place::Host, Place::Device]
        .into_iter()
        .enumerate()
    {
        // The device writes the bytes on one side; then the driver moves them to the other, where device and processor
        // read them.
        let bytes = pattern(62 + round as u64, 8 * MIB);
        write(&stream, &own, 0, &bytes)?;
        let (src, dst) = (own.lend(all.clone()), near.lend_mut(all.clone()));
        let copy = (src.expect_ok("lending")?, dst.expect_ok("lending")?);
        stream.copy_all([copy]).expect_ok("copying")?;
        let migration = stream.prefetch(&memory, all.clone(), place);
        let migration = migration.expect_ok("prefetching")?;
        // A prefetch takes no loan and waits for none.
        let held = memory.lend(all.clone()).expect_ok("lending")?;
        migration.wait().expect_ok("moving")?;
        require!(
            memory.last_prefetch(all.clone()).expect_ok("asking")? == Some(place),
            "not prefetched to {place:?}"
        );
        stream
            .fill(&mut own.lend_mut(all.clone()).expect_ok("lending")?, 0)
            .expect_ok("filling")?;
        let (src, dst) = (near.lend(all.clone()), own.lend_mut(all.clone()));
        let copy = (src.expect_ok("lending")?, dst.expect_ok("lending")?);
        stream.copy_all([copy]).expect_ok("copying")?;
        holds(&stream, &own, 0, &bytes)?;
        require!(
            held.bytes().expect_ok("reaching the bytes")? == bytes,
            "the processor sees other bytes"
        );
    }
    require!(
        near.lend_mut(0..1).is_ok() && memory.live_loans() == 0,
        "loans were left"
    );
    let _lent = near.lend_mut(0..1).expect_ok("lending")?;
    require!(
        memory.lend(0..1).is_err(),
        "bytes lent for writing were lent from the other side"
    );
    // The migration owns the memory while it moves.
    let gone = device.alloc_managed(8 * MIB).expect_ok("allocating")?;
    let migration = stream.prefetch(&gone, 0..8 * MIB, Place::Device);
    drop(gone);
    drop(migration.expect_ok("prefetching")?);
    Ok(())
}

pub(super) fn refuses(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let is_cuda = device.info().kind == Kind::Cuda;
    for other in [
        device.alloc(MIB).expect_ok("allocating")?,
        device.alloc_pinned(MIB).expect_ok("allocating")?.0,
    ] {
        let advice = Advice::PreferredLocation(Place::Host);
        for refused in [
            other.advise(0..MIB, advice),
            other.preferred_location(0..MIB).map(drop),
            other.last_prefetch(0..MIB).map(drop),
            other.seen_from(Place::Device).map(drop),
            stream.prefetch(&other, 0..MIB, Place::Host).map(drop),
        ] {
            let as_expected = match &refused {
                Err(Error::Invalid(Invalid::NotManaged { .. })) => is_cuda,
                Err(Error::Invalid(Invalid::NotCuda { .. })) => !is_cuda,
                _ => false,
            };
            require!(as_expected, "memory that is not managed: {refused:?}");
        }
    }
    let Some(memory) = managed(device, MIB)? else {
        return Ok(());
    };
    let beyond = stream.prefetch(&memory, 0..MIB + 1, Place::Device);
    require!(
        matches!(beyond, Err(Error::Invalid(Invalid::OutOfBounds { .. }))),
        "bytes beyond the end were prefetched"
    );
    let nothing = memory.advise(MIB..MIB, Advice::AccessedByDevice);
    require!(
        matches!(nothing, Err(Error::Invalid(Invalid::Empty))),
        "advice on nothing was taken"
    );
    Ok(())
}
