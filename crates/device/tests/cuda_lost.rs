//! Tests a GPU that fails for good. The process cannot use it afterwards, so this test is a program of its own:
//! `cargo test -p tierflow-device --test cuda_lost -- --ignored`.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tierflow_device::cuda::Failure;
use tierflow_device::{Choice, Error, open};

#[test]
#[ignore = "needs an NVIDIA GPU, which its process loses"]
fn a_wait_behind_a_failure_ends_with_an_error() {
    const LENGTH: usize = 1 << 20;
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let stream = device.stream().unwrap();
    let (from, to) = (device.alloc(LENGTH).unwrap(), device.alloc(LENGTH).unwrap());
    let host = device.reserve_host(LENGTH).unwrap();
    let (read, write) = (
        from.lend(0..LENGTH).unwrap(),
        to.lend_mut(0..LENGTH).unwrap(),
    );
    let mut pinned = host.memory().lend_mut(0..LENGTH).unwrap();
    pinned.bytes_mut().unwrap().fill(7);
    let failure = Failure::load(&device).unwrap();
    let time = Duration::from_millis(200);
    failure.enqueue(&stream, time).unwrap();
    let transfer = stream.copy(read, write);
    let event = stream.record().unwrap();
    while !transfer.is_done() {
        std::thread::yield_now();
    }
    let outcome = transfer.wait();
    assert!(
        matches!(outcome.result, Err(Error::Lost { .. })),
        "{outcome:?}"
    );
    let waits = event.synchronize();
    assert!(matches!(waits, Err(Error::Lost { .. })), "{waits:?}");
    let another = device.alloc(LENGTH);
    assert!(matches!(another, Err(Error::Lost { .. })), "{another:?}");
    // The processor can still read pinned memory.
    assert!(pinned.bytes().unwrap().iter().all(|&byte| byte == 7));
    drop((pinned, host, outcome, event, stream, failure));
}
