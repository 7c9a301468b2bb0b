//! `tierflow list` and `tierflow show`.

use crate::output::{DamageRow, Output, bytes};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tierflow_objects::History;
use tierflow_store::Place;
use tierflow_store::container::RegionInfo;

#[derive(Debug, Serialize)]
struct Listing {
    versions: Vec<Version>,
    damage: Vec<DamageRow>,
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

/// Opens a directory of versions, or an object store, to read it.
pub(crate) fn opened(place: &Path, output: Output) -> Result<History> {
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
                "{} is no directory of versions: there is no rank-0 in it",
                place.display()
            ),
        }
    );
    Ok(history)
}

pub(crate) fn list(directory: &Path, output: Output) -> Result<()> {
    let history = opened(directory, output)?;
    let versions = history.versions()?.into_iter().map(|info| Version {
        version: info.version,
        ranks: info.ranks,
        bytes: info.bytes,
        created_ns: info.created,
        run: info.run,
        base: info.base,
    });
    let listing = Listing {
        versions: versions.collect(),
        damage: history.damage().iter().map(DamageRow::from).collect(),
    };
    let mut text = String::new();
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
    output.answer(&listing, &text)
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
    /// What encoded regions become, if that is known.
    decoded: Vec<Region>,
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

/// The version that was named, or the newest.
pub(crate) fn chosen(history: &History, version: Option<u64>) -> Result<u64> {
    match version {
        Some(version) => Ok(version),
        None => history.latest(None)?.context("there is no whole version"),
    }
}

pub(crate) fn show(directory: &Path, version: Option<u64>, output: Output) -> Result<()> {
    let history = opened(directory, output)?;
    let version = chosen(&history, version)?;
    let (_, ranks) = history.piece_of(version, 0)?.rank();
    let mut contents = Contents {
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
        contents.pieces.push(Contained {
            rank,
            path: piece.path().display().to_string(),
            position,
            bytes: regions.iter().map(|region| region.bytes).sum(),
            regions,
            decoded,
        });
    }
    output.answer(&contents, &text)
}
