//! `tierflow prune`.

use crate::output::{Output, bytes};
use crate::show::opened;
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use tierflow_objects::History;
use tierflow_store::Retention;

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
    versions: Vec<u64>,
    bytes: u64,
}

pub(crate) fn prune(arguments: &PruneArguments, output: Output) -> Result<()> {
    let mut rules = Retention::newest(arguments.keep);
    if let Some(step) = arguments.every {
        rules = rules.and_every(step);
    }
    if let Some(age) = arguments.younger_than {
        rules = rules.and_younger_than(age);
    }
    let reader = opened(&arguments.directory, output)?;
    let pruned = match arguments.dry_run {
        true => reader.would_prune(&rules)?,
        false => {
            drop(reader);
            History::maintain(&arguments.directory)?.prune(&rules)?
        }
    };
    let pruned = Pruned {
        versions: pruned.versions,
        bytes: pruned.bytes,
    };
    let text = format!(
        "{} version(s) {}given up, {} of records {}removed\n",
        pruned.versions.len(),
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
