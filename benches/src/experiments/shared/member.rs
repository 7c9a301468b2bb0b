//! A process of experiment `shared`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, Tier};
use tierflow_store::{Options, Piece, Ready, Repository, Snapshot, Vault, VersionInfo};

use crate::process::{meet, say};
use crate::random::unit;

/// Bytes after which a writer waits for its share of the bandwidth.
const STEP: u64 = 256 << 10;

/// Most lateness in ns that a process that woke late may make up for. Without it, the rate would be lower than the set bandwidth.
const CREDIT: u128 = 20_000_000;

/// The work of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Member {
    /// The process's number.
    pub rank: usize,
    /// The folder that all processes write to.
    pub directory: PathBuf,
    /// Bytes of a checkpoint.
    pub bytes: usize,
    /// Versions that its cache holds.
    pub slots: usize,
    /// Rounds of computing and checkpointing.
    pub rounds: usize,
    /// Milliseconds of computing in a round.
    pub millis: u64,
    /// Mean of the exponential distribution by which computing takes longer, as a share: 0.5 is half as long again.
    pub slowed: f64,
    /// Bytes per second that all processes together may write.
    pub bytes_per_second: u64,
}

impl Member {
    /// Does the work. Writes a line and reads one at each meeting, writes a line at the end of the last round, and one once everything is
    /// durable.
    ///
    /// # Errors
    /// The errors of the engine, and an error if the others are gone.
    pub fn serve(self) -> Result<()> {
        let repository = Repository::open(
            self.directory.join(format!("rank-{}", self.rank)),
            Options::default(),
        )?;
        let vault = Slow {
            inner: repository,
            paid: Paid::open(&self.directory.join("paid"), self.bytes_per_second)?,
            bytes: self.bytes as u64,
            one: Mutex::new(()),
        };
        let engine = Engine::builder(&open(Choice::Host)?)
            .host_cache(self.slots * self.bytes)
            .tier(Tier::vault(Arc::new(vault)))
            .build()?;
        let state = vec![1_u8; self.bytes];
        let mut word = self.rank as u64 + 1;
        meet()?;
        for round in 0..self.rounds {
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let slowdown = -self.slowed * (1.0 - unit(word)).ln();
            std::thread::sleep(Duration::from_millis(self.millis).mul_f64(1.0 + slowdown));
            meet()?;
            engine.checkpoint(round as u64, &[Region::from(state.as_slice())])?;
        }
        say("checkpointed")?;
        engine.wait()?;
        say("durable")
    }
}

/// The time until which the writes of all processes use up the bandwidth, in ns since 1970, in a file that they lock.
#[derive(Debug)]
struct Paid {
    file: Mutex<File>,
    bytes_per_second: u64,
}

impl Paid {
    fn open(path: &Path, bytes_per_second: u64) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        Ok(Self {
            file: Mutex::new(file),
            bytes_per_second,
        })
    }

    fn pay(&self, bytes: u64) -> std::io::Result<()> {
        let cost = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second);
        let now = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| since.as_nanos())
        };
        let until = {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.lock()?;
            let mut text = [0; 16];
            file.rewind()?;
            let read = file.read(&mut text)?;
            let before = if read == 16 {
                u128::from_le_bytes(text)
            } else {
                0
            };
            let until = before.max(now() - CREDIT) + cost;
            file.rewind()?;
            file.write_all(&until.to_le_bytes())?;
            file.unlock()?;
            until
        };
        let left = until.saturating_sub(now());
        std::thread::sleep(Duration::from_nanos(u64::try_from(left).unwrap_or(0)));
        Ok(())
    }
}

/// A directory of limited bandwidth, to which a process writes one version at a time.
#[derive(Debug)]
struct Slow {
    inner: Repository,
    paid: Paid,
    bytes: u64,
    one: Mutex<()>,
}

impl Vault for Slow {
    fn versions(&self) -> tierflow_store::Result<Vec<VersionInfo>> {
        self.inner.versions()
    }

    fn piece(&self, version: u64) -> tierflow_store::Result<Piece> {
        self.inner.own_piece(version)
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> tierflow_store::Result<()> {
        let _one_at_a_time = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let paid = || {
            let mut left = self.bytes;
            while left > 0 {
                let step = STEP.min(left);
                let paid = self.paid.pay(step);
                paid.map_err(|error| tierflow_store::Error::Argument(error.to_string()))?;
                left -= step;
            }
            ready()
        };
        Vault::save(&self.inner, snapshot, &paid)
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> tierflow_store::Result<()> {
        Vault::copy(&self.inner, piece, ready)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> tierflow_store::Result<()> {
        self.inner.remove(versions)
    }
}
