//! Resuming of a lineage from its stored differences.

use super::verify::VerifyHistory;
use super::{LastCheckpoint, Lineage, State};
use crate::chain::Chain;
use crate::config::{Config, Method};
use crate::container::{Header, Stored};
use crate::error::{Invalid, Result};
use crate::hash::Digest;
use crate::layout::Layout;
use crate::record::Record;
use crate::regions::Place;
use crate::sample::Sample;

impl Lineage {
    /// Makes a lineage that continues behind the newest difference of a chain, for instance after a restart. Rebuilds the
    /// record by hashing every stored byte once, which verifies the chain.
    ///
    /// With a complete chain and the configuration that wrote it, later differences are the same as without the
    /// restart.
    ///
    /// # Errors
    ///
    /// [`Invalid::Config`] if the chain has another chunk size, or another seed than the configured one; the errors of
    /// [`Chain::verify`].
    pub fn resume<B: AsRef<[u8]>>(config: Config, chain: &Chain<B>) -> Result<Self> {
        config.check()?;
        let Some(rebuilt) = Rebuilt::new(&config, chain)? else {
            return Self::new(config);
        };
        let mut lineage = Self::new(config.seed(rebuilt.seed))?;
        let mut state = State {
            layout: rebuilt.layout,
            digests: rebuilt.digests,
            owners: chain.places()?,
            keep: None,
            record: rebuilt.record,
            kept: None,
        };
        if config.verify {
            state.kept = Some(VerifyHistory::of(chain)?);
        }
        lineage.last = Some(rebuilt.last);
        lineage.next_ordinal = rebuilt.last.ordinal + 1;
        lineage.state = Some(state);
        Ok(lineage)
    }
}

/// The state of a lineage, rebuilt from its chain.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) layout: Layout,
    /// Seed of the chain's digests.
    pub(crate) seed: u64,
    pub(crate) last: LastCheckpoint,
    /// Digests of the newest version's chunks.
    pub(crate) digests: Vec<Digest>,
    pub(crate) record: Record,
}

impl Rebuilt {
    pub(crate) fn new<B: AsRef<[u8]>>(config: &Config, chain: &Chain<B>) -> Result<Option<Self>> {
        let headers = || chain.headers();
        let (Some(first), Some(newest)) = (headers().next(), headers().last()) else {
            return Ok(None);
        };
        let layout = first.layout;
        if layout.chunk != config.chunk {
            return Err(Invalid::Config { what: "chunk size" }.into());
        }
        if config.seed.is_some_and(|seed| seed != first.seed) {
            return Err(Invalid::Config { what: "seed" }.into());
        }
        let last = LastCheckpoint {
            version: newest.version,
            ordinal: newest.ordinal,
            content: newest.content,
        };
        let mut replay = chain.replay()?;
        let mut record = Record::new(config.capacity(layout.count));
        let looks_up = matches!(config.method, Method::List | Method::Tree | Method::Auto);
        let mut before: Option<Vec<Digest>> = None;
        for header in headers() {
            replay.step(chain)?;
            if looks_up {
                let is_stored = |place| chain.stored_chunk(place).is_some();
                enter(
                    config,
                    &mut record,
                    header,
                    before.as_deref(),
                    &replay.digests,
                    is_stored,
                );
            }
            before = Some(replay.digests.clone());
        }
        Ok(Some(Self {
            layout,
            seed: first.seed,
            last,
            digests: replay.digests,
            record,
        }))
    }
}

/// Enters the chunks of a version into the record as its encoding did.
fn enter(
    config: &Config,
    record: &mut Record,
    header: &Header,
    before: Option<&[Digest]>,
    digests: &[Digest],
    is_stored: impl Fn(Place) -> bool,
) {
    let is_new = |chunk: usize| before.is_none_or(|before| before[chunk] != digests[chunk]);
    let unknown = |chunk: &usize| is_new(*chunk) && record.find(digests[*chunk]).is_none();
    if config.method == Method::Auto && header.stored == Stored::Full && before.is_some() {
        let sample = Sample::new(header.layout.count, header.seed, header.ordinal);
        let chunks = (0..sample.len()).map(|n| sample.chunk(n) as usize);
        if sample.is_mostly_new(chunks.filter(unknown).count() as u64) {
            return;
        }
    }
    let candidates: Vec<usize> = (0..digests.len()).filter(unknown).collect();
    record.make_room(candidates.len() as u64);
    let mut entered = 0;
    for chunk in candidates {
        let place = Place {
            ordinal: header.ordinal,
            chunk: chunk as u32,
        };
        // If the writer had another method or record, a chunk that is unknown here may have been a duplicate there. Then its
        // bytes are not stored at this place, so no entry may refer to the place.
        if is_stored(place) {
            let shard = &mut record.shards_mut()[Record::shard_of(digests[chunk])];
            entered += u64::from(shard.enter(digests[chunk], place).is_none());
        }
    }
    record.entered(header.ordinal, entered);
}
