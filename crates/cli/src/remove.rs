//! `tierflow remove`.

use crate::names::{NamedHistory, numbers};
use crate::output::Output;
use crate::show::{located, opened};
use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use tierflow_objects::History;

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// The directory of versions, or the URL of an object store, which no other process may write
    directory: PathBuf,
    /// The name of the checkpoints, where VELOC's interface wrote them; the versions are those of the name
    #[arg(long)]
    name: Option<String>,
    /// The versions
    #[arg(required = true)]
    versions: Vec<u64>,
    /// Remove them even if nothing is left
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Serialize)]
struct Removed {
    versions: Vec<u64>,
}

pub(crate) fn remove(arguments: &RemoveArguments, output: Output) -> Result<()> {
    let directory = located(&arguments.directory)?;
    let history = opened(&directory, output)?;
    let whole = history.versions()?;
    let there: BTreeSet<u64> = whole.iter().map(|info| info.version).collect();
    let named = numbers(&history, arguments.name.as_deref(), &arguments.versions)?;
    // Parts of checkpoints that were not ended do not count as versions that are left.
    let is_any_left = match NamedHistory::of(&history)? {
        Some(names) => names.iter().any(|one| one.numbers.is_disjoint(&named)),
        None => named.len() < there.len(),
    };
    drop(history);
    for version in &named {
        ensure!(there.contains(version), "there is no version {version}");
    }
    for info in &whole {
        let base = info.base.filter(|base| named.contains(base));
        if let (Some(base), false) = (base, named.contains(&info.version)) {
            let version = info.version;
            anyhow::bail!("version {version} is a difference to version {base}: name it, too");
        }
    }
    ensure!(
        arguments.force || is_any_left,
        "no version would be left: add --force if that is meant"
    );
    let history = History::maintain(&directory)?;
    history.remove(&named)?;
    let versions: BTreeSet<u64> = arguments.versions.iter().copied().collect();
    let text = format!("{} version(s) removed\n", versions.len());
    let versions = versions.into_iter().collect();
    output.answer(&Removed { versions }, &text)
}
