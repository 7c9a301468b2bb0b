//! `docs/src/threads.md` and the code agree: the page lists each lock with its rank.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The crates whose locks have ranks.
const RANKED: [&str; 8] = [
    "device",
    "engine",
    "objects",
    "peers",
    "redundancy",
    "store",
    "tier-alloc",
    "transfer",
];

/// A lock: its rank's name, its file within `crates/`, and the name of its field, or of the tuple struct around it.
type Lock = (String, String, String);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Returns the ranks of `src/rank.rs` by their numbers.
fn ranks() -> BTreeMap<u8, String> {
    let text = std::fs::read_to_string(root().join("crates/sync/src/rank.rs")).unwrap();
    let constants = text.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("pub const ")?.split_once(": u8 = ")?;
        Some((
            number.trim_end_matches(';').parse().unwrap(),
            name.to_owned(),
        ))
    });
    constants.collect()
}

/// Returns the sources of the ranked crates without their tests: the path within `crates/` and the text of each file.
fn sources() -> Vec<(String, String)> {
    let crates = root().join("crates");
    let mut paths = Vec::new();
    for name in RANKED {
        files(&crates.join(name).join("src"), &mut paths);
    }
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        let code = text
            .split("\n#[cfg(test)]\nmod ")
            .next()
            .unwrap()
            .to_owned();
        let path = path.strip_prefix(&crates).unwrap().display().to_string();
        (path, code)
    };
    paths.iter().map(read).collect()
}

/// Returns the locks in fields of structs.
fn in_code() -> BTreeSet<Lock> {
    let mut locks = BTreeSet::new();
    for (path, code) in sources() {
        for line in code.lines() {
            let line = line.trim();
            let kind = ["Mutex<", "RwLock<", "Monitor<"];
            let is_lock = kind.iter().any(|kind| line.contains(kind));
            let is_code = !line.starts_with("//") && !line.contains('&') && !line.contains("type ");
            let tuple = line.split_once("struct ").map(|(_, tuple)| tuple);
            let field = || line.split_once(": ").map(|(field, _)| field);
            let Some(before) = tuple
                .and_then(|tuple| tuple.split('(').next())
                .or_else(field)
            else {
                continue;
            };
            let is_field = line.ends_with(',') && !line.contains(" = ") && !line.contains("fn ");
            let is_tuple = tuple.is_some() && line.ends_with(");");
            if !(is_lock && is_code && (is_field || is_tuple)) {
                continue;
            }
            let name = before.rsplit(' ').next().unwrap().to_owned();
            let own = match path.starts_with("tier-alloc") {
                true => "ARENA_LEAF",
                false => "LEAF",
            };
            let rank = line.split_once("rank::").map_or(own, |(_, rest)| {
                rest.split(|c: char| c != '_' && !c.is_alphanumeric())
                    .next()
                    .unwrap()
            });
            locks.insert((rank.to_owned(), path.clone(), name));
        }
    }
    locks
}

/// Returns the locks in the page's table: `| rank number | NAME | `lock`, `lock` | `file` | … |`.
fn on_page() -> BTreeSet<Lock> {
    let page = std::fs::read_to_string(root().join("docs/src/threads.md")).unwrap();
    let ranks = ranks();
    let mut locks = BTreeSet::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, rank, names, file, _, _] = cells[..] else {
            continue;
        };
        let Ok(number) = number.parse::<u8>() else {
            continue;
        };
        let rank = rank.trim_matches('`');
        assert_eq!(ranks.get(&number).unwrap(), rank, "{line}");
        if !RANKED
            .iter()
            .any(|name| file.starts_with(&format!("`{name}/")))
        {
            continue;
        }
        for name in names.split(", ") {
            let (name, file) = (name.trim_matches('`'), file.trim_matches('`'));
            locks.insert((rank.to_owned(), file.to_owned(), name.to_owned()));
        }
    }
    locks
}

#[test]
fn each_lock_stands_on_the_page_with_its_rank() {
    let (code, page) = (in_code(), on_page());
    let missing: Vec<_> = code.difference(&page).collect();
    let stale: Vec<_> = page.difference(&code).collect();
    assert!(
        missing.is_empty(),
        "not in docs/src/threads.md: {missing:#?}"
    );
    assert!(stale.is_empty(), "in docs/src/threads.md alone: {stale:#?}");
    assert!(code.len() > 50, "the locks of {} fields", code.len());
}

#[test]
fn ranked_crates_have_no_locks_without_a_rank() {
    for (path, code) in sources() {
        for (number, line) in code.lines().enumerate() {
            let is_std = line.contains("std::sync")
                && ["Mutex", "RwLock", "Condvar"]
                    .iter()
                    .any(|lock| line.contains(lock));
            let is_other = line.contains("parking_lot::") || is_std;
            assert!(!is_other, "{path}:{}: {line}", number + 1);
        }
    }
}
