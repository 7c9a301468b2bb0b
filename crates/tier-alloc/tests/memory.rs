//! Measures the memory that arenas take. The file has one test, as it measures the whole process.

use tierflow_device::{Choice, open};
use tierflow_tier_alloc::{DeviceArena, DeviceGrowth, HostArena, HostGrowth};

const MIB: usize = 1 << 20;

/// Returns a field of `/proc/self/status` in bytes.
fn status(field: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.starts_with(field))
        .unwrap_or_default();
    let kib = line
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok());
    kib.unwrap_or(0) * 1024
}

#[test]
fn arenas_take_at_most_their_capacity_and_give_all_of_it_back() {
    let device = open(Choice::Host).unwrap();
    let before = status("VmRSS:");
    let mut addresses = 0;
    for round in 0..6 {
        let host = HostArena::start(&device, 96 * MIB, HostGrowth::default()).unwrap();
        let fast = DeviceArena::start(&device, 32 * MIB, DeviceGrowth::default()).unwrap();
        fast.lend_mut(0..32 * MIB)
            .unwrap()
            .bytes_mut()
            .unwrap()
            .fill(1);
        host.wait_grown();
        let grown = status("VmRSS:") - before;
        assert!(grown >= 120 * MIB, "{grown} bytes: not touched");
        drop((host, fast));
        if round == 0 {
            // The C library keeps memory for later threads. The first round includes it, so it does not count below.
            addresses = status("VmSize:");
        }
    }
    let peak = status("VmHWM:") - before;
    assert!(peak <= 128 * MIB + 13 * MIB, "{peak} bytes at the peak");
    let left = status("VmRSS:").saturating_sub(before);
    assert!(left <= 8 * MIB, "{left} bytes left behind");
    let host = HostArena::start(&device, 96 * MIB, HostGrowth::default()).unwrap();
    host.wait_grown();
    let whole = status("VmRSS:");
    host.resize(32 * MIB).unwrap();
    let given = whole - status("VmRSS:");
    assert!(given >= 60 * MIB, "{given} bytes given back of 64 MiB");
    drop(host);
    let left = status("VmSize:").saturating_sub(addresses);
    assert!(
        left <= 130 * MIB,
        "{left} bytes of addresses left behind by five rounds"
    );
    let threads = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(Result::ok);
    let ours = threads.filter(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        // The first thread has the name of the program, which may also begin with `tierflow`.
        let first = thread.file_name().to_string_lossy() == std::process::id().to_string();
        name.starts_with("tierflow") && !first
    });
    assert_eq!(ours.count(), 0, "threads of dropped arenas");
}
