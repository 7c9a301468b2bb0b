//! `cargo xtask site`: the book, the reference of all crates, and that of the Python package, as one site under target/site.

mod links;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, cargo, stream};
use crate::install::{copy, files_below, remove_folder};
use crate::python::PythonChore;
use crate::tidy::links::resolved;

/// The book, from the root of the tree.
const BOOK: &str = "docs/src";

pub(crate) fn run() -> Result<()> {
    let workspace = Metadata::read()?;
    let python = PythonChore::new(&workspace)?;
    let site = Site {
        pages: workspace.target_directory.join("site"),
        sources: workspace.target_directory.join("book"),
        reference: workspace.target_directory.join("doc"),
        workspace: &workspace,
    };
    remove_folder(&site.pages)?;
    remove_folder(&site.sources)?;
    // The reference is built before the book, which links to its pages.
    build_reference()?;
    site.book(&python)?;
    site.copy_reference()?;
    python.reference(&site.pages.join("python"))?;
    let dead = links::dead(&site.pages)?;
    for link in &dead {
        println!("{link}");
    }
    ensure!(dead.is_empty(), "{} links lead nowhere", dead.len());
    println!("{}", site.pages.join("index.html").display());
    Ok(())
}

struct Site<'a> {
    workspace: &'a Metadata,
    /// The folder of the site.
    pages: PathBuf,
    /// The sources of the book, with links that work within the site.
    sources: PathBuf,
    /// The reference of all crates, as `cargo doc` writes it.
    reference: PathBuf,
}

impl Site<'_> {
    /// Builds the book. Files of the tree that the book links to are copied into the site.
    fn book(&self, python: &PythonChore<'_>) -> Result<()> {
        let root = &self.workspace.workspace_root;
        let mut pages = files_below(&root.join(BOOK))?;
        pages.insert(root.join("docs/measurements.md"));
        let mut linked = Vec::new();
        for full in pages {
            let text = fs::read_to_string(&full).with_context(|| format!("{}", full.display()))?;
            let page = full.strip_prefix(root)?;
            let text = self.linked_within(page, &text, &mut linked)?;
            let to = self.sources.join(page);
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            fs::write(to, text)?;
        }
        // Pages include files by their paths in the tree.
        for folder in ["crates", "packaging"] {
            std::os::unix::fs::symlink(root.join(folder), self.sources.join(folder))?;
        }
        copy(
            &root.join("docs/book.toml"),
            &self.sources.join("docs/book.toml"),
        )?;
        stream(
            python
                .tool("mdbook")
                .args(["build", "--dest-dir"])
                .arg(&self.pages)
                .arg(self.sources.join("docs")),
        )?;
        for file in linked {
            copy(&root.join(&file), &self.pages.join(name_of(&file)))?;
        }
        Ok(())
    }

    /// Returns the text of a page, with its links to the tree changed into links within the site. Adds the files to be copied to `linked`.
    fn linked_within(&self, page: &Path, text: &str, linked: &mut Vec<PathBuf>) -> Result<String> {
        let folder = page.strip_prefix(BOOK).ok().and_then(Path::parent);
        let up = "../".repeat(folder.map_or(0, |folder| folder.components().count()));
        let mut parts = text.split("](");
        let mut turned = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            turned.push_str("](");
            let end = part.find([')', ' ', '\n']).unwrap_or(part.len());
            let (link, rest) = part.split_at(end);
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let to = resolved(page, path);
            if path.is_empty() || path.contains(':') {
                turned.push_str(link);
            } else if let Ok(other) = to.strip_prefix(BOOK) {
                turned.push_str(&format!("{up}{}", other.display()));
            } else if let Some(documented) = self.documented(&to) {
                turned.push_str(&format!("{up}{documented}"));
            } else {
                let root = &self.workspace.workspace_root;
                let to = match root.join(&to).is_dir() {
                    true => to.join("README.md"),
                    false => to,
                };
                ensure!(
                    root.join(&to).is_file(),
                    "{}: {link} is no file of the tree",
                    page.display()
                );
                turned.push_str(&format!("{up}{}", name_of(&to)));
                linked.push(to);
            }
            if !path.is_empty() && !heading.is_empty() {
                turned.push('#');
                turned.push_str(heading);
            }
            turned.push_str(rest);
        }
        Ok(turned)
    }

    /// Returns the page of the Rust or Python reference for a folder or a file of a crate; `None` for a file that only tests or other
    /// builds compile.
    fn documented(&self, to: &Path) -> Option<String> {
        let full = self.workspace.workspace_root.join(to);
        if to == Path::new("crates/python") {
            return Some("python/index.html".into());
        }
        self.workspace.members().find_map(|package| {
            let within = full.strip_prefix(package.folder()).ok()?;
            let target = package.targets.iter().find(|target| target.is("lib"));
            let target = target.or(package.targets.first());
            let target = target.filter(|target| target.doc)?;
            let name = target.name.replace('-', "_");
            if within.as_os_str().is_empty() {
                return Some(format!("rust/{name}/index.html"));
            }
            let source = within.strip_prefix("src").ok()?.to_str()?;
            // A library's pages do not describe the program of the same package.
            let is_of_target =
                source.ends_with(".rs") && (source != "main.rs" || !target.is("lib"));
            let page = format!("src/{name}/{source}.html");
            (is_of_target && self.reference.join(&page).is_file()).then(|| format!("rust/{page}"))
        })
    }

    /// Copies the reference of all crates into the site, without the JSON descriptions in the same folder.
    fn copy_reference(&self) -> Result<()> {
        let is_page = |file: &&PathBuf| file.extension().is_none_or(|kind| kind != "json");
        for page in files_below(&self.reference)?.iter().filter(is_page) {
            let to = page.strip_prefix(&self.reference)?;
            copy(page, &self.pages.join("rust").join(to))?;
        }
        Ok(())
    }
}

/// Builds the reference of all crates.
fn build_reference() -> Result<()> {
    let mut doc = cargo();
    doc.args(["doc", "--no-deps", "--workspace"])
        .env("RUSTDOCFLAGS", "-D warnings");
    stream(&mut doc)
}

/// Returns the name of a file of the tree in the site. With `.txt` at its end, browsers show the file as text; mdBook would take any
/// `.md` for a page of the book.
fn name_of(file: &Path) -> String {
    format!("files/{}.txt", file.display()).replace(".md.", ".markdown.")
}
