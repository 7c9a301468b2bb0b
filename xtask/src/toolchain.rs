//! `cargo xtask toolchain`: finds nvcc, or gets it from PyPI.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, PIP_INSTALL, output, stream};
use crate::kernels::manifest::{Manifest, Toolchain};

/// An nvcc of the locked release.
#[derive(Debug)]
pub(crate) struct Nvcc {
    pub(crate) path: PathBuf,
    /// The full version, for instance `13.0.88`.
    pub(crate) version: String,
}

pub(crate) fn run() -> Result<()> {
    let workspace = Metadata::read()?;
    let toolchain = Manifest::read(&workspace.workspace_root)?.toolchain;
    let nvcc = match find(&workspace.target_directory, &toolchain)? {
        Some(nvcc) => nvcc,
        None => {
            install(&workspace.target_directory, &toolchain)?;
            find(&workspace.target_directory, &toolchain)?
                .context("the packages of kernels.toml installed, but hold no nvcc")?
        }
    };
    println!("nvcc {}: {}", nvcc.version, nvcc.path.display());
    Ok(())
}

/// Returns the first nvcc of `$NVCC`, target/cuda and `$PATH`.
///
/// # Errors
/// An error if the first nvcc is of another release than kernels.toml locks. Taking another one silently would hide from the caller
/// which compiler made the PTX.
pub(crate) fn find(target: &Path, toolchain: &Toolchain) -> Result<Option<Nvcc>> {
    let named = std::env::var_os("NVCC").map(PathBuf::from);
    if let Some(path) = &named {
        ensure!(
            path.is_file(),
            "$NVCC is {}, which is no file; unset it or correct it",
            path.display()
        );
    }
    let path = named.or_else(|| in_target(target)).or_else(in_path);
    let Some(path) = path else { return Ok(None) };
    let version = version(&output(Command::new(&path).arg("--version"))?)
        .with_context(|| format!("{} --version names no version", path.display()))?;
    ensure!(
        version
            .strip_prefix(&toolchain.release)
            .is_some_and(|rest| rest.starts_with('.')),
        "{} is release {version}, but kernels/kernels.toml locks {}; point $NVCC to that release, or unset \
         $NVCC, take nvcc off $PATH and run `cargo xtask toolchain`",
        path.display(),
        toolchain.release,
    );
    Ok(Some(Nvcc { path, version }))
}

fn in_target(target: &Path) -> Option<PathBuf> {
    // The packages of one major release share a folder such as `cu13`. The full release is in kernels.toml.
    let versions = std::fs::read_dir(target.join("cuda/nvidia")).ok()?;
    versions
        .flatten()
        .map(|folder| folder.path().join("bin/nvcc"))
        .find(|path| path.is_file())
}

fn in_path() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join("nvcc"))
        .find(|path| path.is_file())
}

/// Returns the version in the compiler's text: `13.0.88` of `Cuda compilation tools, release 13.0, V13.0.88`.
fn version(text: &str) -> Option<String> {
    let (_, after) = text.split_once(", V")?;
    after.split_whitespace().next().map(str::to_owned)
}

fn install(target: &Path, toolchain: &Toolchain) -> Result<()> {
    let folder = target.join("cuda");
    println!(
        "no nvcc in $NVCC, {} or $PATH: getting {}",
        folder.display(),
        toolchain.packages.join(", ")
    );
    stream(
        Command::new("python3")
            .args(PIP_INSTALL)
            .args(["--no-deps", "--upgrade", "--target"])
            .arg(&folder)
            .args(&toolchain.packages),
    )
    .context("pip could not install nvcc; it needs python3 with pip and a way to PyPI")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_that_nvcc_prints() {
        let text = "Built on Wed_Aug_20\nCuda compilation tools, release 13.0, V13.0.88\nBuild 1\n";
        assert_eq!(version(text).as_deref(), Some("13.0.88"));
        assert_eq!(version("clang version 20"), None);
    }
}
