use std::ops::Range;

use super::{CaseResult, Expect, holds, pattern, require, write};
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::host_reservation::HostReservation;
use crate::pinned::Pinned;

const MIB: usize = 1 << 20;

pub(super) fn by_chunks(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let granularity = device.info().granularity;
    let reservation = device.reserve(5 * granularity - 1).expect_ok("reserving")?;
    let memory = reservation.memory();
    require!(
        memory.len() == 5 * granularity,
        "{} bytes, not rounded up",
        memory.len()
    );
    require!(reservation.mapped() == 0, "mapped before anything was");
    let unmapped = |range: Range<usize>| {
        matches!(
            memory.lend(range),
            Err(Error::Invalid(Invalid::Unmapped { .. }))
        )
    };
    require!(unmapped(0..1), "lent before anything was mapped");

    reservation
        .map(0..granularity)
        .expect_ok("mapping the first chunk")?;
    let first = pattern(1, granularity);
    write(&stream, memory, 0, &first)?;
    require!(
        unmapped(granularity - 1..granularity + 1),
        "lent beyond the first chunk"
    );

    // Chunks are mapped out of order: the last one, then those in between.
    reservation
        .map(4 * granularity..5 * granularity)
        .expect_ok("mapping the last chunk")?;
    require!(
        reservation.mapped() == 2 * granularity,
        "two chunks are mapped"
    );
    require!(unmapped(0..5 * granularity), "lent across a hole");
    reservation
        .map(granularity..4 * granularity)
        .expect_ok("mapping the rest")?;
    require!(reservation.mapped() == memory.len(), "all is mapped");
    holds(&stream, memory, 0, &first)?;

    let all = pattern(2, memory.len());
    write(&stream, memory, 0, &all)?;
    let copy = device.alloc(memory.len()).expect_ok("allocating")?;
    let src = memory
        .lend(0..memory.len())
        .expect_ok("lending across chunks")?;
    let dst = copy.lend_mut(0..memory.len()).expect_ok("lending")?;
    stream
        .copy_all([(src, dst)])
        .expect_ok("copying across chunks")?;
    holds(&stream, &copy, 0, &all)
}

pub(super) fn unmaps(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let granularity = device.info().granularity;
    let reservation = device.reserve(4 * granularity).expect_ok("reserving")?;
    let memory = reservation.memory();
    for range in [0..1, 1..3, 3..4] {
        let range = range.start * granularity..range.end * granularity;
        reservation.map(range).expect_ok("mapping")?;
    }
    let first = pattern(3, granularity);
    write(&stream, memory, 0, &first)?;
    let part = reservation.unmap(2 * granularity..4 * granularity);
    require!(
        matches!(part, Err(Error::Invalid(Invalid::Misaligned { .. }))),
        "half of a chunk was unmapped"
    );
    let rest = granularity..4 * granularity;
    let lent = memory.lend(4 * granularity - 1..4 * granularity);
    let busy = reservation.unmap(rest.clone());
    require!(
        matches!(busy, Err(Error::Busy { .. })),
        "lent bytes were unmapped"
    );
    drop(lent);
    reservation.unmap(rest.clone()).expect_ok("unmapping")?;
    require!(reservation.mapped() == granularity, "one chunk is left");
    let again = reservation.unmap(rest.clone());
    require!(
        matches!(again, Err(Error::Invalid(Invalid::Unmapped { .. }))),
        "unmapped twice"
    );
    require!(
        memory.lend(rest.clone()).is_err(),
        "lent after it was unmapped"
    );
    // A single chunk covers the range now.
    reservation.map(rest.clone()).expect_ok("mapping again")?;
    let other = pattern(4, rest.len());
    write(&stream, memory, rest.start, &other)?;
    holds(&stream, memory, rest.start, &other)?;
    holds(&stream, memory, 0, &first)
}

pub(super) fn discards(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let piece = HostReservation::GRANULARITY;
    let host = device.reserve_host(4 * piece).expect_ok("reserving")?;
    let memory = host.memory();
    // The machine may refuse to pin.
    let _first = host.pin(0..piece).expect_ok("pinning")?;
    let second = host.pin(piece..3 * piece).expect_ok("pinning")?;
    let bytes = pattern(5, 4 * piece);
    write(&stream, memory, 0, &bytes)?;
    let cut = host.discard(2 * piece..4 * piece);
    require!(
        second != Pinned::Yes || matches!(cut, Err(Error::Invalid(Invalid::Misaligned { .. }))),
        "a pinned piece was cut through"
    );
    let odd = host.discard(piece + 1..4 * piece);
    require!(
        matches!(odd, Err(Error::Invalid(Invalid::Misaligned { .. }))),
        "a part of a page was given back"
    );
    let lent = memory.lend(4 * piece - 1..4 * piece);
    let busy = host.discard(piece..4 * piece);
    require!(
        matches!(busy, Err(Error::Busy { .. })),
        "lent bytes were given back"
    );
    drop(lent);
    let pinned = host.pinned_bytes();
    host.discard(piece..4 * piece).expect_ok("giving back")?;
    require!(host.pinned_bytes() == pinned.min(piece), "it is unpinned");
    let zeros = vec![0; 3 * piece];
    holds(&stream, memory, piece, &zeros)?;
    // Copies cross pinned pieces, discarded ones, and one that is pinned again.
    let _third = host.pin(2 * piece..4 * piece).expect_ok("pinning again")?;
    let inner = device.alloc(4 * piece).expect_ok("allocating")?;
    write(&stream, &inner, 0, &bytes)?;
    let src = inner.lend(0..4 * piece).expect_ok("lending")?;
    let dst = memory.lend_mut(0..4 * piece).expect_ok("lending")?;
    stream.copy_all([(src, dst)]).expect_ok("copying")?;
    holds(&stream, memory, 0, &bytes)
}

pub(super) fn refuses_ranges(device: &Device) -> CaseResult {
    let granularity = device.info().granularity;
    let reservation = device.reserve(4 * granularity).expect_ok("reserving")?;
    reservation
        .map(granularity..2 * granularity)
        .expect_ok("mapping")?;
    let why = |range: Range<usize>| match reservation.map(range) {
        Err(Error::Invalid(invalid)) => Some(invalid),
        _ => None,
    };
    let twice = why(0..2 * granularity);
    require!(
        matches!(twice, Some(Invalid::Twice { .. })),
        "a range was mapped twice"
    );
    let skew = why(1..granularity);
    require!(
        matches!(skew, Some(Invalid::Misaligned { .. })),
        "a misaligned range was mapped"
    );
    let far = why(4 * granularity..5 * granularity);
    require!(
        matches!(far, Some(Invalid::OutOfBounds { .. })),
        "mapped beyond the reservation"
    );
    require!(
        why(0..0) == Some(Invalid::Empty),
        "an empty range was mapped"
    );
    require!(
        reservation.mapped() == granularity,
        "a refused range was mapped all the same"
    );
    reservation
        .map(0..granularity)
        .expect_ok("mapping what was refused in part")
}

pub(super) fn more_than_there_is(device: &Device) -> CaseResult {
    let total = usize::try_from(device.info().total_bytes).unwrap_or(usize::MAX / 8);
    let reservation = device
        .reserve(total.saturating_mul(2))
        .expect_ok("reserving twice the memory")?;
    let all = 0..reservation.memory().len();
    let refused = reservation.map(all);
    require!(
        matches!(refused, Err(Error::OutOfMemory { .. })),
        "mapping twice the memory is not out of memory ({refused:?})"
    );
    require!(
        reservation.mapped() == 0,
        "part of a refused range was mapped"
    );
    let chunk = reservation.granularity();
    reservation
        .map(0..chunk)
        .expect_ok("mapping what there is, after being refused")
}

pub(super) fn touch_keeps(device: &Device) -> CaseResult {
    let len = 5 * MIB + 3;
    let host = device.reserve_host(len).expect_ok("reserving")?;
    require!(
        host.memory().len() >= len,
        "{} bytes are too few",
        host.memory().len()
    );
    require!(
        host.memory().host_accessible(),
        "host memory is accessible to the host"
    );
    let bytes = pattern(6, 3 * MIB);
    let mut loan = host.memory().lend_mut(MIB..4 * MIB).expect_ok("lending")?;
    loan.bytes_mut()
        .expect_ok("reaching the bytes")?
        .copy_from_slice(&bytes);
    // Touching keeps content that is lent for writing.
    host.touch(0..len).expect_ok("touching all")?;
    host.touch(7..8).expect_ok("touching one byte")?;
    host.touch(9..9).expect_ok("touching nothing")?;
    require!(host.touch(0..usize::MAX).is_err(), "touched beyond the end");
    require!(
        loan.bytes().expect_ok("reaching the bytes")? == bytes,
        "touching changed bytes"
    );
    host.huge_page_bytes()
        .map(drop)
        .expect_ok("counting huge pages")
}

pub(super) fn across_pins(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let piece = HostReservation::GRANULARITY;
    let len = 5 * piece;
    let host = device.reserve_host(len).expect_ok("reserving")?;
    let inner = device.alloc(len).expect_ok("allocating")?;
    let mut pinned = 0;
    // Pins pieces 2, 3 and 0 of five; after each, copies cross all borders.
    for (step, at) in [2, 3, 0].into_iter().enumerate() {
        let range = at * piece..(at + 1) * piece;
        match host.pin(range.clone()).expect_ok("pinning")? {
            Pinned::Yes => pinned += piece,
            Pinned::No(_) => {}
        }
        if pinned > 0 && host.pinned_bytes() > 0 && step == 2 {
            let twice = host.pin(0..len);
            let refused = matches!(twice, Err(Error::Invalid(Invalid::Twice { .. })));
            require!(refused, "a piece was pinned twice ({twice:?})");
        }
        require!(
            host.pinned_bytes() == pinned,
            "{} bytes pinned",
            host.pinned_bytes()
        );

        let bytes = pattern(step as u64 + 10, len - 2);
        write(&stream, &inner, 1, &bytes)?;
        let src = inner.lend(1..len - 1).expect_ok("lending")?;
        let dst = host.memory().lend_mut(1..len - 1).expect_ok("lending")?;
        stream
            .copy_all([(src, dst)])
            .expect_ok("copying to the host across borders")?;
        holds(&stream, host.memory(), 1, &bytes)?;

        let clean = inner.lend_mut(0..len).expect_ok("lending");
        stream.fill(&mut clean?, 0).expect_ok("clearing")?;
        let src = host.memory().lend(1..len - 1).expect_ok("lending")?;
        let dst = inner.lend_mut(1..len - 1).expect_ok("lending")?;
        let outcome = stream.copy(src, dst).wait();
        outcome
            .result
            .expect_ok("copying to the device across borders")?;
        drop((outcome.src, outcome.dst));
        holds(&stream, &inner, 1, &bytes)?;

        // A plain slice does not tell the stream about pinned borders.
        let loan = host.memory().lend(1..len - 1).expect_ok("lending")?;
        let slice = loan.bytes().expect_ok("reaching the bytes")?;
        write(&stream, &inner, 1, slice)?;
    }
    let skew = host.pin(1..piece);
    let refused = matches!(skew, Err(Error::Invalid(Invalid::Misaligned { .. })));
    require!(refused, "a misaligned range was pinned");
    Ok(())
}

pub(super) fn pin_meanwhile(device: &Device) -> CaseResult {
    let piece = HostReservation::GRANULARITY;
    let len = 8 * piece;
    let host = device.reserve_host(len).expect_ok("reserving")?;
    let bytes = pattern(20, len);
    std::thread::scope(|scope| {
        let pinning = scope.spawn(|| {
            for at in 0..8 {
                host.touch(at * piece..(at + 1) * piece)
                    .expect_ok("touching")?;
                let _either = host
                    .pin(at * piece..(at + 1) * piece)
                    .expect_ok("pinning")?;
            }
            Ok::<(), String>(())
        });
        let stream = device.stream().expect_ok("making a stream")?;
        let inner = device.alloc(len).expect_ok("allocating")?;
        for _ in 0..4 {
            write(&stream, &inner, 0, &bytes)?;
            let src = inner.lend(0..len).expect_ok("lending")?;
            let dst = host.memory().lend_mut(0..len).expect_ok("lending")?;
            stream
                .copy_all([(src, dst)])
                .expect_ok("copying while pieces are pinned")?;
            holds(&stream, host.memory(), 0, &bytes)?;
        }
        pinning
            .join()
            .map_err(|_| String::from("the pinning thread panicked"))?
    })
}
