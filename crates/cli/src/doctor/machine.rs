//! Measures the paths of a machine on which bytes move.

use crate::output::bytes;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tierflow_device::{Choice, open};
use tierflow_objects::History;
use tierflow_store::{Place as Kind, Region, Repository, Scratch, Snapshot};
use tierflow_transfer::probe;

/// Bytes of memory that are copied at a time.
const MEMORY: usize = 128 << 20;

/// Bytes of a large save.
const LARGE: usize = 32 << 20;

/// The version of the large save. The small ones come before it.
const LAST: u64 = 4;

/// The magic number of tmpfs in `statfs` (Linux, `magic.h`).
const TMPFS: i64 = 0x0102_1994;

/// A machine. Rates are bytes per second.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Rates of copies in memory, by path.
    pub(crate) memory: BTreeMap<String, f64>,
    /// The error with which host memory could not be pinned, if there is a GPU that would copy from it.
    pub(crate) unpinned: Option<String>,
    pub(crate) places: Vec<Place>,
}

/// A directory, or a prefix of an object store.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) name: String,
    /// True for a directory of a file system in memory.
    pub(crate) in_memory: bool,
    /// True if the directory's file system has direct I/O.
    pub(crate) direct_io: bool,
    /// Rates in bytes per second: of direct I/O in a directory, of saves and reads in an object store.
    pub(crate) write: f64,
    pub(crate) read: f64,
    /// Seconds until a small version is durable.
    pub(crate) save_s: f64,
    /// The error that ended the measurement.
    pub(crate) refused: Option<String>,
}

impl Machine {
    pub(crate) fn measure(places: &[PathBuf]) -> Result<Self> {
        let device = open(Choice::Auto)?;
        let rates = probe::memory(&device, MEMORY)?;
        let has_gpu = device.info().kind == tierflow_device::Kind::Cuda;
        let paths = rates.paths.into_iter();
        Ok(Self {
            memory: paths.map(|(path, rate)| (path.to_owned(), rate)).collect(),
            unpinned: rates
                .unpinned
                .filter(|_| has_gpu)
                .map(|why| why.to_string()),
            places: places.iter().map(|place| Place::measure(place)).collect(),
        })
    }

    pub(crate) fn table(&self) -> String {
        let rate = |rate: f64| format!("{}/s", bytes(rate as u64));
        let memory = self.memory.iter();
        let mut text: String = memory
            .map(|(path, value)| format!("{path:<40} {:>14}\n", rate(*value)))
            .collect();
        for place in &self.places {
            text += &format!(
                "{:<40} {:>14} written, {} read, {:.2} ms until a small version is durable{}\n",
                place.name,
                rate(place.write),
                rate(place.read),
                place.save_s * 1e3,
                if place.direct_io {
                    ""
                } else {
                    ", no direct I/O"
                }
            );
        }
        text
    }
}

impl Place {
    fn measure(path: &Path) -> Self {
        let mut place = Self {
            name: path.display().to_string(),
            ..Self::default()
        };
        let measured = match Kind::of(path) {
            Ok(Kind::Directory(path)) => place.measure_directory(&path),
            // An engine that uses the place does not see versions below it.
            Ok(Kind::Url(_)) => place.measure_saves(&own(path), true),
            Err(error) => Err(error.into()),
        };
        place.refused = measured.err().map(|error| format!("{error:#}"));
        place
    }

    fn measure_directory(&mut self, path: &Path) -> Result<()> {
        self.in_memory = rustix::fs::statfs(path)?.f_type == TMPFS;
        let scratch = Scratch::open(path)?;
        self.direct_io = scratch.obtained().direct;
        let rates = probe::storage(&scratch)?;
        (self.write, self.read) = (rates.write, rates.read);
        drop(scratch);
        let own = own(path);
        let measured = self.measure_saves(&own, false);
        let removed = std::fs::remove_dir_all(&own);
        measured?;
        Ok(removed?)
    }

    /// Saves small versions, and a large version if `rates` is true. Removes all versions of the place, also after an error: then also
    /// those that no list shows.
    fn measure_saves(&mut self, place: &Path, rates: bool) -> Result<()> {
        let repository = History::writer(place, 0, 1)?;
        let measured = self.measure_versions(&repository, rates);
        let removed = repository.remove(&(1..=LAST).collect());
        measured?;
        removed?;
        Ok(())
    }

    fn measure_versions(&mut self, repository: &Repository, rates: bool) -> Result<()> {
        let payload = vec![7_u8; LARGE];
        let timed = |version: u64, bytes: &[u8]| -> Result<f64> {
            let regions = [Region::new("doctor", bytes)];
            let begun = Instant::now();
            repository.save(&Snapshot::new(version, &regions))?;
            Ok(begun.elapsed().as_secs_f64())
        };
        let small = (1..LAST).map(|version| timed(version, &payload[..4096]));
        let small: Vec<f64> = small.collect::<Result<_>>()?;
        self.save_s = small.into_iter().fold(f64::MAX, f64::min);
        if rates {
            self.write = LARGE as f64 / timed(LAST, &payload)?;
            let begun = Instant::now();
            repository.piece(LAST)?.read("doctor")?;
            self.read = LARGE as f64 / begun.elapsed().as_secs_f64();
        }
        Ok(())
    }
}

/// Returns a place of this measurement alone below a directory or URL.
fn own(path: &Path) -> PathBuf {
    // The hasher has new random keys each time: machines that share a bucket have processes of one number.
    let number = RandomState::new().hash_one(std::process::id());
    path.join(format!(".tierflow-doctor-{number:016x}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_place_without_a_way_for_saves_says_why() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = Place::measure(file.path()).refused.unwrap();
        let name = file.path().file_name().unwrap().to_str().unwrap();
        assert!(refused.contains(name), "{refused}");
    }

    #[test]
    fn the_versions_of_a_measurement_lie_below_the_place_and_are_removed() {
        let url = Path::new("s3://bucket/runs");
        assert_eq!(own(url).parent(), Some(url));
        assert_ne!(own(url), own(url));
        let directory = tempfile::tempdir().unwrap();
        let measure = || Place::default().measure_saves(directory.path(), true);
        let are_removed = || {
            let left = History::open(directory.path()).unwrap();
            left.versions().unwrap().is_empty()
        };
        measure().unwrap();
        assert!(are_removed());
        // The second save fails.
        let there = History::writer(directory.path(), 0, 1).unwrap();
        let regions = [Region::new("doctor", &[7])];
        there.save(&Snapshot::new(2, &regions)).unwrap();
        drop(there);
        assert!(measure().is_err() && are_removed());
    }
}
