//! kernels/kernels.toml: the list of all kernels.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) toolchain: Toolchain,
    pub(crate) ptx: Ptx,
    #[serde(default)]
    pub(crate) kernel: Vec<Kernel>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Toolchain {
    /// The release of nvcc, for instance `13.0`.
    pub(crate) release: String,
    /// The packages that pip installs.
    pub(crate) packages: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ptx {
    /// nvcc's `-arch`, for instance `compute_80`.
    pub(crate) arch: String,
    /// The `.version` in the output.
    pub(crate) version: String,
    pub(crate) flags: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    /// The path of the source. Both paths are relative to the root of the workspace.
    pub(crate) source: String,
    pub(crate) output: String,
    #[serde(default)]
    pub(crate) flags: Vec<String>,
}

impl Manifest {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let path = root.join("kernels/kernels.toml");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
    }

    pub(crate) fn flags(&self, kernel: &Kernel) -> Vec<String> {
        let arch = format!("-arch={}", self.ptx.arch);
        std::iter::once(&arch)
            .chain(&self.ptx.flags)
            .chain(&kernel.flags)
            .cloned()
            .collect()
    }

    /// Returns the `.target` in the output: `sm_80` for `compute_80`.
    pub(crate) fn target(&self) -> String {
        self.ptx.arch.replacen("compute_", "sm_", 1)
    }
}
