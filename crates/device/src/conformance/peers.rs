//! Cases for two devices of one kind that reach each other's memory.

use super::{CaseResult, Expect, Failed, holds, pattern, require, write};
use crate::device::Device;
use crate::error::{Error, Invalid};

/// A case that every two peers must pass.
#[derive(Clone, Copy, Debug)]
pub struct PeerCase {
    /// The case's name.
    pub name: &'static str,
    check: fn(&Device, &Device) -> CaseResult,
}

impl PeerCase {
    /// Puts two devices through this case.
    ///
    /// # Errors
    ///
    /// [`Failed`] names the expectation that was not met.
    pub fn run(&self, device: &Device, peer: &Device) -> Result<(), Failed> {
        (self.check)(device, peer).map_err(|what| Failed {
            case: self.name,
            what,
        })
    }
}

/// Every case for two devices of one kind and different numbers that reach each other's memory. Each case needs less
/// than 64 MiB of either device's memory.
pub const PEER_CASES: &[PeerCase] = &[
    PeerCase {
        name: "peers: a way each way",
        check: linked,
    },
    PeerCase {
        name: "peers: chunks on a peer",
        check: chunks_on_a_peer,
    },
    PeerCase {
        name: "peers: unmapping gives the peer's memory back",
        check: unmapping,
    },
    PeerCase {
        name: "peers: a reservation shared with a peer",
        check: shared,
    },
    PeerCase {
        name: "peers: exported chunks are one memory",
        check: exported,
    },
    PeerCase {
        name: "peers: chunks of the wrong kind are refused",
        check: wrong_kind,
    },
];

fn linked(device: &Device, peer: &Device) -> CaseResult {
    require!(!device.is_same(peer), "the two are one device");
    for (from, to) in [(device, peer), (peer, device)] {
        let link = from.link_to(to).expect_ok("asking for the link")?;
        require!(link.is_some(), "no way from one to the other");
    }
    let own = device.link_to(device).expect_ok("asking for the link")?;
    require!(own.is_none(), "a way to itself");
    Ok(())
}

fn chunks_on_a_peer(device: &Device, peer: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let chunk = device.info().granularity.max(1 << 20);
    let reservation = device.reserve(3 * chunk).expect_ok("reserving")?;
    reservation.map(0..chunk).expect_ok("mapping")?;
    reservation
        .map_on(chunk..2 * chunk, peer)
        .expect_ok("mapping on the peer")?;
    // Mapping on itself gives plain memory, not a peer's.
    reservation
        .map_on(2 * chunk..3 * chunk, device)
        .expect_ok("mapping on itself")?;
    let memory = reservation.memory();
    let all = pattern(11, 3 * chunk);
    write(&stream, memory, 0, &all)?;
    holds(&stream, memory, 0, &all)?;

    let copy = device.alloc(3 * chunk).expect_ok("allocating")?;
    let src = memory.lend(0..3 * chunk).expect_ok("lending")?;
    let dst = copy.lend_mut(0..3 * chunk).expect_ok("lending")?;
    stream
        .copy_all([(src, dst)])
        .expect_ok("copying from the peer")?;
    holds(&stream, &copy, 0, &all)?;
    let back = pattern(12, 3 * chunk);
    write(&stream, &copy, 0, &back)?;
    let src = copy.lend(0..3 * chunk).expect_ok("lending")?;
    let dst = memory.lend_mut(0..3 * chunk).expect_ok("lending")?;
    stream
        .copy_all([(src, dst)])
        .expect_ok("copying to the peer")?;
    holds(&stream, memory, 0, &back)
}

fn unmapping(device: &Device, peer: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let chunk = device.info().granularity.max(8 << 20);
    let reservation = device.reserve(2 * chunk).expect_ok("reserving")?;
    // The driver may keep memory of a peer after its first use, so one use comes before the count.
    reservation.map_on(0..chunk, peer).expect_ok("mapping")?;
    reservation.unmap(0..chunk).expect_ok("unmapping")?;
    let before = peer.free_bytes().expect_ok("asking for free memory")?;

    reservation
        .map_on(0..chunk, peer)
        .expect_ok("mapping on the peer")?;
    reservation
        .map_on(chunk..2 * chunk, peer)
        .expect_ok("mapping on the peer")?;
    let during = peer.free_bytes().expect_ok("asking for free memory")?;
    require!(
        before >= during + 2 * chunk as u64,
        "{} bytes of the peer's memory used by {}",
        before.saturating_sub(during),
        2 * chunk
    );
    let kept = pattern(13, chunk);
    write(&stream, reservation.memory(), chunk, &kept)?;

    let lent = reservation.memory().lend(7..8).expect_ok("lending")?;
    let busy = reservation.unmap(0..chunk);
    require!(
        matches!(busy, Err(Error::Busy { .. })),
        "unmapped while a byte was lent"
    );
    drop(lent);
    let cut = reservation.unmap(0..chunk / 2);
    require!(
        matches!(cut, Err(Error::Invalid(Invalid::Misaligned { .. }))),
        "half a chunk was unmapped"
    );
    reservation.unmap(0..chunk).expect_ok("unmapping")?;
    require!(reservation.mapped() == chunk, "one chunk is left");
    let gone = reservation.memory().lend(0..1);
    require!(
        matches!(gone, Err(Error::Invalid(Invalid::Unmapped { .. }))),
        "lent where nothing is mapped"
    );
    let twice = reservation.unmap(0..chunk);
    require!(twice.is_err(), "unmapped twice");
    let after = peer.free_bytes().expect_ok("asking for free memory")?;
    require!(
        after >= during + chunk as u64,
        "the peer has {after} bytes free, {during} before a chunk was given back"
    );
    holds(&stream, reservation.memory(), chunk, &kept)?;

    // The addresses can be mapped again, to memory of another place.
    reservation.map(0..chunk).expect_ok("mapping again")?;
    let again = pattern(14, 2 * chunk);
    write(&stream, reservation.memory(), 0, &again)?;
    holds(&stream, reservation.memory(), 0, &again)?;
    drop(reservation);
    let end = peer.free_bytes().expect_ok("asking for free memory")?;
    require!(end >= before, "{end} bytes free, {before} before");
    Ok(())
}

fn shared(device: &Device, peer: &Device) -> CaseResult {
    let (own, theirs) = (
        device.stream().expect_ok("making a stream")?,
        peer.stream().expect_ok("making a stream")?,
    );
    let chunk = device.info().granularity.max(1 << 20);
    let closed = device.reserve(chunk).expect_ok("reserving")?;
    closed.map(0..chunk).expect_ok("mapping")?;
    let open = device
        .reserve_shared(chunk, std::slice::from_ref(peer))
        .expect_ok("reserving for a peer")?;
    open.map(0..chunk).expect_ok("mapping for a peer")?;
    let bytes = pattern(15, chunk);
    write(&own, closed.memory(), 0, &bytes)?;
    write(&own, open.memory(), 0, &bytes)?;

    let copy = peer.alloc(chunk).expect_ok("allocating")?;
    let pair = |from: &crate::Memory| {
        let src = from.lend(0..chunk).expect_ok("lending")?;
        let dst = copy.lend_mut(0..chunk).expect_ok("lending")?;
        Ok::<_, String>((src, dst))
    };
    let refused = theirs.copy_all([pair(closed.memory())?]);
    require!(
        matches!(refused, Err(Error::Invalid(Invalid::OtherDevice))),
        "a peer copied from memory that is not for it"
    );
    theirs
        .copy_all([pair(open.memory())?])
        .expect_ok("copying by the peer")?;
    holds(&theirs, &copy, 0, &bytes)
}

fn exported(device: &Device, peer: &Device) -> CaseResult {
    let (own, theirs) = (
        device.stream().expect_ok("making a stream")?,
        peer.stream().expect_ok("making a stream")?,
    );
    let chunk = peer.export(4 << 20).expect_ok("exporting")?;
    let len = chunk.len();
    let here = device.reserve_for_exported(len).expect_ok("reserving")?;
    let there = peer.reserve_for_exported(len).expect_ok("reserving")?;
    let received = chunk.fd().try_clone_to_owned();
    let received = received.map_err(|error| format!("copying the descriptor: {error}"))?;
    here.map_imported(0..len, received).expect_ok("importing")?;
    there.map_exported(0, &chunk).expect_ok("mapping")?;

    let bytes = pattern(16, len);
    write(&own, here.memory(), 0, &bytes)?;
    holds(&theirs, there.memory(), 0, &bytes)?;
    let loan = here.memory().lend(0..len).expect_ok("lending")?;
    require!(
        loan.bytes() == Err(Invalid::NotHostAccessible.into()),
        "memory that others write can be read in place"
    );
    drop(loan);

    // Exported memory outlives its exporter for as long as it is mapped.
    drop((chunk, there));
    holds(&own, here.memory(), 0, &bytes)?;
    here.unmap(0..len).expect_ok("unmapping")?;
    let next = peer.export(len).expect_ok("exporting")?;
    here.map_exported(0, &next).expect_ok("mapping")?;
    let bytes = pattern(17, len);
    write(&own, here.memory(), 0, &bytes)?;
    holds(&own, here.memory(), 0, &bytes)
}

fn wrong_kind(device: &Device, peer: &Device) -> CaseResult {
    let chunk = peer.export(4 << 20).expect_ok("exporting")?;
    let len = chunk.len();
    let plain = device.reserve(len).expect_ok("reserving")?;
    let special = device.reserve_for_exported(len).expect_ok("reserving")?;
    let is_refused =
        |answer: Result<(), Error>| matches!(answer, Err(Error::Invalid(Invalid::NotSuchChunks)));
    require!(
        is_refused(plain.map_exported(0, &chunk)),
        "an exported chunk went into a plain reservation"
    );
    require!(
        is_refused(special.map(0..len)),
        "a reservation for exported chunks took one that is not exported"
    );
    for owner in [device, peer] {
        special.map_on(0..len, owner).expect_ok("mapping")?;
        let loan = special.memory().lend(0..len).expect_ok("lending")?;
        require!(
            loan.bytes().is_err(),
            "such memory can be read in place after all"
        );
        drop(loan);
        special.unmap(0..len).expect_ok("unmapping")?;
    }
    let null = std::fs::File::open("/dev/null").map_err(|error| error.to_string())?;
    let nonsense = special.map_imported(0..len, null.into());
    require!(nonsense.is_err(), "/dev/null was mapped");
    let short = chunk.fd().try_clone_to_owned();
    let short = short.map_err(|error| error.to_string())?;
    let wide = device
        .reserve_for_exported(2 * len)
        .expect_ok("reserving")?;
    let longer = wide.map_imported(0..2 * len, short);
    require!(longer.is_err(), "more was mapped than was exported");
    require!(wide.mapped() == 0, "a refused range was mapped");
    special.map_exported(0, &chunk).expect_ok("mapping")
}
