//! The recipes of `packaging/`. Each must be valid in its language, and name the release.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::files::File;

/// Returns a line for each script with an error of syntax, and for each recipe that names another release than the C library's manifest.
pub(super) fn complaints(root: &Path, files: &[File]) -> Result<Vec<String>> {
    let manifest = files
        .iter()
        .find(|file| file.path == "crates/capi/Cargo.toml");
    let manifest: toml::Table = manifest.map_or("", |file| &file.text).parse()?;
    let version = manifest
        .get("package")
        .and_then(|package| package.get("version"))
        .and_then(toml::Value::as_str)
        .context("the C library has no version")?;
    let mut complaints = Vec::new();
    let ours = |file: &&File| file.path.starts_with("packaging/");
    for file in files.iter().filter(ours) {
        let ends = |end: &str| file.path.ends_with(end);
        let mut reader = match () {
            () if ends(".sh") || ends(".sbatch") => {
                let mut bash = Command::new("bash");
                bash.arg("-n");
                bash
            }
            () if ends(".py") || ends(".eb") => {
                let mut python = Command::new("python3");
                let program = "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')";
                python.args(["-c", program]);
                python
            }
            () => Command::new("true"),
        };
        let read = reader.current_dir(root).arg(&file.path).output();
        let read = read.with_context(|| format!("cannot start {reader:?}"))?;
        if !read.status.success() {
            let why = String::from_utf8_lossy(&read.stderr);
            complaints.push(format!("{}: {}", file.path, why.trim()));
        }
        let is_recipe = ends(".py") || ends(".eb") || ends("recipe.yaml") || ends(version);
        if is_recipe && !file.text.contains(version) {
            complaints.push(format!("{} is not of release {version}", file.path));
        }
    }
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_named() {
        let root = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (path, text) in [
            ("crates/capi/Cargo.toml", "[package]\nversion = '0.1.0'\n"),
            ("packaging/a.sh", "if true; then\n"),
            ("packaging/b.sh", "true\n"),
            ("packaging/c.py", "version('0.2.0'\n"),
            ("packaging/d.eb", "version = '0.1.0'\n"),
        ] {
            let at = root.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
            let (path, text) = (path.to_owned(), text.to_owned());
            files.push(File { path, text });
        }
        let found = complaints(root.path(), &files).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("packaging/a.sh") && found[2].ends_with("release 0.1.0"));
    }
}
