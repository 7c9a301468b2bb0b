//! Checkpoints that were lost with their nodes, listed under the names that the application gave them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tierflow_bind::log_start;
use tierflow_engine::{Engine, read_piece};
use tierflow_store::{LostVersion, Options, Repository};

use super::head::{Head, is_head, serial_of};
use super::history::History;

/// Number of lost checkpoints that a line names for each reason: the newest.
const MOST_NAMED: usize = 8;

/// Writes the checkpoints and the damage that a start found to the log, with the names that the application gave. Losses with nodes are
/// left to [`lost_with_nodes`].
pub(super) fn tell_of_start(engine: &Engine, history: &History) {
    let names = history.names();
    let count: usize = names
        .iter()
        .map(|name| history.versions(name).count())
        .sum();
    let lost = engine.reports().losses.into_iter();
    let lost: BTreeSet<u64> = lost.map(|gone| gone.version).collect();
    let is_lost = |version: Option<u64>| version.is_some_and(|version| lost.contains(&version));
    let others = engine.damage().into_iter();
    let others = others.filter(|damage| !damage.names_losses() && !is_lost(damage.version));
    let others = others.map(|mut damage| match damage.version.take() {
        None => damage.to_string(),
        Some(version) => match history.of_serial(serial_of(version)) {
            Some(head) => format!("version {} of {:?}: {damage}", head.version, head.name),
            None => format!("a checkpoint without a name: {damage}"),
        },
    });
    log_start(&format!("opened; checkpoints held: {count}"), others);
}

/// Returns a line about the checkpoints that were lost because more nodes were lost than their redundancy bears. A checkpoint is named if
/// this rank has a piece of its head in the directory `node`.
pub(super) fn lost_with_nodes(engine: &Engine, node: &Path, rank: (u32, u32)) -> Option<String> {
    let losses = engine.reports().losses.into_iter();
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut own = None;
    for LostVersion { version, why, .. } in losses.filter(|gone| is_head(gone.version)) {
        let open = || Repository::read_only(node, Options::default().rank(rank.0, rank.1)).ok();
        let own = own.get_or_insert_with(open).as_ref();
        let piece = own.and_then(|own| own.own_piece(version).ok());
        let head = piece.and_then(|piece| Head::decode(&read_piece(&piece).ok()?));
        let text = head.map_or_else(
            || "a checkpoint without a name".to_owned(),
            |head| format!("version {} of {:?}", head.version, head.name),
        );
        reasons.entry(why).or_default().push(text);
    }
    let line = |(why, checkpoints): (String, Vec<String>)| {
        let (older, newest) = checkpoints.split_at(checkpoints.len().saturating_sub(MOST_NAMED));
        let others = match older.len() {
            0 => String::new(),
            others => format!("{others} others, "),
        };
        format!("{others}{}: {why}", newest.join(", "))
    };
    let lines: Vec<String> = reasons.into_iter().map(line).collect();
    (!lines.is_empty()).then(|| {
        format!(
            "lost with their nodes: {}; start again with the nodes that are missing, if they are still there",
            lines.join("; ")
        )
    })
}
