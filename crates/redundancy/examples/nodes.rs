//! What redundancy costs an application, and how fast a lost node's versions come back: ranks that are threads, on nodes that are
//! directories of one disk.
//!
//! ```sh
//! cargo run --release -p tierflow-redundancy --example nodes -- DIRECTORY rebuild xor:4 1024
//! cargo run --release -p tierflow-redundancy --example nodes -- DIRECTORY blocking xor:4 16
//! ```
//!
//! The last number is MiB of a rank's checkpoint. The directory is one of its own, which is emptied.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that fails ends"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, RegionMut};
use tierflow_redundancy::{CHUNK, Directory, Redundancy, Transport};

const PATIENCE: Duration = Duration::from_secs(600);
const MIB: usize = 1 << 20;

struct Group {
    home: PathBuf,
    scheme: Redundancy,
    ranks: u32,
    bytes: usize,
}

impl Group {
    fn node(&self, rank: u32) -> PathBuf {
        self.home.join(format!("node{rank}"))
    }

    fn engine(&self, rank: u32, run: u64, is_protected: bool) -> Engine {
        let transport = Directory::open(&self.home.join("shared"), run, rank).unwrap();
        let builder = Engine::builder(&open(Choice::Host).unwrap())
            .host_cache(2 * self.bytes + 64 * MIB)
            .node_local(self.node(rank));
        let builder = match is_protected {
            true => builder
                .group(rank, self.ranks, run)
                .group_patience(PATIENCE)
                .redundancy(
                    self.scheme
                        .over(Arc::new(transport))
                        .failure_domain(format!("node{rank}")),
                ),
            false => builder,
        };
        builder.build().unwrap()
    }

    fn run<T: Send>(&self, life: impl Fn(u32) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let lives = (0..self.ranks).map(|rank| {
                let life = &life;
                scope.spawn(move || life(rank))
            });
            let lives: Vec<_> = lives.collect();
            lives.into_iter().map(|life| life.join().unwrap()).collect()
        })
    }

    fn state(&self, rank: u32) -> Vec<u8> {
        let mut word = u64::from(rank) + 1;
        let words = std::iter::repeat_with(|| {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word
        });
        words
            .take(self.bytes / 8)
            .flat_map(u64::to_le_bytes)
            .collect()
    }
}

/// Bytes a second.
fn rate(bytes: usize, begun: Instant) -> f64 {
    bytes as f64 / begun.elapsed().as_secs_f64()
}

/// What one sender and one receiver get through a transport in chunks.
fn transport_rate(home: &Path, bytes: usize) -> f64 {
    let open = |rank| Directory::open(&home.join("probe"), 1, rank).unwrap();
    let (zero, one) = (open(0), open(1));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let chunk = vec![7; CHUNK];
            (0..bytes / CHUNK).for_each(|_| zero.send(1, &chunk, PATIENCE).unwrap());
        });
        (0..bytes / CHUNK).for_each(|_| drop(one.receive(0, PATIENCE).unwrap()));
    });
    rate(bytes, begun)
}

/// What the disk takes of one writer, to stay.
fn disk_rate(home: &Path, bytes: usize) -> f64 {
    let path = home.join("probe.bytes");
    let mut file = std::fs::File::create(&path).unwrap();
    let chunk = vec![7; MIB];
    let begun = Instant::now();
    (0..bytes / MIB).for_each(|_| file.write_all(&chunk).unwrap());
    file.sync_all().unwrap();
    let rate = rate(bytes, begun);
    std::fs::remove_file(path).unwrap();
    rate
}

fn rebuild(group: &Group) {
    group.run(|rank| {
        let engine = group.engine(rank, 1, true);
        let state = group.state(rank);
        engine
            .checkpoint(0, &[Region::from(state.as_slice())])
            .unwrap();
        let begun = Instant::now();
        engine.wait().unwrap();
        if rank == 0 {
            println!("durable and protected after {:?}", begun.elapsed());
        }
    });
    // The same bytes as the lost member takes in and writes.
    let received = 2 * group.bytes;
    let (transport, disk) = (
        transport_rate(&group.home, received),
        disk_rate(&group.home, group.bytes),
    );
    println!(
        "transport {:.2} GB/s, disk {:.2} GB/s (written and synchronised)",
        transport / 1e9,
        disk / 1e9
    );
    std::fs::remove_dir_all(group.node(1)).unwrap();
    let begun = Instant::now();
    group.run(|rank| {
        let engine = group.engine(rank, 2, true);
        let took = begun.elapsed();
        let mut bytes = vec![0; group.bytes];
        engine
            .restore(0, &mut [RegionMut::from(bytes.as_mut_slice())])
            .unwrap();
        assert!(bytes == group.state(rank), "rank {rank}");
        if rank == 1 {
            println!("rebuilt {} MiB after {took:?}", group.bytes / MIB);
        }
    });
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The median time of a checkpoint, in milliseconds, of all ranks of a run.
fn blocked(group: &Group, run: u64, is_protected: bool) -> f64 {
    const VERSIONS: u64 = 24;
    (0..group.ranks).for_each(|rank| {
        // There is none at first.
        let _gone = std::fs::remove_dir_all(group.node(rank));
    });
    let together = Barrier::new(group.ranks as usize);
    let times = group.run(|rank| {
        let engine = group.engine(rank, run, is_protected);
        let state = group.state(rank);
        let mut times = Vec::new();
        for version in 0..VERSIONS {
            std::thread::sleep(Duration::from_millis(400));
            together.wait();
            let begun = Instant::now();
            engine
                .checkpoint(version, &[Region::from(state.as_slice())])
                .unwrap();
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        engine.wait().unwrap();
        times
    });
    // The first ones touch memory.
    median(times.iter().flat_map(|times| times[4..].to_vec()).collect())
}

fn blocking(group: &Group) {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for pair in 0..9 {
        without.push(blocked(group, 2 * pair + 1, false));
        with.push(blocked(group, 2 * pair + 2, true));
    }
    let spread = |all: &[f64]| {
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(0.0, f64::max);
        format!("{:.2} ms ({least:.2} to {most:.2})", median(all.to_vec()))
    };
    println!("without {}, with {}", spread(&without), spread(&with));
    let ratios = with
        .iter()
        .zip(&without)
        .map(|(with, without)| with / without);
    println!("ratio of the pairs, median {:.3}", median(ratios.collect()));
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [home, what, scheme, mib] = words.as_slice() else {
        println!("DIRECTORY rebuild|blocking SCHEME MIB");
        return;
    };
    let scheme: Redundancy = scheme.parse().unwrap();
    let group = Group {
        home: home.into(),
        scheme,
        ranks: u32::try_from(scheme.set()).unwrap(),
        bytes: mib.parse::<usize>().unwrap() * MIB,
    };
    // There is none at first.
    let _gone = std::fs::remove_dir_all(&group.home);
    std::fs::create_dir_all(&group.home).unwrap();
    match what.as_str() {
        "rebuild" => rebuild(&group),
        _ => blocking(&group),
    }
    std::fs::remove_dir_all(&group.home).unwrap();
}
