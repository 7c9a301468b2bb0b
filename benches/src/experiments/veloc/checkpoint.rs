//! Coordinated checkpoints with each policy in turn, and what each took.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tierflow_active_backend::{Backend, LocalStore};
use tierflow_placement::stores::{
    CacheOnly, HybridNaive, HybridOpt, ShortestWait, SsdOnly, StorePolicy,
};
use tierflow_store::{Scratch, Storage, Throttled};

use super::{CHUNK, Machine};
use crate::experiments::Run;
use crate::report::Spread;

const PATIENCE: Duration = Duration::from_secs(120);
/// The goals: never slower than the naive policy by more than 3%, and so much faster where the flushes are
/// faster than the disk.
const NOT_SLOWER: f64 = 0.97;
const FASTER: f64 = 1.2;

/// One point of a figure.
pub(super) struct Case {
    pub(super) figure: &'static str,
    pub(super) writers: usize,
    pub(super) chunks_each: usize,
    pub(super) cache_chunks: usize,
    /// The external bandwidth over the disk's.
    pub(super) times: f64,
    /// What the figure is drawn over.
    pub(super) last: (&'static str, usize),
}

/// A policy with stores of its own.
struct Rival {
    name: &'static str,
    backend: Backend,
    external: Arc<dyn Storage>,
    local: Vec<f64>,
    whole: Vec<f64>,
    to_disk: Vec<f64>,
}

/// Runs the policies in turn, so that what drifts drifts for all of them, and reports each.
pub(super) fn compare(run: &mut Run, machine: &Machine, case: &Case) -> Result<()> {
    let trials = if run.is_quick() { 1 } else { 3 };
    let policies: [Box<dyn StorePolicy>; 5] = [
        Box::new(CacheOnly),
        Box::new(SsdOnly),
        Box::new(HybridNaive),
        Box::new(HybridOpt),
        Box::new(ShortestWait),
    ];
    let mut rivals = Vec::new();
    for policy in policies {
        rivals.push(Rival::new(machine, case, policy)?);
    }
    let data = Data::new(case.writers * case.chunks_each * CHUNK);
    // The first checkpoint finds no flush that it could learn from, and does not count.
    for trial in 0..=trials {
        for rival in &mut rivals {
            let (local, whole, to_disk) = rival.checkpoint(case, data.bytes())?;
            if trial > 0 {
                rival.local.push(local);
                rival.whole.push(whole);
                rival.to_disk.push(to_disk);
            }
        }
    }
    let naive = rivals.iter().find(|rival| rival.name == "hybrid-naive");
    let naive = naive.map(|rival| Spread::of(&rival.local)).transpose()?;
    for rival in &rivals {
        rival.is_whole(data.bytes())?;
        let (over, point) = case.last;
        let name = format!(
            "figure={}, store={}, external={} × disk (throttled), policy={}, {over}={point}",
            case.figure,
            machine.disk_name(),
            case.times,
            rival.name
        );
        run.samples(&name, "local phase", "ns", &rival.local)?;
        run.samples(&name, "until flushed", "ns", &rival.whole)?;
        run.samples(&name, "chunks to disk", "1", &rival.to_disk)?;
        if let Some(naive) = naive {
            let faster = naive.median / Spread::of(&rival.local)?.median;
            let row = run.value(&name, "hybrid-naive over this", "1", faster)?;
            if rival.name == "hybrid-opt" || rival.name == "shortest-wait" {
                row.against(if case.times > 1.0 { FASTER } else { NOT_SLOWER });
            }
        }
    }
    Ok(())
}

impl Rival {
    fn new(machine: &Machine, case: &Case, policy: Box<dyn StorePolicy>) -> Result<Self> {
        let name = policy.name();
        let all = case.writers * case.chunks_each;
        let in_memory = if name == "cache-only" {
            all
        } else {
            case.cache_chunks
        };
        let stores = vec![
            LocalStore {
                storage: machine.open_memory()?,
                calibration: machine.memory_calibration.clone(),
                chunks: in_memory,
            },
            LocalStore {
                storage: machine.open_disk()?,
                calibration: machine.disk_calibration.clone(),
                chunks: all,
            },
        ];
        let external = Scratch::open(&machine.memory)?;
        let external = Throttled::new(external, machine.external(case.times));
        let external: Arc<dyn Storage> = Arc::new(external);
        let options = machine.options.clone();
        let backend = Backend::start(stores, Arc::clone(&external), policy, options)?;
        Ok(Self {
            name,
            backend,
            external,
            local: Vec::new(),
            whole: Vec::new(),
            to_disk: Vec::new(),
        })
    }

    /// All writers at once: nanoseconds until the last byte is on a local store, and until the last one is
    /// flushed; chunks written to the disk.
    fn checkpoint(&self, case: &Case, data: &[u8]) -> Result<(f64, f64, f64)> {
        let before = self.backend.statistics();
        let share = case.chunks_each * CHUNK;
        let began = Instant::now();
        let written: tierflow_active_backend::Result<()> = std::thread::scope(|scope| {
            let writers: Vec<_> = data
                .chunks(share)
                .enumerate()
                .map(|(writer, bytes)| {
                    let mut producer = self.backend.producer();
                    let target = (writer * share) as u64;
                    scope.spawn(move || producer.checkpoint(bytes, target, PATIENCE))
                })
                .collect();
            let mut ends = writers.into_iter().map(|writer| match writer.join() {
                Ok(written) => written,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ends.try_for_each(|end| end)
        });
        written?;
        let local = began.elapsed();
        self.backend.wait(PATIENCE)?;
        let whole = began.elapsed();
        let after = self.backend.statistics();
        let flushed = after.flushed_bytes - before.flushed_bytes;
        ensure!(
            flushed == data.len() as u64 && after.bypassed_bytes == 0 && after.withdrawn_bytes == 0,
            "{}: {flushed} of {} bytes were flushed",
            self.name,
            data.len()
        );
        let to_disk = (after.written_bytes[1] - before.written_bytes[1]) / CHUNK as u64;
        let nanoseconds = |time: Duration| time.as_nanos() as f64;
        Ok((nanoseconds(local), nanoseconds(whole), to_disk as f64))
    }

    /// That the external storage holds what was written.
    fn is_whole(&self, data: &[u8]) -> Result<()> {
        let mut seen = Data::new(CHUNK);
        for (at, wanted) in data.chunks(CHUNK).enumerate() {
            self.external
                .read_at((at * CHUNK) as u64, seen.bytes_mut())?;
            ensure!(seen.bytes() == wanted, "{}: chunk {at} is wrong", self.name);
        }
        Ok(())
    }
}

/// Bytes at an address that direct I/O takes.
struct Data {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

const PAGE: usize = 4096;

impl Data {
    /// So many bytes, each different from its neighbours and from its like in the next chunk.
    fn new(len: usize) -> Self {
        let mut memory = vec![0; len + PAGE];
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for word in memory[start..start + len].chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        Self { memory, start, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}
