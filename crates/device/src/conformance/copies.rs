use super::{CaseResult, Expect, holds, pattern, require, write};
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::loan::{ReadLoan, WriteLoan};
use crate::memory::Memory;

fn pair(
    src: &Memory,
    dst: &Memory,
    from: usize,
    to: usize,
    len: usize,
) -> Result<(ReadLoan, WriteLoan), String> {
    let read = src.lend(from..from + len).expect_ok("lending the source")?;
    let write = dst
        .lend_mut(to..to + len)
        .expect_ok("lending the destination")?;
    Ok((read, write))
}

pub(super) fn fill_write_read(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let host = device.reserve_host(10_000).expect_ok("reserving")?;
    for memory in [
        &device.alloc(10_000).expect_ok("allocating")?,
        host.memory(),
    ] {
        let mut all = memory.lend_mut(0..10_000).expect_ok("lending")?;
        stream.fill(&mut all, 0xa5).expect_ok("filling")?;
        drop(all);
        write(&stream, memory, 33, &pattern(1, 1234))?;
        holds(&stream, memory, 0, &[0xa5; 33])?;
        holds(&stream, memory, 33, &pattern(1, 1234))?;
        holds(&stream, memory, 33 + 1234, &[0xa5; 10_000 - 33 - 1234])?;
        let from = memory.lend(33..33 + 1234).expect_ok("lending")?;
        let mut to = memory.lend_mut(5000..5000 + 1234).expect_ok("lending")?;
        stream
            .copy_now(&from, &mut to)
            .expect_ok("copying within one memory")?;
        drop(to);
        holds(&stream, memory, 5000, &pattern(1, 1234))?;
        let mut nothing = memory.lend_mut(5..5).expect_ok("lending nothing")?;
        stream.fill(&mut nothing, 1).expect_ok("filling nothing")?;
        stream
            .write(&[], &mut nothing)
            .expect_ok("writing nothing")?;
        stream
            .read(&nothing.into_read(), &mut [])
            .expect_ok("reading nothing")?;
    }
    Ok(())
}

pub(super) fn all_or_none(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let src = device.alloc(64 << 10).expect_ok("allocating")?;
    let dst = device.alloc(64 << 10).expect_ok("allocating")?;
    let bytes = pattern(2, 64 << 10);
    write(&stream, &src, 0, &bytes)?;
    // 64 pieces, mirrored: the first source piece is the last of the target.
    for _ in 0..2 {
        let pieces: Vec<_> = (0..64)
            .map(|i| pair(&src, &dst, i << 10, (63 - i) << 10, 1 << 10))
            .collect::<Result<_, _>>()?;
        stream.copy_all(pieces).expect_ok("copying 64 pieces")?;
        require!(
            src.live_loans() + dst.live_loans() == 0,
            "loans were not given back"
        );
    }
    for i in 0..64 {
        holds(
            &stream,
            &dst,
            (63 - i) << 10,
            &bytes[i << 10..(i + 1) << 10],
        )?;
    }
    stream.copy_all([]).expect_ok("copying nothing")?;

    let good = pair(&src, &dst, 0, 0, 1 << 10)?;
    let short = dst.lend_mut(2048..2049).expect_ok("lending")?;
    let bad = (src.lend(0..2).expect_ok("lending")?, short);
    let refused = stream.copy_all([good, bad]).err();
    let mismatch = Error::Invalid(Invalid::LengthMismatch { src: 2, dst: 1 });
    require!(
        refused == Some(mismatch),
        "lengths that differ were copied ({refused:?})"
    );
    require!(
        src.live_loans() + dst.live_loans() == 0,
        "loans of a refused copy were kept"
    );
    holds(&stream, &dst, 0, &bytes[63 << 10..])
}

pub(super) fn transfers(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let len = 1 << 20;
    let src = device.alloc(len).expect_ok("allocating")?;
    let dst = device.alloc(2 * len).expect_ok("allocating")?;
    let bytes = pattern(3, len);
    write(&stream, &src, 0, &bytes)?;

    let (from, to) = pair(&src, &dst, 0, 0, len)?;
    let transfer = stream.copy(from, to);
    require!(
        dst.lend(0..1).is_err(),
        "the destination can be read during the transfer"
    );
    require!(
        src.lend_mut(0..1).is_err(),
        "the source can be written during the transfer"
    );
    require!(
        src.lend(0..1).is_ok(),
        "the source can be read during the transfer"
    );
    let outcome = transfer.wait();
    outcome.result.expect_ok("waiting for a transfer")?;
    require!(outcome.src.range() == (0..len), "another source came back");
    require!(
        outcome.dst.range() == (0..len),
        "another destination came back"
    );
    require!(
        dst.lend(0..1).is_err(),
        "the loan came back to the caller, not to the memory"
    );
    drop((outcome.src, outcome.dst));
    holds(&stream, &dst, 0, &bytes)?;

    // Dropping a transfer waits for it and gives the loans back.
    let (from, to) = pair(&src, &dst, 0, len, len)?;
    drop(stream.copy(from, to));
    holds(&stream, &dst, len, &bytes)?;

    // Polls a transfer whose stream was dropped.
    let other = device.stream().expect_ok("making a stream")?;
    let (from, to) = pair(&dst, &src, len, 0, len)?;
    let transfer = other.copy(from, to);
    drop(other);
    while !transfer.is_done() {
        std::thread::yield_now();
    }
    transfer
        .wait()
        .result
        .expect_ok("waiting for a transfer whose stream is gone")?;

    // A forgotten transfer leaves its bytes lent for good, without other effects.
    let (from, to) = pair(&src, &dst, 0, 0, 16)?;
    std::mem::forget(stream.copy(from, to));
    stream.synchronize().expect_ok("synchronising")?;
    require!(
        dst.lend(0..16).is_err(),
        "bytes of a forgotten transfer were lent"
    );
    require!(dst.lend(16..len).is_ok(), "and only those");
    Ok(())
}

pub(super) fn refuses(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let memory = device.alloc(100).expect_ok("allocating")?;
    let (mut dst, src) = (
        memory.lend_mut(0..10).expect_ok("lending")?,
        memory.lend(10..21),
    );
    let src = src.expect_ok("lending")?;
    require!(
        stream.write(&[0; 11], &mut dst).is_err(),
        "11 bytes were written over 10"
    );
    require!(
        stream.read(&src, &mut [0; 10]).is_err(),
        "11 bytes were read into 10"
    );
    let outcome = stream.copy(src, dst).wait();
    let mismatch = Error::Invalid(Invalid::LengthMismatch { src: 11, dst: 10 });
    require!(
        outcome.result == Err(mismatch),
        "11 bytes were copied over 10"
    );
    require!(
        (outcome.src.len(), outcome.dst.len()) == (11, 10),
        "the loans came back"
    );
    Ok(())
}

pub(super) fn events(device: &Device) -> CaseResult {
    let (one, two) = (device.stream(), device.stream());
    let (one, two) = (
        one.expect_ok("making a stream")?,
        two.expect_ok("making a stream")?,
    );
    let len = 8 << 20;
    let memories: Vec<_> = (0..3)
        .map(|_| device.alloc(len).expect_ok("allocating"))
        .collect::<Result<_, _>>()?;
    let bytes = pattern(4, len);
    write(&one, &memories[0], 0, &bytes)?;

    let before = one.record_timed().expect_ok("recording")?;
    let (from, to) = pair(&memories[0], &memories[1], 0, 0, len)?;
    let first = one.copy(from, to);
    let after = one.record_timed().expect_ok("recording")?;
    // The second stream starts after the first one's copy, though no thread waits for that copy.
    two.wait(&after).expect_ok("making a stream wait")?;
    let behind = two.record().expect_ok("recording")?;
    behind
        .synchronize()
        .expect_ok("synchronising the second stream's event")?;
    require!(
        after.is_done().expect_ok("asking")?,
        "the second stream did not wait for the first"
    );
    require!(first.is_done(), "the copy before the event is not done");
    first.wait().result.expect_ok("copying")?;

    let took = after.elapsed_since(&before).expect_ok("measuring")?;
    require!(!took.is_zero(), "a copy of 8 MiB took no time");
    let untimed = [behind.elapsed_since(&before), after.elapsed_since(&behind)];
    require!(
        untimed
            .into_iter()
            .all(|answer| answer == Err(Error::Invalid(Invalid::Untimed))),
        "an event without a time tells one"
    );
    let (from, to) = pair(&memories[1], &memories[2], 0, 0, len)?;
    two.copy_all([(from, to)])
        .expect_ok("copying on the second stream")?;
    holds(&two, &memories[2], 0, &bytes)
}

pub(super) fn threads(device: &Device) -> CaseResult {
    let shared = device.alloc(4 << 20).expect_ok("allocating")?;
    let stream = device.stream().expect_ok("making a stream")?;
    std::thread::scope(|scope| {
        let (shared, stream) = (&shared, &stream);
        let workers: Vec<_> = (0..4_usize)
            .map(|worker| {
                scope.spawn(move || {
                    let at = worker << 20;
                    let own = device.alloc(1 << 20).expect_ok("allocating in a thread")?;
                    for round in 0..8 {
                        let bytes = pattern((worker * 100 + round) as u64, 1 << 20);
                        write(stream, shared, at, &bytes)?;
                        let (from, to) = pair(shared, &own, at, 0, 1 << 20)?;
                        stream
                            .copy_all([(from, to)])
                            .expect_ok("copying in a thread")?;
                        holds(stream, &own, 0, &bytes)?;
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .map_err(|_| String::from("a thread panicked"))?
        })
    })
}
