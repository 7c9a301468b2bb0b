//! The tables of the book's pages *way* and *decisions*. Each linked file must exist, and define the names of its row.

use super::files::File;

const PAGES: [&str; 2] = ["docs/src/way.md", "docs/src/decisions.md"];

/// Returns a line for each link of a row that leads nowhere, and for each name that none of the row's files defines.
pub(super) fn complaints(files: &[File]) -> Vec<String> {
    let text_of = |path: &str| files.iter().find(|file| file.path == path);
    let pages = PAGES.iter().filter_map(|page| text_of(page));
    let rows = pages.flat_map(|File { path, text }| text.lines().map(move |row| (path, row)));
    let rows = rows.filter(|(_, row)| row.starts_with("| "));
    let complaints = rows.flat_map(|(page, row)| {
        let (paths, names) = links_and_names(row);
        let missing = paths.iter().filter(|path| text_of(path).is_none());
        let missing = missing.map(|path| format!("{page}: {path} is missing"));
        let linked = || paths.iter().filter_map(|path| text_of(path));
        let unknown = names.iter().filter(|name| {
            let is_defined = |file: &File| is_defined(&file.text, name);
            !paths.is_empty() && !linked().any(is_defined)
        });
        let unknown = unknown.map(|name| format!("{page}: {name} is in none of {paths:?}"));
        missing.chain(unknown).collect::<Vec<_>>()
    });
    complaints.collect()
}

/// Returns the files that a row links to, and the names in backticks outside of the links.
fn links_and_names(row: &str) -> (Vec<String>, Vec<&str>) {
    let (mut paths, mut names) = (Vec::new(), Vec::new());
    for (at, part) in row.split("](../../").enumerate() {
        let (path, rest) = match at {
            0 => ("", part),
            _ => part.split_once(')').unwrap_or((part, "")),
        };
        paths.extend((at > 0).then(|| path.to_owned()));
        let plain = rest.rsplit_once('[').map_or(rest, |(plain, _link)| plain);
        let quoted = plain.split('`').skip(1).step_by(2);
        names.extend(quoted.filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_')));
    }
    (paths, names)
}

fn is_defined(text: &str, name: &str) -> bool {
    // The last two are keywords of Python.
    let kinds = ["fn", "struct", "enum", "trait", "const", "def", "class"];
    kinds.iter().any(|kind| {
        let follows = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let definition = format!("{kind} {name}");
        text.split(&definition).skip(1).any(follows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_what_its_files_define() {
        let file = |path: &str, text: &str| File {
            path: path.into(),
            text: text.into(),
        };
        let row = "| 1 | [`a.rs`](../../crates/a.rs) | `write` writes by `tierflow-device`, `Gone` too: [`b.rs`](../../crates/b.rs) |\n";
        let [way, decisions] = PAGES.map(|page| file(page, row));
        let files = [way, decisions, file("crates/a.rs", "pub fn write<T>() {}")];
        let complaints = complaints(&files);
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert!(complaints[0].contains("b.rs is missing") && complaints[3].contains("s.md: Gone"));
        assert!(is_defined("class offload:\n    def leave(self):", "leave"));
    }
}
