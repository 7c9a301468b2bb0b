//! kernels/kernels.lock: hashes that show, without nvcc, if the PTX was made from the current sources.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use super::manifest::{Kernel, Manifest};

pub(crate) const FILE: &str = "kernels.lock";

/// The file kernels.lock. All hashes are XXH3, 128 bits, in hexadecimal.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lock {
    /// The compiler's full version; empty if there is no kernel.
    pub(crate) nvcc: String,
    #[serde(default)]
    pub(crate) kernel: Vec<LockedKernel>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockedKernel {
    pub(crate) source: String,
    /// The hash of everything that the output depends on, see [`inputs`].
    pub(crate) inputs: String,
    pub(crate) output: String,
}

impl Lock {
    /// Reads the lock. Returns an empty lock if the file does not exist.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let path = root.join("kernels").join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        let path = root.join("kernels").join(FILE);
        let text = format!(
            "# Written by `cargo xtask kernels`. Do not edit.\n{}",
            toml::to_string(self)?
        );
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Returns the hash of a kernel's source, every header of kernels/, the flags and the compiler's version.
///
/// All headers count, as only the compiler knows the included ones, and the check runs without it.
pub(crate) fn inputs(
    root: &Path,
    manifest: &Manifest,
    kernel: &Kernel,
    nvcc: &str,
) -> Result<String> {
    let mut paths = sources(root, "cuh")?;
    paths.push(kernel.source.clone());
    let mut parts = vec![nvcc.as_bytes().to_vec()];
    parts.extend(manifest.flags(kernel).into_iter().map(String::into_bytes));
    for path in paths {
        let text =
            std::fs::read(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        parts.push(path.into_bytes());
        parts.push(text);
    }
    Ok(hash(&parts))
}

/// Returns the hash of `parts`, each with its length before it, so that no two lists have the same bytes.
pub(crate) fn hash(parts: &[impl AsRef<[u8]>]) -> String {
    let mut hash = Xxh3Default::new();
    for part in parts {
        let part = part.as_ref();
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    format!("{:032x}", hash.digest128())
}

/// Returns the files of kernels/ with this extension, sorted.
pub(crate) fn sources(root: &Path, extension: &str) -> Result<Vec<String>> {
    let folder = root.join("kernels");
    let mut found = Vec::new();
    for entry in
        std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        if path.extension().is_some_and(|own| own == extension)
            && let Some(name) = path.file_name()
        {
            found.push(format!("kernels/{}", name.to_string_lossy()));
        }
    }
    found.sort();
    Ok(found)
}
