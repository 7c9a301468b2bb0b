//! `cargo xtask python`: builds the wheel of crates/python, and runs its tests and checks.
//!
//! All files are below target/python: the virtual environment and the wheel. No other chore needs them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{Metadata, PIP_INSTALL, output, stream};
use crate::install::remove_folder;

const PACKAGE: &str = "tierflow-python";

/// The oldest Python that the wheel is for.
const OLDEST: (u32, u32) = (3, 11);

/// The program that installs packages, in a fifth of pip's time.
const INSTALLER: &str = "uv==0.13.8";

/// The most bytes of a wheel, so that it stays a small dependency.
pub(crate) const MOST_BYTES: u64 = 8_000_000;

/// The program that writes pages about modules with pdoc. The page of a class has the members that it inherits from our own classes,
/// with private ones, but none of other classes.
const REFERENCE: &str = r#"
import functools, pathlib, pdoc, pdoc.doc, sys, warnings
# pdoc warns of annotations of classes that are shown as another module's.
warnings.filterwarnings("ignore", module="pdoc")
found = pdoc.doc.Class.members.func
ours = lambda cls: {name: member for name, member in found(cls).items() if member.taken_from[0].startswith("tierflow")}
pdoc.doc.Class.members = property(functools.cache(ours))
pdoc.doc.Class.own_members = property(lambda cls: list(cls.members.values()))
pdoc.doc.Class.inherited_members = {}
pdoc.pdoc(*sys.argv[2:], output_directory=pathlib.Path(sys.argv[1]))
"#;

pub(crate) fn run(only_wheel: bool, pytest: &[String]) -> Result<()> {
    let workspace = Metadata::read()?;
    let chore = PythonChore::new(&workspace)?;
    let wheel = chore.wheel()?;
    if only_wheel {
        return Ok(());
    }
    let format = ["format", "--quiet", "--check", "--no-cache"];
    stream(chore.tool("ruff").args(format).arg(chore.source))
        .context("`ruff format crates/python` puts that right")?;
    let check = ["check", "--quiet", "--no-cache"];
    stream(chore.tool("ruff").args(check).arg(chore.source))?;
    chore.install(&wheel)?;
    let settings = chore.source.join("pyproject.toml");
    let mut tests = chore.tool("pytest");
    tests.arg("-c").arg(&settings);
    tests.arg("--rootdir").arg(chore.source);
    stream(match pytest {
        [] => tests.arg(chore.source.join("tests")),
        some => tests.args(some),
    })?;
    stream(
        chore
            .tool("python")
            .args(["-m", "mypy.stubtest", "tierflow", "--mypy-config-file"])
            .arg(&settings)
            .arg("--allowlist")
            .arg(chore.source.join("tests/stubtest-allow.txt"))
            .arg("--ignore-unused-allowlist"),
    )
}

pub(crate) struct PythonChore<'a> {
    /// The crate's folder.
    source: &'a Path,
    /// The folder of the chore's files.
    folder: PathBuf,
    /// Cargo's target directory.
    target: &'a Path,
}

impl<'a> PythonChore<'a> {
    /// Makes the chore with its virtual environment, which is created if it is missing.
    pub(crate) fn new(workspace: &'a Metadata) -> Result<Self> {
        let chore = Self {
            source: workspace.member(PACKAGE)?.folder(),
            folder: workspace.target_directory.join("python"),
            target: &workspace.target_directory,
        };
        environment(&chore.folder, &chore.source.join("tests/requirements.txt"))?;
        Ok(chore)
    }

    /// Writes pages about all modules and their keywords, from their docstrings, into the folder `to`.
    pub(crate) fn reference(&self, to: &Path) -> Result<()> {
        self.install(&self.wheel()?)?;
        let mut modules = vec!["tierflow".to_owned()];
        for module in std::fs::read_dir(self.source.join("tierflow"))? {
            let path = module?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let is_module = path.is_dir() || path.extension().is_some_and(|kind| kind == "py");
            if is_module && !name.starts_with('_') {
                modules.push(format!("tierflow.{name}"));
            }
        }
        modules.sort();
        let mut python = self.tool("python");
        stream(python.args(["-c", REFERENCE]).arg(to).args(modules))
    }

    /// Installs a wheel into the environment, in place of an older wheel.
    fn install(&self, wheel: &Path) -> Result<()> {
        let mut install = self.tool("python");
        let install = install.args(PIP_INSTALL);
        stream(
            install
                .args(["--force-reinstall", "--no-deps", "--no-compile"])
                .arg(wheel),
        )
    }

    /// Returns the command of a program of the virtual environment, in a folder from which Python imports nothing by mistake.
    pub(crate) fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(self.folder.join("venv/bin").join(name));
        command
            .current_dir(&self.folder)
            .env("VIRTUAL_ENV", self.folder.join("venv"))
            .env("CARGO_TARGET_DIR", self.target)
            // Imported modules are compiled once, and not next to the sources.
            .env("PYTHONPYCACHEPREFIX", self.folder.join("bytecode"))
            .env_remove("PYTHONPATH");
        command
    }

    /// Builds the wheel anew.
    fn wheel(&self) -> Result<PathBuf> {
        let wheels = self.folder.join("wheels");
        remove_folder(&wheels)?;
        stream(
            self.tool("maturin")
                .args(["build", "--release", "--locked", "--manifest-path"])
                .arg(self.source.join("Cargo.toml"))
                .arg("--interpreter")
                .arg(self.folder.join("venv/bin/python"))
                .arg("--out")
                .arg(&wheels),
        )?;
        let mut made = std::fs::read_dir(&wheels)?.flatten();
        let (Some(wheel), None) = (made.next(), made.next()) else {
            bail!("maturin put not one wheel into {}", wheels.display());
        };
        let bytes = wheel.metadata()?.len();
        println!("{:.2} MB  {}", bytes as f64 / 1e6, wheel.path().display());
        ensure!(
            bytes <= MOST_BYTES,
            "the wheel has {bytes} bytes, more than {MOST_BYTES}"
        );
        Ok(wheel.path())
    }
}

/// Makes the virtual environment `venv` of a folder, with the packages that a list and the overrides next to it name. An environment
/// that has the packages already stays as it is.
pub(crate) fn environment(folder: &Path, list: &Path) -> Result<()> {
    let mut wanted =
        std::fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
    let overrides = list.with_file_name("overrides.txt");
    if overrides.exists() {
        let read = std::fs::read_to_string(&overrides);
        wanted += &read.with_context(|| format!("cannot read {}", overrides.display()))?;
    }
    let venv = folder.join("venv");
    let stamp = venv.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    let new = ["-m", "venv", "--clear"];
    stream(Command::new(python()?).args(new).arg(&venv))
        .context("no virtual environment could be made; Debian has python3-venv for it")?;
    let pip = |what: &[&OsStr]| {
        let mut pip = Command::new(venv.join("bin/python"));
        stream(pip.args(PIP_INSTALL).args(what).env_remove("PYTHONPATH"))
            .context("pip could not install what the tests need; it needs a way to PyPI")
    };
    pip(&[OsStr::new(INSTALLER)])?;
    let mut uv = Command::new(venv.join("bin/uv"));
    uv.args(["pip", "install", "--quiet", "--no-cache", "--system-certs"]);
    uv.arg("--python").arg(venv.join("bin/python"));
    uv.arg("--requirement").arg(list);
    if overrides.exists() {
        uv.arg("--overrides").arg(overrides);
    }
    // On the disk of the environment, packages are linked from uv's folder, not copied.
    uv.env("TMPDIR", folder);
    // If only pip's settings name a mirror, pip has to install.
    if stream(uv.env_remove("PYTHONPATH")).is_err() {
        pip(&[OsStr::new("--requirement"), list.as_os_str()])?;
    }
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Returns the Python from which the environment is made: `$PYTHON`, or `python3`.
fn python() -> Result<PathBuf> {
    let named = std::env::var_os("PYTHON").map_or_else(|| "python3".into(), PathBuf::from);
    let version = output(Command::new(&named).arg("--version"))
        .context("there is no Python: install python3, or point $PYTHON to one")?;
    let (major, minor) = OLDEST;
    ensure!(
        numbers(&version).is_some_and(|found| found >= OLDEST),
        "{} is {}, and {major}.{minor} or newer is needed: point $PYTHON to one",
        named.display(),
        version.trim()
    );
    Ok(named)
}

/// Returns the version's numbers: (3, 11) for `Python 3.11.7`.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim().strip_prefix("Python ")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_that_python_prints() {
        assert_eq!(numbers("Python 3.11.7\n"), Some((3, 11)));
        assert_eq!(numbers("Python 3.15.0rc1\n"), Some((3, 15)));
        assert_eq!(numbers("Python 2.7.18\n"), Some((2, 7)));
        assert!(numbers("Python 3.9.1").is_some_and(|found| found < OLDEST));
        assert_eq!(numbers("zsh: command not found"), None);
    }
}
