use std::time::Duration;

use tierflow_device::{Choice, Device, open};
use tierflow_engine::Version;
use tierflow_sim::{Hints, Op, Order, Shot};

use super::history::uvm;
use super::play::play;
use super::{Approach, Machine, Scale};

const MIB: u64 = 1 << 20;

/// Caches of 16 MiB on the device, for histories that do not fit.
fn machine(device: Device) -> Machine {
    let scale = Scale {
        versions: 24,
        version: 4 * MIB,
        device: 16 * MIB,
        host: 64 * MIB,
        interval: Duration::from_millis(1),
    };
    Machine {
        device,
        scale,
        managed: Default::default(),
    }
}

#[test]
fn plain_memory_does_not_pass_for_managed() {
    let machine = machine(open(Choice::Host).unwrap());
    let workload = machine.scale.shot(machine.scale.uniform()).workload();
    assert_eq!(machine.lacks(Approach::Uvm), Some("a GPU"));
    let refused = play(&machine, Approach::Uvm, &workload).unwrap_err();
    assert!(refused.to_string().contains("needs a GPU"), "{refused}");
}

/// Bytes that differ from version to version and from place to place.
fn field(version: Version, bytes: usize) -> Vec<u8> {
    let word = |at: u64| (version << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = (0..bytes.div_ceil(8) as u64).flat_map(|at| word(at).to_le_bytes());
    words.take(bytes).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_byte_comes_back_from_managed_memory() {
    let machine = machine(open(Choice::Cuda { ordinal: 0 }).unwrap());
    let sizes: Vec<_> = (0..24_u64).map(|at| 1 + at * 977 % 24 * MIB / 4).collect();
    for (hints, wait) in [
        (Hints::None, false),
        (Hints::Single, false),
        (Hints::All, false),
        (Hints::All, true),
    ] {
        let shot = Shot {
            order: Order::Irregular(1),
            hints,
            wait,
            ..machine.scale.shot(sizes.clone())
        };
        let workload = shot.workload();
        let mut uvm = uvm(&machine, &workload).unwrap();
        let stream = machine.device.stream().unwrap();
        let memory = machine.device.alloc(8 << 20).unwrap();
        for op in workload.ops {
            match op {
                Op::Checkpoint { version, bytes } => {
                    let mut loan = memory.lend_mut(0..bytes as usize).unwrap();
                    stream
                        .write(&field(version, bytes as usize), &mut loan)
                        .unwrap();
                    drop(loan);
                    uvm.checkpoint(version, &memory, bytes).unwrap();
                }
                Op::Restore(version) => {
                    let bytes = sizes[version as usize] as usize;
                    uvm.restore(version, &memory, bytes as u64).unwrap();
                    let mut seen = vec![0; bytes];
                    stream
                        .read(&memory.lend(0..bytes).unwrap(), &mut seen)
                        .unwrap();
                    assert!(seen == field(version, bytes), "version {version}");
                }
                Op::Hint(versions) => uvm.hint(&versions),
                Op::PrefetchStart => uvm.prefetch_start(),
                Op::Wait => uvm.wait().unwrap(),
                Op::Compute(ns) => std::thread::sleep(Duration::from_nanos(ns)),
                Op::Drop(_) | Op::HintNext(_) | Op::ForgetHints(_) | Op::Barrier => {
                    unreachable!("no shot of one does it")
                }
            }
            let resident = uvm.resident();
            assert!(resident <= machine.scale.device, "{resident} bytes");
        }
    }
}
