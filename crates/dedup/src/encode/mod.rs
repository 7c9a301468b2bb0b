//! Making differences on the CPU, with all threads of the caller's rayon pool.

mod gather;
mod leaves;
mod resolve;
mod resume;
mod verify;

pub(crate) use resume::Rebuilt;

use rayon::prelude::*;

use crate::config::{Config, Method};
use crate::container::{Body, Header, NO_PARENT, Stored, full_is_smaller};
use crate::error::{Error, Invalid, Result};
use crate::hash::{Digest, Hasher, Sum};
use crate::layout::Layout;
use crate::record::Record;
use crate::regions::{Place, Regions};
use leaves::Block;
use verify::Kept;

/// Encodes the checkpoints of one lineage, one after the other.
///
/// All checkpoints of a lineage have the same length. The bytes that come out depend on nothing but
/// the configuration and the checkpoints: not on the threads, nor on whether a GPU did it
/// ([`gpu::Lineage`](crate::gpu::Lineage)).
#[derive(Debug)]
pub struct Lineage {
    config: Config,
    hasher: Hasher,
    next_ordinal: u32,
    last: Option<Last>,
    state: Option<State>,
}

/// The checkpoint before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub(crate) version: u64,
    pub(crate) ordinal: u32,
    pub(crate) content: Sum,
}

/// What is known once the first checkpoint is.
#[derive(Debug)]
struct State {
    layout: Layout,
    /// Of the chunks of the checkpoint before; empty before the first.
    digests: Vec<Digest>,
    record: Record,
    kept: Option<Kept>,
}

/// One encoded checkpoint: the bytes to store, and what they are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub(crate) bytes: Vec<u8>,
    pub(crate) summary: Summary,
}

/// What a difference is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The version, as the caller called it.
    pub version: u64,
    /// Its number in the lineage.
    pub ordinal: u32,
    /// The form it has.
    pub stored: Stored,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of the container: header, metadata and payload.
    pub stored_bytes: u64,
    /// Bytes of the metadata.
    pub metadata_bytes: u64,
    /// Bytes of the payload.
    pub payload_bytes: u64,
    /// Matches of digests whose bytes differ, found because [`Config::verify`] was on.
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

    /// Bytes of the checkpoint for each byte stored.
    pub fn ratio(&self) -> f64 {
        self.checkpoint_bytes as f64 / self.stored_bytes as f64
    }
}

impl Difference {
    /// The container: what is to be stored. [`Container`](crate::Container) reads it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The container, owned.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What it is made of.
    pub fn summary(&self) -> Summary {
        self.summary
    }
}

impl Lineage {
    /// A lineage without checkpoints.
    ///
    /// # Errors
    ///
    /// [`Invalid::Chunk`].
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

    /// How it encodes, with the seed that it has.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The newest version, if there is one.
    pub fn last_version(&self) -> Option<u64> {
        self.last.map(|last| last.version)
    }

    /// Encodes the next checkpoint. After an error the lineage is as it was.
    ///
    /// # Errors
    ///
    /// [`Invalid::Length`] if it is not as long as those before; [`Invalid::VersionOrder`] if the
    /// version is not larger than the one before; [`Invalid::Empty`], [`Invalid::TooManyChunks`],
    /// [`Invalid::TooManyVersions`].
    pub fn encode(&mut self, version: u64, data: &[u8]) -> Result<Difference> {
        let (layout, ordinal) = self.admit(version, data.len() as u64)?;
        let config = self.config;
        let state = self
            .state
            .get_or_insert_with(|| State::new(&config, layout));
        let mut pass = Pass {
            hasher: &self.hasher,
            layout,
            ordinal,
            data,
            content: self.last.map_or(Sum::default(), |last| last.content),
            collisions: 0,
        };
        let parent = self.last;
        let (blocks, body) = state.label(&config, &mut pass)?;
        let difference = gather::gather(&pass, &blocks, body, version, parent);
        if let Some(kept) = &mut state.kept {
            kept.keep(layout, ordinal, &blocks, &difference)?;
        }
        self.last = Some(Last {
            version,
            ordinal,
            content: pass.content,
        });
        self.next_ordinal = ordinal + 1;
        Ok(difference)
    }

    /// The layout and the ordinal of the next checkpoint, if it may come.
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

/// Whether such a checkpoint may come next in a lineage.
pub(crate) fn admit(
    version: u64,
    len: u64,
    expected: Option<u64>,
    last: Option<Last>,
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

/// One checkpoint on its way.
struct Pass<'a> {
    hasher: &'a Hasher,
    layout: Layout,
    ordinal: u32,
    data: &'a [u8],
    /// Of the checkpoint before, then of this one.
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
            record: Record::new(config.capacity(layout.count)),
            kept: config.verify.then(Kept::default),
        }
    }

    /// Labels every chunk, and chooses the form: the blocks say which chunks changed and where their
    /// bytes are, the body what the metadata says of it.
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

/// The regions of all blocks.
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

/// The header of a difference whose payload and metadata are not summed up yet.
pub(crate) fn header(
    layout: Layout,
    body: &Body,
    (version, ordinal): (u64, u32),
    seed: u64,
    parent: Option<Last>,
    content: Sum,
    payload_bytes: u64,
) -> Header {
    let (first, shifted) = body.entries();
    Header {
        stored: body.stored(),
        layout,
        version,
        ordinal,
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
    /// An error of a chain that this crate itself has just made.
    pub(crate) fn own(version: u64) -> Self {
        Self::corrupt(version, "it contradicts the lineage that made it")
    }
}
