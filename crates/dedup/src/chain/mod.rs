//! A lineage as it was stored: differences, in any order, from memory or from a file.

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

/// Bytes of metadata from which on threads are faster than one: it takes them as long to begin.
const SIDE_BY_SIDE: u64 = 256 << 10;

/// The stored differences of one lineage. `B` is whatever holds the bytes of one: a vector, a slice, a
/// mapped file.
///
/// Every way out of here checks what it returns: a restored checkpoint is hashed and compared with what
/// its difference says of it.
#[derive(Debug)]
pub struct Chain<B> {
    /// In the order of their ordinals.
    links: Vec<Link<B>>,
}

#[derive(Debug)]
struct Link<B> {
    header: Header,
    bytes: B,
    /// Where the chunks stored in it are. Made when it is first asked for.
    runs: OnceLock<Vec<Run>>,
}

/// Chunks side by side, and where their bytes are in the payload of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) link: usize,
    pub(crate) rank: u32,
    /// Whether the source is one chunk, for all of them.
    pub(crate) repeats: bool,
}

impl<B> Default for Chain<B> {
    fn default() -> Self {
        Self { links: Vec::new() }
    }
}

impl<B: AsRef<[u8]>> Chain<B> {
    /// A chain without differences.
    pub fn new() -> Self {
        Self::default()
    }

    /// A chain of these differences, which are [parsed](Container::parse) side by side where that is much.
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

    /// Adds a difference. The order in which they are added does not matter.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] as for [`Container::parse`]; [`Error::Foreign`] if its seed, chunk size or
    /// length is not that of the others, or its ordinal and version are not ordered as theirs are;
    /// [`Invalid::Twice`]. The chain is then as it was.
    pub fn push(&mut self, bytes: B) -> Result<()> {
        let header = Container::parse(bytes.as_ref())?.header;
        self.insert(header, bytes)
    }

    /// Adds a difference that was parsed.
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
        if self.links.iter().any(|link| link.header.version == version)
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

    /// Bytes of every checkpoint, if there is one.
    pub fn checkpoint_bytes(&self) -> Option<u64> {
        self.links.first().map(|link| link.header.layout.len)
    }

    /// The versions, oldest first.
    pub fn versions(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.links.iter().map(|link| link.header.version)
    }

    /// The difference of a version.
    pub fn get(&self, version: u64) -> Option<Container<'_>> {
        let at = self.position(version).ok()?;
        Some(self.links[at].container())
    }

    /// The stored bytes of a version's difference.
    pub fn stored_bytes(&self, version: u64) -> Option<&[u8]> {
        let at = self.position(version).ok()?;
        Some(self.links[at].bytes.as_ref())
    }

    /// The versions whose differences a restore of `version` reads, itself included, oldest first:
    /// those that must be kept as long as it is.
    ///
    /// # Errors
    ///
    /// [`Invalid::NoSuchVersion`]; [`Error::Missing`] if one of them is not there;
    /// [`Error::Foreign`] if one of them is not the one that was meant.
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

    /// The links that a restore of a version goes through, newest first.
    pub(crate) fn path_of(&self, version: u64) -> Result<Vec<usize>> {
        self.path(self.position(version)?).collect()
    }

    /// What the link says of where chunks are, each move within what its source stores.
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

    /// The payload of a link, oldest first.
    pub(crate) fn payload(&self, at: usize) -> &[u8] {
        self.links[at].container().payload()
    }

    /// The bytes of a stored chunk.
    pub(crate) fn stored_chunk(&self, place: Place) -> Option<&[u8]> {
        let link = &self.links[self.at_ordinal(place.ordinal)?];
        let rank = link.rank(place.chunk)?;
        let layout = link.header.layout;
        let start = rank as usize * layout.chunk_bytes();
        let len = layout.bytes(place.chunk, 1).len();
        link.container().payload().get(start..start + len)
    }

    /// The headers, oldest first.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &Header> {
        self.links.iter().map(|link| &link.header)
    }

    fn position(&self, version: u64) -> Result<usize> {
        self.links
            .iter()
            .position(|link| link.header.version == version)
            .ok_or_else(|| Invalid::NoSuchVersion { version }.into())
    }

    fn at_ordinal(&self, ordinal: u32) -> Option<usize> {
        self.links
            .binary_search_by_key(&ordinal, |link| link.header.ordinal)
            .ok()
    }

    /// The link with this ordinal, which the link `by` needs.
    fn find(&self, ordinal: u32, by: usize) -> Result<usize> {
        self.at_ordinal(ordinal).ok_or_else(|| Error::Missing {
            what: format!("version {}", self.links[by].header.version),
            ordinal,
        })
    }

    /// The parent of a link, if it has one, checked to be the one that was meant.
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

    /// The link, its parent, and so on, up to one that needs no parent.
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

    /// The runs stored in it, as long as they can be.
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

    /// The run that a chunk is in.
    fn run_of(&self, chunk: u32) -> Option<Run> {
        let runs = self.runs();
        let behind = runs.partition_point(|run| run.first <= chunk);
        let run = *runs.get(behind.checked_sub(1)?)?;
        (chunk - run.first < run.count).then_some(run)
    }

    /// How many chunks are in the payload before this one.
    fn rank(&self, chunk: u32) -> Option<u32> {
        self.run_of(chunk).map(|run| run.rank + (chunk - run.first))
    }

    /// The chunk that is in the payload behind so many others.
    fn chunk(&self, rank: u32) -> u32 {
        let runs = self.runs();
        let behind = runs.partition_point(|run| run.rank <= rank);
        // Owners are made from runs, so there is one at or before every rank asked for.
        let run = &runs[behind.saturating_sub(1)];
        run.first + (rank - run.rank)
    }
}
