//! Measures the cost of redundancy for an application, and the speed at which a lost node's versions are rebuilt. Ranks are threads, and
//! nodes are directories.
//!
//! ```sh
//! cargo run --release -p tierflow-redundancy --example nodes -- DIRECTORY rebuild xor:4 1024 [OTHERS]
//! cargo run --release -p tierflow-redundancy --example nodes -- DIRECTORY blocking xor:4 16
//! ```
//!
//! The number is the MiB of a rank's checkpoint. The example empties DIRECTORY and OTHERS. OTHERS has all nodes except the lost one, and
//! the messages of the ranks: if it is in memory, the lost node has the disk to itself.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that fails ends"
)]

use rustix::fs::OFlags;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region};
use tierflow_redundancy::{
    CHUNK, Code, Directory, Exchange, Member, ParityStore, Pieces, Redundancy, Sets, Transport,
};
use tierflow_store::{Options, Repository, Snapshot};
use tierflow_testing::as_ranks;

const PATIENCE: Duration = Duration::from_secs(600);
const MIB: usize = 1 << 20;

/// The rank whose node is lost.
const LOST: u32 = 1;
/// Bytes of a write past the page cache.
const WRITE: usize = 4 * MIB;

struct Group {
    home: PathBuf,
    /// The directory of the nodes that are not lost.
    others: PathBuf,
    scheme: Redundancy,
    ranks: u32,
    bytes: usize,
}

impl Group {
    fn node(&self, rank: u32) -> PathBuf {
        let home = if rank == LOST {
            &self.home
        } else {
            &self.others
        };
        home.join(format!("node{rank}"))
    }

    fn engine(&self, rank: u32, run: u64, is_protected: bool) -> Engine {
        let transport = Directory::open(&self.home.join("shared"), run, rank).unwrap();
        let builder = Engine::builder(&open(Choice::Host).unwrap())
            .host_cache(2 * self.bytes + 64 * MIB)
            .node_local(self.node(rank));
        let builder = match is_protected {
            true => builder
                .group(tierflow_engine::Group::new(rank, self.ranks, run).patience(PATIENCE))
                .redundancy(
                    self.scheme
                        .over(Arc::new(transport))
                        .failure_domain(format!("node{rank}")),
                ),
            false => builder,
        };
        builder.build().unwrap()
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

/// Returns the bytes per second since `begun`.
fn rate(bytes: usize, begun: Instant) -> f64 {
    bytes as f64 / begun.elapsed().as_secs_f64()
}

/// Returns the bytes per second that one receiver gets from `senders` senders through a transport, in chunks, with a thread for each.
fn transport_rate(home: &Path, senders: u32, bytes: usize) -> f64 {
    let open = |rank| Directory::open(&home.join("probe"), 1, rank).unwrap();
    let chunks = bytes / CHUNK / senders as usize;
    let receiver = open(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for sender in 1..=senders {
            let from = open(sender);
            scope.spawn(move || {
                let chunk = vec![7; CHUNK];
                (0..chunks).for_each(|_| from.send(0, &chunk, PATIENCE).unwrap());
            });
            let receiver = &receiver;
            scope.spawn(move || {
                (0..chunks).for_each(|_| drop(receiver.receive(sender, PATIENCE).unwrap()));
            });
        }
    });
    rate(chunks * CHUNK * senders as usize, begun)
}

/// Returns the bytes per second that `writers` writers write durably to the disk past the page cache.
fn disk_rate(home: &Path, writers: usize, bytes: usize) -> f64 {
    const BLOCK: usize = 4096;
    let path = home.join("probe.bytes");
    let flags = OFlags::DIRECT.bits().cast_signed();
    let mut options = File::options();
    options.write(true).create(true);
    // File systems in memory cannot be written past the page cache.
    let direct = options.clone().custom_flags(flags).open(&path);
    let file = direct.or_else(|_| options.open(&path)).unwrap();
    let each = bytes / WRITE / writers;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let file = &file;
            scope.spawn(move || {
                let memory: Vec<u8> = (0..WRITE + BLOCK).map(|at| (at * at / 977) as u8).collect();
                let start = memory.as_ptr().align_offset(BLOCK);
                for at in 0..each {
                    let at = (at * writers + writer) * WRITE;
                    let bytes = &memory[start..start + WRITE];
                    file.write_all_at(bytes, at as u64).unwrap();
                }
            });
        }
    });
    file.sync_all().unwrap();
    let rate = rate(each * writers * WRITE, begun);
    std::fs::remove_file(path).unwrap();
    rate
}

/// Returns the bytes per second that one core rebuilds from the remaining shards.
fn code_rate(data: usize, parity: usize) -> f64 {
    let mut code = Code::new(data, parity).unwrap();
    let shard = vec![7_u8; CHUNK];
    let shards: Vec<Option<&[u8]>> = (0..data + parity)
        .map(|index| (index > 0).then_some(shard.as_slice()))
        .collect();
    let begun = Instant::now();
    for _ in 0..256 {
        drop(code.rebuild(&shards, &[0]).unwrap());
    }
    rate(256 * CHUNK, begun)
}

fn rebuild(group: &Group) {
    let members = (0..group.ranks).map(|rank| Member {
        rank,
        node: format!("node{rank}"),
    });
    let sets = Sets::choose(&members.collect::<Vec<_>>(), group.scheme).unwrap();
    let shared = group.others.join("shared");
    let together = Barrier::new(group.ranks as usize);
    let run = |session, body: &(dyn Fn(u32, &Repository, &Pieces<'_>, Instant) + Sync)| {
        as_ranks(group.ranks, |rank| {
            let node = group.node(rank);
            std::fs::create_dir_all(&node).unwrap();
            let options = Options::default().rank(rank, group.ranks);
            let repository = Repository::open(node.join("run"), options).unwrap();
            let store = ParityStore::open(&node.join("parity")).unwrap();
            let transport = Directory::open(&shared, session, rank).unwrap();
            let set = sets.of(rank).unwrap();
            let exchange = Exchange::new(set, rank, &transport, &store, PATIENCE).unwrap();
            let pieces = Pieces::new(&repository, exchange, &store);
            together.wait();
            body(rank, &repository, &pieces, Instant::now());
        });
    };
    run(1, &|rank, repository, pieces, _| {
        let state = group.state(rank);
        let regions = [tierflow_store::Region::new("state", &state)];
        let (version, base, regions) = (0, None, regions.as_slice());
        let snapshot = Snapshot {
            version,
            base,
            regions,
        };
        repository.save(&snapshot).unwrap();
        together.wait();
        let begun = Instant::now();
        pieces.protect(0).unwrap();
        if rank == LOST {
            println!("protected after {:?}", begun.elapsed());
        }
    });
    std::fs::remove_dir_all(group.node(LOST)).unwrap();
    // The lost member receives as many shards as there are data shards, and writes its part and its parity.
    let (data, parity) = (
        group.ranks as usize - group.scheme.tolerates(),
        group.scheme.tolerates(),
    );
    let written = group.bytes / data * (data + parity);
    let received = written * data;
    let transport = transport_rate(&group.others, data as u32, received);
    let disk = [1, 4].map(|writers| disk_rate(&group.home, writers, written));
    println!(
        "disk {:.2} GB/s with 1 writer, {:.2} with 4",
        disk[0] / 1e9,
        disk[1] / 1e9
    );
    let disk = disk[0].max(disk[1]);
    println!(
        "transport {:.2} GB/s, disk {:.2} GB/s, code {:.2} GB/s on one core",
        transport / 1e9,
        disk / 1e9,
        code_rate(data, parity) / 1e9
    );
    run(2, &|rank, repository, pieces, begun| {
        let rebuilt = pieces.rebuild(0).unwrap();
        let took = begun.elapsed().as_secs_f64();
        together.wait();
        if rank == LOST {
            assert!(rebuilt.part && rebuilt.parity);
            let least = (received as f64 / transport).max(written as f64 / disk);
            println!(
                "rebuilt {} MiB and {} MiB of parity after {took:.3} s; transport and disk allow {least:.3} s: {:.0}%",
                group.bytes / MIB,
                (written - group.bytes) / MIB,
                100.0 * least / took
            );
            let piece = repository.own_piece(0).unwrap();
            assert!(piece.read("state").unwrap() == group.state(rank));
        }
    });
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Returns the median time of a checkpoint of all ranks in milliseconds.
fn blocked(group: &Group, run: u64, is_protected: bool) -> f64 {
    const VERSIONS: u64 = 24;
    (0..group.ranks).for_each(|rank| {
        // The first run has no such directory yet.
        let _gone = std::fs::remove_dir_all(group.node(rank));
    });
    let together = Barrier::new(group.ranks as usize);
    let times = as_ranks(group.ranks, |rank| {
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
        if rank == 0 {
            println!("{}", engine.metrics().explain().join("\n"));
        }
        times
    });
    // The first checkpoints touch new memory, so they do not count.
    median(times.iter().flat_map(|times| times[4..].to_vec()).collect())
}

fn blocking(group: &Group) {
    const PAIRS: u64 = 3;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
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
    let (home, what, scheme, mib, others) = match words.as_slice() {
        [home, what, scheme, mib] => (home, what, scheme, mib, home),
        [home, what, scheme, mib, others] => (home, what, scheme, mib, others),
        _ => {
            println!("DIRECTORY rebuild|blocking SCHEME MIB [OTHERS]");
            return;
        }
    };
    let scheme: Redundancy = scheme.parse().unwrap();
    let group = Group {
        home: home.into(),
        others: others.into(),
        scheme,
        ranks: u32::try_from(scheme.set()).unwrap(),
        bytes: mib.parse::<usize>().unwrap() * MIB,
    };
    // The directories may not exist yet.
    for directory in [&group.home, &group.others] {
        let _gone = std::fs::remove_dir_all(directory);
        std::fs::create_dir_all(directory).unwrap();
    }
    match what.as_str() {
        "rebuild" => rebuild(&group),
        _ => blocking(&group),
    }
    for directory in [&group.home, &group.others] {
        let _gone = std::fs::remove_dir_all(directory);
    }
}
