//! `cargo xtask release`: makes the files of a release from one archive of sources, offline and with the same bytes each time.
//!
//! The archive contains every dependency. All compiled files come from the unpacked archive, without network.

mod papers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, cargo, output, stream};
use crate::install::{self, Build, InstallFolders, remove_folder};
use crate::python;

/// The package whose version is that of the release.
const NAMED_BY: &str = "tierflow-capi";

/// The packages whose programs and libraries are released.
const SHIPPED: &[&str] = &[
    "tierflow-capi",
    "tierflow-cli",
    "tierflow-agent",
    "tierflow-python",
];

/// The setting that lets cargo take dependencies from the archive alone.
const VENDORED: &str = r#"[source.crates-io]
replace-with = "vendored"

[source.vendored]
directory = "vendor"
"#;

/// The oldest C library that the files run with.
const GLIBC: (u32, u32) = (2, 28);

#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArguments {
    /// Make the sources, check that they are whole, and write licences, the bill of materials and sums; compile nothing
    #[arg(long)]
    dry_run: bool,
    /// The machines to build for, with commas between them; the first is this one
    #[arg(long, value_delimiter = ',', default_values = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"])]
    targets: Vec<String>,
    /// The folder that gets `files`, and in which all of it is made
    #[arg(long)]
    folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ReleaseArguments) -> Result<()> {
    let workspace = Metadata::read()?;
    let root = &workspace.workspace_root;
    let git = |arguments: &[&str]| output(Command::new("git").current_dir(root).args(arguments));
    if !git(&["status", "--porcelain"])?.is_empty() {
        println!("the release is of the last commit; what is changed since is not in it");
    }
    let version = &workspace.member(NAMED_BY)?.version;
    let folder = match &arguments.folder {
        Some(folder) => std::path::absolute(folder)?,
        None => workspace.target_directory.join("publish"),
    };
    let release = Release {
        name: format!("tierflow-{version}"),
        time: git(&["log", "-1", "--format=%ct"])?.trim().to_owned(),
        files: folder.join("files"),
        work: folder.join("work"),
        folder,
    };
    for folder in [&release.files, &release.work] {
        remove_folder(folder)?;
        fs::create_dir_all(folder)?;
    }
    release.sources(root)?;
    let unpacked = Metadata::read_by(&mut release.cargo())?;
    for package in &unpacked.packages {
        let is_within = package.folder().starts_with(release.unpacked());
        ensure!(is_within, "the sources lack {}", package.name);
    }
    for target in &arguments.targets {
        papers::write(&release, &unpacked, target)?;
    }
    if !arguments.dry_run {
        let list = root.join("xtask/release-requirements.txt");
        python::environment(&release.folder, &list)?;
        for target in &arguments.targets {
            let first = arguments.targets.first().unwrap_or(target);
            release.wheel(&unpacked, target)?;
            release.programs(&unpacked, target, first)?;
        }
    }
    release.recipes()?;
    release.sums()?;
    println!("{}", release.files.display());
    Ok(())
}

/// Unpacks the files of a commit into `folder`, below `name`.
pub(crate) fn unpack(root: &Path, commit: &str, folder: &Path, name: &str) -> Result<()> {
    let tar = folder.join("commit.tar");
    let prefix = format!("--prefix={name}/");
    let mut archive = Command::new("git");
    let archive = archive.current_dir(root).args(["archive", &prefix, "-o"]);
    stream(archive.arg(&tar).arg(commit))?;
    let mut extract = Command::new("tar");
    stream(extract.arg("-xf").arg(&tar).arg("-C").arg(folder))?;
    Ok(fs::remove_file(tar)?)
}

struct Release {
    /// The name of the release: `tierflow-0.1.0`.
    name: String,
    /// Seconds since 1970 of the commit, which all files have as their time.
    time: String,
    /// The files that are published.
    files: PathBuf,
    /// The folder of the unpacked sources, and of the folders to be packed.
    work: PathBuf,
    /// The folder above both, which keeps tools and cargo's target directory.
    folder: PathBuf,
}

impl Release {
    fn unpacked(&self) -> PathBuf {
        self.work.join(&self.name)
    }

    /// Sets a command up to run in the unpacked sources, without network. The results then name neither this machine's folders nor its time.
    fn within(&self, command: &mut Command) {
        let unpacked = self.unpacked();
        let remapped = format!("--remap-path-prefix={}=.", unpacked.display());
        command
            .current_dir(&unpacked)
            .env("PATH", self.path())
            .env("CARGO_TARGET_DIR", self.folder.join("build"))
            .env("CARGO_NET_OFFLINE", "true")
            .env("CARGO_ENCODED_RUSTFLAGS", remapped)
            .env_remove("RUSTFLAGS")
            .env_remove("PYTHONPATH")
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_RELEASE_STRIP", "true")
            .env("SOURCE_DATE_EPOCH", &self.time);
    }

    fn cargo(&self) -> Command {
        let mut cargo = cargo();
        self.within(&mut cargo);
        cargo
    }

    fn tool(&self, name: &str) -> Command {
        let mut tool = Command::new(self.folder.join("venv/bin").join(name));
        self.within(&mut tool);
        tool
    }

    /// Unpacks the last commit, adds the dependencies, and packs both.
    fn sources(&self, root: &Path) -> Result<()> {
        unpack(root, "HEAD", &self.work, &self.name)?;
        let mut vendor = cargo();
        vendor.current_dir(self.unpacked());
        stream(vendor.args(["vendor", "--quiet", "--locked", "vendor"]))?;
        let config = self.unpacked().join(".cargo/config.toml");
        let own = fs::read_to_string(&config)?;
        fs::write(config, format!("{own}\n{VENDORED}"))?;
        self.pack(&self.name)
    }

    /// Packs a folder of `work`, so that the archive's bytes depend on the files alone.
    fn pack(&self, name: &str) -> Result<()> {
        stream(
            Command::new("tar")
                .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
                .args(["--mode=u+rw,go=rX", "--format=gnu", "--xz"])
                .arg(format!("--mtime=@{}", self.time))
                // A fixed number of threads makes the same blocks on every machine.
                .env("XZ_OPT", "-6 -T2")
                .arg("-cf")
                .arg(self.files.join(format!("{name}.tar.xz")))
                .arg("-C")
                .arg(&self.work)
                .arg(name),
        )
    }

    fn wheel(&self, unpacked: &Metadata, target: &str) -> Result<()> {
        let (major, minor) = GLIBC;
        let wheels = self.work.join("wheels").join(target);
        let manifest = &unpacked.member("tierflow-python")?.manifest_path;
        stream(
            self.tool("maturin")
                .args(["build", "--release", "--locked", "--offline", "--zig"])
                .args(["--target", target, "--manifest-path"])
                .arg(manifest)
                .arg(format!("--compatibility=manylinux_{major}_{minor}"))
                .arg("--out")
                .arg(&wheels),
        )?;
        for wheel in fs::read_dir(wheels)? {
            let wheel = wheel?;
            let bytes = wheel.metadata()?.len();
            ensure!(
                bytes <= python::MOST_BYTES,
                "the wheel for {target} has {bytes} bytes, more than {}",
                python::MOST_BYTES
            );
            let inside = self.work.join("wheels").join(format!("{target}.inside"));
            let mut unzip = self.tool("python");
            let unzip = unzip.args(["-m", "zipfile", "-e"]);
            stream(unzip.arg(wheel.path()).arg(&inside))?;
            needs_no_newer_glibc(&inside.join("tierflow"))?;
            fs::copy(wheel.path(), self.files.join(wheel.file_name()))?;
        }
        Ok(())
    }

    /// Installs libraries and programs into a folder, and packs it. The programs for `here` run on this machine.
    fn programs(&self, unpacked: &Metadata, target: &str, here: &str) -> Result<()> {
        let (major, minor) = GLIBC;
        let name = format!("{}-{target}", self.name);
        let machine = target.replace("-unknown", "");
        let mut build = self.tool("cargo-zigbuild");
        build.args(["zigbuild", "--release", "--locked", "--offline", "--target"]);
        build.arg(format!("{target}.{major}.{minor}"));
        let of = |target: &str| self.folder.join("build").join(target).join("release");
        // cargo-zigbuild finds zig by the Python of its environment.
        let path = format!("PATH={}", self.path());
        let cc = ["env", &path, "cargo-zigbuild", "zig", "cc", "--"];
        let mut cc: Vec<String> = cc.map(str::to_owned).into();
        // Parts of zig name zig's folder in their debugging information.
        cc.extend(["-s", "-target"].map(str::to_owned));
        cc.push(format!("{machine}.{major}.{minor}"));
        install::install(
            &InstallFolders {
                prefix: self.work.join(&name),
                libdir: "lib".into(),
                destdir: None,
            },
            Build {
                workspace: unpacked,
                cargo: build,
                built: of(target),
                programs: of(here),
                cc,
                mpicc: None,
            },
        )?;
        for file in ["licences.txt", "cdx.json"] {
            let from = self.files.join(format!("{name}.{file}"));
            let to = self.work.join(&name).join("share/doc/tierflow");
            fs::copy(from, to.join(file))?;
        }
        for folder in ["bin", "lib"] {
            needs_no_newer_glibc(&self.work.join(&name).join(folder))?;
        }
        self.pack(&name)
    }

    /// Returns `PATH` with the tools of the environment before it.
    fn path(&self) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        format!("{}:{path}", self.folder.join("venv/bin").display())
    }

    /// Packs the recipes, which contain the checksum of the sources.
    fn recipes(&self) -> Result<()> {
        let sources = format!("{}.tar.xz", self.name);
        let sum = output(Command::new("sha256sum").arg(self.files.join(sources)))?;
        let sum = sum.split(' ').next().unwrap_or_default();
        let name = format!("{}-packaging", self.name);
        write_recipes(
            &self.unpacked().join("packaging"),
            &self.work.join(&name),
            sum,
        )?;
        self.pack(&name)
    }

    fn sums(&self) -> Result<()> {
        let mut names = Vec::new();
        for file in fs::read_dir(&self.files)? {
            names.push(file?.file_name());
        }
        names.sort();
        let mut sums = Command::new("sha256sum");
        let sums = output(sums.current_dir(&self.files).arg("--").args(names))?;
        Ok(fs::write(self.files.join("SHA256SUMS"), sums)?)
    }
}

/// Copies the folder of recipes, and writes the checksum of the sources into them.
pub(crate) fn write_recipes(from: &Path, to: &Path, sum: &str) -> Result<()> {
    install::copy_all(from, to)?;
    let easyconfigs = fs::read_dir(to.join("easybuild"))?.map(|file| Ok(file?.path()));
    let easyconfigs = easyconfigs.collect::<Result<Vec<_>>>()?;
    for recipe in [to.join("spack/package.py"), to.join("conda/recipe.yaml")]
        .iter()
        .chain(&easyconfigs)
    {
        let text = fs::read_to_string(recipe).with_context(|| format!("{}", recipe.display()))?;
        ensure!(
            text.contains("@SHA256@"),
            "{} has no place for the sum",
            recipe.display()
        );
        fs::write(recipe, text.replace("@SHA256@", sum))?;
    }
    Ok(())
}

/// Refuses a folder in which a file needs a newer C library than [`GLIBC`].
fn needs_no_newer_glibc(folder: &Path) -> Result<()> {
    for file in fs::read_dir(folder)? {
        let file = file?.path();
        if file.is_file() {
            let newest = newest_glibc(&fs::read(&file)?);
            ensure!(
                newest <= GLIBC,
                "{} needs glibc {newest:?}, newer than {GLIBC:?}",
                file.display()
            );
        }
    }
    Ok(())
}

/// Returns the newest version of the C library whose symbols a file names. A file contains the names of versions as text.
fn newest_glibc(file: &[u8]) -> (u32, u32) {
    let text = String::from_utf8_lossy(file);
    let versions = text.split("GLIBC_2.").skip(1);
    let minor = versions.filter_map(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        rest[..digits].parse().ok()
    });
    (2, minor.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_counts() {
        let file = b"\x7fELF\0GLIBC_2.4\0GLIBC_2.34\0\xffGLIBC_2.17\0GLIBC_PRIVATE\0";
        assert_eq!(newest_glibc(file), (2, 34));
        assert_eq!(newest_glibc(b"\x7fELF"), (2, 0));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old.so"), b"GLIBC_2.28\0").unwrap();
        assert!(needs_no_newer_glibc(folder.path()).is_ok());
        fs::write(folder.path().join("new.so"), b"GLIBC_2.29\0").unwrap();
        let refused = needs_no_newer_glibc(folder.path()).unwrap_err();
        assert!(refused.to_string().contains("new.so"), "{refused}");
    }
}
