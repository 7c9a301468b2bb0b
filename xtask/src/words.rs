//! Names that no type may have, and comments that begin without their subject. `xtask/words.toml` has the number of them that each crate
//! may still have. The numbers may only fall.

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

/// The file `words.toml`.
#[derive(Deserialize, Serialize)]
struct Words {
    /// Names that no type may have.
    forbidden: Vec<String>,
    /// Number of types that still have a forbidden name, by name, and of sentences of comments that begin without their subject, by crate.
    still: BTreeMap<String, usize>,
}

/// Compares the tree with `words.toml`, or lowers the numbers there.
pub(crate) fn run(write: bool) -> Result<()> {
    let workspace = Metadata::read()?;
    let files = File::read_all(&workspace)?;
    let (most, mut now) = read_and_count(&workspace, &files)?;
    println!("{} are left", now.still.values().sum::<usize>());
    if !write {
        let complaints = risen(&most.still, &now.still);
        ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
        return Ok(());
    }
    for (name, count) in &mut now.still {
        *count = most.still.get(name).map_or(0, |most| *most.min(count));
    }
    let text = toml::to_string_pretty(&now)?;
    std::fs::write(workspace.workspace_root.join(FILE), text).context(FILE)
}

/// Returns a line for each number that rose.
pub(crate) fn complaints(workspace: &Metadata, files: &[File]) -> Result<Vec<String>> {
    let (most, now) = read_and_count(workspace, files)?;
    Ok(risen(&most.still, &now.still))
}

fn risen(most: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> Vec<String> {
    let risen = now.iter().filter_map(|(name, count)| {
        let most = most.get(name).copied().unwrap_or_default();
        let what = "sentences without their subject, or types of this name";
        (*count > most).then(|| format!("{name}: {count} {what}; {FILE} has {most}"))
    });
    risen.collect()
}

/// Folders of a crate's sources.
const FOLDERS: &[&str] = &[
    "/src/",
    "/tests/",
    "/examples/",
    "/benches/",
    "/fuzz_targets/",
];

/// Returns the folder of the crate that a source file belongs to, and true if the file is in the crate's `src`.
fn crate_of(path: &str) -> Option<(&str, bool)> {
    let found = FOLDERS.iter().filter_map(|folder| path.split_once(folder));
    let (folder, _) = found.min_by_key(|(folder, _)| folder.len())?;
    Some((folder, path[folder.len()..].starts_with("/src/")))
}

/// Reads `words.toml`. Counts subjectless sentences in all Rust sources, tests and examples included. Counts types with a forbidden name in
/// `src` alone, without test modules at the ends of files.
fn read_and_count(workspace: &Metadata, files: &[File]) -> Result<(Words, Words)> {
    let text = std::fs::read_to_string(workspace.workspace_root.join(FILE)).context(FILE)?;
    let most: Words = toml::from_str(&text).context(FILE)?;
    let mut still = BTreeMap::new();
    for File { path, text } in files.iter().filter(|file| file.is_rust()) {
        let Some((folder, is_source)) = crate_of(path) else {
            continue;
        };
        *still.entry(folder.to_owned()).or_default() += subjectless(text);
        let code = if is_source { without_tests(text) } else { "" };
        for name in types(code).filter(|name| most.forbidden.iter().any(|own| own == name)) {
            *still.entry(name.to_owned()).or_default() += 1;
        }
    }
    let forbidden = most.forbidden.clone();
    still.retain(|_, count| *count > 0);
    Ok((most, Words { forbidden, still }))
}

/// Returns the text before the module of tests that a file ends with. A module of tests in another file cuts nothing off.
fn without_tests(text: &str) -> &str {
    const BEGIN: &str = "\n#[cfg(test)]\nmod ";
    let is_inline = |(at, _): &(usize, &str)| {
        let line = text[at + BEGIN.len()..].lines().next();
        line.is_some_and(|line| line.ends_with('{'))
    };
    let inline = text.match_indices(BEGIN).find(is_inline);
    inline.map_or(text, |(at, _)| &text[..at])
}

/// Counts the sentences of comments that begin with an opener. Examples are no sentences.
fn subjectless(code: &str) -> usize {
    const ENDS: [char; 4] = ['.', ':', '!', '?'];
    let (mut count, mut begins, mut is_example) = (0, true, false);
    for line in code.lines() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            begins = true;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim();
        if comment.starts_with("```") {
            is_example = !is_example;
        }
        if is_example {
            continue;
        }
        let mut before: Option<&str> = None;
        for word in comment.split_whitespace() {
            let is_first = before.map_or(begins, |before| before.ends_with(ENDS));
            let name = word.trim_matches(|c: char| !c.is_alphanumeric());
            count += usize::from(is_first && OPENERS.contains(&name));
            // Marks of titles, lists and tables are no words.
            before = (!name.is_empty() || before.is_some()).then_some(word);
        }
        begins = comment.is_empty() || comment.ends_with(ENDS) || comment.ends_with(';');
    }
    count
}

/// Returns the names of the types and traits that a file defines.
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
        let lines = [
            "//! What a module is.",
            "    /// The bytes. They move.",
            "// It waits for all",
            "// That are there.",
            "/// # Where",
            "let it = \"// It\";",
            "/// Its own",
            "/// ```",
            "/// // It runs.",
            "/// ```",
        ];
        assert_eq!(subjectless(&lines.join("\n")), 5);
    }

    #[test]
    fn tests_and_examples_belong_to_their_crate() {
        assert_eq!(crate_of("crates/a/src/b.rs"), Some(("crates/a", true)));
        assert_eq!(
            crate_of("crates/a/tests/src/b.rs"),
            Some(("crates/a", false))
        );
        assert_eq!(
            crate_of("crates/a/examples/b/main.rs"),
            Some(("crates/a", false))
        );
        assert_eq!(
            crate_of("examples/rtm/src/b.rs"),
            Some(("examples/rtm", true))
        );
        assert_eq!(crate_of("benches/benches/b.rs"), Some(("benches", false)));
        assert_eq!(crate_of("crates/a/build.rs"), None);
    }

    #[test]
    fn a_module_of_tests_in_another_file_cuts_nothing_off() {
        let inline = "struct A;\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(without_tests(inline), "struct A;");
        let apart = "struct A;\n#[cfg(test)]\nmod tests;\n\nstruct B;\n";
        assert_eq!(without_tests(apart), apart);
    }

    #[test]
    fn types_are_found_by_their_definition() {
        let code = "pub(crate) struct Desk {\n    tray: Tray,\n}\nenum Told<'a> {}\npub trait Vault: Send {}\nstruct_like();\n";
        assert_eq!(types(code).collect::<Vec<_>>(), ["Desk", "Told", "Vault"]);
    }

    #[test]
    fn numbers_may_fall_and_not_rise() {
        let counts = |text: &str| toml::from_str::<BTreeMap<String, usize>>(text).unwrap();
        let risen = risen(&counts("a = 2\nb = 2"), &counts("a = 1\nb = 3\nc = 1"));
        let names: Vec<_> = risen.iter().map(|line| &line[..1]).collect();
        assert_eq!(names, ["b", "c"]);
    }
}
