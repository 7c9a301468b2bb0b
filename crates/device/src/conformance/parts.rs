use super::{CaseResult, Expect, holds, pattern, require, write};
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::memory::Memory;
use crate::parts::{Part, PartMut};

/// Number of parts: more than one kernel launch takes.
const PARTS: usize = 3000;

/// The memory of a part: the device's, pinned host memory, or a slice of the caller's.
#[derive(Clone, Copy)]
enum Side {
    Device,
    Pinned,
    Slice,
}

/// Returns parts with lengths from 0 to several tiles. Few starts are aligned.
fn parts() -> Vec<(Side, usize, usize)> {
    let mut number = 7_u64;
    let mut random = move |below: u64| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((number >> 33) % below) as usize
    };
    let mut at = [0; 3];
    (0..PARTS)
        .map(|part| {
            let (side, index) = match part % 16 {
                5 => (Side::Pinned, 1),
                9 => (Side::Slice, 2),
                _ => (Side::Device, 0),
            };
            let length = match random(64) {
                0 => 30_000 + random(60_000),
                1..8 => 0,
                8..16 => 16 * random(100),
                _ => random(300),
            };
            let start = at[index] + random(20);
            at[index] = start + length;
            (side, start, length)
        })
        .collect()
}

/// Returns the bytes of `part`, from the memory of its side.
fn content(device: &[u8], pinned: &[u8], slice: &[u8], part: (Side, usize, usize)) -> Vec<u8> {
    let (side, start, length) = part;
    let of = match side {
        Side::Device => device,
        Side::Pinned => pinned,
        Side::Slice => slice,
    };
    of[start..start + length].to_vec()
}

pub(super) fn gather_and_scatter(device: &Device) -> CaseResult {
    const ROOM: usize = 8 << 20;
    let stream = device.stream().expect_ok("making a stream")?;
    let parts = parts();
    let total: usize = parts.iter().map(|(_, _, length)| length).sum();
    let near = device.alloc(ROOM).expect_ok("allocating")?;
    let far = device.reserve_host(ROOM).expect_ok("reserving")?;
    // Half of the memory is pinned, so copies cross the border.
    let _slower_and_as_right = far.pin(0..ROOM / 2);
    let own = pattern(3, ROOM);
    let (first, second) = (pattern(1, ROOM), pattern(2, ROOM));
    write(&stream, &near, 0, &first)?;
    write(&stream, far.memory(), 0, &second)?;
    let expected: Vec<u8> = parts
        .iter()
        .flat_map(|part| content(&first, &second, &own, *part))
        .collect();

    let on_host = device.reserve_host(total + 1).expect_ok("reserving")?;
    let on_device = device.alloc(total + 1).expect_ok("allocating")?;
    for run in [&on_device, on_host.memory()] {
        // The run starts at an odd offset.
        let mut into = run.lend_mut(1..total + 1).expect_ok("lending")?;
        let mut at = 0;
        let gathered = parts.iter().map(|(side, start, length)| {
            let range = *start..start + length;
            let part = match side {
                Side::Device => Part::Memory(&near, range),
                Side::Pinned => Part::Memory(far.memory(), range),
                Side::Slice => Part::Bytes(&own[range]),
            };
            at += length;
            (at - length, part)
        });
        stream
            .gather_all([(gathered, &mut into)])
            .expect_ok("gathering")?;
        drop(into);
        require!(
            near.live_loans() + far.memory().live_loans() == 0,
            "loans of parts were not given back"
        );
        holds(&stream, run, 1, &expected)?;
    }
    for run in [&on_device, on_host.memory()] {
        scattered(device, run, &parts, &expected)?;
    }
    let mut none = near.lend_mut(0..0).expect_ok("lending nothing")?;
    stream
        .gather_all([([], &mut none)])
        .expect_ok("gathering nothing")?;
    runs(device, &near, &first, &own)
}

/// Gathers several runs on the device and on the host from device memory and slices, and scatters them back.
fn runs(device: &Device, near: &Memory, content: &[u8], own: &[u8]) -> CaseResult {
    const RUN: usize = 1 << 20;
    const PART: usize = 300_000;
    let stream = device.stream().expect_ok("making a stream")?;
    let on_device = device.alloc(3 * RUN).expect_ok("allocating")?;
    let on_host = device.reserve_host(3 * RUN).expect_ok("reserving")?;
    let mut expected: Vec<Vec<u8>> = Vec::new();
    let mut gathered = Vec::new();
    for (number, run) in [&on_device, on_host.memory()]
        .repeat(3)
        .into_iter()
        .enumerate()
    {
        // Two runs in each memory with parts, and one each without.
        let start = number / 2 * RUN;
        let into = run.lend_mut(start..start + 2 * PART).expect_ok("lending")?;
        let from = number * PART..(number + 1) * PART;
        let mut parts = Vec::new();
        if number < 4 {
            let loan = near.lend(from.clone()).expect_ok("lending a part")?;
            parts.push((PART, Part::Loan(loan)));
            parts.push((0, Part::Bytes(&own[from.clone()])));
            expected.push([&own[from.clone()], &content[from]].concat());
        }
        gathered.push((parts, into));
    }
    let all = gathered.iter_mut();
    let all = all.map(|(parts, into)| (std::mem::take(parts), into));
    stream.gather_all(all).expect_ok("gathering into runs")?;
    drop(gathered);
    let back = device.alloc(4 * PART).expect_ok("allocating")?;
    let mut halves = vec![vec![0; PART]; 4];
    let mut scattered = Vec::new();
    for (number, half) in halves.iter_mut().enumerate() {
        let run = [&on_device, on_host.memory()][number % 2];
        let start = number / 2 * RUN;
        holds(&stream, run, start, &expected[number])?;
        let from = run.lend(start..start + 2 * PART).expect_ok("lending")?;
        let to = back.lend_mut(number * PART..(number + 1) * PART);
        let to = PartMut::Loan(to.expect_ok("lending a part")?);
        scattered.push((from, vec![(0, PartMut::Bytes(half)), (PART, to)]));
    }
    let all = scattered.iter_mut();
    let all = all.map(|(from, parts)| (&*from, std::mem::take(parts)));
    stream.scatter_all(all).expect_ok("scattering runs")?;
    drop(scattered);
    for (number, half) in halves.iter().enumerate() {
        require!(
            half == &expected[number][..PART],
            "the caller's bytes are others"
        );
        holds(&stream, &back, number * PART, &expected[number][PART..])?;
    }
    require!(
        near.live_loans() + back.live_loans() == 0,
        "loans were not given back"
    );
    Ok(())
}

/// Scatters `run` from byte 1 on, and checks every byte of the targets, those between the parts included.
fn scattered(
    device: &Device,
    run: &Memory,
    parts: &[(Side, usize, usize)],
    gathered: &[u8],
) -> CaseResult {
    const ROOM: usize = 8 << 20;
    const BEFORE: u8 = 0xc3;
    let stream = device.stream().expect_ok("making a stream")?;
    let near = device.alloc(ROOM).expect_ok("allocating")?;
    let far = device.reserve_host(ROOM).expect_ok("reserving")?;
    let mut own = vec![BEFORE; ROOM];
    for memory in [&near, far.memory()] {
        let mut all = memory.lend_mut(0..ROOM).expect_ok("lending")?;
        stream.fill(&mut all, BEFORE).expect_ok("filling")?;
    }
    let mut expected = [vec![BEFORE; ROOM], vec![BEFORE; ROOM], vec![BEFORE; ROOM]];
    let mut at = 0;
    let (mut rest, mut cut) = (own.as_mut_slice(), 0);
    let mut targets = Vec::new();
    for (side, start, length) in parts {
        let range = *start..start + length;
        let (part, index) = match side {
            Side::Device => (PartMut::Memory(&near, range.clone()), 0),
            Side::Pinned => (PartMut::Memory(far.memory(), range.clone()), 1),
            Side::Slice => {
                let (taken, behind) = rest.split_at_mut(range.end - cut);
                let skipped = range.start - cut;
                (rest, cut) = (behind, range.end);
                (PartMut::Bytes(&mut taken[skipped..]), 2)
            }
        };
        expected[index][range].copy_from_slice(&gathered[at..at + length]);
        targets.push((at, part));
        at += length;
    }
    let from = run.lend(1..gathered.len() + 1).expect_ok("lending")?;
    stream
        .scatter_all([(&from, targets)])
        .expect_ok("scattering")?;
    holds(&stream, &near, 0, &expected[0])?;
    holds(&stream, far.memory(), 0, &expected[1])?;
    require!(own == expected[2], "the caller's bytes are others");
    Ok(())
}

pub(super) fn refuses(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let memory = device.alloc(100).expect_ok("allocating")?;
    let mut into = memory.lend_mut(0..10).expect_ok("lending")?;
    let out = |range| Err(Error::Invalid(Invalid::OutOfBounds { range, len: 10 }));
    let refused = stream.gather_all([([(8, Part::Bytes(&[1, 2, 3]))], &mut into)]);
    require!(refused == out(8..11), "a part beyond the end was gathered");
    let refused = stream.gather_all([([(0, Part::Memory(&memory, 20..31))], &mut into)]);
    require!(
        refused == out(0..11),
        "a part that is too long was gathered"
    );
    let from = into.into_read();
    let refused = stream.scatter_all([(&from, [(usize::MAX, PartMut::Bytes(&mut [0]))])]);
    require!(
        refused == out(usize::MAX..usize::MAX),
        "a part from beyond the end was scattered"
    );
    drop(from);
    require!(memory.live_loans() == 0, "loans were not given back");
    Ok(())
}
