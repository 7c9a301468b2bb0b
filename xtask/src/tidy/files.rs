//! Checks of the files themselves.

use std::path::Path;

use anyhow::{Context, Result};

use super::source;
use crate::cargo::Metadata;

/// A source file has no more lines than this: what is longer answers more than one question.
const MOST_LINES: usize = 500;

/// Where `unsafe` may stand.
const UNSAFE: &[&str] = &[
    "crates/device/",
    "crates/dedup/",
    "crates/codec/",
    // Streams that applications name by their handles, and values that a fork does not have.
    "crates/bind/src/",
    "crates/python/src/ffi/",
    "crates/capi/src/",
];
/// Files elsewhere that launch CUDA kernels of an example, or fork, where no library of ours can do it for them.
const UNSAFE_FILES: &[&str] = &[
    "crates/engine/examples/rtm/cuda.rs",
    "crates/engine/tests/cuda_kernels.rs",
    "crates/engine/tests/fork.rs",
    // The signatures of the buffer protocol.
    "crates/python/src/slot/consume.rs",
    "crates/python/src/slot/produce.rs",
];

pub(crate) struct File {
    /// From the root of the workspace.
    path: String,
    text: String,
    /// `text` without comments and literals, for sources.
    code: Option<String>,
}

impl File {
    /// Every listed file that is UTF-8 text.
    pub(crate) fn read_all(workspace: &Metadata) -> Result<Vec<Self>> {
        let mut files = Vec::new();
        for path in super::listed(workspace)? {
            // A file may be listed and gone: deleted, but not yet committed.
            let Ok(bytes) = std::fs::read(workspace.workspace_root.join(&path)) else {
                continue;
            };
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(Self::new(path, text));
            }
        }
        Ok(files)
    }

    fn new(path: String, text: String) -> Self {
        let is_source = [".rs", ".cu", ".cuh"]
            .iter()
            .any(|ending| path.ends_with(ending));
        let code = is_source.then(|| source::code(&text));
        Self { path, text, code }
    }

    fn places(&self, word: &str, after: &str) -> Vec<String> {
        let code = self.code.as_deref().unwrap_or_default();
        let lines = source::lines_with(code, word, after);
        lines
            .into_iter()
            .map(|line| format!("{}:{line}: {word}{after}", self.path))
            .collect()
    }
}

pub(crate) fn unsafe_code(workspace: &Metadata, files: &[File]) -> Vec<String> {
    let may = |path: &str| {
        UNSAFE.iter().any(|folder| path.starts_with(folder)) || UNSAFE_FILES.contains(&path)
    };
    let mut complaints: Vec<String> = files
        .iter()
        .filter(|file| !may(&file.path))
        .flat_map(|file| file.places("unsafe", ""))
        .collect();
    let stale = UNSAFE_FILES
        .iter()
        .filter(|path| !workspace.workspace_root.join(path).is_file());
    complaints.extend(
        stale.map(|path| format!("{path} is in the list of xtask/src/tidy/files.rs, but gone")),
    );

    let targets = workspace.members().flat_map(|package| &package.targets);
    for target in targets.filter(|target| target.is("lib") || target.is("bin")) {
        let Ok(path) = target.src_path.strip_prefix(&workspace.workspace_root) else {
            continue;
        };
        let root = files.iter().find(|file| Path::new(&file.path) == path);
        let forbids = |file: &File| {
            file.code
                .as_deref()
                .is_some_and(|code| code.contains("#![forbid(unsafe_code)]"))
        };
        if let Some(file) = root.filter(|file| !may(&file.path) && !forbids(file)) {
            complaints.push(format!("{} has no #![forbid(unsafe_code)]", file.path));
        }
    }
    complaints
}

pub(crate) fn long(files: &[File]) -> Vec<String> {
    let sources = files.iter().filter(|file| file.code.is_some());
    sources
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(file, lines)| format!("{} has {lines} lines, more than {MOST_LINES}", file.path))
        .collect()
}

pub(crate) fn unfinished(files: &[File]) -> Vec<String> {
    let words = ["todo", "unimplemented", "dbg"];
    files
        .iter()
        .flat_map(|file| words.iter().flat_map(|word| file.places(word, "!")))
        .collect()
}

/// `run.sh gpu-tests` runs every ignored test, so "ignored" must mean "needs a GPU".
pub(crate) fn ignored(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        let Some(code) = &file.code else { continue };
        for ((line, code), number) in file.text.lines().zip(code.lines()).zip(1..) {
            if code.contains("#[ignore") && !(line.contains("\"needs ") && line.contains("GPU")) {
                let path = &file.path;
                complaints.push(format!(
                    "{path}:{number}: not #[ignore = \"needs an NVIDIA GPU\"]"
                ));
            }
        }
    }
    complaints
}

pub(crate) fn no_newline(files: &[File]) -> Vec<String> {
    let open = files
        .iter()
        .filter(|file| !file.text.is_empty() && !file.text.ends_with('\n'));
    open.map(|file| file.path.clone()).collect()
}

/// Every chapter that the book's summary links to exists.
pub(crate) fn chapters(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("docs/src");
    let summary = std::fs::read_to_string(folder.join("SUMMARY.md"))
        .context("cannot read docs/src/SUMMARY.md")?;
    let links = summary
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let missing = links.filter(|link| !folder.join(link).is_file());
    Ok(missing
        .map(|link| format!("docs/src/{link} is missing"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> [File; 1] {
        [File::new(path.into(), text.into())]
    }

    #[test]
    fn unfinished_code_is_found_and_comments_are_not() {
        let source = format!("// {0}!()\nfn a() {{ {0}!() }}\n", "todo");
        assert_eq!(
            unfinished(&file("crates/a/src/lib.rs", &source)),
            ["crates/a/src/lib.rs:2: todo!"]
        );
        assert_eq!(unfinished(&file("README.md", &source)), [""; 0]);
    }

    #[test]
    fn an_ignored_test_needs_a_gpu() {
        let named = "#[ignore = \"needs an NVIDIA GPU\"]\nfn a() {}\n";
        assert_eq!(ignored(&file("a.rs", named)), [""; 0]);
        assert_eq!(ignored(&file("a.rs", "#[ignore]\nfn a() {}\n")).len(), 1);
        assert_eq!(
            ignored(&file("a.rs", "#[ignore = \"slow\"]\nfn a() {}\n")).len(),
            1
        );
    }

    #[test]
    fn long_and_open_files_are_found() {
        assert_eq!(long(&file("a.rs", &"\n".repeat(MOST_LINES))), [""; 0]);
        assert_eq!(long(&file("a.rs", &"\n".repeat(MOST_LINES + 1))).len(), 1);
        assert_eq!(no_newline(&file("a.md", "text")), ["a.md"]);
        assert_eq!(no_newline(&file("a.md", "text\n")), [""; 0]);
    }
}
