//! `tierflow copy`.

use crate::names::{NamedHistory, numbers};
use crate::output::{Output, bytes};
use crate::show::opened;
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use tierflow_objects::History;
use tierflow_store::VersionInfo;

#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// The directory of versions, or the URL of an object store
    directory: PathBuf,
    /// The directory to copy them to, made if it is missing, or the URL of an object store; no other process may write there
    to: PathBuf,
    /// The name of the checkpoints, where VELOC's interface wrote them; the versions are those of the name
    #[arg(long)]
    name: Option<String>,
    /// The versions, with what they are differences to; all, or all of the name, if none is given
    versions: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Copied {
    versions: Vec<u64>,
    bytes: u64,
}

pub(crate) fn copy(arguments: &CopyArguments, output: Output) -> Result<()> {
    let from = opened(&arguments.directory, output)?;
    let whole = from.versions()?.into_iter();
    let whole: BTreeMap<u64, VersionInfo> = whole.map(|info| (info.version, info)).collect();
    let name = arguments.name.as_deref();
    let mut wanted = numbers(&from, name, &arguments.versions)?;
    if name.is_some()
        && arguments.versions.is_empty()
        && let Some(names) = NamedHistory::of(&from)?
    {
        let all = names.of_name(name)?.iter();
        wanted.extend(all.flat_map(|named| &named.numbers));
    }
    for version in &wanted {
        let is_there = whole.contains_key(version);
        ensure!(is_there, "there is no whole version {version}");
    }
    if wanted.is_empty() {
        wanted.extend(whole.keys());
    }
    let mut left: Vec<u64> = wanted.iter().copied().collect();
    while let Some(version) = left.pop() {
        let base = whole.get(&version).and_then(|info| info.base);
        left.extend(base.filter(|base| wanted.insert(*base)));
    }
    let chosen = || wanted.iter().filter_map(|version| whole.get(version));
    let sum: u64 = chosen().map(|info| info.bytes).sum();
    let bar = output.progress(sum);
    let groups: BTreeSet<u32> = chosen().map(|info| info.ranks).collect();
    for ranks in groups {
        for rank in 0..ranks {
            let to = History::writer(&arguments.to, rank, ranks)?;
            for info in chosen().filter(|info| info.ranks == ranks) {
                let version = info.version;
                let piece = from.piece_of(version, rank)?;
                let failed = || format!("version {version}, rank {rank}");
                to.copy(&piece).with_context(failed)?;
                bar.inc(piece.info().bytes);
            }
        }
    }
    bar.finish_and_clear();
    let text = format!("{} version(s) of {} copied\n", wanted.len(), bytes(sum));
    let versions = wanted.into_iter().collect();
    output.answer(
        &Copied {
            versions,
            bytes: sum,
        },
        &text,
    )
}
