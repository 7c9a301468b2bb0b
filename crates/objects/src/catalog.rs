//! What lies in the store, as far as the heads tell.

use crate::remote::{Object, Remote};
use object_store::ObjectMeta;
use object_store::path::Path;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tierflow_store::container::{Head, Kind, ManifestRow, rows};
use tierflow_store::{Error, Piece, Result, VersionInfo};

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
    meta: ObjectMeta,
    found: Result<(Head, Option<Vec<ManifestRow>>)>,
}

/// All objects under a prefix.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    seen: BTreeMap<Name, Seen>,
}

impl Catalog {
    /// Looks at what changed.
    pub(crate) fn refresh(&mut self, remote: &Arc<Remote>, prefix: &Path) -> Result<()> {
        let listed = remote.list(prefix)?;
        let named = listed
            .into_iter()
            .filter_map(|meta| Some((Name::parse(prefix, &meta.location)?, meta)));
        let there: BTreeMap<Name, ObjectMeta> = named.collect();
        self.seen.retain(|name, _| there.contains_key(name));
        for (name, meta) in there {
            if self.seen.get(&name).is_some_and(|seen| seen.meta == meta) {
                continue;
            }
            let found = look(remote, name, &meta);
            // What could not be had may be had the next time.
            if matches!(found, Err(Error::Remote(_))) {
                self.seen.remove(&name);
                found?;
                continue;
            }
            self.seen.insert(name, Seen { meta, found });
        }
        Ok(())
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
        Some(self.seen.get(&name)?.meta.size)
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

/// Looks into one object.
fn look(
    remote: &Arc<Remote>,
    name: Name,
    meta: &ObjectMeta,
) -> Result<(Head, Option<Vec<ManifestRow>>)> {
    let object = Object {
        remote: Arc::clone(remote),
        path: meta.location.clone(),
        size: meta.size,
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
