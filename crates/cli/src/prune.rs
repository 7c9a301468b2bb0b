//! `tierflow prune`.

use crate::names::{Named, NamedHistory};
use crate::output::{Output, bytes};
use crate::show::{located, opened};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tierflow_objects::History;
use tierflow_store::{Retention, VersionInfo};

#[derive(Debug, Args)]
pub(crate) struct PruneArguments {
    /// The directory of versions, or the URL of an object store, which no other process may write
    directory: PathBuf,
    /// Keep this many of the newest versions, at least 1
    #[arg(long, value_parser = count)]
    keep: usize,
    /// Keep versions whose numbers are multiples of this, too
    #[arg(long)]
    every: Option<u64>,
    /// Keep versions written less long ago than this, too: a number and s, m, h or d
    #[arg(long, value_parser = duration)]
    younger_than: Option<Duration>,
    /// Say what would be given up, and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct Pruned {
    /// The checkpoints that were given up, if VELOC's interface wrote them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checkpoints: Vec<GivenUp>,
    versions: Vec<u64>,
    bytes: u64,
}

/// A checkpoint of VELOC that is given up.
#[derive(Debug, Serialize)]
struct GivenUp {
    name: String,
    version: u64,
}

/// Returns the checkpoints of VELOC that the rules do not keep, and the repository's versions to remove with them. For each name, at least
/// one checkpoint that stays can be read, with matching checksums: if the rules keep none such, the newest such one stays, too.
fn beyond(
    history: &History,
    names: &NamedHistory,
    rules: &Retention,
) -> Result<(Vec<GivenUp>, BTreeSet<u64>)> {
    let (mut goes, mut stays): (Vec<&Named>, Vec<&Named>) = (Vec::new(), Vec::new());
    for (name, versions) in names.names() {
        let infos: Vec<VersionInfo> = versions.iter().map(|named| named.info).collect();
        let given_up = rules.given_up(&infos);
        let is_given_up = |named: &&Named| given_up.contains(&named.head.version);
        let (mut beyond, mut kept): (Vec<&Named>, Vec<&Named>) =
            versions.iter().partition(is_given_up);
        if !beyond.is_empty() && newest_sound(history, names, &kept)?.is_none() {
            let sound = newest_sound(history, names, &beyond)?;
            let sound = sound.with_context(|| {
                format!("no version of {name:?} can be read whole, so none is given up: see `tierflow verify`")
            })?;
            kept.push(beyond.remove(sound));
        }
        goes.extend(beyond);
        stays.extend(kept);
    }
    let needed = names.needed(stays.into_iter());
    let numbers = goes.iter().flat_map(|named| &named.numbers);
    let numbers = numbers.filter(|number| !needed.contains(number));
    let numbers = numbers.copied().collect();
    let given_up = goes.iter().map(|named| GivenUp {
        name: named.head.name.clone(),
        version: named.head.version,
    });
    Ok((given_up.collect(), numbers))
}

/// Returns the index of the newest checkpoint, of `versions` in ascending order, that can be read with all versions that it needs.
fn newest_sound(
    history: &History,
    names: &NamedHistory,
    versions: &[&Named],
) -> Result<Option<usize>> {
    for (at, named) in versions.iter().enumerate().rev() {
        let mut is_sound = true;
        for number in names.needed(std::iter::once(*named)) {
            let scrubbed = history.scrub(Some(number), &|_, _| {})?;
            is_sound &= scrubbed.pieces > 0 && scrubbed.damage.is_empty();
        }
        if is_sound {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

pub(crate) fn prune(arguments: &PruneArguments, output: Output) -> Result<()> {
    let mut rules = Retention::newest(arguments.keep);
    if let Some(step) = arguments.every {
        rules = rules.and_every(step);
    }
    if let Some(age) = arguments.younger_than {
        rules = rules.and_younger_than(age);
    }
    let directory = located(&arguments.directory)?;
    let reader = opened(&directory, output)?;
    let names = NamedHistory::known(&reader)?;
    let pruned = match names {
        Some(names) => {
            let (checkpoints, numbers) = beyond(&reader, &names, &rules)?;
            drop(reader);
            let bytes = names.bytes(numbers.iter());
            if !arguments.dry_run && !numbers.is_empty() {
                History::maintain(&directory)?.remove(&numbers)?;
            }
            Pruned {
                checkpoints,
                versions: Vec::new(),
                bytes,
            }
        }
        None => {
            let pruned = match arguments.dry_run {
                true => reader.would_prune(&rules)?,
                false => {
                    drop(reader);
                    History::maintain(&directory)?.prune(&rules)?
                }
            };
            Pruned {
                checkpoints: Vec::new(),
                versions: pruned.versions,
                bytes: pruned.bytes,
            }
        }
    };
    let text = format!(
        "{} version(s) {}given up, {} of records {}removed\n",
        pruned.versions.len() + pruned.checkpoints.len(),
        if arguments.dry_run { "would be " } else { "" },
        bytes(pruned.bytes),
        if arguments.dry_run { "would be " } else { "" },
    );
    output.answer(&pruned, &text)
}

fn count(text: &str) -> Result<usize> {
    let count = text.parse()?;
    ensure!(count > 0, "at least one version stays");
    Ok(count)
}

fn duration(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let seconds: u64 = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => anyhow::bail!("write a number and s, m, h or d, such as 36h"),
    };
    let count: u64 = digits.parse()?;
    let seconds = count.checked_mul(seconds).context("that is too long")?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("36h").unwrap(), Duration::from_secs(129_600));
        assert_eq!(duration("7d").unwrap(), Duration::from_secs(604_800));
        for wrong in [
            "",
            "7",
            "d",
            "1.5h",
            "-1s",
            "99999999999999999999s",
            "999999999999999999d",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
