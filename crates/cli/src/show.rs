//! `tierflow list` and `tierflow show`.

use crate::contents::names_of;
use crate::names::{Named, NamedHistory, head_of};
use crate::output::{DamageRow, Output, bytes};
use crate::{redundancy, tree};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tierflow_objects::History;
use tierflow_store::Place;
use tierflow_store::container::{Element, RegionInfo};

#[derive(Debug, Serialize)]
struct Listing {
    /// The repository that was found at or below the path.
    directory: String,
    /// Checkpoints with names, if VELOC's interface wrote them. `versions` then has the versions that belong to none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checkpoints: Vec<NamedRow>,
    versions: Vec<Version>,
    damage: Vec<DamageRow>,
}

#[derive(Debug, Serialize)]
struct NamedRow {
    name: String,
    version: u64,
    ranks: u32,
    bytes: u64,
    created_ns: u64,
    run: u64,
}

impl From<&Named> for NamedRow {
    fn from(named: &Named) -> Self {
        Self {
            name: named.head.name.clone(),
            version: named.head.version,
            ranks: named.info.ranks,
            bytes: named.info.bytes,
            created_ns: named.info.created,
            run: named.info.run,
        }
    }
}

#[derive(Debug, Serialize)]
struct Version {
    version: u64,
    ranks: u32,
    bytes: u64,
    created_ns: u64,
    run: u64,
    base: Option<u64>,
}

/// Levels of directories below a path that are searched for a repository: VELOC's scratch directory has `tierflow/<group>/rank-0`.
const MOST_LEVELS: usize = 3;

/// Returns true for a directory with the versions of some rank, or with parity of them.
fn is_repository(directory: &Path) -> bool {
    if redundancy::keeps_something(directory) {
        return true;
    }
    let Ok(below) = History::places_below(directory) else {
        return false;
    };
    let mut names = below.iter().filter_map(|path| path.file_name()?.to_str());
    names.any(|name| {
        let rank = name.strip_prefix("rank-").map(str::parse::<u32>);
        rank.is_some_and(|rank| rank.is_ok())
    })
}

/// Returns `place` itself if it is a repository, else the repositories below it, of the highest level that has some.
fn repositories(place: &Path) -> Vec<PathBuf> {
    let mut level = vec![place.to_owned()];
    for _ in 0..=MOST_LEVELS {
        let found = level.iter().filter(|place| is_repository(place));
        let mut found: Vec<PathBuf> = found.cloned().collect();
        if !found.is_empty() {
            found.sort();
            return found;
        }
        let below = level
            .iter()
            .filter_map(|place| History::places_below(place).ok());
        level = below.flatten().collect();
    }
    Vec::new()
}

/// Returns the repository at a path, or the only one below it. Returns a URL, or a path without a repository, unchanged.
///
/// # Errors
/// If there are several repositories below the path.
pub(crate) fn located(place: &Path) -> Result<PathBuf> {
    if Place::is_url(place) {
        return Ok(place.to_owned());
    }
    let found = repositories(place);
    match found.as_slice() {
        [] => Ok(place.to_owned()),
        [only] => Ok(only.clone()),
        several => {
            let several = several.iter().map(|path| path.display().to_string());
            bail!(
                "there are several directories of versions below {}: name one of {}",
                place.display(),
                several.collect::<Vec<_>>().join(", ")
            )
        }
    }
}

/// Opens a directory of versions, the only one below a directory, or an object store, for reading.
pub(crate) fn opened(place: &Path, output: Output) -> Result<History> {
    let place = &located(place)?;
    let is_url = Place::is_url(place);
    // The list of an object store may be long.
    let waiting = is_url.then(|| output.waiting(format!("listing {}", place.display())));
    let history = History::open(place)?;
    let is_empty = history.is_empty()?;
    if let Some(waiting) = waiting {
        waiting.finish_and_clear();
    }
    ensure!(
        !is_empty,
        match is_url {
            true => format!("there are no versions at {}", place.display()),
            false => format!(
                "{} is no directory of versions: there is no rank-0 in it, nor in a directory below it",
                place.display()
            ),
        }
    );
    Ok(history)
}

pub(crate) fn list(directory: &Path, output: Output) -> Result<()> {
    let several = match Place::is_url(directory) {
        true => Vec::new(),
        false => repositories(directory),
    };
    if several.len() < 2 {
        let (listing, text) = listed_at(&located(directory)?, output)?;
        return output.answer(&listing, &text);
    }
    let (mut listings, mut whole) = (Vec::new(), String::new());
    for directory in several {
        let (listing, text) = listed_at(&directory, output)?;
        writeln!(whole, "{}:\n{text}", directory.display())?;
        listings.push(listing);
    }
    output.answer(&listings, &whole)
}

/// Lists a repository, or a node that redundancy protects. Returns a JSON value and text.
fn listed_at(directory: &Path, output: Output) -> Result<(Value, String)> {
    if redundancy::is_node(directory) {
        let (listing, text) = redundancy::list(directory)?;
        return Ok((serde_json::to_value(listing)?, text));
    }
    let (listing, text) = listed(directory, output)?;
    Ok((serde_json::to_value(listing)?, text))
}

fn listed(directory: &Path, output: Output) -> Result<(Listing, String)> {
    let history = opened(directory, output)?;
    let names = NamedHistory::of(&history)?;
    let versions = match &names {
        Some(names) => names.others.clone(),
        None => history.versions()?,
    };
    let versions = versions.into_iter().map(|info| Version {
        version: info.version,
        ranks: info.ranks,
        bytes: info.bytes,
        created_ns: info.created,
        run: info.run,
        base: info.base,
    });
    let checkpoints = names
        .iter()
        .flat_map(NamedHistory::iter)
        .map(NamedRow::from);
    let listing = Listing {
        directory: directory.display().to_string(),
        checkpoints: checkpoints.collect(),
        versions: versions.collect(),
        damage: history.damage().iter().map(DamageRow::from).collect(),
    };
    let mut text = String::new();
    if names.is_some() {
        named_table(&mut text, &listing)?;
        text.extend(listing.damage.iter().map(DamageRow::line));
        return Ok((listing, text));
    }
    if listing.versions.is_empty() {
        text.push_str("no whole version\n");
    } else {
        writeln!(
            text,
            "{:>12} {:>6} {:>12}  {:<14} base",
            "version", "ranks", "size", "written"
        )?;
    }
    for row in &listing.versions {
        let base = row.base.map_or("-".to_owned(), |base| base.to_string());
        let (size, age) = (bytes(row.bytes), age(row.created_ns));
        writeln!(
            text,
            "{:>12} {:>6} {size:>12}  {age:<14} {base}",
            row.version, row.ranks
        )?;
    }
    text.extend(listing.damage.iter().map(DamageRow::line));
    Ok((listing, text))
}

fn named_table(text: &mut String, listing: &Listing) -> Result<()> {
    if listing.checkpoints.is_empty() {
        text.push_str("no whole checkpoint\n");
    } else {
        writeln!(
            text,
            "{:<24} {:>12} {:>6} {:>12}  written",
            "name", "version", "ranks", "size"
        )?;
    }
    for row in &listing.checkpoints {
        let (size, age) = (bytes(row.bytes), age(row.created_ns));
        writeln!(
            text,
            "{:<24} {:>12} {:>6} {size:>12}  {age}",
            row.name, row.version, row.ranks
        )?;
    }
    let others = listing.versions.len();
    if others > 0 {
        writeln!(
            text,
            "{others} part(s) of checkpoints that were not ended, or that do not count any more"
        )?;
    }
    Ok(())
}

fn age(created_ns: u64) -> String {
    let created = UNIX_EPOCH.checked_add(Duration::from_nanos(created_ns));
    match created.and_then(|created| SystemTime::now().duration_since(created).ok()) {
        Some(age) => format!("{} ago", indicatif::HumanDuration(age)),
        None => "in the future".to_owned(),
    }
}

#[derive(Debug, Serialize)]
struct Contents {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    version: u64,
    pieces: Vec<Contained>,
}

#[derive(Debug, Serialize)]
struct Contained {
    rank: u32,
    path: String,
    position: u64,
    bytes: u64,
    regions: Vec<Region>,
    /// The regions before they were encoded; empty if the piece is not encoded or does not say.
    decoded: Vec<Region>,
    /// The structure of the tree, if the piece is a tree and not encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<Value>,
}

#[derive(Debug, Serialize)]
struct Region {
    name: String,
    bytes: u64,
    numpy: &'static str,
    shape: Vec<u64>,
}

impl From<&RegionInfo> for Region {
    fn from(region: &RegionInfo) -> Self {
        Self {
            name: region.name.clone(),
            bytes: region.length,
            numpy: region.element.numpy(),
            shape: region.shape.clone(),
        }
    }
}

impl Region {
    fn line(&self) -> String {
        let (size, shape) = (bytes(self.bytes), &self.shape);
        format!("  {:<40} {size:>12}  {} {shape:?}", self.name, self.numpy)
    }
}

/// Returns `version`, or the newest version if there is none.
pub(crate) fn chosen(history: &History, version: Option<u64>) -> Result<u64> {
    match version {
        Some(version) => Ok(version),
        None => history.latest(None)?.context("there is no whole version"),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The directory of versions, one above it, or the URL of an object store: s3://bucket/prefix
    directory: PathBuf,
    /// The version; the newest if it is left out
    version: Option<u64>,
    /// The name of the checkpoint, where VELOC's interface wrote it; the version is that of the name
    #[arg(long)]
    name: Option<String>,
}

pub(crate) fn show(arguments: &ShowArguments, output: Output) -> Result<()> {
    let history = opened(&arguments.directory, output)?;
    let (name, version) = (arguments.name.as_deref(), arguments.version);
    if let Some(names) = NamedHistory::of(&history)? {
        let named = names.chosen(name, version)?;
        let (contents, text) = named_contents(&history, named)?;
        return output.answer(&contents, &text);
    }
    ensure!(
        name.is_none(),
        "the versions there have no names: leave out --name"
    );
    let version = chosen(&history, version)?;
    let (_, ranks) = history.piece_of(version, 0)?.rank();
    let mut contents = Contents {
        name: None,
        version,
        pieces: Vec::new(),
    };
    let mut text = format!("version {version}, {ranks} rank(s)\n");
    for rank in 0..ranks {
        let piece = history.piece_of(version, rank)?;
        let regions: Vec<Region> = piece.regions().iter().map(Region::from).collect();
        let decoded = &piece.head().parts;
        let decoded: Vec<Region> = decoded.iter().map(Region::from).collect();
        let position = piece.head().position;
        writeln!(
            text,
            "rank {rank}: {} at byte {position}",
            piece.path().display()
        )?;
        for region in &regions {
            writeln!(text, "{}", region.line())?;
        }
        if !decoded.is_empty() {
            writeln!(text, "decoded:")?;
        }
        for region in &decoded {
            writeln!(text, "{}", region.line())?;
        }
        let tree = tree::of(&piece)?;
        if let Some(structure) = &tree {
            writeln!(
                text,
                "tree:\n{}",
                tree::drawn(structure, piece.regions()).trim_end()
            )?;
        }
        contents.pieces.push(Contained {
            rank,
            path: piece.path().display().to_string(),
            position,
            bytes: regions.iter().map(|region| region.bytes).sum(),
            regions,
            decoded,
            tree,
        });
    }
    output.answer(&contents, &text)
}

/// Describes the contents of a checkpoint of VELOC. Returns values and text.
fn named_contents(history: &History, named: &Named) -> Result<(Contents, String)> {
    let (name, version, ranks) = (&named.head.name, named.head.version, named.info.ranks);
    let mut text = format!("{name:?} version {version}, {ranks} rank(s)\n");
    let mut pieces = Vec::new();
    for rank in 0..ranks {
        let number = named.head.number();
        let head = head_of(history, number, rank)?;
        let piece = history.piece_of(number, rank)?;
        let names = head
            .parts
            .iter()
            .flat_map(|part| names_of(&head, part, rank));
        let regions = names.map(|(name, bytes)| Region {
            name,
            bytes,
            numpy: Element::Bytes.numpy(),
            shape: Vec::new(),
        });
        let regions: Vec<Region> = regions.collect();
        let path = piece.path().display().to_string();
        writeln!(text, "rank {rank}: {path}")?;
        for region in &regions {
            writeln!(text, "{}", region.line())?;
        }
        pieces.push(Contained {
            rank,
            path,
            position: piece.head().position,
            bytes: regions.iter().map(|region| region.bytes).sum(),
            regions,
            decoded: Vec::new(),
            tree: None,
        });
    }
    let contents = Contents {
        name: Some(name.clone()),
        version,
        pieces,
    };
    Ok((contents, text))
}
