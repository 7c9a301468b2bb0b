//! Stored lineages: differences, in any order, from memory or from files.

mod compact;
mod owners;
mod replay;
mod restore;

use std::sync::OnceLock;

use rayon::prelude::*;

use crate::container::{Container, Header, NO_PARENT, Run, Stored};
use crate::error::{Error, Invalid, Result};
use crate::regions::Place;

pub use compact::Compacted;

/// Least bytes of metadata for which several threads parse faster than one. For fewer bytes, starting the threads takes as
/// long.
const SIDE_BY_SIDE: u64 = 256 << 10;

/// The stored differences of one lineage. `B` holds the bytes of one difference, as a vector, a slice or a mapped file does.
///
/// The methods check their results: a restored checkpoint is hashed and compared with the sum in its difference.
#[derive(Debug)]
pub struct Chain<B> {
    /// The links, sorted by ordinal.
    links: Vec<Link<B>>,
}

#[derive(Debug)]
struct Link<B> {
    header: Header,
    bytes: B,
    /// The runs of chunks stored in the link, made at first use.
    runs: OnceLock<Vec<Run>>,
}

/// Neighbouring chunks of a version, and the place of their bytes in the payload of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) link: usize,
    pub(crate) rank: u32,
    /// True if all chunks have the bytes of one source chunk.
    pub(crate) repeats: bool,
}

impl<B> Default for Chain<B> {
    fn default() -> Self {
        Self { links: Vec::new() }
    }
}

impl<B: AsRef<[u8]>> Chain<B> {
    /// Makes a chain without differences.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a chain of `differences`. [Parses](Container::parse) them in parallel if they have much metadata.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn of(differences: Vec<B>) -> Result<Self>
    where
        B: Send + Sync,
    {
        let parse = |bytes: &B| Ok(Container::parse(bytes.as_ref())?.header);
        let entries = |bytes: &B| Ok(Header::read(bytes.as_ref())?.metadata_bytes());
        let metadata: u64 = differences.iter().map(entries).sum::<Result<_>>()?;
        let headers: Vec<Header> = match metadata < SIDE_BY_SIDE {
            true => differences.iter().map(parse).collect::<Result<_>>(),
            false => differences.par_iter().map(parse).collect::<Result<_>>(),
        }?;
        let mut chain = Self::new();
        for (header, bytes) in headers.into_iter().zip(differences) {
            chain.insert(header, bytes)?;
        }
        Ok(chain)
    }

    /// Adds a difference. Differences may be added in any order.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] as for [`Container::parse`]; [`Error::Foreign`] if the seed, chunk size or length differs from that
    /// of the other differences, or if versions and ordinals are not in the same order; [`Invalid::Twice`] if the chain
    /// already has this version or ordinal. An error leaves the chain unchanged.
    pub fn push(&mut self, bytes: B) -> Result<()> {
        let header = Container::parse(bytes.as_ref())?.header;
        self.insert(header, bytes)
    }

    /// Adds a parsed difference.
    fn insert(&mut self, header: Header, bytes: B) -> Result<()> {
        let version = header.version;
        let foreign = |what| Err(Error::Foreign { version, what });
        let at = self
            .links
            .partition_point(|link| link.header.ordinal < header.ordinal);
        let (before, behind) = self.links.split_at(at);
        if let Some(other) = self.links.first() {
            if other.header.layout.chunk != header.layout.chunk {
                return foreign("chunk size");
            }
            if other.header.layout.len != header.layout.len {
                return foreign("length");
            }
            if other.header.seed != header.seed {
                return foreign("seed");
            }
        }
        if self.position(version).is_ok()
            || behind
                .first()
                .is_some_and(|next| next.header.ordinal == header.ordinal)
        {
            return Err(Invalid::Twice { version }.into());
        }
        if before
            .last()
            .is_some_and(|link| link.header.version > version)
            || behind
                .first()
                .is_some_and(|link| link.header.version < version)
        {
            return foreign("order of versions");
        }
        let runs = OnceLock::new();
        self.links.insert(
            at,
            Link {
                header,
                bytes,
                runs,
            },
        );
        Ok(())
    }

    /// Returns the bytes of every checkpoint; `None` for an empty chain.
    pub fn checkpoint_bytes(&self) -> Option<u64> {
        self.links.first().map(|link| link.header.layout.len)
    }

    /// Returns the versions, oldest first.
    pub fn versions(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.links.iter().map(|link| link.header.version)
    }

    /// Returns the difference of a version.
    pub fn get(&self, version: u64) -> Option<Container<'_>> {
        let at = self.position(version).ok()?;
        Some(self.links[at].container())
    }

    /// Returns the stored bytes of a version's difference.
    pub fn stored_bytes(&self, version: u64) -> Option<&[u8]> {
        let at = self.position(version).ok()?;
        Some(self.links[at].bytes.as_ref())
    }

    /// Returns the versions whose differences a restore of `version` reads, itself included, oldest first. Keep them as
    /// long as `version`.
    ///
    /// # Errors
    ///
    /// [`Invalid::NoSuchVersion`] if the chain lacks `version`; [`Error::Missing`] if a needed difference is not in the chain;
    /// [`Error::Foreign`] if a needed difference belongs to another lineage.
    pub fn dependencies(&self, version: u64) -> Result<Vec<u64>> {
        let target = self.position(version)?;
        let mut needed = vec![false; self.links.len()];
        for at in self.path(target) {
            let at = at?;
            needed[at] = true;
            let mut last = None;
            for shift in self.links[at].container().shifts() {
                if last != Some(shift.source.ordinal) {
                    last = Some(shift.source.ordinal);
                    needed[self.find(shift.source.ordinal, at)?] = true;
                }
            }
        }
        let links = self.links.iter().zip(needed);
        Ok(links
            .filter(|(_, needed)| *needed)
            .map(|(link, _)| link.header.version)
            .collect())
    }

    /// Returns the links that a restore of a version goes through, newest first.
    pub(crate) fn path_of(&self, version: u64) -> Result<Vec<usize>> {
        self.path(self.position(version)?).collect()
    }

    /// Returns the chunks that the link lists, as moves. Each move lies within the chunks that its source stores.
    pub(crate) fn moves(&self, at: usize) -> Result<Vec<Move>> {
        let link = &self.links[at];
        let mut moves: Vec<Move> = link
            .runs()
            .iter()
            .map(|run| Move {
                first: run.first,
                count: run.count,
                link: at,
                rank: run.rank,
                repeats: false,
            })
            .collect();
        for shift in link.container().shifts() {
            let source = self.find(shift.source.ordinal, at)?;
            let run = self.links[source].run_of(shift.source.chunk);
            let offset = run.map_or(0, |run| shift.source.chunk - run.first);
            let count = shift.node.count();
            let length = if shift.repeats { 1 } else { count };
            let Some(run) = run.filter(|run| run.count - offset >= length) else {
                let what = "an entry has a source that is not stored where it says";
                return Err(Error::corrupt(link.header.version, what));
            };
            moves.push(Move {
                first: shift.node.first(),
                count,
                link: source,
                rank: run.rank + offset,
                repeats: shift.repeats,
            });
        }
        Ok(moves)
    }

    /// Returns the payload of link `at`; 0 is the oldest.
    pub(crate) fn payload(&self, at: usize) -> &[u8] {
        self.links[at].container().payload()
    }

    /// Returns the bytes of a stored chunk.
    pub(crate) fn stored_chunk(&self, place: Place) -> Option<&[u8]> {
        let link = &self.links[self.at_ordinal(place.ordinal)?];
        let rank = link.rank(place.chunk)?;
        let layout = link.header.layout;
        let start = rank as usize * layout.chunk_bytes();
        let len = layout.bytes(place.chunk, 1).len();
        link.container().payload().get(start..start + len)
    }

    /// Returns the headers, oldest first.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &Header> {
        self.links.iter().map(|link| &link.header)
    }

    fn position(&self, version: u64) -> Result<usize> {
        // Sorting by ordinal sorts by version too: `insert` checks that both have one order.
        self.links
            .binary_search_by_key(&version, |link| link.header.version)
            .map_err(|_| Invalid::NoSuchVersion { version }.into())
    }

    fn at_ordinal(&self, ordinal: u32) -> Option<usize> {
        self.links
            .binary_search_by_key(&ordinal, |link| link.header.ordinal)
            .ok()
    }

    /// Returns the link with this ordinal, which the link `by` needs.
    fn find(&self, ordinal: u32, by: usize) -> Result<usize> {
        self.at_ordinal(ordinal).ok_or_else(|| Error::Missing {
            what: format!("version {}", self.links[by].header.version),
            ordinal,
        })
    }

    /// Returns the parent of a link, if it has one. Checks that the parent has the expected content.
    fn parent(&self, at: usize) -> Result<Option<usize>> {
        let header = &self.links[at].header;
        if header.parent == NO_PARENT {
            return Ok(None);
        }
        let parent = self.find(header.parent, at)?;
        if self.links[parent].header.content != header.parent_content {
            return Err(Error::Foreign {
                version: header.version,
                what: "parent",
            });
        }
        Ok(Some(parent))
    }

    /// Returns the link, its parent, and so on, up to a link that needs no parent.
    fn path(&self, target: usize) -> impl Iterator<Item = Result<usize>> + '_ {
        let mut next = Ok(Some(target));
        std::iter::from_fn(move || {
            let at = match std::mem::replace(&mut next, Ok(None)) {
                Ok(at) => at?,
                Err(error) => return Some(Err(error)),
            };
            if self.links[at].header.stored != Stored::Full {
                next = self.parent(at);
            }
            Some(Ok(at))
        })
    }
}

impl<B: AsRef<[u8]>> Link<B> {
    fn container(&self) -> Container<'_> {
        Container::known(self.header, self.bytes.as_ref())
    }

    /// Returns the runs of chunks stored in the link, as long as possible.
    fn runs(&self) -> &[Run] {
        self.runs.get_or_init(|| {
            let mut runs: Vec<Run> = Vec::new();
            for run in self.container().stored_runs() {
                match runs.last_mut() {
                    Some(last) if last.first + last.count == run.first => last.count += run.count,
                    _ => runs.push(run),
                }
            }
            runs
        })
    }

    /// Returns the run that contains a chunk.
    fn run_of(&self, chunk: u32) -> Option<Run> {
        let runs = self.runs();
        let behind = runs.partition_point(|run| run.first <= chunk);
        let run = *runs.get(behind.checked_sub(1)?)?;
        (chunk - run.first < run.count).then_some(run)
    }

    /// Returns the number of chunks in the payload before `chunk`; `None` if the link does not store the chunk.
    fn rank(&self, chunk: u32) -> Option<u32> {
        self.run_of(chunk).map(|run| run.rank + (chunk - run.first))
    }

    /// Returns the chunk at position `rank` of the payload.
    fn chunk(&self, rank: u32) -> u32 {
        let runs = self.runs();
        let behind = runs.partition_point(|run| run.rank <= rank);
        // Owners are made from runs, so a run at or before `rank` exists.
        let run = &runs[behind.saturating_sub(1)];
        run.first + (rank - run.rank)
    }
}
