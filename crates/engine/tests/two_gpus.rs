//! The device cache overflows to another GPU: `cargo test -p tierflow-engine --test two_gpus -- --ignored`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test panics where it fails"
)]

mod guests;

use guests::{MIB, lenders, overflow_and_recall, recall_in_flight};
use tierflow_device::{Choice, Device, open};

/// Returns all GPUs, which must be at least two.
fn gpus() -> Vec<Device> {
    let gpu = |ordinal| open(Choice::Cuda { ordinal });
    let mut devices = vec![gpu(0).unwrap(), gpu(1).unwrap()];
    devices.extend((2..4).map_while(|ordinal| gpu(ordinal).ok()));
    devices
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn overflow_to_gpus_comes_back_and_gpus_have_their_memory_back() {
    overflow_and_recall(&gpus(), 8 * MIB);
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn a_gpu_is_recalled_in_flight() {
    recall_in_flight(&gpus(), 4 * MIB);
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn a_lender_of_gpu_memory_wants_it_back_or_dies() {
    lenders(&gpus(), 8 * MIB);
}
