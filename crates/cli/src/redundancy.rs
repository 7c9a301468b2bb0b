//! Node directories whose versions other nodes protect: `tierflow list` and `tierflow verify` of one, and `tierflow rebuild` of a group's.

use crate::names::heads_of_rank;
use crate::output::{DamageRow, Output, bytes};
use crate::show::located;
use anyhow::{Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tierflow_redundancy::{Manifest, NodeDirectories, ParityStore, RebuiltVersion};
use tierflow_store::veloc::Names;
use tierflow_store::{Options, Repository, Scrubbed};

/// A rank's part of a version that a set protects, or of a checkpoint of VELOC.
#[derive(Debug, Serialize)]
struct Protected {
    /// The checkpoint's name, if VELOC's interface wrote it. `version` then belongs to the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    version: u64,
    rank: u32,
    /// The ranks and nodes of the set.
    set: Vec<(u32, String)>,
    /// The number of ranks of the set that may be lost.
    tolerates: usize,
    /// Bytes of the parity that the rank stores for the others.
    parity_bytes: u64,
    /// True if the rank's own piece lies there.
    has_piece: bool,
    /// True if a run gave the version up later.
    given_up: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct ProtectedListing {
    protected: Vec<Protected>,
    damage: Vec<DamageRow>,
}

#[derive(Debug, Serialize)]
struct VerifiedNode {
    sound: bool,
    pieces: u64,
    bytes: u64,
    /// The versions and ranks whose stored parity does not match the manifest.
    wrong_parity: Vec<(u64, u32)>,
    damage: Vec<DamageRow>,
}

/// A rank's directories on the node.
struct Rank {
    rank: u32,
    store: ParityStore,
    repository: Repository,
}

/// Opens the directories of the ranks for which redundancy keeps something on a node.
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

/// Returns true for a directory in which redundancy keeps some rank's parity.
pub(crate) fn keeps_something(node: &Path) -> bool {
    ParityStore::ranks(node).is_ok_and(|ranks| !ranks.is_empty())
}

/// Returns true for the directory of a node that redundancy protects, if no version is whole with the pieces there alone.
pub(crate) fn is_node(directory: &Path) -> bool {
    let whole = || Repository::read_only(directory, Options::default())?.versions();
    keeps_something(directory) && whole().is_ok_and(|whole| whole.is_empty())
}

/// Joins the rows of the parts of each checkpoint of VELOC to one row with its name. Other rows stay.
fn by_name(mut rows: Vec<Protected>, names: &Names) -> Vec<Protected> {
    let mut named = Vec::new();
    for head in names.iter().flat_map(|(_, heads)| heads.values()) {
        let numbers: BTreeSet<u64> = head.numbers(true).collect();
        let (parts, others): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| numbers.contains(&row.version));
        rows = others;
        let joined = parts.into_iter().reduce(|one, other| Protected {
            tolerates: one.tolerates.min(other.tolerates),
            parity_bytes: one.parity_bytes + other.parity_bytes,
            has_piece: one.has_piece && other.has_piece,
            given_up: one.given_up || other.given_up,
            ..other
        });
        named.extend(joined.map(|row| Protected {
            name: Some(head.name.clone()),
            version: head.version,
            ..row
        }));
    }
    rows.extend(named);
    rows
}

pub(crate) fn list(node: &Path) -> Result<(ProtectedListing, String)> {
    let mut protected = Vec::new();
    for Rank {
        rank,
        store,
        repository,
    } in ranks(node)?
    {
        let pieces = repository.own_pieces()?;
        let mut rows = Vec::new();
        for version in store.versions()? {
            let Some(manifest) = store.manifest(version)? else {
                continue;
            };
            let members = manifest.members.iter().zip(&manifest.nodes);
            let has_piece = pieces.iter().any(|piece| piece.version == version);
            rows.push(Protected {
                name: None,
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
        protected.extend(by_name(rows, &heads_of_rank(&repository)?));
    }
    protected.sort_by(|one, other| {
        let key = |row: &Protected| (row.name.is_none(), row.version, row.rank);
        one.name.cmp(&other.name).then(key(one).cmp(&key(other)))
    });
    let damage = Repository::read_only(node, Options::default())?.damage();
    let listing = ProtectedListing {
        protected,
        damage: damage.iter().map(DamageRow::from).collect(),
    };
    let has_names = listing.protected.iter().any(|one| one.name.is_some());
    let named = |name: &str| match has_names {
        true => format!("{name:<24} "),
        false => String::new(),
    };
    let mut text = format!(
        "{}{:>12} {:>6} {:>6} {:>12}  set (may lose)\n",
        named("name"),
        "version",
        "rank",
        "piece",
        "parity"
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
            "{}{:>12} {:>6} {piece:>6} {:>12}  {} ({})",
            named(one.name.as_deref().unwrap_or("(a part)")),
            one.version,
            one.rank,
            bytes(one.parity_bytes),
            members.join(", "),
            one.tolerates
        )?;
    }
    text.extend(listing.damage.iter().map(DamageRow::line));
    Ok((listing, text))
}

/// Returns the engine's versions that a user's version stands for on a node: itself, or the parts of a named checkpoint.
fn numbers(node: &Path, name: Option<&str>, version: u64) -> Result<BTreeSet<u64>> {
    let (mut numbers, mut known) = (BTreeSet::new(), BTreeSet::new());
    for Rank { repository, .. } in ranks(node)? {
        let names = heads_of_rank(&repository)?;
        known.extend(names.iter().map(|(name, _)| name.to_owned()));
        let heads = names
            .iter()
            .filter(|(own, _)| name.is_none_or(|name| name == *own))
            .filter_map(|(_, heads)| heads.get(&version));
        numbers.extend(heads.flat_map(|head| head.numbers(true)));
    }
    ensure!(
        name.is_some() || known.len() < 2,
        "there are several names: choose one by --name"
    );
    match (known.is_empty(), name) {
        (true, Some(_)) => bail!("the versions there have no names: leave out --name"),
        (true, None) => Ok([version].into()),
        (false, _) => Ok(numbers),
    }
}

/// Reads and checks all pieces and parities of a node, or those of one version, which may have a name. Exit code 1 if something is damaged.
pub(crate) fn verify(
    node: &Path,
    version: Option<(Option<&str>, u64)>,
    output: Output,
) -> Result<ExitCode> {
    let meant = version.map(|(name, version)| numbers(node, name, version));
    let meant = meant.transpose()?;
    let is_meant = |number: u64| meant.as_ref().is_none_or(|meant| meant.contains(&number));
    let repository = Repository::read_only(node, Options::default())?;
    let mut scrubbed = Scrubbed::default();
    let each = meant.iter().flatten().copied().map(Some);
    for number in each.chain(meant.is_none().then_some(None)) {
        let one = repository.scrub(number, &|_, _| {})?;
        scrubbed.pieces += one.pieces;
        scrubbed.bytes += one.bytes;
        scrubbed.damage.extend(one.damage);
    }
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
    if let Some((_, version)) = version {
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
    /// The checkpoint's name, if VELOC's interface wrote it. `version` then belongs to the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    version: u64,
    /// The ranks of the set.
    ranks: Vec<u32>,
    /// The ranks whose piece or parity was lost.
    lost: Vec<u32>,
    /// The error, if the version cannot be rebuilt.
    error: Option<String>,
}

impl From<&RebuiltVersion> for RebuiltRow {
    fn from(rebuilt: &RebuiltVersion) -> Self {
        Self {
            name: None,
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
        let name = self.name.as_ref();
        let name = name.map_or_else(String::new, |name| format!("of {name:?} "));
        let outcome = match (&self.error, self.lost.is_empty()) {
            (Some(error), _) => error.clone(),
            (None, true) => "nothing was lost".to_owned(),
            (None, false) => format!("rebuilt of ranks {}", listed(&self.lost)),
        };
        let (version, ranks) = (self.version, listed(&self.ranks));
        format!("version {version} {name}of ranks {ranks}: {outcome}\n")
    }
}

fn listed(ranks: &[u32]) -> String {
    let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    ranks.join(", ")
}

/// Joins the rows of the parts of each checkpoint of VELOC to one row for each set. Heads in the directories of `nodes` have the names.
fn rows_by_name(mut rows: Vec<RebuiltRow>, nodes: &[&PathBuf]) -> Result<Vec<RebuiltRow>> {
    let mut checkpoints: BTreeMap<(String, u64), BTreeSet<u64>> = BTreeMap::new();
    for node in nodes {
        for Rank { repository, .. } in ranks(node)? {
            let names = heads_of_rank(&repository)?;
            for head in names.iter().flat_map(|(_, heads)| heads.values()) {
                let numbers = checkpoints.entry((head.name.clone(), head.version));
                numbers.or_default().extend(head.numbers(true));
            }
        }
    }
    let mut named: BTreeMap<_, RebuiltRow> = BTreeMap::new();
    for ((name, version), numbers) in checkpoints {
        let (parts, others): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| numbers.contains(&row.version));
        rows = others;
        for part in parts {
            let key = (name.clone(), version, part.ranks.clone());
            let row = named.entry(key).or_insert_with(|| RebuiltRow {
                name: Some(name.clone()),
                version,
                ranks: part.ranks,
                lost: Vec::new(),
                error: None,
            });
            row.lost.extend(part.lost);
            row.lost.sort_unstable();
            row.lost.dedup();
            row.error = row.error.take().or(part.error);
        }
    }
    Ok(named.into_values().chain(rows).collect())
}

/// Rebuilds the lost pieces and parities from the named nodes. Sound ones stay unchanged. Exit code 1 if some version cannot be rebuilt.
pub(crate) fn rebuild(arguments: &RebuildArguments, output: Output) -> Result<ExitCode> {
    let nodes: Vec<PathBuf> = arguments
        .nodes
        .iter()
        .map(|node| located(node))
        .collect::<Result<_>>()?;
    // The user may name directories above those of the nodes. Then the rebuilt files go to the same subdirectory of `into`.
    let below = arguments
        .nodes
        .iter()
        .zip(&nodes)
        .find_map(|(above, node)| node.strip_prefix(above).ok());
    let into = arguments.into.as_ref().map(|into| match below {
        Some(below) if !keeps_something(into) => into.join(below),
        _ => into.clone(),
    });
    let found = NodeDirectories::find(&nodes)?;
    let missing = found.missing();
    let spare = match (&into, nodes.first()) {
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
    let places: Vec<&PathBuf> = nodes.iter().chain(into.as_ref()).collect();
    let rows = rows_by_name(rows, &places)?;
    ensure!(!rows.is_empty(), "redundancy protects no version there");
    let text: String = rows.iter().map(RebuiltRow::line).collect();
    let is_whole = rows.iter().all(|row| row.error.is_none());
    output.answer(&rows, &text)?;
    Ok(ExitCode::from(u8::from(!is_whole)))
}
