//! `cargo xtask install`: the library for C, C++ and Fortran, as their build systems find it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{Metadata, Package, cargo, stream};

const PACKAGE: &str = "tierflow-capi";

/// Folders of the crate, and where they go.
const FOLDERS: &[(&str, &str)] = &[
    ("include", "include"),
    ("mpi", "share/tierflow"),
    ("fortran", "share/tierflow/fortran"),
];

/// Files that name the release, and where they go.
const PACKAGES: &[(&str, &str)] = &[
    ("tierflow.pc", "lib/pkgconfig"),
    ("tierflowConfig.cmake", "lib/cmake/tierflow"),
    ("velocConfig.cmake", "lib/cmake/veloc"),
];

pub(crate) fn run(prefix: &Path, profile: &str, mpicc: Option<&str>) -> Result<()> {
    let workspace = Metadata::read()?;
    let package = workspace.member(PACKAGE)?;
    stream(cargo().args(["build", "--package", PACKAGE, "--profile", profile]))?;
    fs::create_dir_all(prefix).with_context(|| format!("{}", prefix.display()))?;
    let prefix = fs::canonicalize(prefix)?;
    let built = match profile {
        "dev" => "debug",
        other => other,
    };
    let built = workspace.target_directory.join(built);
    for name in ["libtierflow.so", "libtierflow.a"] {
        copy(&built.join(name), &prefix.join("lib").join(name))?;
    }
    for (folder, to) in FOLDERS {
        copy_all(&package.folder().join(folder), &prefix.join(to))?;
    }
    for (name, to) in PACKAGES {
        configure(package, name, &prefix.join(to))?;
    }
    if let Some(mpicc) = mpicc {
        client(package, &prefix, mpicc)?;
    }
    println!("tierflow {} is in {}", package.version, prefix.display());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    // A program may run on the one that is there.
    let part = to.with_extension("part");
    fs::copy(from, &part).with_context(|| format!("{}", from.display()))?;
    fs::rename(&part, to).with_context(|| format!("{}", to.display()))
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("{}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &target)?,
            false => copy(&entry.path(), &target)?,
        }
    }
    Ok(())
}

/// Writes a file of `package/` with the release in its place, and for CMake a second one that says which versions it serves.
fn configure(package: &Package, name: &str, to: &Path) -> Result<()> {
    let text = fs::read_to_string(package.folder().join("package").join(name))?;
    fs::create_dir_all(to)?;
    fs::write(to.join(name), text.replace("@VERSION@", &package.version))?;
    let Some(base) = name.strip_suffix(".cmake") else {
        return Ok(());
    };
    // VELOC's releases are numbered in another way: whichever is asked for is served.
    let version = match base {
        "tierflowConfig" => format!(
            "set(PACKAGE_VERSION \"{0}\")\nif(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION)\n  set(PACKAGE_VERSION_COMPATIBLE TRUE)\nendif()\n",
            package.version
        ),
        _ => "set(PACKAGE_VERSION \"${PACKAGE_FIND_VERSION}\")\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n".to_owned(),
    };
    fs::write(to.join(format!("{base}Version.cmake")), version)?;
    Ok(())
}

/// `libveloc-client.so`, for programs whose makefiles name it: the whole library, with the MPI of this compiler.
fn client(package: &Package, prefix: &Path, mpicc: &str) -> Result<()> {
    let library = prefix.join("lib");
    let exports = package.folder().join("package/veloc-client.map");
    stream(
        Command::new(mpicc)
            .args(["-O2", "-shared", "-fPIC", "-I"])
            .arg(prefix.join("include"))
            .arg(prefix.join("share/tierflow/tierflow_mpi.c"))
            .arg("-Wl,--whole-archive")
            .arg(library.join("libtierflow.a"))
            .arg("-Wl,--no-whole-archive")
            .arg(format!("-Wl,--version-script={}", exports.display()))
            .args(["-lgcc_s", "-lrt", "-lpthread", "-lm", "-ldl", "-o"])
            .arg(library.join("libveloc-client.so")),
    )
}
