//! Links of the book, of READMEs and of other pages. Each must lead to a file of the tree, and to a heading of the file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::files::File;

/// Returns a line for each link that leads nowhere. Links to other sites are not checked.
pub(super) fn complaints(files: &[File]) -> Vec<String> {
    let is_page = |file: &&File| file.path.ends_with(".md");
    let pages: BTreeMap<&str, BTreeSet<String>> = files
        .iter()
        .filter(is_page)
        .map(|page| (page.path.as_str(), headings(&page.text)))
        .collect();
    let files_and_folders: BTreeSet<&Path> = files
        .iter()
        .flat_map(|file| Path::new(&file.path).ancestors())
        .collect();
    let mut complaints = Vec::new();
    for page in files.iter().filter(is_page) {
        for link in links(&page.text) {
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let to = resolved(&page.path, path);
            if !files_and_folders.contains(to.as_path()) {
                complaints.push(format!("{}: {link} is missing", page.path));
                continue;
            }
            let known = to.to_str().and_then(|to| pages.get(to));
            if !heading.is_empty() && !known.is_some_and(|known| known.contains(heading)) {
                complaints.push(format!("{}: {link}: there is no such heading", page.path));
            }
            // crates.io shows the page without the tree.
            let package = Path::new(&page.path).parent().unwrap_or(Path::new(""));
            let is_packaged = page.path.starts_with("crates/") && page.path.ends_with("/README.md");
            if is_packaged && !to.starts_with(package) {
                complaints.push(format!("{}: {link} leads out of the package", page.path));
            }
        }
    }
    complaints
}

/// Returns the path of a link from the root of the tree.
pub(crate) fn resolved(page: impl AsRef<Path>, link: &str) -> PathBuf {
    let page = page.as_ref();
    if link.is_empty() {
        return page.into();
    }
    let mut to = page.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => {
                to.pop();
            }
            Component::Normal(name) => to.push(name),
            _ => {}
        }
    }
    to
}

/// Returns the text without code: without blocks between fences, and words between backticks.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            prose.extend(line.split('`').step_by(2));
            prose.push('\n');
        }
    }
    prose
}

/// Returns the targets of links within the tree.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split([')', ' ', '\n']).next());
    let is_within = |target: &&str| !target.contains(':');
    targets.filter(is_within).map(str::to_owned).collect()
}

/// Returns the names of a page's headings in links, as mdBook and others make them. The second of two equal names ends with `-1`.
fn headings(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) else {
            continue;
        };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
        let name: String = heading.chars().filter(is_kept).collect();
        let name = name.replace(' ', "-");
        let mut number = 0;
        let mut own = name.clone();
        while !names.insert(own.clone()) {
            number += 1;
            own = format!("{name}-{number}");
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let page = "# Some `code`: here\n## Twice\n## Twice\n[a](b.md#some-code-here) [b](../src/b.md#twice-1) [c](#twice)\n\
                    ```\n[d](gone.md)\n```\n`[e](gone.md)` [f](https://example.org/#x) [g](../../crates)\n";
        let mut files = vec![
            file("docs/src/a.md", page),
            file("docs/src/b.md", page),
            file("crates/x/README.md", "[own](src/lib.rs)\n"),
            file("crates/x/src/lib.rs", ""),
        ];
        assert_eq!(complaints(&files), [""; 0]);
        files.push(file(
            "docs/c.md",
            "[a](src/b.md#thrice) [b](src/gone.md)\n[c](d)\n",
        ));
        files.push(file("crates/y/README.md", "[x](../x/README.md)\n"));
        let found = complaints(&files);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains("no such heading") && found[1].contains("gone.md is missing"));
        assert!(found[3].contains("leads out of the package"));
    }
}
