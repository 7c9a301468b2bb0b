//! `tierflow compare`: finds the versions and regions that differ between two histories.

use crate::contents::PieceContents;
use crate::output::{Output, bytes};
use crate::versions::Versions;
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use tierflow_store::container::RegionInfo;
use tierflow_store::{Comparison, PieceDifference, RegionDifference, RegionPairs, VersionInfo};

/// Bytes of a decoded version that are compared at a time: a multiple of every element's size.
const STEP: u64 = 16 << 20;

#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// A directory of versions, one above it, or the URL of an object store: s3://bucket/prefix
    left: PathBuf,
    /// Another one; the same one to compare two versions of a history
    right: PathBuf,
    /// The version of the first history; if it is left out, all versions that both histories have are compared
    version: Option<u64>,
    /// The version of the second history; the same number if it is left out
    other: Option<u64>,
    /// Numbers that are no further apart than this count as equal; without it, equal numbers have equal bits
    #[arg(long, value_name = "DISTANCE")]
    within: Option<f64>,
    /// Only the region of this name
    #[arg(long)]
    region: Option<String>,
    /// Stop after the first version that differs
    #[arg(long)]
    first: bool,
    /// The name of the checkpoint, where VELOC's interface wrote it; the versions are those of the name
    #[arg(long)]
    name: Option<String>,
    /// Another directory of the same versions, such as external storage: what differences build upon may lie there alone
    #[arg(long)]
    also: Option<PathBuf>,
}

#[derive(Debug, Default, Serialize)]
struct Compared {
    /// The number of versions that were compared.
    versions: u64,
    bytes_read: u64,
    different: Vec<Row>,
    /// Regions that one version lacks, or that have another type or shape.
    unlike: Vec<Unlike>,
    /// Versions that the other history does not have.
    only_left: Vec<u64>,
    only_right: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Row {
    version: u64,
    rank: u32,
    region: String,
    elements: u64,
    differ: u64,
    /// The index of the first element that differs, slowest extent first.
    first: Vec<u64>,
    /// The largest distance; null in JSON if only one of two elements is a number.
    largest: f64,
    largest_at: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Unlike {
    version: u64,
    rank: u32,
    region: String,
}

/// Compares two histories. Exit code 1 if a version differs, or if only one history has one of its regions.
pub(crate) fn compare(arguments: &CompareArguments, output: Output) -> Result<ExitCode> {
    let also = arguments.also.as_deref();
    let left = Versions::open(&arguments.left, also, output)?;
    let right = Versions::open(&arguments.right, also, output)?;
    let mut compared = Compared::default();
    let pairs = pairs(arguments, &left, &right, &mut compared)?;
    let bar = output.progress(pairs.iter().map(|[info, _]| info.bytes).sum());
    for [info, other] in pairs {
        let same_ranks = info.ranks == other.ranks;
        ensure!(
            same_ranks,
            "version {} is of {} rank(s) in the first history, and of {} in the second",
            info.version,
            info.ranks,
            other.ranks
        );
        let name = arguments.name.as_deref();
        for rank in 0..info.ranks {
            let (_, a) = left.contents(name, Some(info.version), rank)?;
            let (_, b) = right.contents(name, Some(other.version), rank)?;
            let found = difference(&a, &b, arguments)
                .with_context(|| format!("comparing version {}, rank {rank}", info.version))?;
            compared.add(info.version, rank, found);
        }
        compared.versions += 1;
        bar.inc(info.bytes);
        if arguments.first && compared.is_any() {
            break;
        }
    }
    bar.finish_and_clear();
    output.answer(&compared, &compared.text()?)?;
    Ok(ExitCode::from(u8::from(compared.is_any())))
}

/// Returns the versions to compare. Notes in `compared` the versions that one history lacks.
fn pairs(
    arguments: &CompareArguments,
    left: &Versions,
    right: &Versions,
    compared: &mut Compared,
) -> Result<Vec<[VersionInfo; 2]>> {
    let listed = |versions: &Versions| -> Result<BTreeMap<u64, VersionInfo>> {
        let list = versions.list(arguments.name.as_deref())?.into_iter();
        Ok(list.map(|info| (info.version, info)).collect())
    };
    let (left, mut right) = (listed(left)?, listed(right)?);
    if let Some(version) = arguments.version {
        let other = arguments.other.unwrap_or(version);
        let left = left.get(&version);
        let left = left.with_context(|| format!("the first history has no version {version}"))?;
        let right = right.get(&other);
        let right = right.with_context(|| format!("the second history has no version {other}"))?;
        return Ok(vec![[*left, *right]]);
    }
    let mut pairs = Vec::new();
    for (version, info) in left {
        match right.remove(&version) {
            Some(other) => pairs.push([info, other]),
            None => compared.only_left.push(version),
        }
    }
    compared.only_right.extend(right.into_keys());
    ensure!(
        !pairs.is_empty(),
        "the two histories have no version in common: name two to compare"
    );
    Ok(pairs)
}

fn difference(
    a: &PieceContents,
    b: &PieceContents,
    arguments: &CompareArguments,
) -> Result<PieceDifference> {
    let (region, within) = (arguments.region.as_deref(), arguments.within);
    if let (PieceContents::Plain(a), PieceContents::Plain(b)) = (a, b) {
        return Ok(a.compare(b, region, within)?);
    }
    let RegionPairs { pairs, unlike } = RegionPairs::of(a.regions(), b.regions(), region)?;
    let mut found = PieceDifference {
        unlike,
        ..PieceDifference::default()
    };
    for [ours, theirs] in pairs {
        let mut comparison = Comparison::new(ours.element, within)?;
        for start in (0..ours.length).step_by(STEP as usize) {
            let length = STEP.min(ours.length - start);
            let (a, b) = (
                a.read_part(ours, start, length)?,
                b.read_part(theirs, start, length)?,
            );
            comparison.add(start / ours.element.size(), &a, &b);
            found.bytes_read += 2 * length;
        }
        found
            .regions
            .extend(comparison.difference().map(|difference| RegionDifference {
                region: ours.clone(),
                difference,
            }));
    }
    Ok(found)
}

/// Returns the indices of an element in each dimension.
fn indices(region: &RegionInfo, index: u64) -> Vec<u64> {
    let mut rest = index;
    let mut indices: Vec<u64> = region
        .shape
        .iter()
        .rev()
        .map(|extent| {
            let index = rest % extent.max(&1);
            rest /= extent.max(&1);
            index
        })
        .collect();
    indices.reverse();
    match indices.is_empty() {
        true => vec![index],
        false => indices,
    }
}

impl Compared {
    fn is_any(&self) -> bool {
        !self.different.is_empty() || !self.unlike.is_empty()
    }

    fn add(&mut self, version: u64, rank: u32, found: PieceDifference) {
        self.bytes_read += found.bytes_read;
        let unlike = found.unlike.into_iter();
        self.unlike.extend(unlike.map(|region| Unlike {
            version,
            rank,
            region,
        }));
        self.different
            .extend(found.regions.into_iter().map(|found| {
                let (region, difference) = (found.region, found.difference);
                Row {
                    version,
                    rank,
                    elements: region.length / region.element.size(),
                    differ: difference.count,
                    first: indices(&region, difference.first),
                    largest: difference.largest,
                    largest_at: indices(&region, difference.largest_at),
                    region: region.name,
                }
            }));
    }

    fn text(&self) -> Result<String> {
        let mut text = String::new();
        if !self.different.is_empty() {
            writeln!(
                text,
                "{:>12} {:>5} {:<24} {:>12} {:>12}  {:<12} first, largest at",
                "version", "rank", "region", "differ", "of", "largest"
            )?;
        }
        for row in &self.different {
            writeln!(
                text,
                "{:>12} {:>5} {:<24} {:>12} {:>12}  {:<12.6e} {:?}, {:?}",
                row.version,
                row.rank,
                row.region,
                row.differ,
                row.elements,
                row.largest,
                row.first,
                row.largest_at
            )?;
        }
        for Unlike {
            version,
            rank,
            region,
        } in &self.unlike
        {
            writeln!(
                text,
                "version {version}, rank {rank}: region {region:?} is not in both with one type and shape"
            )?;
        }
        for (which, versions) in [("first", &self.only_left), ("second", &self.only_right)] {
            if let (Some(first), Some(last)) = (versions.first(), versions.last()) {
                let count = versions.len();
                writeln!(
                    text,
                    "{count} version(s) from {first} to {last} are in the {which} history alone"
                )?;
            }
        }
        let different = self.different.iter().map(|row| row.version);
        let different = different.chain(self.unlike.iter().map(|row| row.version));
        let different: std::collections::BTreeSet<u64> = different.collect();
        let read = bytes(self.bytes_read);
        match different.first() {
            Some(first) => writeln!(
                text,
                "{} version(s) compared, {} differ, the first is {first}; {read} were read",
                self.versions,
                different.len()
            )?,
            None => writeln!(
                text,
                "{} version(s) compared, none differs; {read} were read",
                self.versions
            )?,
        }
        Ok(text)
    }
}
