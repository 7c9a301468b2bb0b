//! Devices for the tests.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]
#![allow(dead_code, reason = "not every test file uses all of it")]

pub(crate) mod skewed;

use tierflow_device::{Choice, Device, Memory, host, open};

/// Opens `count` devices of plain memory.
pub(crate) fn hosts(count: usize, bytes: u64) -> Vec<Device> {
    let options = host::Options::default().device_bytes(bytes);
    let device = |ordinal| host::open(options.clone().ordinal(ordinal)).unwrap();
    (0..count).map(device).collect()
}

/// Opens `count` GPUs of this machine.
pub(crate) fn gpus(count: usize) -> Vec<Device> {
    let gpu = |ordinal| open(Choice::Cuda { ordinal }).unwrap();
    (0..count).map(gpu).collect()
}

pub(crate) fn write(device: &Device, memory: &Memory, bytes: &[u8]) {
    let mut loan = memory.lend_mut(0..bytes.len()).unwrap();
    device.stream().unwrap().write(bytes, &mut loan).unwrap();
}

pub(crate) fn read(device: &Device, memory: &Memory, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let loan = memory.lend(0..len).unwrap();
    device.stream().unwrap().read(&loan, &mut bytes).unwrap();
    bytes
}
