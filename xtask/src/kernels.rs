//! `cargo xtask kernels`: compiles kernels/*.cu to PTX, and writes the hashes of both to kernels/kernels.lock.

mod check;
mod lock;
pub(crate) mod manifest;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::{Metadata, output};
use crate::toolchain::{self, Nvcc};
use lock::{Lock, LockedKernel};
use manifest::{Kernel, Manifest};

pub(crate) fn run(only_check: bool) -> Result<()> {
    let workspace = Metadata::read()?;
    let root = &workspace.workspace_root;
    let manifest = Manifest::read(root)?;
    if !only_check {
        let nvcc = toolchain::find(&workspace.target_directory, &manifest.toolchain)?
            .context("no nvcc in $NVCC, target/cuda or $PATH; run `cargo xtask toolchain`")?;
        compile_all(root, &manifest, &nvcc)?;
    }
    let complaints = check::complaints(root, &manifest, &Lock::read(root)?)?;
    for complaint in &complaints {
        eprintln!("kernels: {complaint}");
    }
    if !complaints.is_empty() {
        bail!(
            "run `cargo xtask toolchain`, then `cargo xtask kernels`, and commit the PTX and the lock"
        );
    }
    println!(
        "kernels: {} in step with kernels/{}",
        manifest.kernel.len(),
        lock::FILE
    );
    Ok(())
}

fn compile_all(root: &Path, manifest: &Manifest, nvcc: &Nvcc) -> Result<()> {
    let mut locked = Vec::new();
    for kernel in &manifest.kernel {
        println!("{} -> {}", kernel.source, kernel.output);
        let ptx = compile(root, manifest, kernel, nvcc)?;
        let path = root.join(&kernel.output);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, &ptx).with_context(|| format!("cannot write {}", path.display()))?;
        locked.push(LockedKernel {
            source: kernel.source.clone(),
            inputs: lock::inputs(root, manifest, kernel, &nvcc.version)?,
            output: lock::hash(&[ptx.as_bytes()]),
        });
    }
    Lock {
        nvcc: nvcc.version.clone(),
        kernel: locked,
    }
    .write(root)
}

fn compile(root: &Path, manifest: &Manifest, kernel: &Kernel, nvcc: &Nvcc) -> Result<String> {
    // nvcc runs in the root with relative paths, so that no path of this machine gets into the PTX.
    let ptx = output(
        Command::new(&nvcc.path)
            .current_dir(root)
            .arg("-ptx")
            .args(manifest.flags(kernel))
            .args(["-o", "/dev/stdout"])
            .arg(&kernel.source),
    )?;
    plain(&ptx, &kernel.source)
}

/// Returns `ptx` without the comments at its beginning, which name the compiler's build.
fn plain(ptx: &str, source: &str) -> Result<String> {
    let start = ptx
        .match_indices(".version")
        .map(|(at, _)| at)
        .find(|&at| at == 0 || ptx.as_bytes().get(at - 1) == Some(&b'\n'))
        .with_context(|| format!("what nvcc made of {source} has no .version"))?;
    let body = ptx.get(start..).unwrap_or_default().trim_end();
    Ok(format!(
        "// Made from {source} by `cargo xtask kernels`: edit that, not this.\n{body}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn the_compilers_own_comments_go() {
        let ptx = "//\n// Compiler Build ID: CL-1, .version\n//\n\n.version 9.0\n.target sm_80\n\n";
        let made = plain(ptx, "kernels/a.cu").unwrap();
        assert_eq!(made.lines().count(), 3);
        assert!(made.starts_with("// Made from kernels/a.cu"));
        assert!(made.ends_with(".version 9.0\n.target sm_80\n"));
        assert!(plain("nothing", "kernels/a.cu").is_err());
    }
}
