//! Checkpoints by the names that an application gave them. VELOC's interface stores each as several versions, whose numbers mean
//! nothing to its users.

use crate::contents::PieceContents;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use tierflow_objects::History;
use tierflow_store::veloc::{Names, VelocHead, is_head};
use tierflow_store::{Repository, VersionInfo, with_bases};

/// No head is longer: it has 16 bytes for each region.
const LONGEST_HEAD: u64 = 64 << 20;

/// A checkpoint of VELOC's.
#[derive(Debug)]
pub(crate) struct Named {
    /// As rank 0 wrote it.
    pub(crate) head: VelocHead,
    /// The application's version, and the bytes of all parts.
    pub(crate) info: VersionInfo,
    /// The repository's versions that it lies in.
    pub(crate) numbers: BTreeSet<u64>,
}

/// The checkpoints that VELOC's interface wrote to a repository.
#[derive(Debug)]
pub(crate) struct NamedHistory {
    /// By name, in ascending order of versions: all parts of each are there.
    names: BTreeMap<String, Vec<Named>>,
    /// Versions that belong to none: their checkpoints were not ended, or do not count any more.
    pub(crate) others: Vec<VersionInfo>,
    whole: BTreeMap<u64, VersionInfo>,
}

impl NamedHistory {
    /// Reads the heads of a repository. Returns `None` if it has none, and versions are the application's own.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub(crate) fn of(history: &History) -> Result<Option<Self>> {
        let whole = history.versions()?.into_iter();
        let whole: BTreeMap<u64, VersionInfo> = whole.map(|info| (info.version, info)).collect();
        let (heads, _) = heads_of(history, &whole);
        if heads.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self::with(heads, whole)))
    }

    /// The same, for those who give versions up: without a head, each version must be known to be none.
    ///
    /// # Errors
    /// If no head was found, and a version that may be one cannot be read.
    pub(crate) fn known(history: &History) -> Result<Option<Self>> {
        let whole = history.versions()?.into_iter();
        let whole: BTreeMap<u64, VersionInfo> = whole.map(|info| (info.version, info)).collect();
        match heads_of(history, &whole) {
            (heads, _) if !heads.is_empty() => Ok(Some(Self::with(heads, whole))),
            (_, Some(error)) => Err(error.context(
                "it cannot be told whether VELOC's interface wrote these versions: remove those that are damaged",
            )),
            (_, None) => Ok(None),
        }
    }

    fn with(heads: Vec<VelocHead>, whole: BTreeMap<u64, VersionInfo>) -> Self {
        let mut names: BTreeMap<String, Vec<Named>> = BTreeMap::new();
        let mut known = BTreeSet::new();
        for (name, versions) in Names::of(heads).iter() {
            let found: Vec<Named> = versions
                .values()
                .filter_map(|head| named(head, &whole))
                .collect();
            known.extend(found.iter().flat_map(|named| &named.numbers).copied());
            if !found.is_empty() {
                names.insert(name.to_owned(), found);
            }
        }
        let others = whole.values().filter(|info| !known.contains(&info.version));
        let others = others.copied().collect();
        Self {
            names,
            others,
            whole,
        }
    }

    /// All checkpoints, by name and version.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Named> {
        self.names.values().flatten()
    }

    /// Each name with its checkpoints in ascending order.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &[Named])> {
        let names = self.names.iter();
        names.map(|(name, versions)| (name.as_str(), versions.as_slice()))
    }

    /// The checkpoints of a name. It may be left out where there is only one.
    ///
    /// # Errors
    /// If there is no such name, or there are several and none is given.
    pub(crate) fn of_name(&self, name: Option<&str>) -> Result<&[Named]> {
        let known = || self.names.keys().map(String::as_str).collect::<Vec<_>>();
        match (name, known().as_slice()) {
            (Some(name), _) => match self.names.get(name) {
                Some(versions) => Ok(versions),
                None => bail!(
                    "there is no whole checkpoint {name:?}, but {}",
                    known().join(", ")
                ),
            },
            (None, [only]) => Ok(self.names.get(*only).map(Vec::as_slice).unwrap_or_default()),
            (None, []) => bail!("there is no whole checkpoint"),
            (None, several) => bail!(
                "there are several names: choose one by --name: {}",
                several.join(", ")
            ),
        }
    }

    /// Returns the checkpoint of a name and version; the newest of its name if no version is given.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn chosen(&self, name: Option<&str>, version: Option<u64>) -> Result<&Named> {
        let versions = self.of_name(name)?;
        let found = match version {
            Some(version) => versions.iter().find(|named| named.head.version == version),
            None => versions.last(),
        };
        found.with_context(|| {
            let have: Vec<_> = versions
                .iter()
                .map(|named| named.head.version.to_string())
                .collect();
            let name = versions
                .first()
                .map_or("", |named| named.head.name.as_str());
            let version = version.unwrap_or_default();
            format!(
                "there is no whole version {version} of {name:?}, but {}",
                have.join(", ")
            )
        })
    }

    /// The repository's versions that must stay for these checkpoints: their parts, heads, and what those are differences to.
    pub(crate) fn needed<'a>(&self, stay: impl Iterator<Item = &'a Named>) -> BTreeSet<u64> {
        let bases = self.whole.values();
        let bases = bases
            .filter_map(|info| Some((info.version, info.base?)))
            .collect();
        with_bases(
            stay.flat_map(|named| &named.numbers).copied().collect(),
            &bases,
        )
    }

    /// The bytes of these of the repository's versions.
    pub(crate) fn bytes<'a>(&self, numbers: impl Iterator<Item = &'a u64>) -> u64 {
        let infos = numbers.filter_map(|number| self.whole.get(number));
        infos.map(|info| info.bytes).sum()
    }
}

/// The repository's versions that a caller's versions stand for, by name where VELOC's interface wrote them.
///
/// # Errors
/// If one of them is not there, or a name is given where there are none.
pub(crate) fn numbers(
    history: &History,
    name: Option<&str>,
    versions: &[u64],
) -> Result<BTreeSet<u64>> {
    match NamedHistory::of(history)? {
        None if name.is_some() => bail!("the versions there have no names: leave out --name"),
        None => Ok(versions.iter().copied().collect()),
        Some(names) => {
            let mut numbers = BTreeSet::new();
            for version in versions {
                numbers.extend(&names.chosen(name, Some(*version))?.numbers);
            }
            Ok(numbers)
        }
    }
}

/// The checkpoint of a head, if all its parts are there.
fn named(head: &VelocHead, whole: &BTreeMap<u64, VersionInfo>) -> Option<Named> {
    let own = *whole.get(&head.number())?;
    // Parts without bytes have a version in groups, and may have one elsewhere.
    if !head
        .numbers(own.ranks > 1)
        .all(|number| whole.contains_key(&number))
    {
        return None;
    }
    let numbers: BTreeSet<u64> = head
        .numbers(true)
        .filter(|number| whole.contains_key(number))
        .collect();
    let parts = numbers.iter().filter(|number| **number != head.number());
    let bytes = parts.filter_map(|number| whole.get(number));
    let info = VersionInfo {
        version: head.version,
        bytes: bytes.map(|info| info.decoded.unwrap_or(info.bytes)).sum(),
        base: None,
        ..own
    };
    Some(Named {
        head: head.clone(),
        info,
        numbers,
    })
}

/// The heads that can be read, and why another version that may be one cannot.
fn heads_of(
    history: &History,
    whole: &BTreeMap<u64, VersionInfo>,
) -> (Vec<VelocHead>, Option<anyhow::Error>) {
    let (mut heads, mut failure) = (Vec::new(), None);
    for info in whole.values().filter(|info| is_head(info.version)) {
        if info.decoded.is_some_and(|bytes| bytes > LONGEST_HEAD) {
            continue;
        }
        match read_head(history, info.version, 0) {
            Ok(head) => heads.extend(head),
            Err(error) => failure = Some(error),
        }
    }
    (heads, failure)
}

/// Reads the head that a rank wrote.
///
/// # Errors
/// If it cannot be read, or the version holds something else.
pub(crate) fn head_of(history: &History, number: u64, rank: u32) -> Result<VelocHead> {
    let head = read_head(history, number, rank)?;
    head.with_context(|| format!("version {number} is no head of VELOC's"))
}

/// Reads a head; `None` if the version holds something else.
fn read_head(history: &History, number: u64, rank: u32) -> Result<Option<VelocHead>> {
    let contents = PieceContents::of(std::slice::from_ref(history), number, rank, LONGEST_HEAD)?;
    decoded(&contents, number)
}

/// The heads among the pieces of a rank's directory, of versions that need not be whole. What cannot be read is none.
pub(crate) fn heads_of_rank(repository: &Repository) -> Result<Names> {
    let pieces = repository.own_pieces()?.into_iter();
    let numbers = pieces.map(|piece| piece.version);
    let head = |number: u64| {
        let piece = repository.own_piece(number).ok()?;
        let contents = PieceContents::of_piece(piece, &[], LONGEST_HEAD).ok()?;
        decoded(&contents, number).ok()?
    };
    Ok(Names::of(
        numbers
            .filter(|number| is_head(*number))
            .filter_map(head)
            .collect(),
    ))
}

/// Decodes a head; `None` if the version holds something else.
fn decoded(contents: &PieceContents, number: u64) -> Result<Option<VelocHead>> {
    let [region] = contents.regions() else {
        return Ok(None);
    };
    let start = contents.read_part(region, 0, region.length.min(8))?;
    if !VelocHead::is_one(&start) || region.length > LONGEST_HEAD {
        return Ok(None);
    }
    let head = VelocHead::decode(&contents.read(region)?);
    Ok(head.filter(|head| head.number() == number))
}
