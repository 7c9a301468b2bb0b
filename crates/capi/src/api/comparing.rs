//! The versions and regions that differ between two histories.

use std::ffi::c_char;

use tierflow_store::RegionDifference;

use super::parts::open;
use crate::failure::{Failure, Outcome, exported};
use crate::ffi::{Out, Text};

/// Bytes for the name of a region with its zero, a multiple of 4.
const NAME: usize = 1028;

/// `tf_difference` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawDifference {
    version: u64,
    elements: u64,
    differing: u64,
    first: u64,
    pub(crate) largest: f64,
    largest_at: u64,
    pub(crate) rank: u32,
    pub(crate) region: [c_char; NAME],
}

impl RawDifference {
    /// Returns the difference for a region that one history lacks, or has with another type or shape.
    fn unlike(version: u64, rank: u32, name: &str) -> Self {
        let mut region = [0; NAME];
        for (to, byte) in region.iter_mut().zip(name.bytes().take(NAME - 1)) {
            *to = c_char::from_ne_bytes([byte]);
        }
        Self {
            version,
            elements: 0,
            differing: 0,
            first: 0,
            largest: f64::INFINITY,
            largest_at: 0,
            rank,
            region,
        }
    }

    fn of(version: u64, rank: u32, found: &RegionDifference) -> Self {
        let (region, difference) = (&found.region, found.difference);
        Self {
            elements: region.length / region.element.size(),
            differing: difference.count,
            first: difference.first,
            largest: difference.largest,
            largest_at: difference.largest_at,
            ..Self::unlike(version, rank, &region.name)
        }
    }
}

exported! {
    fn tf_compare(
        left: Text<'_>, right: Text<'_>, region: Text<'_>, within: f64, found: Out<RawDifference>, room: usize, count: Out<usize>
    ) {
        let region = Some(region.read("region")?).filter(|name| !name.is_empty());
        let differences = compare([left.read("left")?, right.read("right")?], region, within, room)?;
        found.put_all(&differences, room, "found")?;
        count.put(differences.len(), "count")
    }
}

/// Compares the versions that both histories have, and returns at most `most` regions that differ.
fn compare(
    [left, right]: [&str; 2],
    region: Option<&str>,
    within: f64,
    most: usize,
) -> Outcome<Vec<RawDifference>> {
    if most == 0 {
        return Err(Failure::argument(
            "room is 0: give room for one difference at least".to_owned(),
        ));
    }
    let within = (within >= 0.0 || within.is_nan()).then_some(within);
    let [ours, theirs] = [open(left)?, open(right)?];
    let of_right = theirs.versions()?;
    let mut found = Vec::new();
    let mut is_common = false;
    for version in ours.versions()? {
        let Some(other) = of_right
            .iter()
            .find(|other| other.version == version.version)
        else {
            continue;
        };
        is_common = true;
        let number = version.version;
        if other.ranks != version.ranks {
            return Err(Failure::argument(format!(
                "version {number} is of {} rank(s) in {left}, of {} in {right}",
                version.ranks, other.ranks
            )));
        }
        for rank in 0..version.ranks {
            let piece = ours.piece_of(number, rank)?;
            let difference = piece.compare(&theirs.piece_of(number, rank)?, region, within)?;
            let regions = difference.regions.iter();
            found.extend(regions.map(|one| RawDifference::of(number, rank, one)));
            let unlike = difference.unlike.iter();
            found.extend(unlike.map(|name| RawDifference::unlike(number, rank, name)));
            if found.len() >= most {
                found.truncate(most);
                return Ok(found);
            }
        }
    }
    match is_common {
        true => Ok(found),
        false => Err(Failure::argument(format!(
            "{left} and {right} have no version in common"
        ))),
    }
}
