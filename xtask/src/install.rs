//! `cargo xtask install`: the library for C, C++ and Fortran, as their build systems find it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, Package, cargo, stream};

const PACKAGE: &str = "tierflow-capi";

/// Folders of the crate, and where they go.
const FOLDERS: &[(&str, &str)] = &[
    ("include", "include"),
    ("mpi", "share/tierflow"),
    ("petsc", "share/tierflow"),
    ("fortran", "share/tierflow/fortran"),
];

/// Files that name the release, and where they go below the folder of libraries.
const PACKAGES: &[(&str, &str)] = &[
    ("tierflow.pc", "pkgconfig"),
    ("tierflowConfig.cmake", "cmake/tierflow"),
    ("velocConfig.cmake", "cmake/veloc"),
];

/// The folders that get the files.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallFolders {
    /// The folder that gets include, share, and the folder of libraries
    #[arg(long)]
    prefix: PathBuf,
    /// The folder of libraries below the prefix, such as lib64 or lib/x86_64-linux-gnu
    #[arg(long, default_value = "lib")]
    libdir: PathBuf,
    /// A folder to put before the prefix, for those who make packages
    #[arg(long, env = "DESTDIR")]
    destdir: Option<PathBuf>,
}

impl InstallFolders {
    /// Creates the prefix, and returns its absolute path.
    fn prefix(&self) -> Result<PathBuf> {
        let prefix = match &self.destdir {
            Some(before) => before.join(self.prefix.strip_prefix("/").unwrap_or(&self.prefix)),
            None => self.prefix.clone(),
        };
        let shown = prefix.display().to_string();
        fs::create_dir_all(&prefix).context(shown.clone())?;
        fs::canonicalize(prefix).context(shown)
    }

    /// Writes the release and the folders into a text of `package/`.
    fn configured(&self, text: &str, package: &Package) -> String {
        text.replace("@VERSION@", &package.version)
            .replace("@RELEASE@", &compatible(&package.version))
            .replace("@LIBDIR@", &self.libdir.to_string_lossy())
            .replace(
                "@UP@",
                &vec![".."; self.libdir.components().count()].join("/"),
            )
    }
}

pub(crate) fn run(
    destination: &InstallFolders,
    profile: &str,
    cc: &str,
    mpicc: Option<&str>,
) -> Result<()> {
    ensure!(
        destination.libdir.is_relative(),
        "--libdir is a folder below the prefix, such as lib64"
    );
    let workspace = Metadata::read()?;
    let package = workspace.member(PACKAGE)?;
    stream(cargo().args(["build", "--package", PACKAGE, "--profile", profile]))?;
    let built = match profile {
        "dev" => "debug",
        other => other,
    };
    let built = workspace.target_directory.join(built);
    let prefix = destination.prefix()?;
    let library = prefix.join(&destination.libdir);
    copy(&built.join("libtierflow.a"), &library.join("libtierflow.a"))?;
    for (folder, to) in FOLDERS {
        copy_all(&package.folder().join(folder), &prefix.join(to))?;
    }
    let texts = package.folder().join("package");
    let text = |name: &str| -> Result<String> {
        let text = fs::read_to_string(texts.join(name)).with_context(|| name.to_owned())?;
        Ok(destination.configured(&text, package))
    };
    for (name, to) in PACKAGES {
        configure(package, name, &text(name)?, &library.join(to))?;
    }
    let map = tempfile::NamedTempFile::new()?;
    fs::write(&map, text("tierflow.map")?)?;
    let linker = Linker {
        include: &prefix.join("include"),
        library: &library,
        map: map.path(),
    };
    let soname = format!("libtierflow.so.{}", compatible(&package.version));
    linker.link(cc, &format!("-Wl,-soname,{soname}"), &soname)?;
    let plain = library.join("libtierflow.so");
    if plain.symlink_metadata().is_ok() {
        fs::remove_file(&plain)?;
    }
    std::os::unix::fs::symlink(&soname, plain)?;
    if let Some(mpicc) = mpicc {
        // For programs whose makefiles name VELOC's library: the whole library, with the MPI of this compiler.
        let source = prefix.join("share/tierflow/tierflow_mpi.c");
        linker.link(mpicc, &source.to_string_lossy(), "libveloc-client.so")?;
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

/// Writes a file of `package/`, and for CMake a second one that says which versions it serves.
fn configure(package: &Package, name: &str, text: &str, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    fs::write(to.join(name), text)?;
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

/// Returns the part of a version that all compatible releases share: `0.1` of 0.1.7, `2` of 2.3.4.
fn compatible(version: &str) -> String {
    let mut numbers = version.split('.');
    match (numbers.next(), numbers.next()) {
        (Some("0"), Some(minor)) => format!("0.{minor}"),
        (major, _) => major.unwrap_or_default().to_owned(),
    }
}

/// Links shared libraries that export the C interface alone. Cargo's own would export the C functions of its dependencies, too,
/// and have neither a soname nor symbol versions.
struct Linker<'a> {
    include: &'a Path,
    library: &'a Path,
    /// The version script that says what is exported.
    map: &'a Path,
}

impl Linker<'_> {
    /// Links the whole archive, with one more argument for the compiler, to a library of this name.
    fn link(&self, compiler: &str, argument: &str, name: &str) -> Result<()> {
        let part = self.library.join(format!("{name}.part"));
        stream(
            Command::new(compiler)
                .args(["-O2", "-shared", "-fPIC", argument, "-I"])
                .arg(self.include)
                .arg("-Wl,--whole-archive")
                .arg(self.library.join("libtierflow.a"))
                .args(["-Wl,--no-whole-archive", "-Wl,--gc-sections"])
                .arg(format!("-Wl,--version-script={}", self.map.display()))
                .args(["-lgcc_s", "-lrt", "-lpthread", "-lm", "-ldl", "-o"])
                .arg(&part),
        )?;
        // A program may run on the one that is there.
        fs::rename(part, self.library.join(name))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::compatible;

    #[test]
    fn releases_that_serve_each_other_share_a_name() {
        assert_eq!(compatible("0.1.7"), "0.1");
        assert_eq!(compatible("2.3.4"), "2");
    }
}
