//! What lies in the store, as far as the heads tell.

use crate::remote::{Object, Remote};
use object_store::ObjectMeta;
use object_store::path::Path;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tierflow_store::container::{Head, Kind, ManifestRow, rows};
use tierflow_store::{Damage, Error, Identity, Piece, PieceInfo, Result, VersionInfo};

/// What an object's name says: whose piece, or manifest, of which version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) version: u64,
    pub(crate) rank: u32,
    pub(crate) is_manifest: bool,
}

impl Name {
    pub(crate) fn path(self, prefix: &Path) -> Path {
        let Self {
            version,
            rank,
            is_manifest,
        } = self;
        let ending = if is_manifest { "tfm" } else { "tfc" };
        prefix
            .clone()
            .join(format!("rank-{rank}"))
            .join(format!("v{version:020}.{ending}"))
    }

    fn parse(prefix: &Path, path: &Path) -> Option<Self> {
        let mut parts = path.prefix_match(prefix)?;
        let (rank, file) = (parts.next()?, parts.next()?);
        let rank = rank.as_ref().strip_prefix("rank-")?.parse().ok()?;
        let (version, ending) = file.as_ref().strip_prefix('v')?.split_once('.')?;
        let name = Self {
            version: version.parse().ok()?,
            rank,
            is_manifest: ending == "tfm",
        };
        // Names with other forms belong to somebody else.
        (name.path(prefix) == *path).then_some(name)
    }
}

/// What was found in an object that has not changed since.
#[derive(Debug)]
struct Seen {
    /// What the list says of it; not known of what was just written here.
    meta: Option<ObjectMeta>,
    size: u64,
    /// What the store called it when it was written, if it did.
    tag: Option<String>,
    found: Looked,
}

/// All objects under a prefix.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    seen: BTreeMap<Name, Seen>,
    /// Whether the store was ever asked for its list.
    pub(crate) is_listed: bool,
}

/// Heads looked at at a time.
const LOOKS_AT_A_TIME: usize = 16;

impl Catalog {
    /// Looks at what changed.
    pub(crate) fn refresh(&mut self, remote: &Arc<Remote>, prefix: &Path) -> Result<()> {
        let listed = remote.list(prefix)?;
        let named = listed
            .into_iter()
            .filter_map(|meta| Some((Name::parse(prefix, &meta.location)?, meta)));
        let there: BTreeMap<Name, ObjectMeta> = named.collect();
        self.seen.retain(|name, _| there.contains_key(name));
        let mut new = Vec::new();
        for (name, meta) in there {
            match self.seen.get_mut(&name) {
                Some(seen) if seen.meta.as_ref() == Some(&meta) => {}
                // Written here, and nobody else writes as this rank.
                Some(seen) if seen.is_written_as(&meta) => seen.meta = Some(meta),
                _ => new.push((name, meta)),
            }
        }
        for (name, meta, found) in look_at_all(remote, new) {
            // What could not be had may be had the next time.
            if matches!(found, Err(Error::Remote(_))) {
                self.seen.remove(&name);
                found?;
                continue;
            }
            let seen = Seen {
                size: meta.size,
                meta: Some(meta),
                tag: None,
                found,
            };
            self.seen.insert(name, seen);
        }
        self.is_listed = true;
        Ok(())
    }

    /// Takes what was just written, which the store calls `tag`.
    pub(crate) fn insert(&mut self, name: Name, tag: Option<String>, found: Contents) {
        let seen = Seen {
            meta: None,
            size: found.0.record_length(),
            tag,
            found: Ok(found),
        };
        self.seen.insert(name, seen);
    }

    /// Forgets what was removed.
    pub(crate) fn forget(&mut self, name: Name) {
        self.seen.remove(&name);
    }

    /// The highest epoch of a rank.
    pub(crate) fn epoch(&self, rank: u32) -> u32 {
        let own = self.seen.iter().filter(|(name, _)| name.rank == rank);
        let heads = own.filter_map(|(_, seen)| seen.found.as_ref().ok());
        heads.map(|(head, _)| head.epoch).max().unwrap_or(0)
    }

    /// A rank's pieces, oldest version first.
    pub(crate) fn pieces(&self, rank: u32) -> Vec<PieceInfo> {
        let own = self.seen.iter();
        let own = own.filter(|(name, _)| name.rank == rank && !name.is_manifest);
        let heads = own.filter_map(|(_, seen)| Some(&seen.found.as_ref().ok()?.0));
        let info = |head: &Head| PieceInfo {
            version: head.version,
            ranks: head.ranks,
            identity: Identity::of(head),
            bytes: head.regions.iter().map(|region| region.length).sum(),
            decoded: head.decoded(),
        };
        heads.map(info).collect()
    }

    /// What is wrong with objects of any rank.
    pub(crate) fn all_damage(&self) -> Vec<Damage> {
        let broken = self.seen.iter().filter_map(|(name, seen)| {
            let Err(Error::Damaged {
                path, offset, what, ..
            }) = &seen.found
            else {
                return None;
            };
            Some(Damage {
                path: path.clone(),
                offset: *offset,
                version: Some(name.version),
                what,
            })
        });
        broken.collect()
    }

    /// The highest sequence number of a rank.
    pub(crate) fn sequence(&self, rank: u32) -> u64 {
        let own = self.seen.iter().filter(|(name, _)| name.rank == rank);
        let heads = own.filter_map(|(_, seen)| seen.found.as_ref().ok());
        heads.map(|(head, _)| head.sequence).max().unwrap_or(0)
    }

    pub(crate) fn head(&self, version: u64, rank: u32) -> Option<&Head> {
        let name = Name {
            version,
            rank,
            is_manifest: false,
        };
        Some(&self.seen.get(&name)?.found.as_ref().ok()?.0)
    }

    /// What is wrong with a piece that is there.
    pub(crate) fn damage(&self, version: u64, rank: u32) -> Option<&Error> {
        let name = Name {
            version,
            rank,
            is_manifest: false,
        };
        self.seen.get(&name)?.found.as_ref().err()
    }

    /// The bytes of a piece's object.
    pub(crate) fn size(&self, version: u64, rank: u32) -> Option<u64> {
        let name = Name {
            version,
            rank,
            is_manifest: false,
        };
        Some(self.seen.get(&name)?.size)
    }

    /// The rows of the manifest of a version whose pieces are all there, from the same run.
    pub(crate) fn rows(&self, version: u64) -> Option<Vec<ManifestRow>> {
        let first = self.head(version, 0)?;
        let pieces = (0..first.ranks).map(|rank| {
            let head = self.head(version, rank)?;
            let same = (head.ranks, head.run) == (first.ranks, first.run);
            same.then(|| ManifestRow {
                rank: u64::from(rank),
                sequence: head.sequence,
                created: head.created,
                record_length: head.record_length(),
            })
        });
        pieces.collect()
    }

    /// Whether all pieces of a version are there and, of more than one, some rank has seen them all.
    pub(crate) fn has_all(&self, version: u64) -> bool {
        let Some(rows) = self.rows(version) else {
            return false;
        };
        let manifest = |rank| {
            let name = Name {
                version,
                rank,
                is_manifest: true,
            };
            let (_, found) = self.seen.get(&name)?.found.as_ref().ok()?;
            found.as_ref()
        };
        rows.len() == 1 || (0..rows.len() as u32).any(|rank| manifest(rank) == Some(&rows))
    }

    /// The versions of which a rank's piece is there.
    pub(crate) fn versions_of(&self, rank: u32) -> Vec<u64> {
        let own = self
            .seen
            .keys()
            .filter(|name| name.rank == rank && !name.is_manifest);
        own.map(|name| name.version).collect()
    }

    /// The whole versions with whole bases, oldest first.
    pub(crate) fn whole(&self) -> Vec<VersionInfo> {
        let pieces = self.seen.keys();
        let versions = pieces.filter(|name| name.rank == 0 && !name.is_manifest);
        let mut whole: BTreeMap<u64, VersionInfo> = BTreeMap::new();
        for version in versions.map(|name| name.version) {
            let Some(first) = self.head(version, 0).filter(|_| self.has_all(version)) else {
                continue;
            };
            let heads = (0..first.ranks).filter_map(|rank| self.head(version, rank));
            let (mut bytes, mut decoded, mut base) = (0, 0_u64, None);
            let mut is_encoded = false;
            for head in heads {
                let stored = head.regions.iter().map(|region| region.length).sum::<u64>();
                bytes += stored;
                decoded = decoded.saturating_add(head.decoded().unwrap_or(stored));
                is_encoded |= head.decoded().is_some();
                base = base.max(head.base);
            }
            if base.is_none_or(|base| whole.contains_key(&base)) {
                let info = VersionInfo {
                    version,
                    ranks: first.ranks,
                    bytes,
                    decoded: is_encoded.then_some(decoded),
                    created: first.created,
                    run: first.run,
                    base,
                };
                whole.insert(version, info);
            }
        }
        whole.into_values().collect()
    }

    /// `versions` but for those that others which stay are differences against.
    pub(crate) fn without_bases(&self, versions: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut free = versions.clone();
        let pieces = self.seen.iter().filter_map(|(name, seen)| {
            let (head, _) = seen.found.as_ref().ok()?;
            Some((name.version, head.base?))
        });
        // Bases are older, so the newest first finds all that is needed, however indirectly.
        let mut pieces: Vec<(u64, u64)> = pieces.collect();
        pieces.sort_unstable_by(|a, b| b.cmp(a));
        for (version, base) in pieces {
            if !free.contains(&version) {
                free.remove(&base);
            }
        }
        free
    }
}

/// The head of a piece or manifest, and the rows of the latter.
type Contents = (Head, Option<Vec<ManifestRow>>);
/// What was found in an object.
type Looked = Result<Contents>;

impl Seen {
    /// Whether this was written here, as which the list has it.
    fn is_written_as(&self, meta: &ObjectMeta) -> bool {
        let is_other = |tag: &String| meta.e_tag.as_ref().is_some_and(|there| there != tag);
        self.meta.is_none() && self.size == meta.size && !self.tag.as_ref().is_some_and(is_other)
    }
}

/// Looks into objects, several at a time.
fn look_at_all(
    remote: &Arc<Remote>,
    objects: Vec<(Name, ObjectMeta)>,
) -> Vec<(Name, ObjectMeta, Looked)> {
    let threads = objects.len().min(LOOKS_AT_A_TIME);
    let (queue, done) = (Mutex::new(objects.into_iter()), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((name, meta)) = next() {
            let found = look(remote, name, &meta);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((name, meta, found));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // One that cannot be had is one less.
            let _ended_with_the_scope = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of an object that are asked for at first: most heads, and the lists of most groups.
const FIRST: u64 = 16 << 10;

/// Looks into one object.
fn look(remote: &Arc<Remote>, name: Name, meta: &ObjectMeta) -> Looked {
    let object = Object {
        remote: Arc::clone(remote),
        path: meta.location.clone(),
        size: meta.size,
        first: remote.read(&meta.location, 0..meta.size.min(FIRST))?,
    };
    let piece = Piece::elsewhere(object, meta.location.as_ref(), 1, None)?;
    let head = piece.head();
    let kind = if name.is_manifest {
        Kind::Manifest
    } else {
        Kind::Piece
    };
    if (head.version, head.rank, head.kind) != (name.version, name.rank, kind) {
        return Err(Error::Damaged {
            path: meta.location.as_ref().into(),
            offset: 0,
            what: "it does not hold what its name says",
            older: None,
        });
    }
    let rows = match name.is_manifest {
        true => Some(rows(&piece.read("pieces")?).collect()),
        false => None,
    };
    Ok((head.clone(), rows))
}
