//! The device memory of a lineage: one allocation, and the structure that tells the kernels what is where in it.
//! kernels/dedup_state.cuh has the kernels' side of it, field by field.

use tierflow_device::{Device, HostReservation, Stream, WriteLoan};

use crate::config::{Config, Method};
use crate::container::{Header, Stored};
use crate::encode::{Last, Rebuilt};
use crate::error::Result;
use crate::hash::{Digest, Hasher, Sum};
use crate::layout::Layout;
use crate::record::GENERATIONS;
use crate::regions::Place;

/// Words of 32 chunks in a tile.
const TILE_WORDS: u32 = 256;

/// Slots of the record that are looked at together.
const BUCKET: u64 = 4;

/// Bytes of `State` up to the pointers.
const CONSTANTS: usize = 48 * 8 + 3 * 8 + 6 * 4;
/// Bytes of `State` from `content` to `generation_count`.
const HISTORY: usize = 2 * 16 + 8 + 2 * 4;
/// Bytes of `State` behind that, all zero between checkpoints.
const SCRATCH: usize = 8 + 8 * 4 + 2 * 4 + RESULT_BYTES;
/// Bytes of `Result`.
pub(super) const RESULT_BYTES: usize = 3 * 16 + 2 * 8 + 5 * 8 + 4 * 4;

/// The arrays, in the order of their pointers in `State`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Array {
    Digests,
    Sources,
    Keys,
    Owners,
    Changed,
    First,
    Behind,
    Again,
    Heads,
    Ranks,
    HeadRanks,
    TileFirst,
    TileBehind,
    TileAgain,
    TileHeadsFirst,
    TileHeadsShifted,
    Generations,
    Previous,
    Pool,
}

const ARRAYS: [Array; 19] = [
    Array::Digests,
    Array::Sources,
    Array::Keys,
    Array::Owners,
    Array::Changed,
    Array::First,
    Array::Behind,
    Array::Again,
    Array::Heads,
    Array::Ranks,
    Array::HeadRanks,
    Array::TileFirst,
    Array::TileBehind,
    Array::TileAgain,
    Array::TileHeadsFirst,
    Array::TileHeadsShifted,
    Array::Generations,
    Array::Previous,
    Array::Pool,
];

/// The sizes that follow from a configuration and a checkpoint's length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) layout: Layout,
    method: Method,
    capacity: u64,
    slots: u64,
    words: u32,
    tiles: u32,
    /// Whether differences are made, or sums only.
    encodes: bool,
    /// Whether bytes are compared, for which they are kept.
    verifies: bool,
}

impl Plan {
    pub(super) fn new(config: &Config, layout: Layout) -> Self {
        let words = layout.count.div_ceil(32);
        let capacity = config.capacity(layout.count);
        Self {
            layout,
            method: config.method,
            capacity,
            // A fifth of the slots stays free, so that probing ends soon.
            slots: capacity
                .saturating_add(capacity / 4)
                .saturating_add(64)
                .checked_next_multiple_of(BUCKET)
                .unwrap_or(u64::MAX),
            words,
            tiles: words.div_ceil(TILE_WORDS),
            encodes: true,
            verifies: config.verify,
        }
    }

    /// For the sum of a checkpoint alone.
    pub(super) fn of_sums(layout: Layout) -> Self {
        Self {
            encodes: false,
            slots: 0,
            ..Self::new(&Config::new(Method::Full), layout)
        }
    }

    fn looks_up(&self) -> bool {
        matches!(self.method, Method::List | Method::Tree | Method::Auto)
    }

    fn bytes(&self, array: Array) -> u64 {
        let chunks = u64::from(self.layout.count);
        let (words, tiles) = (u64::from(self.words), u64::from(self.tiles));
        let in_record = |bytes: u64| if self.looks_up() { bytes } else { 0 };
        if !self.encodes && array != Array::Changed {
            return 0;
        }
        match array {
            Array::Digests => 16 * chunks,
            Array::Sources => in_record(8 * chunks),
            Array::Keys => in_record(self.slots.saturating_mul(16)),
            Array::Owners => in_record(self.slots.saturating_mul(8)),
            Array::Changed | Array::First => 4 * words,
            Array::Behind | Array::Again | Array::Heads | Array::HeadRanks => 4 * words,
            Array::Ranks => 8 * words,
            Array::TileFirst | Array::TileBehind | Array::TileAgain => 4 * tiles,
            Array::TileHeadsFirst | Array::TileHeadsShifted => 4 * tiles,
            Array::Generations => in_record(8 * GENERATIONS as u64),
            Array::Previous if self.verifies => self.layout.len,
            Array::Pool if self.verifies => {
                in_record(self.slots.saturating_mul(self.layout.chunk.into()))
            }
            Array::Previous | Array::Pool => 0,
        }
    }

    /// Where each array starts, and the length of all.
    fn offsets(&self) -> ([u64; ARRAYS.len()], u64) {
        let state = (CONSTANTS + 8 * ARRAYS.len() + HISTORY + SCRATCH) as u64;
        let mut end = state.next_multiple_of(256);
        let offsets = ARRAYS.map(|array| {
            let start = end;
            end = end
                .saturating_add(self.bytes(array))
                .checked_next_multiple_of(256)
                .unwrap_or(u64::MAX);
            start
        });
        (offsets, end)
    }

    /// Bytes of device memory.
    pub(super) fn total_bytes(&self) -> u64 {
        self.offsets().1
    }

    pub(super) fn words(&self) -> u32 {
        self.words
    }

    pub(super) fn slots(&self) -> u64 {
        if self.looks_up() { self.slots } else { 0 }
    }
}

/// The memory itself. It is lent for as long as this lives, and this lives as long as a kernel may use it.
#[derive(Debug)]
pub(super) struct Arena {
    loan: WriteLoan,
}

impl Arena {
    /// Allocates and initialises, with what is known from before if anything; waits until that is done.
    pub(super) fn new(
        device: &Device,
        stream: &Stream,
        plan: &Plan,
        hasher: &Hasher,
        past: Option<&Past<'_>>,
    ) -> Result<Self> {
        let (offsets, total) = plan.offsets();
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let memory = device.alloc(total)?;
        let loan = memory.lend_mut(0..total)?;
        let base = loan.address();
        drop(loan);
        stream.fill(&mut memory.lend_mut(0..total)?, 0)?;
        let at = |array: Array| {
            let start = offsets[array as usize] as usize;
            start..start + plan.bytes(array) as usize
        };
        if plan.slots() > 0 && plan.encodes {
            stream.fill(&mut memory.lend_mut(at(Array::Owners))?, 0xFF)?;
        }
        let write = |array: Array, bytes: &[u8]| {
            let range = at(array);
            match bytes.len().min(range.len()) {
                0 => Ok(()),
                len => {
                    let part = range.start..range.start + len;
                    stream.write(&bytes[..len], &mut memory.lend_mut(part)?)
                }
            }
        };
        let mut state = state_bytes(plan, hasher, base, &offsets);
        if let Some(past) = past {
            let rebuilt = past.rebuilt;
            write(Array::Digests, &digests(rebuilt.digests.iter().copied()))?;
            let table = Table::new(plan, past);
            write(Array::Keys, &digests(table.keys.into_iter()))?;
            write(Array::Owners, &words(table.owners.into_iter()))?;
            write(Array::Generations, &words(table.generations.into_iter()))?;
            write(Array::Pool, &table.pool)?;
            write(Array::Previous, past.previous)?;
            let history = state.len() - SCRATCH - HISTORY;
            state[history..history + HISTORY].copy_from_slice(&history_bytes(rebuilt));
        }
        stream.write(&state, &mut memory.lend_mut(0..state.len())?)?;
        Ok(Self {
            loan: memory.lend_mut(0..total)?,
        })
    }

    /// The address of the `State`.
    pub(super) fn state(&self) -> u64 {
        self.loan.address()
    }
}

/// Pinned host memory for the kernels' reports, one for each checkpoint in flight.
#[derive(Debug)]
pub(super) struct Reports {
    host: HostReservation,
}

impl Reports {
    const EACH: usize = 128;
    const BYTES: usize = 4096;

    pub(super) fn new(device: &Device) -> Result<Self> {
        let host = super::pinned(device, Self::BYTES)?;
        Ok(Self { host })
    }

    /// Room for one report, until it is dropped.
    ///
    /// # Errors
    ///
    /// [`tierflow_device::Error::Busy`] if too many checkpoints are in flight.
    pub(super) fn take(&self) -> Result<WriteLoan> {
        let lend = |start: usize| self.host.memory().lend_mut(start..start + RESULT_BYTES);
        let free = (0..Self::BYTES)
            .step_by(Self::EACH)
            .find_map(|start| lend(start).ok());
        Ok(free.map_or_else(|| lend(0), Ok)?)
    }
}

fn digests(digests: impl Iterator<Item = Digest>) -> Vec<u8> {
    let words = digests.flat_map(|digest| [digest.low, digest.high]);
    words.flat_map(u64::to_le_bytes).collect()
}

fn words(words: impl Iterator<Item = u64>) -> Vec<u8> {
    words.flat_map(u64::to_le_bytes).collect()
}

/// What a lineage goes on from.
pub(super) struct Past<'a> {
    pub(super) rebuilt: &'a Rebuilt,
    /// The newest checkpoint, and the bytes of any stored chunk; for comparing.
    pub(super) previous: &'a [u8],
    pub(super) stored: &'a dyn Fn(Place) -> Option<&'a [u8]>,
}

/// The record as the kernels keep it.
struct Table {
    keys: Vec<Digest>,
    owners: Vec<u64>,
    generations: Vec<u64>,
    /// The bytes of each slot, if they are to be compared.
    pool: Vec<u8>,
}

impl Table {
    fn new(plan: &Plan, past: &Past<'_>) -> Self {
        let slots = plan.slots() as usize;
        let chunk = plan.layout.chunk_bytes();
        let mut keys = vec![Digest::default(); slots];
        let mut owners = vec![u64::MAX; slots];
        let mut pool = vec![0; plan.bytes(Array::Pool) as usize];
        let record = &past.rebuilt.record;
        let ordinals: Vec<u32> = record.generations().map(|(ordinal, _)| ordinal).collect();
        // A record holds no more than its capacity, which leaves a fifth of the slots free.
        for (digest, place) in record.entries() {
            // Every entry is of a generation that the record knows.
            let Ok(generation) = ordinals.binary_search(&place.ordinal) else {
                continue;
            };
            let buckets = slots as u128 / u128::from(BUCKET);
            let bucket = ((u128::from(digest.low) * buckets) >> 64) as usize;
            let mut at = bucket * BUCKET as usize;
            while owners[at] != u64::MAX {
                at = if at + 1 == slots { 0 } else { at + 1 };
            }
            keys[at] = digest;
            owners[at] =
                (generation as u64) << 52 | digest.high >> 44 << 32 | u64::from(place.chunk);
            if let (Some(to), Some(bytes)) = (pool.get_mut(at * chunk..), (past.stored)(place))
                && let Some(to) = to.get_mut(..bytes.len())
            {
                to.copy_from_slice(bytes);
            }
        }
        let generations = record
            .generations()
            .map(|(ordinal, chunks)| chunks << 32 | u64::from(ordinal));
        Self {
            keys,
            owners,
            generations: generations.collect(),
            pool,
        }
    }
}

/// `content` to `generation_count` of a `State`.
fn history_bytes(past: &Rebuilt) -> Vec<u8> {
    let content = past.last.content;
    let generations = past.record.generations();
    let count = generations.len() as u64;
    let live = generations.map(|(_, chunks)| chunks).sum();
    let words = [
        content.low,
        content.high,
        content.low,
        content.high,
        live,
        count << 32,
    ];
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn state_bytes(plan: &Plan, hasher: &Hasher, base: u64, offsets: &[u64]) -> Vec<u8> {
    let secret = hasher.secret();
    let mut state = Vec::new();
    state.extend_from_slice(secret);
    for from in [121, 11, 117] {
        state.extend_from_slice(&secret[from..from + 64]);
    }
    for field in [plan.layout.len, plan.slots(), plan.capacity] {
        state.extend_from_slice(&field.to_le_bytes());
    }
    let shift = plan.layout.chunk.trailing_zeros();
    let method = match plan.method {
        Method::Full => 0,
        Method::Basic => 1,
        Method::List => 2,
        Method::Tree => 3,
        Method::Auto => 4,
    };
    for field in [
        plan.layout.count,
        shift,
        plan.words,
        plan.tiles,
        method,
        0_u32,
    ] {
        state.extend_from_slice(&field.to_le_bytes());
    }
    for (array, offset) in ARRAYS.iter().zip(offsets) {
        let is_there = plan.bytes(*array) > 0;
        let address = if is_there { base + offset } else { 0 };
        state.extend_from_slice(&address.to_le_bytes());
    }
    state.resize(state.len() + HISTORY + SCRATCH, 0);
    state
}

/// What the kernels say of a difference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    content: Sum,
    parent: Sum,
    payload: Sum,
    metadata: u64,
    payload_bytes: u64,
    /// Chunks that changed.
    pub(super) changed: u64,
    /// Chunks whose digest is another's.
    pub(super) collisions: u64,
    stored: Stored,
    first: u32,
    shifted: u32,
}

impl Report {
    pub(super) fn read(bytes: &[u8; RESULT_BYTES]) -> Self {
        let word = |n: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * n..8 * n + 8]);
            u64::from_le_bytes(word)
        };
        let sum = |n: usize| Sum {
            low: word(n),
            high: word(n + 1),
        };
        let forms = [Stored::Full, Stored::Basic, Stored::List, Stored::Tree];
        let form = word(13) as u32;
        Self {
            content: sum(0),
            parent: sum(2),
            payload: sum(4),
            metadata: word(6),
            payload_bytes: word(7),
            changed: word(8),
            collisions: word(12),
            stored: forms
                .into_iter()
                .find(|stored| u32::from(stored.code()) == form)
                .unwrap_or(Stored::Full),
            first: (word(13) >> 32) as u32,
            shifted: word(14) as u32,
        }
    }

    /// The header that it belongs to. `last` is the checkpoint before; its content is what the kernels
    /// say it was.
    pub(super) fn header(
        &self,
        layout: Layout,
        id: (u64, u32),
        seed: u64,
        last: Option<Last>,
    ) -> Header {
        Header {
            stored: self.stored,
            layout,
            version: id.0,
            ordinal: id.1,
            parent: last.map_or(crate::container::NO_PARENT, |last| last.ordinal),
            seed,
            content: self.content,
            parent_content: last.map_or(Sum::default(), |_| self.parent),
            payload: self.payload,
            payload_bytes: self.payload_bytes,
            metadata: self.metadata,
            first: self.first,
            shifted: self.shifted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_takes_less_memory_than_the_data_at_64_byte_chunks() {
        for len in [1 << 24, 3_260_000_000] {
            let layout = Layout::new(len, 64).unwrap();
            let plan = Plan::new(&Config::new(Method::Tree).chunk(64), layout);
            assert!(plan.total_bytes() < len, "{} for {len}", plan.total_bytes());
        }
    }

    #[test]
    fn the_state_is_as_long_as_the_kernels_say() {
        let layout = Layout::new(1000, 64).unwrap();
        let plan = Plan::new(&Config::new(Method::Tree).chunk(64), layout);
        let (offsets, _) = plan.offsets();
        let bytes = state_bytes(&plan, &Hasher::new(0), 0, &offsets);
        assert_eq!(
            bytes.len(),
            CONSTANTS + 8 * ARRAYS.len() + HISTORY + SCRATCH
        );
        assert!(bytes.len() as u64 <= offsets[0]);
    }
}
