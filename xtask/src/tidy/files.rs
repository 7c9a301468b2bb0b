//! Checks of the files themselves.

use std::path::Path;

use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};

use crate::cargo::Metadata;

/// The most lines of a source file. A longer file has more than one purpose.
const MOST_LINES: usize = 500;

/// The folders whose files may contain `unsafe`.
const UNSAFE: &[&str] = &[
    "crates/device/",
    "crates/dedup/",
    "crates/codec/",
    // Uses streams that applications name by their handles, and values that do not survive a fork.
    "crates/bind/src/",
    "crates/python/src/ffi/",
    "crates/capi/src/",
    // Launches kernels of its own.
    "examples/rtm/src/",
];
/// Other files that may contain `unsafe`: they launch CUDA kernels of a test, or fork, which no library of ours does for them.
const UNSAFE_FILES: &[&str] = &[
    "crates/engine/tests/cuda_kernels.rs",
    // Calls VELOC's functions like a C program.
    "benches/examples/hacc_veloc.rs",
    "crates/engine/tests/fork.rs",
    // Has the signatures of the buffer protocol.
    "crates/python/src/slot/class.rs",
];

pub(crate) struct File {
    /// The path from the root of the workspace.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// Reads every listed file that is UTF-8 text.
    pub(crate) fn read_all(workspace: &Metadata) -> Result<Vec<Self>> {
        let mut files = Vec::new();
        for path in super::listed(workspace)? {
            // A listed file may have been deleted without a commit.
            let Ok(bytes) = std::fs::read(workspace.workspace_root.join(&path)) else {
                continue;
            };
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(Self { path, text });
            }
        }
        Ok(files)
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Returns the lines with the keyword `unsafe`.
fn unsafe_lines(source: &str) -> Vec<usize> {
    fn walk(tokens: TokenStream, lines: &mut Vec<usize>) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => walk(group.stream(), lines),
                TokenTree::Ident(word) if word == "unsafe" => lines.push(word.span().start().line),
                _ => {}
            }
        }
    }
    let mut lines = Vec::new();
    match source.parse() {
        Ok(tokens) => walk(tokens, &mut lines),
        // rustc says more about a file that is not Rust.
        Err(error) => lines.push(error.span().start().line),
    }
    lines
}

pub(crate) fn unsafe_code(workspace: &Metadata, files: &[File]) -> Vec<String> {
    let may = |path: &str| {
        UNSAFE.iter().any(|folder| path.starts_with(folder)) || UNSAFE_FILES.contains(&path)
    };
    let mut complaints = Vec::new();
    for File { path, text } in files
        .iter()
        .filter(|file| file.is_rust() && !may(&file.path))
    {
        let lines = unsafe_lines(text).into_iter();
        complaints.extend(lines.map(|line| format!("{path}:{line}: unsafe")));
    }
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
            file.text
                .lines()
                .any(|line| line == "#![forbid(unsafe_code)]")
        };
        if let Some(file) = root.filter(|file| !may(&file.path) && !forbids(file)) {
            complaints.push(format!("{} has no #![forbid(unsafe_code)]", file.path));
        }
    }
    complaints
}

pub(crate) fn long(files: &[File]) -> Vec<String> {
    let is_source =
        |file: &&File| file.is_rust() || file.path.ends_with(".cu") || file.path.ends_with(".cuh");
    let sources = files.iter().filter(is_source);
    sources
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(file, lines)| format!("{} has {lines} lines, more than {MOST_LINES}", file.path))
        .collect()
}

/// `run.sh gpu-tests` runs every ignored test, so "ignored" must mean "needs a GPU".
pub(crate) fn ignored(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for File { path, text } in files.iter().filter(|file| file.is_rust()) {
        for (line, number) in text.lines().zip(1..) {
            let is_ignored = line.trim_start().starts_with("#[ignore");
            if is_ignored && !(line.contains("\"needs ") && line.contains("GPU")) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> [File; 1] {
        [File {
            path: path.into(),
            text: text.into(),
        }]
    }

    #[test]
    fn unsafe_stands_in_code_alone() {
        let source = "#![forbid(unsafe_code)]\nfn a<'a>(x: &'a str) { unsafe { x } } // unsafe\n/* unsafe */\n\
                      const B: &str = r#\"unsafe \" unsafe\"#; const C: char = '\"';\nunsafe fn d() {}\n";
        assert_eq!(unsafe_lines(source), [2, 5]);
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
