//! Cases for every kind of host memory that a device uses.

use super::{CaseResult, Expect, holds, pattern, require, write};
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::info::Kind;
use crate::info::Place;
use crate::memory::Memory;
use crate::pinned::Pinned;

const MIB: usize = 1 << 20;

/// Copies bytes in and out, by the device and by the processor.
pub(super) fn carries(device: &Device, host: &Memory, seed: u64) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    require!(host.place() == Place::Host, "it is host memory");
    require!(host.host_accessible(), "the processor reaches it");
    let len = host.len().min(5 * MIB) - 2;
    let inner = device.alloc(len).expect_ok("allocating")?;
    let bytes = pattern(seed, len);
    write(&stream, &inner, 0, &bytes)?;
    let src = inner.lend(0..len).expect_ok("lending")?;
    let mut dst = host.lend_mut(1..len + 1).expect_ok("lending")?;
    stream
        .copy_now(&src, &mut dst)
        .expect_ok("copying to the host")?;
    let seen = dst.bytes().expect_ok("reaching the bytes")?;
    require!(seen == bytes, "the processor sees other bytes");
    let other = pattern(seed + 1, len);
    dst.bytes_mut()
        .expect_ok("reaching the bytes")?
        .copy_from_slice(&other);
    drop((src, dst));
    let src = host.lend(1..len + 1).expect_ok("lending")?;
    let dst = inner.lend_mut(0..len).expect_ok("lending")?;
    stream
        .copy_all([(src, dst)])
        .expect_ok("copying to the device")?;
    holds(&stream, &inner, 0, &other)
}

pub(super) fn pinned(device: &Device) -> CaseResult {
    let (memory, pinned) = device.alloc_pinned(5 * MIB).expect_ok("allocating")?;
    let said = match pinned {
        Pinned::Yes => true,
        // A driver pins all memory that it allocates; without a driver there are limits.
        Pinned::No(_) => device.info().kind == Kind::Host,
    };
    require!(said, "memory of the driver's is not pinned");
    carries(device, &memory, 40)?;
    let refused = device.alloc_pinned(1 << 46);
    require!(
        matches!(refused, Err(Error::OutOfMemory { .. })),
        "64 TiB of pinned memory are not out of memory"
    );
    let empty = device.alloc_pinned(0);
    require!(
        matches!(empty, Err(Error::Invalid(Invalid::Empty))),
        "0 bytes were pinned"
    );
    Ok(())
}

pub(super) fn pinned_chunks(device: &Device) -> CaseResult {
    let node = device.numa_node().unwrap_or(0);
    let reserved = device.reserve_pinned(5 * MIB, node);
    if device.info().kind == Kind::Host {
        let refused = matches!(reserved, Err(Error::Invalid(Invalid::NotCuda { .. })));
        require!(refused, "chunks of a driver that is not there");
        return Ok(());
    }
    let reservation = reserved.expect_ok("reserving")?;
    let (memory, granularity) = (reservation.memory(), reservation.granularity());
    require!(
        memory.lend(0..1).is_err(),
        "lent before anything was mapped"
    );
    for start in (0..memory.len()).step_by(granularity) {
        reservation
            .map(start..start + granularity)
            .expect_ok("mapping")?;
    }
    carries(device, memory, 50)
}

pub(super) fn nodes(device: &Device) -> CaseResult {
    let host = device.reserve_host(4 * MIB).expect_ok("reserving")?;
    let node = device.numa_node().unwrap_or(0);
    // A container may forbid the call; a refusal changes nothing.
    let _granted = host.prefer_node(node).is_ok();
    require!(host.prefer_node(5000).is_err(), "node 5000 was preferred");
    host.small_pages().expect_ok("asking for small pages")?;
    host.touch(0..4 * MIB).expect_ok("touching")?;
    require!(host.node_of(4 * MIB).is_err(), "a byte beyond has a node");
    carries(device, host.memory(), 70)
}

pub(super) fn shared(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    // A device reaches itself; the machine decides which others it reaches.
    let same = [device.clone()];
    let reservation = device
        .reserve_shared(MIB, &same)
        .expect_ok("reserving for a peer")?;
    let granularity = reservation.granularity();
    reservation.map(0..granularity).expect_ok("mapping")?;
    let bytes = pattern(80, 1000);
    write(&stream, reservation.memory(), 5, &bytes)?;
    holds(&stream, reservation.memory(), 5, &bytes)
}
