//! Sources and licences of dependencies.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use spdx::{Expression, Licensee, ParseMode};

use crate::cargo::{Metadata, Package};

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The allowed licences, all of them permissive.
const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Licences that only one crate may have.
const EXCEPTIONS: &[(&str, &str)] = &[
    // PyO3's build reads the target's name with it.
    ("target-lexicon", "Apache-2.0 WITH LLVM-exception"),
    // Mozilla's list of certificates, which TLS uses if a system has none. The list is data, not code.
    ("webpki-root-certs", "CDLA-Permissive-2.0"),
    // The chore that reads public interfaces depends on this crate. No published crate does.
    ("snapshot-testing", "Unlicense"),
];

/// Returns a line for each package that is not from crates.io, for any system, and for tests and benches, too.
pub(crate) fn sources(workspace: &Metadata) -> Result<Vec<String>> {
    let path = workspace.workspace_root.join("Cargo.lock");
    let lock = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let lock: toml::Table = lock.parse()?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let text = |package: &toml::Value, key| package.get(key)?.as_str().map(str::to_owned);
    let complaint = |package| {
        let source = text(package, "source").filter(|source| source != REGISTRY)?;
        Some(format!("{:?} comes from {source}", text(package, "name")?))
    };
    Ok(packages
        .into_iter()
        .flatten()
        .filter_map(complaint)
        .collect())
}

/// Returns a line for each package of a build on this machine whose licence is not allowed.
pub(crate) fn licences(workspace: &Metadata) -> Vec<String> {
    let all = workspace.packages.iter();
    all.filter_map(|package| {
        let licence = package.license.as_deref().unwrap_or("no licence");
        (!is_allowed(package, licence)).then(|| {
            format!(
                "{} has {licence}: allow it on purpose, or do without",
                package.name
            )
        })
    })
    .collect()
}

fn is_allowed(package: &Package, licence: &str) -> bool {
    // Older packages have a slash in place of `OR`.
    let Ok(expression) = Expression::parse_mode(licence, ParseMode::LAX) else {
        return false;
    };
    let own = EXCEPTIONS.iter().filter(|(name, _)| *name == package.name);
    let allowed = ALLOWED
        .iter()
        .copied()
        .chain(own.map(|(_, licence)| *licence));
    let allowed: Vec<Licensee> = allowed
        .filter_map(|name| Licensee::parse(name).ok())
        .collect();
    expression.evaluate(|asked| allowed.iter().any(|licensee| licensee.satisfies(asked)))
}

/// Returns a line for each dependency of the workspace's packages that allows any version.
pub(crate) fn wildcards(workspace: &Metadata) -> Vec<String> {
    let own: BTreeSet<&str> = workspace
        .members()
        .map(|package| package.name.as_str())
        .collect();
    let edges = workspace
        .members()
        .flat_map(|package| package.dependencies.iter().map(move |to| (package, to)));
    let any = edges.filter(|(_, to)| to.req == "*" && !own.contains(to.name.as_str()));
    any.map(|(package, to)| format!("{} takes any version of {}", package.name, to.name))
        .collect()
}
