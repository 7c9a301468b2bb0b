//! Names that no type may have, and comments that begin without their subject: `xtask/words.toml` has how many of them each crate may
//! still have. The numbers may only fall.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cargo::Metadata;
use crate::tidy::files::File;

/// The file of the numbers, from the root of the workspace.
const FILE: &str = "xtask/words.toml";

/// First words of a comment that are no subject.
const OPENERS: &[&str] = &[
    "What", "That", "Who", "Whoever", "Whatever", "Where", "Whether", "Those", "One", "Ones", "It",
    "Its", "They", "Their", "This", "These", "Which",
];

/// Counts by crate, or by name.
type Counts = BTreeMap<String, usize>;

/// The file `words.toml`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Words {
    /// Names that no type may have.
    forbidden: Vec<String>,
    /// The forbidden names that types still have, and how many types.
    still: Counts,
    /// Comments that begin without their subject, by crate.
    comments: Counts,
}

/// Compares the tree with `words.toml`, or lowers the numbers there.
pub(crate) fn run(write: bool) -> Result<()> {
    let workspace = Metadata::read()?;
    let files = File::read_all(&workspace)?;
    if write {
        let (mut words, now) = (read(&workspace)?, Words::count(&workspace, &files)?);
        for (old, new) in [
            (&mut words.still, now.still),
            (&mut words.comments, now.comments),
        ] {
            let fallen = new
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| {
                    let most = old.get(&name).map_or(count, |most| count.min(*most));
                    (name, most)
                });
            *old = fallen.collect();
        }
        let text = toml::to_string_pretty(&words)?;
        return std::fs::write(workspace.workspace_root.join(FILE), text).context(FILE);
    }
    let now = Words::count(&workspace, &files)?;
    let sum = |counts: &Counts| counts.values().sum::<usize>();
    println!(
        "{} comments without their subject, {} forbidden names",
        sum(&now.comments),
        sum(&now.still)
    );
    let complaints = complaints(&workspace, &files)?;
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

/// Returns a line for each number that rose.
pub(crate) fn complaints(workspace: &Metadata, files: &[File]) -> Result<Vec<String>> {
    let (most, now) = (read(workspace)?, Words::count(workspace, files)?);
    let still = risen(
        &most.still,
        &now.still,
        "types are called by this name, which is a forbidden one",
    );
    let comments = risen(
        &most.comments,
        &now.comments,
        "comments begin without their subject",
    );
    Ok(still.chain(comments).collect())
}

fn risen<'a>(
    most: &'a Counts,
    now: &'a Counts,
    what: &'a str,
) -> impl Iterator<Item = String> + 'a {
    now.iter().filter_map(move |(name, count)| {
        let most = most.get(name).copied().unwrap_or_default();
        (*count > most).then(|| format!("{name}: {count} {what}, and {FILE} allows {most}"))
    })
}

fn read(workspace: &Metadata) -> Result<Words> {
    let text = std::fs::read_to_string(workspace.workspace_root.join(FILE)).context(FILE)?;
    toml::from_str(&text).context(FILE)
}

impl Words {
    /// Counts in the sources of all members, without test modules at the ends of files.
    fn count(workspace: &Metadata, files: &[File]) -> Result<Self> {
        let mut words = read(workspace)?;
        words.still.clear();
        words.comments.clear();
        for File { path, text } in files.iter().filter(|file| file.is_rust()) {
            let Some((folder, _)) = path.split_once("/src/") else {
                continue;
            };
            let code = text
                .split("\n#[cfg(test)]\nmod ")
                .next()
                .unwrap_or_default();
            *words.comments.entry(folder.to_owned()).or_default() += subjectless(code);
            for name in types(code).filter(|name| words.forbidden.iter().any(|own| own == name)) {
                *words.still.entry(name.to_owned()).or_default() += 1;
            }
        }
        Ok(words)
    }
}

/// Counts the comment lines that begin with an opener.
fn subjectless(code: &str) -> usize {
    let comments = code
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("//"));
    let firsts = comments.filter_map(|comment| {
        comment
            .trim_start_matches(['/', '!'])
            .split(|c: char| !c.is_alphanumeric())
            .find(|word| !word.is_empty())
    });
    firsts.filter(|first| OPENERS.contains(first)).count()
}

/// The names of the types and traits that a file defines.
fn types(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let mut words = line
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| !word.is_empty());
        let kind = words
            .by_ref()
            .find(|word| !["pub", "crate", "super", "in", "unsafe"].contains(word))?;
        ["struct", "enum", "trait", "union"]
            .contains(&kind)
            .then(|| words.next())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_without_a_subject_are_counted() {
        let code = "//! What a module is.\n    /// The bytes.\n// It waits.\n/// Whatever.\nlet it = \"// It\";\n/// Its own\n";
        assert_eq!(subjectless(code), 4);
    }

    #[test]
    fn types_are_found_by_their_definition() {
        let code = "pub(crate) struct Desk {\n    tray: Tray,\n}\nenum Told<'a> {}\npub trait Vault: Send {}\nstruct_like();\n";
        assert_eq!(types(code).collect::<Vec<_>>(), ["Desk", "Told", "Vault"]);
    }

    #[test]
    fn numbers_may_fall_and_not_rise() {
        let counts = |pairs: &[(&str, usize)]| -> Counts {
            pairs
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect()
        };
        let most = counts(&[("crates/a", 2), ("crates/b", 2)]);
        let now = counts(&[("crates/a", 1), ("crates/b", 3), ("crates/c", 1)]);
        let risen: Vec<_> = risen(&most, &now, "")
            .map(|line| line[..8].to_owned())
            .collect();
        assert_eq!(risen, ["crates/b", "crates/c"]);
    }
}
