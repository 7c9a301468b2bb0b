//! `cargo xtask test`: runs all tests of the workspace, several test programs at a time.
//!
//! `cargo test` runs one program after the other. Many tests wait for disks, processes and clocks, and cores are idle meanwhile.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, cargo};
use crate::dist::{MESSAGES, executables};

/// The programs that take longest, which begin before the others, so that none of them runs alone at the end.
const LONGEST_TESTS: &[&str] = &[
    "tierflow-capi.install",
    "tierflow-engine.level",
    "tierflow-sim.bound",
    "tierflow-campaigns.campaigns",
    "tierflow-plan.plan",
];

/// The tests of one target, or the doctests of all libraries.
struct Tests {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    /// The package of the tests.
    package: String,
    /// The folder in which the tests run: that of the package.
    folder: PathBuf,
    /// The file that gets the tests' output.
    log: PathBuf,
}

/// Builds the tests of the packages that arguments for cargo select, or all tests, and runs `jobs` test programs at a time. Shows the
/// output of programs that fail.
pub(crate) fn run(jobs: usize, selected: &[String]) -> Result<()> {
    let all = tests(&Metadata::read()?, selected)?;
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut failed = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (sender, all, next) = (sender.clone(), &all, &next);
            scope.spawn(move || {
                while let Some(tests) = all.get(next.fetch_add(1, Relaxed)) {
                    let sent = sender.send((tests, tests.run()));
                    // The receiver is gone if a program could not be started, or its output could not be read.
                    if sent.is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (tests, ended) in receiver {
            let (status, took) = ended?;
            let printed = String::from_utf8_lossy(&fs::read(&tests.log)?).into_owned();
            if !status.success() {
                println!("{printed}");
                failed.push(tests.name.as_str());
            }
            let seconds = took.as_secs_f64();
            println!(
                "{seconds:7.1} s  {}: {}, {status}",
                tests.name,
                passed(&printed)
            );
        }
        anyhow::Ok(())
    })?;
    ensure!(failed.is_empty(), "tests failed: {}", failed.join(", "));
    Ok(())
}

/// Builds all test programs. Returns them in the order in which they begin.
fn tests(workspace: &Metadata, selected: &[String]) -> Result<Vec<Tests>> {
    let logs = workspace.target_directory.join("tests");
    fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let log = |name: &str| logs.join(format!("{name}.log"));
    let mut arguments = vec!["test".to_owned()];
    match selected {
        [] => arguments.push("--workspace".to_owned()),
        some => arguments.extend_from_slice(some),
    }
    let mut build = cargo();
    let built = executables(build.args(&arguments).args(["--no-run", MESSAGES]))?;
    arguments.extend(["--doc", "--no-fail-fast"].map(str::to_owned));
    let mut all = vec![Tests {
        name: "documentation".to_owned(),
        program: build.get_program().into(),
        arguments,
        package: String::new(),
        folder: workspace.workspace_root.clone(),
        log: log("documentation"),
    }];
    let packages = workspace.by_id();
    for built in built.into_iter().filter(|built| built.is_test) {
        let package = packages.get(built.package_id.as_str());
        let package = package.with_context(|| format!("{} is no package", built.package_id))?;
        let kind = if built.target.is("test") { "" } else { ".unit" };
        let name = format!("{}.{}{kind}", package.name, built.target.name);
        all.push(Tests {
            log: log(&name),
            name,
            program: built.path,
            arguments: Vec::new(),
            package: package.name.clone(),
            folder: package.folder().to_owned(),
        });
    }
    let rank = |tests: &Tests| LONGEST_TESTS.iter().position(|name| *name == tests.name);
    all.sort_by_key(|tests| rank(tests).unwrap_or(LONGEST_TESTS.len()));
    Ok(all)
}

impl Tests {
    fn run(&self) -> Result<(ExitStatus, Duration)> {
        let mut command = Command::new(&self.program);
        let log = File::create(&self.log)?;
        let begun = Instant::now();
        let status = command
            .args(&self.arguments)
            .current_dir(&self.folder)
            .env("CARGO_PKG_NAME", &self.package)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log)
            .status()
            .with_context(|| format!("cannot start {command:?}"))?;
        Ok((status, begun.elapsed()))
    }
}

/// Returns the number of tests that passed, from the output of their harness.
fn passed(printed: &str) -> usize {
    let results = printed.split("test result: ").skip(1);
    let counts = results.filter_map(|result| result.split(' ').nth(1)?.parse::<usize>().ok());
    counts.sum()
}
