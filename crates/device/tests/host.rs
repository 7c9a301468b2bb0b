//! Tests of the host back end: the conformance suite, and promises of this back end alone.

use tierflow_device::{
    Choice, Device, Error, Event, HostReservation, Invalid, Kind, Memory, Pinned, ReadLoan,
    Reservation, Stream, Transfer, WhyUnpinned, WriteLoan, conformance, cuda, host, open,
};

#[test]
fn conforms() {
    let device = open(Choice::Host).unwrap();
    for case in conformance::CASES {
        println!("{}", case.name);
        case.run(&device).unwrap();
    }
}

#[test]
fn conforms_with_little_memory() {
    let device = host::open(host::Options::default().device_bytes(64 << 20)).unwrap();
    conformance::run_all(&device).unwrap();
    // All memory came back, also after cases that refuse or fail, except the two allocations of the forgotten transfer.
    let forgotten = 3 << 20;
    assert_eq!(device.free_bytes().unwrap(), (64 << 20) - forgotten);
}

#[test]
fn devices_of_different_numbers_are_peers() {
    let options = host::Options::default().device_bytes(64 << 20);
    let device = host::open(options.clone()).unwrap();
    let peer = host::open(options.ordinal(1)).unwrap();
    for case in conformance::PEER_CASES {
        println!("{}", case.name);
        case.run(&device, &peer).unwrap();
    }
    for device in [device, peer] {
        assert_eq!(device.free_bytes().unwrap(), 64 << 20);
        assert_eq!(device.bus_id(), None);
    }
}

#[test]
fn a_chunk_on_a_peer_is_refused_where_other_peers_are_to_reach_it() {
    let options = host::Options::default().device_bytes(8 << 20);
    let device = host::open(options.clone()).unwrap();
    let [peer, reader] = [1, 2].map(|i| host::open(options.clone().ordinal(i)).unwrap());
    let shared = device.reserve_shared(4 << 20, &[reader]).unwrap();
    let range = 0..shared.memory().len();
    let refused = shared.map_on(range.clone(), &peer);
    assert_eq!(refused, Err(Error::Invalid(Invalid::NotSuchChunks)));
    // Memory of the device itself is shared as `map` shares it.
    shared.map_on(range, &device).unwrap();
}

#[test]
fn a_chunk_on_a_peer_is_of_the_peers_memory() {
    let options = host::Options::default().device_bytes(8 << 20);
    let device = host::open(options.clone()).unwrap();
    let peer = host::open(options.ordinal(1).device_bytes(4 << 20)).unwrap();
    let reservation = device.reserve(16 << 20).unwrap();
    reservation.map_on(0..4 << 20, &peer).unwrap();
    let full = reservation.map_on(4 << 20..5 << 20, &peer);
    assert!(
        matches!(full, Err(Error::OutOfMemory { free: 0, .. })),
        "{full:?}"
    );
    assert_eq!(device.free_bytes().unwrap(), 8 << 20);
    // The mapped chunk keeps its peer, which may be dropped first.
    drop(peer);
    reservation.unmap(0..4 << 20).unwrap();
    assert_eq!(reservation.mapped(), 0);
}

#[test]
fn auto_says_why_it_took_the_host() {
    match open(Choice::Auto) {
        Ok(device) if device.info().kind == Kind::Host => {
            let why = device.why_host().expect("a reason").to_string();
            assert!(why.contains("driver") || why.contains("GPU"), "{why}");
        }
        Ok(device) => assert!(device.as_cuda().is_some()),
        // The machine has a GPU that cannot be used.
        Err(broken) => assert!(!broken.to_string().contains("was not found"), "{broken}"),
    }
    assert!(open(Choice::Host).unwrap().why_host().is_none());
}

#[test]
fn a_missing_gpu_is_an_error_that_names_what_to_do() {
    // No machine has a GPU of this number.
    let error = open(Choice::Cuda { ordinal: 100_000 }).unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    let text = error.to_string();
    assert!(
        ["install", "update", "check", "numbered"]
            .iter()
            .any(|word| text.contains(word)),
        "{text}"
    );
}

#[test]
fn memory_runs_out_by_what_is_mapped_not_by_what_is_reserved() {
    let device = host::open(host::Options::default().device_bytes(1 << 20)).unwrap();
    let reservation = device.reserve(64 << 20).unwrap();
    reservation.map(0..1 << 20).unwrap();
    let error = reservation.map(1 << 20..2 << 20).unwrap_err();
    let asked = 1 << 20;
    assert!(
        matches!(error, Error::OutOfMemory { asked: a, free: 0, .. } if a == asked),
        "{error}"
    );
    assert!(device.alloc(1).is_err());
    drop(reservation);
    assert_eq!(device.free_bytes().unwrap(), 1 << 20);
}

#[test]
fn pinning_stops_at_the_lock_limit_and_says_so() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let device = open(Choice::Host).unwrap();
    let piece = 2 << 20;
    let host = device.reserve_host(64 << 20).unwrap();
    let mut refused = None;
    for start in (0..host.memory().len()).step_by(piece) {
        match host.pin(start..start + piece).unwrap() {
            Pinned::Yes => assert!(refused.is_none(), "pinned after being refused"),
            Pinned::No(why) => refused = Some(why),
        }
    }
    let pinned = host.pinned_bytes() as u64;
    match limit {
        Some(limit) if limit < 64 << 20 => {
            assert!(pinned <= limit, "{pinned} bytes pinned, {limit} allowed");
            assert!(
                matches!(refused, Some(WhyUnpinned::LockLimit { .. })),
                "{refused:?}"
            );
        }
        // No lock limit applies. The machine may still refuse for another reason.
        _ => assert!(pinned == 64 << 20 || refused.is_some()),
    }
    // A refused range is ordinary memory.
    let mut last = host.memory().lend_mut(63 << 20..64 << 20).unwrap();
    last.bytes_mut().unwrap().fill(1);
}

#[test]
fn handles_may_cross_and_be_shared_between_threads() {
    fn both<T: Send + Sync>() {}
    both::<Device>();
    both::<Memory>();
    both::<Reservation>();
    both::<HostReservation>();
    both::<ReadLoan>();
    both::<WriteLoan>();
    both::<Stream>();
    both::<Transfer>();
    both::<Event>();
    both::<Error>();
    both::<cuda::Module>();
    both::<cuda::Function>();
}

/// Forks, runs `child` in the child process, and returns its wait status: 0 if `child` returned true.
fn in_child(child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls `child`, which takes no lock that another thread could hold, and exits without running
    // code of the parent.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = i32::from(!child());
        // SAFETY: it does not return.
        unsafe { libc::_exit(code) };
    }
    assert!(pid > 0, "fork");
    let mut status = -1;
    // SAFETY: `status` is a place for the answer.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status
}

#[test]
fn a_child_has_its_own_copy_of_all_memory() {
    let device = open(Choice::Host).unwrap();
    let reservation = device.reserve(8 << 20).unwrap();
    reservation.map(0..4 << 20).unwrap();
    let host = device.reserve_host(4 << 20).unwrap();
    let _why_not = host.pin(0..HostReservation::GRANULARITY).unwrap();
    let allocated = device.alloc(4 << 20).unwrap();
    for memory in [&allocated, reservation.memory(), host.memory()] {
        let mut loan = memory.lend_mut(0..1 << 20).unwrap();
        loan.bytes_mut().unwrap().fill(7);
        let status = in_child(|| {
            let Ok(bytes) = loan.bytes_mut() else {
                return false;
            };
            let is_there = bytes.iter().all(|&byte| byte == 7);
            bytes.fill(8);
            is_there
        });
        assert_eq!(status, 0, "{memory:?}");
        assert!(loan.bytes().unwrap().iter().all(|&byte| byte == 7));
    }
}

#[test]
fn plain_memory_has_no_streams_of_others() {
    let device = open(Choice::Host).unwrap();
    // SAFETY: the host back end refuses every handle.
    let adopted = unsafe { device.adopt_stream(1) };
    assert!(matches!(adopted, Err(Error::Invalid(_))), "{adopted:?}");
    let stream = device.stream().unwrap();
    assert_eq!(stream.cuda_handle(), None);
    stream.wait_for_all_work().unwrap();
    // SAFETY: there is nothing to wait for.
    unsafe { stream.wait_for_foreign(1) }.unwrap();
}

#[test]
fn a_part_is_copied_in_the_order_of_the_stream() {
    let device = open(Choice::Host).unwrap();
    let (source, target) = (device.alloc(100).unwrap(), device.alloc(50).unwrap());
    let mut bytes = source.lend_mut(0..100).unwrap();
    let each = bytes.bytes_mut().unwrap().iter_mut().zip(0..);
    each.for_each(|(byte, at)| *byte = at);
    let (source, target) = (bytes.into_read(), target.lend_mut(0..50).unwrap());
    let stream = device.stream().unwrap();
    for (from, to, len) in [(90, 0, 11), (0, 45, 6), (usize::MAX, 0, 1)] {
        // SAFETY: it is refused.
        let copied = unsafe { stream.copy_unwaited(&source, from, &target, to, len) };
        assert!(matches!(copied, Err(Error::Invalid(_))), "{copied:?}");
    }
    // SAFETY: both are there until the stream is done, and used here alone.
    unsafe { stream.copy_unwaited(&source, 30, &target, 5, 10) }.unwrap();
    stream.synchronize().unwrap();
    let expected: Vec<u8> = (30..40).collect();
    assert_eq!(target.bytes().unwrap()[5..15], expected);
}

#[test]
fn many_parts_are_copied_in_the_order_of_the_stream() {
    let device = open(Choice::Host).unwrap();
    let (source, target) = (device.alloc(100).unwrap(), device.alloc(50).unwrap());
    let mut bytes = source.lend_mut(0..100).unwrap();
    let each = bytes.bytes_mut().unwrap().iter_mut().zip(0..);
    each.for_each(|(byte, at)| *byte = at);
    drop(bytes);
    let target = target.lend_mut(0..50).unwrap();
    let parts = [20..30, 90..90, 40..41, 70..79].map(|range| source.lend(range).unwrap());
    let stream = device.stream().unwrap();
    for at in [41, 51, usize::MAX] {
        // SAFETY: it is refused.
        let copied = unsafe { stream.gather_unwaited([(at, &parts[0])], &target) };
        assert!(matches!(copied, Err(Error::Invalid(_))), "{copied:?}");
    }
    // SAFETY: all are there until the stream is done, and used here alone.
    unsafe { stream.gather_unwaited([40, 50, 0, 1].into_iter().zip(&parts), &target) }.unwrap();
    stream.synchronize().unwrap();
    let bytes = target.bytes().unwrap();
    assert_eq!(bytes[40..], (20..30).collect::<Vec<u8>>());
    assert_eq!(bytes[..10], (40..41).chain(70..79).collect::<Vec<u8>>());
}
