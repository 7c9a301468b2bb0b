//! A node's directory whose versions other nodes protect: `tierflow list` and `tierflow verify` of it, and `tierflow rebuild` of a
//! group's.

use crate::output::{DamageRow, Output, bytes};
use anyhow::{Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tierflow_redundancy::{Manifest, NodeDirectories, ParityStore, RebuiltVersion};
use tierflow_store::{Options, Repository};

/// A rank's part of a version that a set protects.
#[derive(Debug, Serialize)]
struct Protected {
    version: u64,
    rank: u32,
    /// The ranks and nodes of the set.
    set: Vec<(u32, String)>,
    /// How many of them may be lost.
    tolerates: usize,
    /// Bytes of the parity that the rank stores for the others.
    parity_bytes: u64,
    /// The rank's own piece lies there.
    has_piece: bool,
    /// A run gave the version up later.
    given_up: bool,
}

#[derive(Debug, Serialize)]
struct ProtectedListing {
    protected: Vec<Protected>,
    damage: Vec<DamageRow>,
}

#[derive(Debug, Serialize)]
struct VerifiedNode {
    sound: bool,
    pieces: u64,
    bytes: u64,
    /// The versions, and the ranks, whose parity is not what was protected.
    wrong_parity: Vec<(u64, u32)>,
    damage: Vec<DamageRow>,
}

/// A rank's directories on the node.
struct Rank {
    rank: u32,
    store: ParityStore,
    repository: Repository,
}

/// The ranks of a node's directory, if redundancy keeps something there.
fn ranks(node: &Path) -> Result<Vec<Rank>> {
    let mut ranks = Vec::new();
    for rank in ParityStore::ranks(node).unwrap_or_default() {
        let options = Options::default().rank(rank, rank + 1);
        ranks.extend(ParityStore::existing(node, rank)?.map(|store| {
            let repository = Repository::read_only(node, options)?;
            anyhow::Ok(Rank {
                rank,
                store,
                repository,
            })
        }));
    }
    ranks.into_iter().collect()
}

/// Returns true for a directory of a node that redundancy protects, of whose ranks alone no version is whole.
pub(crate) fn is_node(directory: &Path) -> bool {
    let whole = || Repository::read_only(directory, Options::default())?.versions();
    let has_ranks = ParityStore::ranks(directory).is_ok_and(|ranks| !ranks.is_empty());
    has_ranks && whole().is_ok_and(|whole| whole.is_empty())
}

pub(crate) fn list(node: &Path, output: Output) -> Result<()> {
    let mut protected = Vec::new();
    for Rank {
        rank,
        store,
        repository,
    } in ranks(node)?
    {
        let pieces = repository.own_pieces()?;
        for version in store.versions()? {
            let Some(manifest) = store.manifest(version)? else {
                continue;
            };
            let members = manifest.members.iter().zip(&manifest.nodes);
            let has_piece = pieces.iter().any(|piece| piece.version == version);
            protected.push(Protected {
                version,
                rank,
                set: members
                    .map(|((rank, ..), node)| (*rank, node.clone()))
                    .collect(),
                tolerates: manifest.tolerates,
                parity_bytes: manifest.parity_of(rank).map_or(0, |parity| parity.bytes),
                has_piece,
                given_up: store.gave_up(&manifest),
            });
        }
    }
    protected.sort_by_key(|one| (one.version, one.rank));
    let damage = Repository::read_only(node, Options::default())?.damage();
    let listing = ProtectedListing {
        protected,
        damage: damage.iter().map(DamageRow::from).collect(),
    };
    let mut text = format!(
        "{:>12} {:>6} {:>6} {:>12}  set (may lose)\n",
        "version", "rank", "piece", "parity"
    );
    for one in &listing.protected {
        let piece = match (one.given_up, one.has_piece) {
            (true, _) => "old",
            (false, true) => "here",
            (false, false) => "lost",
        };
        let members = one.set.iter();
        let members = members.map(|(rank, node)| format!("{rank} on {node}"));
        let members: Vec<String> = members.collect();
        writeln!(
            text,
            "{:>12} {:>6} {piece:>6} {:>12}  {} ({})",
            one.version,
            one.rank,
            bytes(one.parity_bytes),
            members.join(", "),
            one.tolerates
        )?;
    }
    text.extend(listing.damage.iter().map(DamageRow::line));
    output.answer(&listing, &text)
}

pub(crate) fn verify(node: &Path, version: Option<u64>, output: Output) -> Result<ExitCode> {
    let is_meant = |other: u64| version.is_none_or(|version| version == other);
    let scrubbed = Repository::read_only(node, Options::default())?.scrub(version, &|_, _| {})?;
    let mut verified = VerifiedNode {
        sound: true,
        pieces: scrubbed.pieces,
        bytes: scrubbed.bytes,
        wrong_parity: Vec::new(),
        damage: scrubbed.damage.iter().map(DamageRow::from).collect(),
    };
    let mut found = 0;
    for Rank { rank, store, .. } in ranks(node)? {
        for version in store.versions()?.into_iter().filter(|one| is_meant(*one)) {
            let manifest = store.manifest(version)?;
            found += 1;
            let counts = |manifest: &&Manifest| !store.gave_up(manifest);
            let is_right = match manifest.as_ref().filter(counts) {
                Some(manifest) => store.has_parity(manifest, rank)?,
                None => manifest.is_some(),
            };
            if !is_right {
                verified.wrong_parity.push((version, rank));
            }
        }
    }
    if let Some(version) = version {
        ensure!(
            found > 0 || verified.pieces > 0 || !verified.damage.is_empty(),
            "there is no version {version}"
        );
    }
    verified.sound = verified.damage.is_empty() && verified.wrong_parity.is_empty();
    let mut text = format!(
        "{} piece(s) of {} are sound, and parity of {} version(s)\n",
        verified.pieces,
        bytes(verified.bytes),
        found - verified.wrong_parity.len()
    );
    for (version, rank) in &verified.wrong_parity {
        writeln!(
            text,
            "version {version}: the parity that rank {rank} stores is not what was protected; the next start makes it again"
        )?;
    }
    text.extend(verified.damage.iter().map(DamageRow::line));
    output.answer(&verified, &text)?;
    Ok(ExitCode::from(u8::from(!verified.sound)))
}

#[derive(Debug, Args)]
pub(crate) struct RebuildArguments {
    /// The directories of the group's nodes that are left, wherever they are mounted; no application may use them
    #[arg(required = true)]
    nodes: Vec<PathBuf>,
    /// A directory for what lost nodes had, to be used in the place of one of them
    #[arg(long)]
    into: Option<PathBuf>,
}

/// A version that a set protected.
#[derive(Debug, Serialize)]
struct RebuiltRow {
    version: u64,
    /// The ranks of the set.
    ranks: Vec<u32>,
    /// The ranks whose piece or parity was lost.
    lost: Vec<u32>,
    /// Why it cannot be rebuilt.
    error: Option<String>,
}

impl From<&RebuiltVersion> for RebuiltRow {
    fn from(rebuilt: &RebuiltVersion) -> Self {
        Self {
            version: rebuilt.version,
            ranks: rebuilt.ranks.clone(),
            lost: rebuilt.lost.iter().map(|lost| lost.rank).collect(),
            error: rebuilt.error.as_ref().map(ToString::to_string),
        }
    }
}

impl RebuiltRow {
    /// Formats the row as a line.
    fn line(&self) -> String {
        let Self { version, ranks, .. } = self;
        let ranks = listed(ranks);
        match (&self.error, self.lost.is_empty()) {
            (Some(error), _) => format!("version {version} of ranks {ranks}: {error}\n"),
            (None, true) => format!("version {version} of ranks {ranks}: nothing was lost\n"),
            (None, false) => {
                let lost = listed(&self.lost);
                format!("version {version} of ranks {ranks}: rebuilt of ranks {lost}\n")
            }
        }
    }
}

fn listed(ranks: &[u32]) -> String {
    let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    ranks.join(", ")
}

pub(crate) fn rebuild(arguments: &RebuildArguments, output: Output) -> Result<ExitCode> {
    let found = NodeDirectories::find(&arguments.nodes)?;
    let missing = found.missing();
    let spare = match (&arguments.into, arguments.nodes.first()) {
        (Some(into), _) => into,
        (None, Some(first)) if missing.is_empty() => first,
        _ => bail!(
            "ranks {} have no directory in those that are named: name an empty one for them with --into",
            listed(&missing)
        ),
    };
    let waiting = output.waiting("rebuilding".to_owned());
    let rebuilt = found.rebuild(spare)?;
    waiting.finish_and_clear();
    let rows: Vec<RebuiltRow> = rebuilt.iter().map(RebuiltRow::from).collect();
    ensure!(!rows.is_empty(), "redundancy protects no version there");
    let text: String = rows.iter().map(RebuiltRow::line).collect();
    let is_whole = rows.iter().all(|row| row.error.is_none());
    output.answer(&rows, &text)?;
    Ok(ExitCode::from(u8::from(!is_whole)))
}
