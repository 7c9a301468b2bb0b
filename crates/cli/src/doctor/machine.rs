//! Measures the paths of a machine on which bytes move.

use crate::output::bytes;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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

    /// Saves small versions, and a large version if `rates` is true. Removes all versions of the place, also after an error.
    fn measure_saves(&mut self, place: &Path, rates: bool) -> Result<()> {
        let repository = History::writer(place, 0, 1)?;
        let measured = self.measure_versions(&repository, rates);
        let removed = repository.versions().and_then(|all| {
            let all = all.into_iter().map(|info| info.version);
            repository.remove(&all.collect::<BTreeSet<_>>())
        });
        measured?;
        Ok(removed?)
    }

    fn measure_versions(&mut self, repository: &Repository, rates: bool) -> Result<()> {
        let first = repository
            .versions()?
            .last()
            .map_or(1, |info| info.version + 1);
        let payload = vec![7_u8; LARGE];
        let timed = |version: u64, bytes: &[u8]| -> Result<f64> {
            let regions = [Region::new("doctor", bytes)];
            let begun = Instant::now();
            repository.save(&Snapshot::new(version, &regions))?;
            Ok(begun.elapsed().as_secs_f64())
        };
        let small = (first..first + 3).map(|version| timed(version, &payload[..4096]));
        let small: Vec<f64> = small.collect::<Result<_>>()?;
        self.save_s = small.into_iter().fold(f64::MAX, f64::min);
        if rates {
            self.write = LARGE as f64 / timed(first + 3, &payload)?;
            let begun = Instant::now();
            repository.piece(first + 3)?.read("doctor")?;
            self.read = LARGE as f64 / begun.elapsed().as_secs_f64();
        }
        Ok(())
    }
}

/// Returns a place of this process below a directory or URL.
fn own(path: &Path) -> PathBuf {
    path.join(format!(".tierflow-doctor-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_place_without_a_way_for_saves_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let own = own(directory.path());
        std::fs::write(&own, "no directory").unwrap();
        let refused = Place::measure(directory.path()).refused.unwrap();
        let name = own.file_name().unwrap().to_str().unwrap();
        assert!(refused.contains(name), "{refused}");
    }

    #[test]
    fn the_versions_of_a_measurement_lie_below_the_place_and_are_removed() {
        let url = Path::new("s3://bucket/runs");
        assert_eq!(own(url).parent(), Some(url));
        let directory = tempfile::tempdir().unwrap();
        let mut place = Place::default();
        place.measure_saves(directory.path(), true).unwrap();
        let left = History::open(directory.path()).unwrap();
        assert!(left.versions().unwrap().is_empty());
    }
}
