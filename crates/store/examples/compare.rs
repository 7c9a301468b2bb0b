//! How fast two histories are compared, beside a plain read of their files.
//!
//! `cargo run --release -p tierflow-store --example compare -- DIRECTORY GIB`
//!
//! It writes three histories of GIB versions, each of 1 GiB of `f32`: the second one has one other value in its last version, the
//! third one has all values within 1e-6 of the first one's, but for a million that were planted. Each look begins with an empty page
//! cache, where the caller may empty it.
#![allow(clippy::unwrap_used, reason = "an example ends with the first error")]

use std::fs::{File, read_dir};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tierflow_store::container::Element;
use tierflow_store::{Options, Region, Repository, Snapshot};

const VALUES: usize = 1 << 28;
/// Planted differences of a version.
const PLANTED: usize = 1_000_000;
const WITHIN: f64 = 1e-6;

/// Returns a number in 0..1 that depends on the seed and the index alone.
fn drawn(seed: u64, index: usize) -> f32 {
    let mut bits = seed ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (bits >> 40) as f32 / (1 << 24) as f32
}

fn write(place: &Path, versions: u64, change: impl Fn(u64, &mut [f32])) {
    let repository = Repository::open(place, Options::default()).unwrap();
    for version in 0..versions {
        let mut values: Vec<f32> = (0..VALUES).map(|index| drawn(version, index)).collect();
        change(version, &mut values);
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        let snapshot = Snapshot {
            version,
            base: None,
            regions: &[Region::new("wave", bytes).array(Element::F32, &[VALUES as u64])],
        };
        repository.save(&snapshot).unwrap();
    }
}

fn empty_page_cache() {
    if std::fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
        println!("the page cache could not be emptied");
    }
}

/// Reads all files of both, with as many threads as a comparison has, and returns GB/s.
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
                    let (mut buffer, mut bytes) = (vec![0; 4 << 20], 0);
                    while let Some(path) = { next.lock().unwrap().next() } {
                        let mut file = File::open(path).unwrap();
                        while let read @ 1.. = file.read(&mut buffer).unwrap() {
                            bytes += read as u64;
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

fn compare(name: &str, [left, right]: [&Path; 2], within: Option<f64>) {
    empty_page_cache();
    let begun = Instant::now();
    let open = |place| Repository::read_only(place, Options::default()).unwrap();
    let (left, right) = (open(left), open(right));
    let versions = left.versions().unwrap();
    let opened = begun.elapsed().as_secs_f64();
    let (mut read, mut differ, mut all) = (0, 0, 0);
    for info in versions {
        let [a, b] = [&left, &right].map(|history| history.piece(info.version).unwrap());
        let found = a.compare(&b, None, within).unwrap();
        read += found.bytes_read;
        all += 2 * info.bytes;
        differ += found
            .regions
            .iter()
            .map(|region| region.difference.count)
            .sum::<u64>();
    }
    let seconds = begun.elapsed().as_secs_f64() - opened;
    println!(
        "{name}: {differ} values differ; {:.3}% of the bytes read; opened in {opened:.2} s, compared in {seconds:.2} s, {:.2} GB/s of both",
        100.0 * read as f64 / all as f64,
        read as f64 / seconds / 1e9,
    );
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
    write(&second, versions, |version, values| {
        values[VALUES / 3] += f32::from(u8::from(version + 1 == versions));
    });
    compare("one value", [&first, &second], None);
    std::fs::remove_dir_all(&second).unwrap();
    write(&third, versions, |version, values| {
        for (index, value) in values.iter_mut().enumerate() {
            *value += 4e-7 * (drawn(version + 1000, index) - 0.5);
        }
        for planted in 0..PLANTED {
            values[planted * (VALUES / PLANTED)] += 1e-3;
        }
    });
    for _ in 0..3 {
        println!("plain read: {:.2} GB/s", read_plainly([&first, &third]));
        compare("within a tolerance", [&first, &third], Some(WITHIN));
    }
}
