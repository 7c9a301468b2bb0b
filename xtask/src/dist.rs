//! `cargo xtask dist`: one folder to copy to a GPU node that has no Rust.

mod campaigns;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::bench::QUICK_CRITERION;
use crate::cargo::{Metadata, cargo, output};
use crate::install::remove_folder;

/// The most bytes of the folder, so that it is quick to copy.
const MOST_BYTES: u64 = 60_000_000;

/// The folder below target/. Not directly in a folder where cargo builds, as a program has the name `tierflow`.
const FOLDER: &str = "bundle/tierflow";

/// Lets cargo list the built files on its standard output, and write its messages to the standard error.
pub(crate) const MESSAGES: &str = "--message-format=json-render-diagnostics";

const RUN_SH: &str = include_str!("dist/run.sh");

/// A line of `cargo build --message-format=json`.
#[derive(Deserialize)]
struct Message {
    package_id: Option<String>,
    target: Option<crate::cargo::Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// An executable that cargo built.
pub(crate) struct Executable {
    pub(crate) package_id: String,
    pub(crate) target: crate::cargo::Target,
    pub(crate) is_test: bool,
    pub(crate) path: PathBuf,
}

/// A file, and its place below [`FOLDER`].
#[derive(Debug, PartialEq)]
struct Item {
    from: PathBuf,
    to: PathBuf,
}

pub(crate) fn run(only: &[String]) -> Result<()> {
    let workspace = Metadata::read()?;
    let (campaigns, others): (Vec<String>, Vec<String>) = only
        .iter()
        .cloned()
        .partition(|name| name == campaigns::PACKAGE);
    let mut items = match only.is_empty() || !others.is_empty() {
        true => pick(build(&workspace, &others)?, &others)?,
        false => Vec::new(),
    };
    if only.is_empty() {
        // Tests that need no GPU run on machines with Rust.
        items.retain(|item| !item.to.starts_with("tests") || has_ignored_tests(&item.from));
    }
    if !campaigns.is_empty() {
        items.extend(campaigns::items(&workspace)?);
    }
    let folder = workspace.target_directory.join(FOLDER);
    remove_folder(&folder)?;
    let mut sizes = Vec::new();
    for item in &items {
        let to = folder.join(&item.to);
        std::fs::create_dir_all(to.parent().unwrap_or(&folder))?;
        let bytes = std::fs::copy(&item.from, &to)
            .with_context(|| format!("cannot copy {} to {}", item.from.display(), to.display()))?;
        sizes.push((bytes, &item.to));
    }
    write_script(&folder.join("run.sh"))?;

    sizes.sort_by(|one, other| other.cmp(one));
    for (bytes, path) in &sizes {
        println!("{:>8.2} MB  {}", mb(*bytes), path.display());
    }
    let total = sizes.iter().map(|(bytes, _)| bytes).sum();
    println!("{:>8.2} MB  in all: {}", mb(total), folder.display());
    ensure!(
        total < MOST_BYTES,
        "more than {} MB; carry less with `--only NAME,NAME`, the largest are listed first",
        mb(MOST_BYTES),
    );
    Ok(())
}

/// Returns true if a test binary has ignored tests, which are those that need a GPU.
fn has_ignored_tests(binary: &Path) -> bool {
    let listed = Command::new(binary)
        .args(["--list", "--ignored", "--format", "terse"])
        .output();
    // A binary that cannot list its tests is included.
    listed.map_or(true, |listed| {
        !listed.status.success()
            || String::from_utf8_lossy(&listed.stdout)
                .lines()
                .any(|line| line.ends_with(": test"))
    })
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Builds the packages and targets that `only` names, and lists the executables. Cargo builds all targets of a named package, and
/// only the named targets of other packages.
fn build(workspace: &Metadata, only: &[String]) -> Result<Vec<(String, Item)>> {
    let members = || {
        workspace
            .members()
            .filter(|package| package.name != "xtask")
    };
    let start = || {
        let mut command = cargo();
        command.args(["build", "--profile=dist", MESSAGES]);
        command
    };
    let (mut whole, mut parts) = (start(), start());
    whole.arg("--all-targets");
    let (mut any_whole, mut any_part) = (false, false);
    for package in members() {
        if is_wanted(only, &package.name) {
            whole.args(["--package", &package.name]);
            any_whole = true;
            continue;
        }
        let targets = package.targets.iter();
        for target in targets.filter(|target| is_wanted(only, &target.name)) {
            let kinds = ["test", "bench", "example", "bin"];
            if let Some(kind) = kinds.into_iter().find(|kind| target.is(kind)) {
                parts.args(["--package", &package.name]);
                parts.args([format!("--{kind}"), target.name.clone()]);
                any_part = true;
            }
        }
    }
    let commands = [(any_whole, whole), (any_part, parts)];
    let commands: Vec<Command> = commands
        .into_iter()
        .filter_map(|(is_any, command)| is_any.then_some(command))
        .collect();
    if commands.is_empty() {
        bail!("no package or target is called any of {only:?}");
    }
    let packages = workspace.by_id();
    let mut items = Vec::new();
    let mut built = Vec::new();
    for mut command in commands {
        built.extend(executables(&mut command)?);
    }
    for built in built {
        let Some(package) = packages.get(built.package_id.as_str()) else {
            continue;
        };
        if let Some(to) = place(&package.name, &built.target, built.is_test) {
            let from = built.path;
            items.push((package.name.clone(), Item { from, to }));
        }
    }
    Ok(items)
}

/// Runs a `cargo build` that writes [`MESSAGES`]. Returns its executables.
pub(crate) fn executables(build: &mut Command) -> Result<Vec<Executable>> {
    let mut executables = Vec::new();
    for line in output(build)?.lines() {
        let message: Message =
            serde_json::from_str(line).context("cannot read what cargo wrote")?;
        let Message {
            package_id: Some(package_id),
            target: Some(target),
            profile: Some(Profile { test: is_test }),
            executable: Some(path),
        } = message
        else {
            continue;
        };
        executables.push(Executable {
            package_id,
            target,
            is_test,
            path,
        });
    }
    Ok(executables)
}

fn is_wanted(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|own| own == name)
}

/// Returns an executable's place in the folder. The place of a test has the package's name, too, as tests have equal names.
fn place(package: &str, target: &crate::cargo::Target, is_test: bool) -> Option<PathBuf> {
    let name = &target.name;
    let path = if target.is("bench") {
        format!("benches/{name}")
    } else if is_test {
        let unit = target.is("lib");
        if unit {
            format!("tests/{package}")
        } else {
            format!("tests/{package}.{name}")
        }
    } else if target.is("example")
        || target
            .src_path
            .ends_with(format!("examples/{name}/src/main.rs"))
    {
        format!("examples/{name}")
    } else if target.is("bin") {
        format!("bin/{name}")
    } else {
        return None;
    };
    Some(path.into())
}

/// Returns the items whose package or target `only` names. An error if a name matches no item.
fn pick(items: Vec<(String, Item)>, only: &[String]) -> Result<Vec<Item>> {
    let names = |(package, item): &(String, Item)| -> Vec<String> {
        let file = item.to.file_name().unwrap_or_default().to_string_lossy();
        let target = file.rsplit('.').next().unwrap_or_default().to_owned();
        vec![package.clone(), target]
    };
    for name in only {
        ensure!(
            items.iter().any(|item| names(item).contains(name)),
            "nothing built is called {name:?}"
        );
    }
    let is_named = |item: &(String, Item)| names(item).iter().any(|name| is_wanted(only, name));
    let chosen = items.into_iter().filter(is_named);
    Ok(chosen.map(|(_, item)| item).collect())
}

fn write_script(path: &Path) -> Result<()> {
    let script = RUN_SH.replace("@QUICK_CRITERION@", &QUICK_CRITERION.join(" "));
    std::fs::write(path, script).with_context(|| format!("cannot write {}", path.display()))?;
    let status = Command::new("chmod").arg("+x").arg(path).status()?;
    ensure!(
        status.success(),
        "cannot make {} executable",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str, kind: &str) -> crate::cargo::Target {
        crate::cargo::Target {
            name: name.into(),
            kind: vec![kind.into()],
            src_path: PathBuf::new(),
            doc: true,
        }
    }

    #[test]
    fn every_executable_has_its_place() {
        let at = |name, kind, is_test| place("tierflow-evict", &target(name, kind), is_test);
        assert_eq!(
            at("tierflow_evict", "lib", true),
            Some("tests/tierflow-evict".into())
        );
        assert_eq!(
            at("oracle", "test", true),
            Some("tests/tierflow-evict.oracle".into())
        );
        assert_eq!(at("many", "example", false), Some("examples/many".into()));
        let mut rtm = target("rtm", "bin");
        rtm.src_path = "here/examples/rtm/src/main.rs".into();
        assert_eq!(place("rtm", &rtm, false), Some("examples/rtm".into()));
        assert_eq!(at("scores", "bench", true), Some("benches/scores".into()));
        assert_eq!(
            at("experiments", "bin", false),
            Some("bin/experiments".into())
        );
        assert_eq!(at("tierflow_evict", "lib", false), None);
    }

    #[test]
    fn only_what_is_named_is_carried() {
        let items = || {
            [
                "tests/tierflow-evict",
                "tests/tierflow-evict.oracle",
                "examples/rtm",
                "benches/scores",
                "bin/experiments",
            ]
            .map(|to| {
                (
                    "tierflow-evict".to_owned(),
                    Item {
                        from: PathBuf::new(),
                        to: to.into(),
                    },
                )
            })
            .into_iter()
            .collect::<Vec<_>>()
        };
        assert_eq!(pick(items(), &[]).unwrap().len(), 5);
        assert_eq!(pick(items(), &["tierflow-evict".into()]).unwrap().len(), 5);
        let rtm = pick(items(), &["rtm".into()]).unwrap();
        assert_eq!(
            rtm.iter().map(|item| item.to.clone()).collect::<Vec<_>>(),
            [Path::new("examples/rtm")]
        );
        assert!(pick(items(), &["rtn".into()]).is_err());
        assert_eq!(pick(items(), &["scores".into()]).unwrap().len(), 1);
    }
}
