//! `cargo xtask install`: installs the library for C, C++ and Fortran where their build systems find it, the command, and the agent.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, Package, cargo, output, stream};

const PACKAGE: &str = "tierflow-capi";

/// Folders of the crate, and their places.
const FOLDERS: &[(&str, &str)] = &[
    ("include", "include"),
    ("mpi", "share/tierflow"),
    ("petsc", "share/tierflow"),
    ("fortran", "share/tierflow/fortran"),
];

/// Files that name the release, and their places below the folder of libraries.
const PACKAGES: &[(&str, &str)] = &[
    ("tierflow.pc", "pkgconfig"),
    ("tierflowConfig.cmake", "cmake/tierflow"),
    ("velocConfig.cmake", "cmake/veloc"),
];

/// Texts that the programs write: a program, its arguments, and the file below `share`.
const TEXTS: &[(&str, &[&str], &str)] = &[
    ("tierflow", &["manual"], "man/man1/tierflow.1"),
    (
        "tierflow",
        &["completions", "bash"],
        "bash-completion/completions/tierflow",
    ),
    (
        "tierflow",
        &["completions", "fish"],
        "fish/vendor_completions.d/tierflow.fish",
    ),
    (
        "tierflow",
        &["completions", "zsh"],
        "zsh/site-functions/_tierflow",
    ),
    (
        "tierflow-agent",
        &["--print", "manual"],
        "man/man8/tierflow-agent.8",
    ),
    (
        "tierflow-agent",
        &["--print", "bash"],
        "bash-completion/completions/tierflow-agent",
    ),
    (
        "tierflow-agent",
        &["--print", "fish"],
        "fish/vendor_completions.d/tierflow-agent.fish",
    ),
    (
        "tierflow-agent",
        &["--print", "zsh"],
        "zsh/site-functions/_tierflow-agent",
    ),
];

/// The folders that get the files.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallFolders {
    /// The folder that gets bin, include, share, and the folder of libraries
    #[arg(long)]
    pub(crate) prefix: PathBuf,
    /// The folder of libraries below the prefix, such as lib64 or lib/x86_64-linux-gnu
    #[arg(long, default_value = "lib")]
    pub(crate) libdir: PathBuf,
    /// A folder to put before the prefix, for those who make packages
    #[arg(long, env = "DESTDIR")]
    pub(crate) destdir: Option<PathBuf>,
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

/// The commands that build and link the library and the programs.
pub(crate) struct Build<'a> {
    /// The workspace of the library and the programs.
    pub(crate) workspace: &'a Metadata,
    /// `cargo build`, or the like, for a profile and a target.
    pub(crate) cargo: Command,
    /// The folder in which cargo puts the built files.
    pub(crate) built: PathBuf,
    /// A folder of the same programs for this machine, which write their manual pages and completions.
    pub(crate) programs: PathBuf,
    /// The compiler for C that links the shared library, and its first arguments.
    pub(crate) cc: Vec<String>,
    /// A compiler for C and MPI.
    pub(crate) mpicc: Option<String>,
}

pub(crate) fn run(
    destination: &InstallFolders,
    profile: &str,
    cc: &str,
    mpicc: Option<String>,
) -> Result<()> {
    let workspace = Metadata::read()?;
    let mut build = cargo();
    build.args(["build", "--profile", profile]);
    let built = workspace.target_directory.join(match profile {
        "dev" => "debug",
        other => other,
    });
    install(
        destination,
        Build {
            workspace: &workspace,
            cargo: build,
            programs: built.clone(),
            built,
            cc: cc.split_whitespace().map(str::to_owned).collect(),
            mpicc,
        },
    )
}

/// Builds the library and the programs, and puts them into their folders.
pub(crate) fn install(destination: &InstallFolders, mut build: Build<'_>) -> Result<()> {
    ensure!(
        destination.libdir.is_relative(),
        "--libdir is a folder below the prefix, such as lib64"
    );
    let package = build.workspace.member(PACKAGE)?;
    for package in [PACKAGE, "tierflow-cli", "tierflow-agent"] {
        build.cargo.args(["--package", package]);
    }
    stream(&mut build.cargo)?;
    let prefix = destination.prefix()?;
    let library = prefix.join(&destination.libdir);
    let archive = "libtierflow.a";
    copy(&build.built.join(archive), &library.join(archive))?;
    for (program, arguments, to) in TEXTS {
        let text = output(Command::new(build.programs.join(program)).args(*arguments))?;
        let to = prefix.join("share").join(to);
        fs::create_dir_all(to.parent().unwrap_or(&prefix))?;
        fs::write(&to, text).with_context(|| format!("{}", to.display()))?;
    }
    for program in ["tierflow", "tierflow-agent"] {
        copy(
            &build.built.join(program),
            &prefix.join("bin").join(program),
        )?;
    }
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let to = prefix.join("share/doc/tierflow").join(name);
        copy(&build.workspace.workspace_root.join(name), &to)?;
    }
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
    linker.link(&build.cc, &format!("-Wl,-soname,{soname}"), &soname)?;
    let plain = library.join("libtierflow.so");
    if plain.symlink_metadata().is_ok() {
        fs::remove_file(&plain)?;
    }
    std::os::unix::fs::symlink(&soname, plain)?;
    if let Some(mpicc) = build.mpicc {
        // Makefiles of programs name VELOC's library. The file is the whole library, with the MPI of this compiler.
        let source = prefix.join("share/tierflow/tierflow_mpi.c");
        linker.link(&[mpicc], &source.to_string_lossy(), "libveloc-client.so")?;
    }
    println!("tierflow {} is in {}", package.version, prefix.display());
    Ok(())
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    // A running program may use the installed library, so the new file replaces it by a rename.
    let part = to.with_extension("part");
    fs::copy(from, &part).with_context(|| format!("{}", from.display()))?;
    fs::rename(&part, to).with_context(|| format!("{}", to.display()))
}

/// Copies a folder with its contents.
pub(crate) fn copy_all(from: &Path, to: &Path) -> Result<()> {
    for file in files_below(from)? {
        copy(&file, &to.join(file.strip_prefix(from)?))?;
    }
    Ok(())
}

/// Removes a folder with its contents, if it exists.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Returns all files below a folder.
pub(crate) fn files_below(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files.extend(files_below(&entry.path())?),
            false => _ = files.insert(entry.path()),
        }
    }
    Ok(files)
}

/// Writes a file of `package/`, and for CMake a second file with the versions that it is compatible with.
fn configure(package: &Package, name: &str, text: &str, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    fs::write(to.join(name), text)?;
    let Some(base) = name.strip_suffix(".cmake") else {
        return Ok(());
    };
    // VELOC's releases have other numbers, so any requested version is accepted.
    let version = match base {
        "tierflowConfig" => served(&package.version),
        _ => "set(PACKAGE_VERSION \"${PACKAGE_FIND_VERSION}\")\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n".to_owned(),
    };
    fs::write(to.join(format!("{base}Version.cmake")), version)?;
    Ok(())
}

/// Returns CMake's commands that accept a requested version if it is compatible, and the same or older.
fn served(version: &str) -> String {
    let shared = compatible(version);
    let asked = match shared.contains('.') {
        true => "${PACKAGE_FIND_VERSION_MAJOR}.${PACKAGE_FIND_VERSION_MINOR}",
        false => "${PACKAGE_FIND_VERSION_MAJOR}",
    };
    format!(
        r#"set(PACKAGE_VERSION "{version}")
if("{asked}" STREQUAL "{shared}" AND PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
"#
    )
}

/// Returns the part of a version that all compatible releases share: `0.1` of 0.1.7, `2` of 2.3.4.
fn compatible(version: &str) -> String {
    let mut numbers = version.split('.');
    match (numbers.next(), numbers.next()) {
        (Some("0"), Some(minor)) => format!("0.{minor}"),
        (major, _) => major.unwrap_or_default().to_owned(),
    }
}

/// A linker of shared libraries that export the C interface alone. A library that cargo links would also export the C functions of
/// dependencies, and have neither a soname nor symbol versions.
struct Linker<'a> {
    include: &'a Path,
    library: &'a Path,
    /// The version script with the exported symbols.
    map: &'a Path,
}

impl Linker<'_> {
    /// Links the whole archive to a library of this name, with one more argument for the compiler.
    fn link(&self, compiler: &[String], argument: &str, name: &str) -> Result<()> {
        let (program, first) = compiler.split_first().context("no compiler is named")?;
        let part = self.library.join(format!("{name}.part"));
        stream(
            Command::new(program)
                .args(first)
                .args(["-O2", "-shared", "-fPIC", argument, "-I"])
                .arg(self.include)
                .arg("-Wl,--whole-archive")
                .arg(self.library.join("libtierflow.a"))
                .args(["-Wl,--no-whole-archive", "-Wl,--gc-sections"])
                .arg(format!("-Wl,--version-script={}", self.map.display()))
                .args(["-lgcc_s", "-lrt", "-lpthread", "-lm", "-ldl", "-o"])
                .arg(&part),
        )?;
        // A running program may use the installed library, so the new file replaces it by a rename.
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
