//! `cargo xtask recipes`: checks the recipes and scripts of packaging/ with the programs that they are for, if PyPI or Debian has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, output, stream};
use crate::install::remove_folder;
use crate::{python, release};

/// The checks, each a program of the environment with its arguments. The checks of Spack are those of its own repository of packages.
const CHECKS: &[&[&str]] = &[
    &[
        "shellcheck",
        "slurm/prolog.sh",
        "slurm/epilog.sh",
        "slurm/job.sbatch",
    ],
    &[
        "yamllint",
        "--strict",
        "-d",
        "{extends: default, rules: {line-length: {max: 150}, document-start: disable}}",
        ".",
    ],
    &[
        "kubernetes-validate",
        "--strict",
        "--quiet",
        "kubernetes/agent.yaml",
        "kubernetes/job.yaml",
    ],
    &[
        "ruff",
        "check",
        "--isolated",
        "--line-length=99",
        "--extend-select=E,I,W",
        "--ignore=F403,F405,RUF012",
        "spack",
    ],
    &[
        "ruff",
        "format",
        "--isolated",
        "--line-length=99",
        "--check",
        "spack",
    ],
    &["python", "-c", CONDA],
];

/// The program that reads conda's recipe as rattler-build does, and fills in its expressions.
const CONDA: &str =
    "import rattler_build as r; [variant] = r.Stage0Recipe.from_file('conda/recipe.yaml').render()";

/// The program that Debian's package `lmod` installs, unless `LMOD_CMD` names another one.
const LMOD: &str = "/usr/share/lmod/lmod/libexec/lmod";

pub(crate) fn run() -> Result<()> {
    let workspace = Metadata::read()?;
    let source = workspace.workspace_root.join("packaging");
    let folder = workspace.target_directory.join("recipes");
    python::environment(&folder, &source.join("requirements.txt"))?;
    let files = folder.join("packaging");
    remove_folder(&files)?;
    // No file has this checksum. The checks download nothing.
    release::write_recipes(&source, &files, &"0".repeat(64))?;
    let tool = |name: &str| {
        let mut tool = Command::new(folder.join("venv/bin").join(name));
        tool.current_dir(&files).env_remove("PYTHONPATH");
        tool
    };
    for check in CHECKS {
        if let [program, arguments @ ..] = check {
            stream(tool(program).args(arguments))?;
        }
    }
    let lmod = std::env::var_os("LMOD_CMD").map_or_else(|| LMOD.into(), PathBuf::from);
    if !lmod.exists() {
        println!("NOT RUN: EasyBuild's recipe and the module; install Lmod");
        return Ok(());
    }
    let easyconfig = fs::read_dir(files.join("easybuild"))?
        .next()
        .context("EasyBuild's recipe is gone")??;
    stream(
        tool("eb")
            .env("LMOD_CMD", &lmod)
            .env("EB_PYTHON", folder.join("venv/bin/python"))
            .env("EASYBUILD_PREFIX", folder.join("easybuild"))
            .args([
                "--check-contrib",
                "--allow-use-as-root-and-accept-consequences",
            ])
            .arg(easyconfig.path()),
    )?;
    module(&lmod, &files)
}

/// Loads the module by Lmod. All files that the module names are in the folder that `cargo xtask install` filled.
fn module(lmod: &Path, files: &Path) -> Result<()> {
    let mut load = Command::new(lmod);
    let load = load.args(["bash", "load", "tierflow"]);
    let prefix = "/prefix";
    let shell = output(
        load.env("MODULEPATH", files.join("modules"))
            .env("TIERFLOW_PREFIX", prefix),
    )?;
    for (variable, below) in [
        ("PATH", "bin"),
        ("LD_LIBRARY_PATH", "lib"),
        ("CPATH", "include"),
        ("PKG_CONFIG_PATH", "lib/pkgconfig"),
    ] {
        let wanted = format!("\n{variable}={prefix}/{below}");
        ensure!(
            shell.contains(&wanted),
            "the module does not set {variable} to {prefix}/{below}:\n{shell}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn script(name: &str, home: &Path) -> bool {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/slurm");
        let mut script = Command::new("bash");
        script.arg(folder.join(name)).env("TIERFLOW_LOCAL", home);
        script
            .env("TIERFLOW_PROGRAMS", home.join("bin"))
            .env("SLURM_JOB_USER", "nobody")
            .env("SLURM_JOB_ID", "7");
        script.status().unwrap().success()
    }

    /// Only root can give directories away.
    #[test]
    fn a_job_has_its_own_directory_until_it_is_drained() {
        let home = tempfile::tempdir().unwrap();
        if fs::metadata(home.path()).unwrap().uid() != 0 {
            println!("NOT RUN: the scripts of Slurm, which are root's");
            return;
        }
        let user = home.path().join("nobody");
        let job = user.join("7");
        assert!(script("prolog.sh", home.path()));
        let (above, own) = (fs::metadata(&user).unwrap(), fs::metadata(&job).unwrap());
        assert_eq!(
            (above.uid(), above.mode() & 0o777),
            (0, 0o755),
            "no user can put links there"
        );
        assert!(own.uid() != 0 && own.mode() & 0o777 == 0o700);

        let others = tempfile::tempdir().unwrap();
        fs::remove_dir(job.join("agent")).unwrap();
        symlink(others.path(), job.join("agent")).unwrap();
        script("prolog.sh", home.path());
        let given = fs::metadata(others.path()).unwrap();
        assert_eq!(given.uid(), 0, "the link of an earlier run is followed");
        for file in ["v1.tfc", "s1.tfs", "s1.open"] {
            fs::write(job.join(file), "").unwrap();
            assert!(
                script("epilog.sh", home.path()) && job.exists(),
                "no agent knows of the version"
            );
            fs::remove_file(job.join(file)).unwrap();
        }
        symlink(others.path(), job.join("others")).unwrap();
        assert!(script("epilog.sh", home.path()) && !job.exists() && others.path().exists());
    }

    /// The agent has drained all versions that it knows of.
    #[test]
    fn versions_that_no_agent_knew_of_keep_the_directory_of_a_job() {
        let home = tempfile::tempdir().unwrap();
        if fs::metadata(home.path()).unwrap().uid() != 0 {
            println!("NOT RUN: the scripts of Slurm, which are root's");
            return;
        }
        let programs = home.path().join("bin");
        fs::create_dir(&programs).unwrap();
        for name in ["tierflow", "tierflow-agent"] {
            symlink("/bin/true", programs.join(name)).unwrap();
        }
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let job = home.path().join("nobody/7");
        let [served, other] = [0, 1].map(|rank| job.join(format!("rank-{rank}/rank-{rank}")));
        for folder in [&job.join("agent/.tierflow-agent"), &served, &other] {
            fs::create_dir_all(folder).unwrap();
        }
        for file in [
            served.join("v1.tfc"),
            served.join("served"),
            other.join("s1.open"),
        ] {
            fs::write(file, "").unwrap();
        }
        assert!(script("epilog.sh", home.path()) && job.exists());
        fs::remove_file(other.join("s1.open")).unwrap();
        // Another version is newer than the agent's last look.
        let (mark, version) = (served.join("served"), served.join("v1.tfc"));
        let now = std::time::SystemTime::now();
        let set = |path: &Path, at| fs::File::open(path).unwrap().set_modified(at).unwrap();
        set(&mark, now);
        set(&version, now + std::time::Duration::from_secs(1));
        assert!(script("epilog.sh", home.path()) && job.exists());
        set(&version, now);
        assert!(script("epilog.sh", home.path()) && !job.exists());
    }
}
