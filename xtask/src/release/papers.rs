//! Documents beside the files of a release: the licences of all packages in them, and a bill of materials.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use super::{Release, SHIPPED};
use crate::cargo::{Metadata, Package, output};

/// Writes both documents for a target.
pub(super) fn write(release: &Release, workspace: &Metadata, target: &str) -> Result<()> {
    let packages = shipped(release, workspace, target)?;
    let sums = checksums(&fs::read_to_string(release.unpacked().join("Cargo.lock"))?)?;
    let file = |end: &str| {
        release
            .files
            .join(format!("{}-{target}.{end}", release.name))
    };
    fs::write(file("licences.txt"), licences(&packages)?)?;
    let bill = serde_json::to_string_pretty(&bill(release, &packages, &sums))? + "\n";
    Ok(fs::write(file("cdx.json"), bill)?)
}

/// Returns the packages whose code is in the files for a target, by name and version.
fn shipped<'a>(
    release: &Release,
    workspace: &'a Metadata,
    target: &str,
) -> Result<Vec<&'a Package>> {
    let mut tree = release.cargo();
    tree.args(["tree", "--locked", "--target", target, "--prefix", "none"]);
    tree.args(["--edges", "normal,no-proc-macro"]);
    for package in SHIPPED {
        tree.args(["--package", package]);
    }
    let tree = output(&mut tree)?;
    let listed: BTreeMap<(&str, &str), ()> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some(((words.next()?, words.next()?.strip_prefix('v')?), ()))
        })
        .collect();
    let known: BTreeMap<(&str, &str), &Package> = workspace
        .packages
        .iter()
        .map(|package| ((package.name.as_str(), package.version.as_str()), package))
        .collect();
    let package = |(name, version): &(&str, &str)| {
        let package = known.get(&(*name, *version)).copied();
        package
            .with_context(|| format!("cargo tree names {name} {version}, cargo metadata does not"))
    };
    listed.keys().map(package).collect()
}

/// Returns every package with its licence, and the licence texts that it contains. Equal texts are listed once.
fn licences(packages: &[&Package]) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut all = String::from(
        "Tierflow, and the crates that are compiled into it, by licence. Where a crate has a choice, MIT or Apache-2.0 is taken if it is\n\
         among them; the texts of both are beside this file. Rust's standard library is MIT or Apache-2.0.\n\n",
    );
    for package in packages {
        let name = format!("{} {}", package.name, package.version);
        writeln!(all, "{name}: {}", licence(package)?)?;
        // The licences of the workspace are next to this file.
        if package.source.is_some() {
            for text in texts_in(package.folder())? {
                texts.entry(text).or_default().push(name.clone());
            }
        }
    }
    for (text, names) in texts {
        write!(all, "\n---- {}\n\n{}\n", names.join(", "), text.trim_end())?;
    }
    Ok(all)
}

/// Returns the licence as an SPDX expression. Older packages have a slash in place of `OR`.
fn licence(package: &Package) -> Result<String> {
    let licence = package.license.as_deref();
    let licence = licence.with_context(|| format!("{} names no licence", package.name))?;
    Ok(match licence.split_once('/') {
        Some((one, other)) => format!("{} OR {}", one.trim(), other.trim()),
        None => licence.to_owned(),
    })
}

fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let is_text = ["licen", "copying", "unlicense", "notice"];
        if entry.file_type()?.is_file() && is_text.iter().any(|start| name.starts_with(start)) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let read = |path| Ok(String::from_utf8_lossy(&fs::read(path)?).replace("\r\n", "\n"));
    paths.into_iter().map(read).collect()
}

/// Returns the SHA-256 of each package from a registry.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = lock.parse().context("cannot read Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let text = |package: &toml::Value, key| Some(package.get(key)?.as_str()?.to_owned());
    let entry = |package| {
        let key = (text(package, "name")?, text(package, "version")?);
        Some((key, text(package, "checksum")?))
    };
    Ok(packages.into_iter().flatten().filter_map(entry).collect())
}

/// Returns a bill of materials in the format CycloneDX 1.5.
fn bill(
    release: &Release,
    packages: &[&Package],
    sums: &BTreeMap<(String, String), String>,
) -> serde_json::Value {
    let component = |package: &&Package| {
        let (name, version) = (package.name.clone(), package.version.clone());
        let url = format!("pkg:cargo/{name}@{version}");
        let mut component = json!({
            "type": "library", "bom-ref": url, "name": name, "version": version, "purl": url,
            "licenses": [{ "expression": licence(package).unwrap_or_default() }],
        });
        if let Some(sum) = sums.get(&(name, version)) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        component
    };
    let version = release.name.rsplit('-').next();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "tierflow", "version": version } },
        "components": packages.iter().map(component).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_a_registry_have_a_sum() {
        let lock = "[[package]]\nname = 'a'\nversion = '1.0.0'\nchecksum = '0f'\n\
                    [[package]]\nname = 'ours'\nversion = '0.1.0'\n";
        let sums = checksums(lock).unwrap();
        let a = sums.get(&("a".to_owned(), "1.0.0".to_owned()));
        assert_eq!((sums.len(), a.map(String::as_str)), (1, Some("0f")));
    }
}
