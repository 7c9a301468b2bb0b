use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{CaseResult, Expect, holds, pattern, require, write};
use crate::device::Device;
use crate::error::{Access, Error, Invalid};
use crate::info::Place;
use crate::memory::Memory;

pub(super) fn keeps_bytes(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let memories: Vec<_> = [1, 2, 4095, 4096, 4097, 3 << 20]
        .into_iter()
        .map(|len| {
            device
                .alloc(len)
                .expect_ok("allocating")
                .map(|memory| (len, memory))
        })
        .collect::<Result<_, _>>()?;
    for (len, memory) in &memories {
        require!(
            memory.len() == *len,
            "asked for {len} bytes, got {}",
            memory.len()
        );
        require!(
            memory.place() == Place::Device,
            "allocated memory is the device's"
        );
        write(&stream, memory, 0, &pattern(*len as u64, *len))?;
    }
    // All memories are written before the first is checked: two that shared a byte would differ from their patterns.
    for (len, memory) in &memories {
        holds(&stream, memory, 0, &pattern(*len as u64, *len))?;
    }
    Ok(())
}

pub(super) fn refuses_lengths(device: &Device) -> CaseResult {
    let empty = Some(Error::Invalid(Invalid::Empty));
    require!(device.alloc(0).err() == empty, "0 bytes were allocated");
    require!(device.reserve(0).err() == empty, "0 bytes were reserved");
    require!(
        device.reserve_host(0).err() == empty,
        "0 host bytes were reserved"
    );
    let beyond = usize::try_from(device.info().total_bytes)
        .unwrap_or(usize::MAX)
        .max(1 << 30);
    for len in [beyond.saturating_mul(2), isize::MAX as usize, usize::MAX] {
        let refused = matches!(device.alloc(len), Err(Error::OutOfMemory { .. }));
        require!(refused, "allocating {len} bytes is not out of memory");
    }
    for len in [isize::MAX as usize, usize::MAX - 1] {
        require!(
            device.reserve(len).is_err(),
            "{len} bytes of addresses were reserved"
        );
        require!(
            device.reserve_host(len).is_err(),
            "{len} bytes of host memory were reserved"
        );
    }
    Ok(())
}

pub(super) fn loans_exclude(device: &Device) -> CaseResult {
    let memory = device.alloc(1000).expect_ok("allocating")?;
    let first = memory.lend(0..600).expect_ok("lending")?;
    let second = memory
        .lend(400..1000)
        .expect_ok("lending to a second reader")?;
    let busy = memory.lend_mut(599..601).err();
    require!(
        matches!(
            busy,
            Some(Error::Busy {
                held: Access::Read,
                ..
            })
        ),
        "bytes being read were lent for writing ({busy:?})"
    );
    drop(second);
    let writer = memory
        .lend_mut(600..700)
        .expect_ok("lending what is not read any more")?;
    let busy = memory.lend(699..1000).err();
    let clash = Error::Busy {
        asked: 699..1000,
        overlaps: 600..700,
        held: Access::Write,
    };
    require!(
        busy == Some(clash),
        "bytes being written were lent ({busy:?})"
    );
    require!(
        memory.lend_mut(650..651).is_err(),
        "bytes being written were lent for writing"
    );
    require!(memory.lend(700..1000).is_ok(), "neighbours do not overlap");
    require!(
        memory.lend_mut(650..650).is_ok(),
        "an empty range overlaps nothing"
    );
    drop((first, writer));
    require!(
        memory.live_loans() == 0,
        "{} loans were not given back",
        memory.live_loans()
    );
    require!(memory.lend_mut(0..1000).is_ok(), "all bytes are back");
    #[allow(clippy::reversed_empty_ranges, reason = "what a caller may hand in")]
    for range in [0..1001, 1001..1001, 7..6, usize::MAX - 1..usize::MAX] {
        let refused = matches!(
            memory.lend(range.clone()),
            Err(Error::Invalid(Invalid::OutOfBounds { .. }))
        );
        require!(refused, "{range:?} of 1000 bytes was lent");
    }
    Ok(())
}

pub(super) fn loans_change(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let memory = device.alloc(100).expect_ok("allocating")?;
    let (mut left, right) = memory.lend_mut(0..100).expect_ok("lending")?.split_at(40);
    require!(
        (left.range(), right.range()) == (0..40, 40..100),
        "split at 40 bytes"
    );
    require!(
        right.address() == left.address() + 40,
        "the second part follows the first"
    );
    drop(right);
    stream
        .write(&pattern(1, 40), &mut left)
        .expect_ok("writing a part")?;
    require!(
        memory.lend_mut(40..100).is_ok(),
        "the second part was given back alone"
    );
    require!(memory.lend(39..40).is_err(), "the first part is still lent");
    let reader = left.into_read();
    require!(
        memory.lend(0..100).is_ok(),
        "a loan that became a reader lets others read"
    );
    require!(memory.lend_mut(0..1).is_err(), "but not write");
    let (all, none) = reader.split_at(1000);
    require!(all.len() == 40 && none.is_empty(), "split beyond the end");
    require!(
        all.bytes().is_ok() == memory.host_accessible(),
        "bytes where the host can reach"
    );
    drop((all, none));
    require!(
        memory.live_loans() == 0,
        "{} loans were not given back",
        memory.live_loans()
    );
    holds(&stream, &memory, 0, &pattern(1, 40))
}

pub(super) fn lives_with_loans(device: &Device) -> CaseResult {
    let stream = device.stream().expect_ok("making a stream")?;
    let reservation = device.reserve(1).expect_ok("reserving")?;
    let len = reservation.memory().len();
    reservation.map(0..len).expect_ok("mapping")?;
    let mut loan = reservation.memory().lend_mut(0..len).expect_ok("lending")?;
    drop(reservation);
    let bytes = pattern(3, len);
    stream
        .write(&bytes, &mut loan)
        .expect_ok("writing after the reservation was dropped")?;
    let mut seen = vec![0; len];
    stream
        .read(&loan.into_read(), &mut seen)
        .expect_ok("reading it back")?;
    require!(seen == bytes, "the bytes changed");
    Ok(())
}

pub(super) fn foreign(device: &Device) -> CaseResult {
    struct Owner(Box<[u8]>, Arc<AtomicBool>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }
    let stream = device.stream().expect_ok("making a stream")?;
    let gone = Arc::new(AtomicBool::new(false));
    let mut owner = Owner(pattern(4, 5000).into_boxed_slice(), Arc::clone(&gone));
    let (address, len) = (
        owner.0.as_mut_ptr().expose_provenance() as u64,
        owner.0.len(),
    );
    let keep: Arc<Owner> = Arc::new(owner);
    // SAFETY: the box is initialised memory that `keep` owns and that nothing else here reaches.
    let memory = unsafe { Memory::from_raw(device, address, len, Place::Host, keep) }
        .expect_ok("taking memory of another owner")?;
    let inner = device.alloc(len).expect_ok("allocating")?;
    let (src, dst) = (memory.lend(0..len), inner.lend_mut(0..len));
    let pair = (src.expect_ok("lending")?, dst.expect_ok("lending")?);
    stream.copy_all([pair]).expect_ok("copying from it")?;
    holds(&stream, &inner, 0, &pattern(4, 5000))?;
    let loan = memory.lend(0..1).expect_ok("lending")?;
    drop(memory);
    require!(
        !gone.load(Ordering::SeqCst),
        "the owner was dropped under a loan"
    );
    drop(loan);
    require!(
        gone.load(Ordering::SeqCst),
        "the owner was kept after the last loan"
    );
    for (address, len) in [(0, 1), (u64::MAX, 2), (4096, 0)] {
        // SAFETY: refused for its address or length, so no byte is ever lent.
        let refused =
            unsafe { Memory::from_raw(device, address, len, Place::Host, Arc::new(())) }.is_err();
        require!(refused, "{len} bytes at {address:#x} were taken for memory");
    }
    Ok(())
}
