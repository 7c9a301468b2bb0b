//! A group checkpoint in which one device writes four times as many bytes as each of the others.

use std::time::Duration;

use tierflow_device::Device;
use tierflow_peers::{Effort, Overflow, Remainder, calibrate};
use tierflow_placement::{
    Greedy, LocalOnly, MinTimeMaxFlow, Problem, Schedule, Share, Strategy, Topology,
};
use tierflow_testing::noise;

use super::{read, write};

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn quick() -> Effort {
    Effort::default().bytes(2 * MIB).trials(1)
}

/// Returns a problem in which GPU 0 has four times the bytes of each other GPU. Each GPU has memory for an equal part.
fn skewed(topology: &Topology, unit: usize) -> Problem<'_> {
    let count = topology.gpus();
    let total = (count + 3) * unit;
    let fair = total / count / (2 * MIB) * (2 * MIB);
    let size = |gpu: usize| if gpu == 0 { 4 * unit } else { unit } as u64;
    let sizes: Vec<u64> = (0..count).map(size).collect();
    let free = vec![fair as u64; count];
    let problem = Problem::of_checkpoints(topology, &sizes, &free).unwrap();
    problem.aligned_to(2 << 20).unwrap()
}

fn there_and_back(devices: &[Device], schedule: &Schedule, problem: &Problem<'_>) {
    let remainders: Vec<_> = devices
        .iter()
        .zip(problem.shares())
        .enumerate()
        .map(|(seed, (device, share))| match share {
            Share::Remainder(bytes) if *bytes > 0 => {
                let len = usize::try_from(*bytes).unwrap();
                let memory = device.alloc(len).unwrap();
                write(device, &memory, &noise(seed as u64, len));
                Some(Remainder { memory, start: 0 })
            }
            _ => None,
        })
        .collect();
    let overflow = Overflow::new(devices, schedule).unwrap();
    let took = overflow.store(&remainders, PATIENCE).unwrap();
    assert_eq!(took.each.len(), schedule.transfers().len());
    assert_eq!(
        took.all,
        took.each.iter().copied().max().unwrap_or_default()
    );
    for (device, remainder) in devices.iter().zip(&remainders) {
        if let Some(Remainder { memory, .. }) = remainder {
            let mut loan = memory.lend_mut(0..memory.len()).unwrap();
            device.stream().unwrap().fill(&mut loan, 0xee).unwrap();
        }
    }
    overflow.load(&remainders, PATIENCE).unwrap();
    for (seed, (device, remainder)) in devices.iter().zip(&remainders).enumerate() {
        if let Some(Remainder { memory, .. }) = remainder {
            let len = memory.len();
            assert!(read(device, memory, len) == noise(seed as u64, len));
        }
    }
}

/// Runs every strategy's schedule on a calibrated machine, to the peers and back.
pub(crate) fn all_strategies(devices: &[Device], unit: usize) {
    let machine = calibrate(devices, quick()).unwrap();
    println!("{machine:#?}");
    let topology = machine.topology().unwrap();
    let problem = skewed(&topology, unit);
    let strategies: [Box<dyn Strategy>; 3] = [
        Box::new(MinTimeMaxFlow::default()),
        Box::new(Greedy),
        Box::new(LocalOnly),
    ];
    for mut strategy in strategies {
        let schedule = strategy.schedule(&problem).unwrap();
        println!("{}: {}", strategy.name(), schedule.makespan());
        there_and_back(devices, &schedule, &problem);
    }
}
