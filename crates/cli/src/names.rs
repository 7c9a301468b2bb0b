//! Checkpoints under the names that an application gave them. VELOC's interface stores each as several versions, whose numbers its users do
//! not know.

use crate::contents::PieceContents;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use tierflow_objects::History;
use tierflow_store::veloc::{Names, VelocHead, is_head};
use tierflow_store::{Repository, VersionInfo, with_bases};

/// The most bytes of a head, which has 16 bytes for each region.
const LONGEST_HEAD: u64 = 64 << 20;

/// A checkpoint of VELOC.
#[derive(Debug)]
pub(crate) struct Named {
    /// The head that rank 0 wrote.
    pub(crate) head: VelocHead,
    /// The application's version, and the bytes of all parts.
    pub(crate) info: VersionInfo,
    /// The repository's versions of the checkpoint: its parts and its head.
    pub(crate) numbers: BTreeSet<u64>,
}

/// The checkpoints that VELOC's interface wrote to a repository.
#[derive(Debug)]
pub(crate) struct NamedHistory {
    /// Checkpoints by name, in ascending order of versions. All parts of each checkpoint exist.
    names: BTreeMap<String, Vec<Named>>,
    /// Versions that belong to no checkpoint in `names`: their checkpoint was not ended, or does not count any more.
    pub(crate) others: Vec<VersionInfo>,
    whole: BTreeMap<u64, VersionInfo>,
}

impl NamedHistory {
    /// Reads the heads of a repository. Returns `None` if it has no heads: its versions are the numbers of the application.
    ///
    /// # Errors
    /// If the repository cannot be listed.
    pub(crate) fn of(history: &History) -> Result<Option<Self>> {
        let whole = history.versions()?.into_iter();
        let whole: BTreeMap<u64, VersionInfo> = whole.map(|info| (info.version, info)).collect();
        let (heads, _) = heads_of(history, &whole);
        if heads.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self::with(heads, whole)))
    }

    /// Reads the heads as [`of`](Self::of) does, for commands that remove versions: `None` only if no version can be a head.
    ///
    /// # Errors
    /// If no head was found, and a version that may be a head cannot be read; or if the repository cannot be listed.
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

    /// Returns all checkpoints, in the order of names and versions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Named> {
        self.names.values().flatten()
    }

    /// Returns each name with its checkpoints in ascending order.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &[Named])> {
        let names = self.names.iter();
        names.map(|(name, versions)| (name.as_str(), versions.as_slice()))
    }

    /// Returns the checkpoints of a name; without a `name`, those of the only name.
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
    /// If there is no such checkpoint, or `name` is `None` and there are several names.
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

    /// Returns the repository's versions that these checkpoints need: parts, heads, and the versions that they are differences to.
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

    /// Returns the sum of the bytes of these versions of the repository.
    pub(crate) fn bytes<'a>(&self, numbers: impl Iterator<Item = &'a u64>) -> u64 {
        let infos = numbers.filter_map(|number| self.whole.get(number));
        infos.map(|info| info.bytes).sum()
    }
}

/// Returns the repository's versions that a user's versions stand for: themselves, or the parts and heads of named checkpoints.
///
/// # Errors
/// If a named checkpoint does not exist, or a name is given for versions without names.
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

/// Returns the checkpoint of a head, if all its parts exist.
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

/// Returns the heads that can be read, and the last error of a version that may be a head and cannot be read.
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
/// If the version cannot be read, or is no head.
pub(crate) fn head_of(history: &History, number: u64, rank: u32) -> Result<VelocHead> {
    let head = read_head(history, number, rank)?;
    head.with_context(|| format!("version {number} is no head of VELOC's"))
}

/// Reads a head; `None` if the version is no head.
fn read_head(history: &History, number: u64, rank: u32) -> Result<Option<VelocHead>> {
    let contents = PieceContents::of(std::slice::from_ref(history), number, rank, LONGEST_HEAD)?;
    decoded(&contents, number)
}

/// Returns the heads among the pieces in a rank's directory, also of versions that are not whole. Ignores pieces that cannot be read.
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

/// Decodes a head; `None` if the version is no head.
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
