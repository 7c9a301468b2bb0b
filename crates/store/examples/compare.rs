//! Measures the speed of a comparison of two histories beside a plain read of their files, and checks the differences that it finds.
//!
//! `cargo run --release -p tierflow-store --example compare -- DIRECTORY GIB`
//!
//! Three histories have GIB versions each, of 1 GiB of `f32` in 16 regions. No more than two of them exist at a time. The second history
//! has one other value in its last version. All values of the third history differ from those of the first by up to nine tenths of the
//! tolerance, except a million planted ones that differ by more. The writer counts the values beyond the tolerance in each region, and
//! the comparison must find the same number, first place, largest distance and its place. Each measurement begins with an empty page
//! cache if the caller may empty it. The directory is left empty.
#![allow(clippy::unwrap_used, reason = "an example ends with the first error")]

use rustix::fs::OFlags;
use std::fs::{OpenOptions, read_dir};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tierflow_store::container::Element;
use tierflow_store::{Difference, Options, Region, Repository, Snapshot};

/// Values of a version, and of one of its regions.
const VALUES: usize = 1 << 28;
const REGION: usize = VALUES / 16;
/// Approximate number of planted differences of a history.
const PLANTED: usize = 1_000_000;
const WITHIN: f64 = 1e-6;
/// Alignment of buffers for reads in bytes.
const BLOCK: usize = 4096;
/// Comparisons of the third history. The medians count.
const ROUNDS: usize = 5;

/// Returns a number in 0..1 that depends on the seed and the index alone.
fn drawn(seed: u64, index: usize) -> f32 {
    let mut bits = seed ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits >> 40) as f32 / (1 << 24) as f32
}

/// Writes a history. `change` makes its values from those of the first history.
fn write(place: &Path, versions: u64, change: impl Fn(u64, &mut [f32])) {
    let repository = Repository::open(place, Options::default()).unwrap();
    for version in 0..versions {
        let mut values: Vec<f32> = (0..VALUES).map(|index| drawn(version, index)).collect();
        change(version, &mut values);
        let names: Vec<String> = (0..VALUES / REGION).map(|n| format!("wave {n}")).collect();
        let shape = [REGION as u64];
        let parts = names.iter().zip(values.chunks(REGION));
        let regions: Vec<_> = parts
            .map(|(name, values)| {
                Region::new(name, bytemuck::cast_slice(values)).array(Element::F32, &shape)
            })
            .collect();
        let snapshot = Snapshot {
            version,
            base: None,
            regions: &regions,
        };
        repository.save(&snapshot).unwrap();
    }
}

/// Changes each value by less than the tolerance, and plants larger differences.
fn changed(version: u64, values: &mut [f32], versions: u64) {
    let rarity = (VALUES as u64 * versions) as f32 / PLANTED as f32;
    for (index, value) in values.iter_mut().enumerate() {
        let share = 2.0 * drawn(version + 1000, index) - 1.0;
        let size = match drawn(version + 2000, index) * rarity < 1.0 {
            // Planted differences are from 1.1 to 1100 tolerances.
            true => 1.1 * 1000_f32.powf(share.abs()),
            false => 0.9 * share.abs(),
        };
        *value += (WITHIN as f32 * size).copysign(share);
    }
}

/// Returns the difference beyond the tolerance in each region of a version, computed without the library.
fn expected(version: u64, values: &[f32]) -> Vec<Option<Difference>> {
    let regions = values.chunks(REGION).enumerate();
    let of = |(number, values): (usize, &[f32])| {
        let mut found: Option<Difference> = None;
        for (at, value) in values.iter().enumerate() {
            let before = drawn(version, number * REGION + at);
            let apart = (f64::from(*value) - f64::from(before)).abs();
            if apart > WITHIN {
                let difference = found.get_or_insert(Difference {
                    first: at as u64,
                    count: 0,
                    largest: 0.0,
                    largest_at: 0,
                });
                difference.count += 1;
                if apart > difference.largest {
                    (difference.largest, difference.largest_at) = (apart, at as u64);
                }
            }
        }
        found
    };
    regions.map(of).collect()
}

fn empty_page_cache() {
    if std::fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
        println!("the page cache could not be emptied");
    }
}

/// Reads all files of both histories past the page cache, with as many threads as a comparison has. Returns GB/s.
fn read_plainly(places: [&Path; 2]) -> f64 {
    empty_page_cache();
    let files = places
        .iter()
        .flat_map(|place| read_dir(place.join("rank-0")).unwrap());
    let files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(4);
    let (begun, next) = (Instant::now(), std::sync::Mutex::new(files.into_iter()));
    let bytes: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let (mut memory, mut bytes) = (vec![0; (4 << 20) + BLOCK], 0);
                    let start = memory.as_ptr().align_offset(BLOCK);
                    let buffer = &mut memory[start..start + (4 << 20)];
                    while let Some(path) = { next.lock().unwrap().next() } {
                        let direct = OFlags::DIRECT.bits().cast_signed();
                        let mut open = OpenOptions::new();
                        let mut file = open.read(true).custom_flags(direct).open(path).unwrap();
                        // The last read of a file is the only one that is shorter than the buffer.
                        loop {
                            let read = file.read(buffer).unwrap();
                            bytes += read as u64;
                            if read < buffer.len() {
                                break;
                            }
                        }
                    }
                    bytes
                })
            })
            .collect();
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .sum()
    });
    bytes as f64 / begun.elapsed().as_secs_f64() / 1e9
}

/// A comparison of two histories.
struct Compared {
    /// The differences of each version's regions.
    versions: Vec<Vec<Option<Difference>>>,
    /// Bytes of both histories that were read in a second.
    rate: f64,
}

fn compare(name: &str, [left, right]: [&Path; 2], within: Option<f64>) -> Compared {
    empty_page_cache();
    let begun = Instant::now();
    let open = |place| Repository::read_only(place, Options::default()).unwrap();
    let (left, right) = (open(left), open(right));
    let infos = left.versions().unwrap();
    let opened = begun.elapsed().as_secs_f64();
    let (mut read, mut all) = (0, 0);
    let mut versions = Vec::new();
    for info in infos {
        let [a, b] = [&left, &right].map(|history| history.piece(info.version).unwrap());
        let found = a.compare(&b, None, within).unwrap();
        read += found.bytes_read;
        all += 2 * info.bytes;
        let mut regions = vec![None; VALUES / REGION];
        for region in found.regions {
            let number: usize = region.region.name["wave ".len()..].parse().unwrap();
            regions[number] = Some(region.difference);
        }
        versions.push(regions);
    }
    let seconds = begun.elapsed().as_secs_f64() - opened;
    let differ: u64 = versions
        .iter()
        .flatten()
        .flatten()
        .map(|found| found.count)
        .sum();
    println!(
        "{name}: {differ} values differ; {:.4}% of the bytes read; opened in {opened:.3} s, compared in {seconds:.3} s",
        100.0 * read as f64 / all as f64,
    );
    Compared {
        versions,
        rate: read as f64 / seconds,
    }
}

/// Returns the bytes of a history's files beyond those of its values, as a share of the latter.
fn overhead(place: &Path, versions: u64) -> f64 {
    let files = read_dir(place.join("rank-0")).unwrap();
    let bytes: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    let values = 4 * VALUES as u64 * versions;
    (bytes - values) as f64 / values as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, gib] = &arguments[..] else {
        println!("compare DIRECTORY GIB");
        return;
    };
    let versions: u64 = gib.parse().unwrap();
    let place = |name: &str| Path::new(directory).join(name);
    let (first, second, third) = (place("first"), place("second"), place("third"));
    write(&first, versions, |_, _| {});
    println!(
        "checksums, heads and all else: {:.4}% of the values' bytes",
        100.0 * overhead(&first, versions)
    );
    write(&second, versions, |version, values| {
        values[VALUES / 3] += f32::from(u8::from(version + 1 == versions));
    });
    let one = compare("one value", [&first, &second], None);
    let found: Vec<&Difference> = one.versions.iter().flatten().flatten().collect();
    assert!(
        matches!(found[..], [Difference { count: 1, .. }]),
        "{found:?}"
    );
    std::fs::remove_dir_all(&second).unwrap();
    let beyond = std::cell::RefCell::new(Vec::new());
    write(&third, versions, |version, values| {
        changed(version, values, versions);
        beyond.borrow_mut().push(expected(version, values));
    });
    let beyond = beyond.into_inner();
    let (mut plain, mut compared) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(read_plainly([&first, &third]));
        let looked = compare("within a tolerance", [&first, &third], Some(WITHIN));
        let is_right = looked.versions == beyond;
        assert!(is_right, "a difference was missed, or made up");
        compared.push(looked.rate / 1e9);
    }
    println!("plain reads {plain:.2?} GB/s, comparisons {compared:.2?} GB/s of both");
    println!(
        "the median of comparisons is {:.2} of that of plain reads; no difference was missed, and none made up",
        median(compared) / median(plain)
    );
    std::fs::remove_dir_all(&first).unwrap();
    std::fs::remove_dir_all(&third).unwrap();
}
