//! Encoding of differences on the CPU, with all threads of the caller's rayon pool.

mod consolidate;
mod gather;
mod leaves;
mod resolve;
mod resume;
mod verify;

pub use consolidate::{Origins, StoredBytes};
pub(crate) use resume::Rebuilt;

use std::collections::BTreeSet;

use rayon::prelude::*;

use crate::config::{Config, Method};
use crate::container::{Body, Header, NO_PARENT, Stored, full_is_smaller};
use crate::error::{Error, Invalid, Result};
use crate::hash::{Digest, Hasher, Sum};
use crate::layout::Layout;
use crate::record::Record;
use crate::regions::{Place, Regions};
use leaves::Block;
use verify::VerifyHistory;

/// A lineage of checkpoints, encoded one after the other.
///
/// All checkpoints of a lineage have the same length. The stored bytes depend only on the configuration and the checkpoints.
/// The number of threads does not change them, and a GPU ([`gpu::GpuLineage`](crate::gpu::GpuLineage)) encodes to the same
/// bytes.
#[derive(Debug)]
pub struct Lineage {
    config: Config,
    hasher: Hasher,
    next_ordinal: u32,
    last: Option<LastCheckpoint>,
    state: Option<State>,
}

/// The checkpoint before the current one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastCheckpoint {
    pub(crate) version: u64,
    pub(crate) ordinal: u32,
    pub(crate) content: Sum,
}

/// Version and ordinal of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointId {
    pub(crate) version: u64,
    pub(crate) ordinal: u32,
}

/// State of a lineage from its first checkpoint on.
#[derive(Debug)]
struct State {
    layout: Layout,
    /// Digests of the chunks of the checkpoint before; empty before the first one.
    digests: Vec<Digest>,
    /// Places of the bytes of these chunks.
    owners: Vec<Place>,
    /// Ordinals of the differences to which the next one may refer, if it is to name the places of all chunks; otherwise `None`.
    keep: Option<BTreeSet<u32>>,
    record: Record,
    kept: Option<VerifyHistory>,
}

/// An encoded checkpoint: its container and a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub(crate) bytes: Vec<u8>,
    pub(crate) summary: Summary,
}

/// Sizes and form of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The version that the caller gave.
    pub version: u64,
    /// Number of the difference in the lineage, from 0.
    pub ordinal: u32,
    /// The stored form.
    pub stored: Stored,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of the container: header, metadata and payload.
    pub stored_bytes: u64,
    /// Bytes of the metadata.
    pub metadata_bytes: u64,
    /// Bytes of the payload.
    pub payload_bytes: u64,
    /// Number of matches of digests whose bytes differ; 0 unless [`Config::verify`] is set.
    pub collisions: u64,
}

impl Summary {
    pub(crate) fn new(header: &Header, collisions: u64) -> Self {
        Self {
            version: header.version,
            ordinal: header.ordinal,
            stored: header.stored,
            checkpoint_bytes: header.layout.len,
            stored_bytes: header.total_bytes(),
            metadata_bytes: header.metadata_bytes(),
            payload_bytes: header.payload_bytes,
            collisions,
        }
    }

    /// Returns the bytes of the checkpoint divided by the stored bytes.
    pub fn ratio(&self) -> f64 {
        self.checkpoint_bytes as f64 / self.stored_bytes as f64
    }
}

impl Difference {
    /// Returns the container, for storing. [`Container`](crate::Container) reads it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the container, owned.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns sizes and form of the difference.
    pub fn summary(&self) -> Summary {
        self.summary
    }
}

impl Lineage {
    /// Makes a lineage without checkpoints.
    ///
    /// # Errors
    ///
    /// [`Invalid::Chunk`] if the chunk size is not supported.
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        let hasher = Hasher::new(config.seed_or_random());
        Ok(Self {
            config: config.seed(hasher.seed()),
            hasher,
            next_ordinal: 0,
            last: None,
            state: None,
        })
    }

    /// Returns the configuration, with the seed in use.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Encodes the next checkpoint. An error leaves the lineage unchanged.
    ///
    /// # Errors
    ///
    /// [`Invalid::Length`] if the checkpoint is not as long as those before; [`Invalid::VersionOrder`] if the version is not
    /// larger than the last one; [`Invalid::Empty`] for 0 bytes; [`Invalid::TooManyChunks`] for more than 2^31 chunks;
    /// [`Invalid::TooManyVersions`] if the lineage has as many checkpoints as possible.
    pub fn encode(&mut self, version: u64, data: &[u8]) -> Result<Difference> {
        let (layout, ordinal) = self.admit(version, data.len() as u64)?;
        let config = self.config;
        let state = self
            .state
            .get_or_insert_with(|| State::new(&config, layout));
        let parent = self.last.filter(|_| state.keep.is_none());
        let mut pass = Pass {
            hasher: &self.hasher,
            layout,
            ordinal,
            data,
            content: self.last.map_or(Sum::default(), |last| last.content),
            collisions: 0,
        };
        let (blocks, body) = state.label(&config, &mut pass)?;
        let difference = gather::gather(&pass, &blocks, body, version, parent);
        if let Some(kept) = &mut state.kept {
            kept.keep(&difference)?;
        }
        state.own(layout, ordinal, &blocks, difference.summary.stored);
        state.keep = None;
        self.last = Some(LastCheckpoint {
            version,
            ordinal,
            content: pass.content,
        });
        self.next_ordinal = ordinal + 1;
        Ok(difference)
    }

    /// Checks the next checkpoint, and returns its layout and ordinal.
    fn admit(&self, version: u64, len: u64) -> Result<(Layout, u32)> {
        let layout = Layout::new(len, self.config.chunk)?;
        admit(
            version,
            len,
            self.state.as_ref().map(|state| state.layout.len),
            self.last,
            self.next_ordinal,
        )?;
        Ok((layout, self.next_ordinal))
    }
}

/// Checks that a checkpoint of this version and length may come next in a lineage.
pub(crate) fn admit(
    version: u64,
    len: u64,
    expected: Option<u64>,
    last: Option<LastCheckpoint>,
    next_ordinal: u32,
) -> Result<()> {
    if let Some(expected) = expected.filter(|&expected| expected != len) {
        return Err(Invalid::Length { len, expected }.into());
    }
    if let Some(last) = last.filter(|last| last.version >= version) {
        let last = last.version;
        return Err(Invalid::VersionOrder { version, last }.into());
    }
    if next_ordinal >= crate::container::REPEATS {
        return Err(Invalid::TooManyVersions.into());
    }
    Ok(())
}

/// A checkpoint while it is being encoded.
struct Pass<'a> {
    hasher: &'a Hasher,
    layout: Layout,
    ordinal: u32,
    data: &'a [u8],
    /// Sum of the checkpoint before; after `hash`, the sum of this checkpoint.
    content: Sum,
    collisions: u64,
}

impl Pass<'_> {
    fn place(&self, chunk: u32) -> Place {
        Place {
            ordinal: self.ordinal,
            chunk,
        }
    }

    fn chunk(&self, chunk: u32) -> &[u8] {
        &self.data[self.layout.bytes(chunk, 1)]
    }
}

impl State {
    fn new(config: &Config, layout: Layout) -> Self {
        Self {
            layout,
            digests: Vec::new(),
            owners: Vec::new(),
            keep: None,
            record: Record::new(config.capacity(layout.count)),
            kept: config.verify.then(VerifyHistory::default),
        }
    }

    /// Notes the places of the bytes of a checkpoint.
    fn own(&mut self, layout: Layout, ordinal: u32, blocks: &[Block], stored: Stored) {
        let own = |chunk| Place { ordinal, chunk };
        if stored == Stored::Full {
            self.owners = (0..layout.count).map(own).collect();
            return;
        }
        self.owners.resize(layout.count as usize, own(0));
        for (chunk, source) in blocks.iter().flat_map(Block::sources) {
            self.owners[chunk as usize] = source;
        }
    }

    /// Labels every chunk and chooses the form. Returns the blocks, which list the changed chunks and their sources,
    /// and the body, which becomes the metadata.
    fn label(&mut self, config: &Config, pass: &mut Pass<'_>) -> Result<(Vec<Block>, Body)> {
        let layout = pass.layout;
        let looks_up = match config.method {
            Method::Full | Method::Basic => false,
            Method::List | Method::Tree => true,
            Method::Auto => !self.is_mostly_new(pass),
        };
        let mut blocks = self.hash(pass, looks_up);
        if looks_up {
            self.resolve(pass, &mut blocks);
        }
        let changed: u64 = blocks.iter().map(|block| block.stored_bytes(layout)).sum();
        let body = match config.method {
            Method::Basic => Body::Basic(leaves::bitmap(layout, &blocks)),
            Method::Full => Body::Full,
            _ if !looks_up => Body::Full,
            method => {
                let join = method != Method::List;
                Body::Regions(regions(pass, &blocks, join), join)
            }
        };
        let is_full = full_is_smaller(layout, body.bytes(layout.count), changed);
        Ok((blocks, if is_full { Body::Full } else { body }))
    }
}

/// Returns the regions of all blocks.
fn regions(pass: &Pass<'_>, blocks: &[Block], join: bool) -> Regions {
    let parts: Vec<Regions> = blocks
        .par_iter()
        .map(|block| {
            let mut regions = Regions::default();
            for (chunk, source) in block.sources() {
                regions.push(pass.place(chunk), source, join);
            }
            regions
        })
        .collect();
    let mut all = Regions::default();
    for part in parts {
        all.append(part, join);
    }
    all
}

/// Makes the header of a difference. The sums of payload and metadata are still missing.
pub(crate) fn header(
    layout: Layout,
    body: &Body,
    id: CheckpointId,
    seed: u64,
    parent: Option<LastCheckpoint>,
    content: Sum,
    payload_bytes: u64,
) -> Header {
    let (first, shifted) = body.entries();
    Header {
        stored: body.stored(),
        layout,
        version: id.version,
        ordinal: id.ordinal,
        parent: parent.map_or(NO_PARENT, |parent| parent.ordinal),
        seed,
        content,
        parent_content: parent.map_or(Sum::default(), |parent| parent.content),
        payload: Sum::default(),
        payload_bytes,
        metadata: 0,
        first,
        shifted,
    }
}

impl Error {
    /// Makes the error for a difference of this crate that contradicts its lineage.
    pub(crate) fn own(version: u64) -> Self {
        Self::corrupt(version, "it contradicts the lineage that made it")
    }
}
