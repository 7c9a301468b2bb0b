use proptest::prelude::*;

use super::Memory;
use crate::host_reservation::HostReservation;
use crate::pages::{self, AtFork};
use crate::stream::cut;

const PIECE: usize = HostReservation::GRANULARITY;
const PIECES: usize = 12;

proptest! {
    /// Copies between two partly pinned memories are cut into pieces that cover the range in order. No piece crosses a
    /// border on either side.
    #[test]
    fn copies_are_cut_where_pins_begin_and_end(
        sides in prop::array::uniform2(prop::collection::vec(any::<bool>(), PIECES)),
        offsets in prop::array::uniform2(0..2 * PIECE),
        len in 0..(PIECES - 2) * PIECE,
    ) {
        let device = crate::open(crate::Choice::Host).unwrap();
        let memories: [HostReservation; 2] = std::array::from_fn(|side| {
            let host = device.reserve_host(PIECES * PIECE).unwrap();
            // The list alone is filled; unpinning memory that is not pinned does nothing.
            let pins = (0..PIECES).filter(|&i| sides[side][i]).map(|i| i * PIECE..(i + 1) * PIECE);
            host.memory().pins().write().extend(pins);
            host
        });
        let run = |at| {
            let [one, two] = [0, 1].map(|side| memories[side].memory().run_from(offsets[side] + at));
            one.min(two)
        };
        let mut covered = 0;
        cut(len, run, |at, bytes| {
            assert!(at == covered && bytes > 0);
            covered += bytes;
            for side in 0..2 {
                let (first, last) = (offsets[side] + at, offsets[side] + at + bytes - 1);
                let pinned = |byte: usize| sides[side][byte / PIECE];
                if pinned(first) || pinned(last) {
                    assert_eq!(first / PIECE, last / PIECE, "across the border of a pinned piece");
                } else {
                    assert!(!(first / PIECE..=last / PIECE).any(|i| sides[side][i]));
                }
            }
            Ok(())
        }).unwrap();
        prop_assert_eq!(covered, len);
        for memory in &memories {
            memory.memory().pins().write().clear();
        }
    }
}

#[test]
fn memory_that_the_host_back_end_locked_is_not_within_the_reach_of_kernels() {
    let device = crate::open(crate::Choice::Host).unwrap();
    let host = device.reserve_host(PIECE).unwrap();
    // The list alone is filled, as the memory may not be lockable; unpinning memory that is not pinned does nothing.
    host.memory().pins().write().push(0..PIECE);
    assert_eq!(host.pinned_bytes(), PIECE);
    assert!(!host.memory().is_pinned(0));
}

/// Puts a mapping at the address of memory that a child lacks, drops the memory, and returns true if the mapping stays.
fn keeps_its_own_mapping(memory: Memory) -> bool {
    let address = pages::pointer(memory.base());
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the call replaces no other mapping, by its flags.
    let mapped = unsafe { libc::mmap(address, PIECE, access, flags, -1, 0) };
    if mapped != address {
        return false;
    }
    let byte = mapped.cast::<u8>();
    // SAFETY: the first byte of the mapping from above, which nothing else uses.
    unsafe { byte.write_volatile(7) };
    drop(memory);
    // SAFETY: as above, if the mapping stayed; otherwise the child ends by a signal, and the test fails.
    unsafe { byte.read_volatile() == 7 }
}

#[test]
fn a_child_keeps_its_own_mapping_where_memory_is_absent_after_a_fork() {
    let device = crate::open(crate::Choice::Host).unwrap();
    let memory = Memory::reserve_pages(&device, PIECE, AtFork::Absent).unwrap();
    memory.pins().write().push(0..PIECE);
    // SAFETY: the child takes no lock that another thread could hold, but the allocator's, which the C library frees at a
    // fork. The child exits without running code of the parent.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = i32::from(!keeps_its_own_mapping(memory));
        // SAFETY: it does not return.
        unsafe { libc::_exit(code) };
    }
    assert!(pid > 0, "fork");
    let mut status = -1;
    // SAFETY: `status` is a place for the answer.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!((waited, status), (pid, 0));
    memory
        .lend_mut(0..PIECE)
        .unwrap()
        .bytes_mut()
        .unwrap()
        .fill(1);
}
