//! The contents of versions, and the process that saves them.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tierflow_objects::Settings;
use tierflow_store::{Error, Region, Snapshot};

/// The versions that a writer saves.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) url: String,
    pub(crate) from: u64,
    /// Number of versions.
    pub(crate) most: u64,
    pub(crate) threads: u64,
    /// Bytes of each version. 0 means small versions of many sizes.
    pub(crate) large: u64,
}

impl Load {
    pub(crate) fn arguments(&self) -> Vec<String> {
        let numbers = [
            ("--from", self.from),
            ("--most", self.most),
            ("--threads", self.threads),
            ("--large", self.large),
        ];
        let numbers = numbers
            .iter()
            .flat_map(|(name, n)| [(*name).to_owned(), n.to_string()]);
        let url = ["--url".to_owned(), self.url.clone()];
        numbers.chain(url).chain(["--write".to_owned()]).collect()
    }

    /// Returns the bytes of a version.
    pub(crate) fn length(&self, version: u64) -> u64 {
        match self.large {
            0 => mixed(version) % 3000,
            bytes => bytes,
        }
    }
}

/// Returns a word that differs for each seed, so that versions differ in all places.
fn mixed(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Returns bytes of a version from an offset on, which must be a multiple of 8.
pub(crate) fn contents(version: u64, offset: u64, length: usize) -> impl Iterator<Item = u8> {
    let words = offset / 8..;
    let words = words.map(move |word| mixed(version ^ word << 24));
    words.flat_map(u64::to_le_bytes).take(length)
}

/// Ends the writer, and prints the reason for the process that started it.
fn fail(why: &str) -> ! {
    let line = format!("failed {}\n", why.replace('\n', " "));
    let _without_reader = std::io::stdout().write_all(line.as_bytes());
    std::process::exit(1)
}

/// Saves versions until it is killed.
pub(crate) fn write(load: &Load) {
    let opened = tierflow_objects::open(&load.url, &Settings::default());
    let vault =
        opened.unwrap_or_else(|error| fail(&format!("the store cannot be opened: {error:?}")));
    let next = AtomicU64::new(load.from);
    let report = |what: &str, version: u64| {
        let line = format!("{what} {version}\n");
        std::io::stdout()
            .write_all(line.as_bytes())
            .expect("the parent process reads");
    };
    let work = || loop {
        let version = next.fetch_add(1, Relaxed);
        if version - load.from >= load.most {
            return;
        }
        report("begun", version);
        let length = load.length(version);
        // The bytes are made while they are written, so a large version is never in memory.
        let pull = |offset: u64, bytes: &mut [u8]| {
            let contents = contents(version, offset, bytes.len());
            bytes
                .iter_mut()
                .zip(contents)
                .for_each(|(byte, made)| *byte = made);
            Ok(())
        };
        let regions = [Region::pulled("state", length, &pull)];
        let snapshot = Snapshot::new(version, &regions);
        // The server may be gone for a while, so the save is tried until it succeeds.
        while let Err(error) = vault.save(&snapshot) {
            if !matches!(error, Error::Remote(_)) {
                fail(&format!("version {version} cannot be saved: {error:?}"));
            }
        }
        report("saved", version);
    };
    std::thread::scope(|scope| {
        for _ in 0..load.threads {
            scope.spawn(work);
        }
    });
    // The parent process decides when the writer ends.
    loop {
        std::thread::park();
    }
}
