//! PETSc's adjoints with a trajectory in an engine give the same bits as with PETSc's own trajectories.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Mpi, home, must, told};

/// A program that runs an adjoint, built with the installed PETSc and the MPI of that PETSc.
struct Adjoint {
    mpi: Mpi,
    program: PathBuf,
    directory: tempfile::TempDir,
}

impl Adjoint {
    /// Returns `None` if no PETSc is installed.
    fn built() -> Option<Self> {
        let flags = Command::new("pkg-config")
            .args(["--cflags", "--libs", "petsc"])
            .output();
        let Some(flags) = flags.ok().filter(|flags| flags.status.success()) else {
            let named = std::env::var("TIERFLOW_MPI").unwrap_or_default();
            assert!(
                named != "required",
                "PETSc is required: install libpetsc-real-dev"
            );
            eprintln!("NOT RUN: there is no PETSc; install libpetsc-real-dev");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        // Debian builds PETSc with Open MPI.
        let mpi = Mpi::installed().pop()?;
        let program = directory.path().join("adjoint");
        let flags = String::from_utf8(flags.stdout).unwrap();
        let sources = ["tests/c/adjoint_petsc.c", "petsc/tierflow_petsc.c"];
        Self::compile(&mpi, &flags, &sources, &[], &program);
        let library = directory.path().join("libtierflow_petsc.so");
        let shared = ["-shared", "-fPIC"];
        Self::compile(&mpi, &flags, &sources[1..], &shared, &library);
        Some(Self {
            mpi,
            program,
            directory,
        })
    }

    fn compile(mpi: &Mpi, flags: &str, sources: &[&str], options: &[&str], to: &Path) {
        let mut command = mpi.tool("mpicc");
        command.args(["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-I"]);
        command.arg(home().join("include")).args(options);
        command.args(sources.iter().map(|source| home().join(source)));
        command.arg(home().join("mpi/tierflow_mpi.c"));
        command.args(flags.split_whitespace());
        must(support::linked(&mut command).arg("-o").arg(to));
    }

    fn run(&self, ranks: u32, options: &str) -> std::process::Output {
        let mut command = match ranks {
            1 => {
                let mut command = Command::new(&self.program);
                command.env_remove("LD_LIBRARY_PATH");
                command
            }
            _ => self.mpi.run(ranks, &self.program),
        };
        let place = self.directory.path().display().to_string();
        let options = options.replace("DIRECTORY", &place);
        command.current_dir(self.directory.path());
        command.args(
            options
                .split(' ')
                .filter(|word| !word.is_empty())
                .map(|word| word.replace('\u{a0}', " ")),
        );
        command.output().unwrap()
    }

    /// Returns the gradients that the program prints.
    fn gradients(&self, ranks: u32, options: &str) -> Vec<String> {
        let output = self.run(ranks, options);
        assert!(output.status.success(), "{options}: {}", told(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let gradients = text.lines().filter(|line| line.starts_with("gradient"));
        gradients.map(str::to_owned).collect()
    }

    /// Runs the program with options that must make it fail. Asserts that its error has this text.
    fn fails(&self, options: &str, text: &str) {
        let output = self.run(1, options);
        assert!(!output.status.success(), "{options}: {}", told(&output));
        assert!(told(&output).contains(text), "{options}: {}", told(&output));
    }
}

const TIERFLOW: &str = "-ts_trajectory_type tierflow -ts_trajectory_tierflow_";

/// Options for the places of versions: memory; memory and a file; a directory that outlives the process.
const PLACES: [&str; 3] = [
    "host_cache 64MiB",
    "host_cache 256KiB -ts_trajectory_tierflow_scratch DIRECTORY",
    "host_cache 256KiB -ts_trajectory_tierflow_external DIRECTORY/kept",
];

#[test]
fn gradients_are_those_of_petscs_own_trajectories() {
    let Some(adjoint) = Adjoint::built() else {
        return;
    };
    let methods = [
        "-ts_type rk -ts_rk_type 4 -ts_adapt_type none",
        "-ts_type rk -ts_rk_type 5dp -ts_adapt_type basic",
        "-ts_type cn",
        "-ts_type beuler",
        "-ts_type theta -ts_theta_theta 0.7",
    ];
    for (index, method) in methods.into_iter().enumerate() {
        let ranks = if index % 2 == 0 { 1 } else { 3 };
        let method = format!("{method} -passes 2");
        let memory = format!("{method} -ts_trajectory_type memory");
        let expected = adjoint.gradients(ranks, &memory);
        assert_eq!(expected.len(), 2);
        for place in PLACES {
            let options = format!("{method} {TIERFLOW}{place}");
            assert_eq!(adjoint.gradients(ranks, &options), expected, "{options}");
        }
    }
}

#[test]
fn a_trajectory_is_read_again_if_it_is_kept() {
    let Some(adjoint) = Adjoint::built() else {
        return;
    };
    let twice = format!("-adjoints 2 {TIERFLOW}after_restore keep");
    let gradients = adjoint.gradients(1, &twice);
    assert_eq!(gradients.len(), 2);
    assert_eq!(gradients[0], gradients[1]);
    let once = format!("-adjoints 2 {TIERFLOW}after_restore discard");
    adjoint.fails(&once, "is gone");
}

#[test]
fn programs_that_cannot_be_changed_load_the_type() {
    let Some(adjoint) = Adjoint::built() else {
        return;
    };
    let loads = "-without -dll_append DIRECTORY/libtierflow_petsc.so -ts_trajectory_type";
    let expected = adjoint.gradients(1, &format!("{loads} memory"));
    assert_eq!(adjoint.gradients(1, &format!("{loads} tierflow")), expected);
}

#[test]
fn files_stay_if_they_are_to_be_kept_and_go_else() {
    let Some(adjoint) = Adjoint::built() else {
        return;
    };
    let pieces = || {
        let directory = adjoint.directory.path().join("files/rank-0");
        let entries = std::fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name.ends_with(".tfs") || name.ends_with(".tfc"))
            .count()
    };
    let files = "external DIRECTORY/files -ts_trajectory_tierflow_after_restore keep";
    adjoint.gradients(1, &format!("{TIERFLOW}{files}"));
    assert_eq!(pieces(), 0);
    adjoint.gradients(1, &format!("-ts_trajectory_keep_files {TIERFLOW}{files}"));
    assert!(pieces() > 0);
}

#[test]
fn a_trajectory_that_cannot_be_held_or_read_is_an_error() {
    let Some(adjoint) = Adjoint::built() else {
        return;
    };
    adjoint.fails(
        &format!("{TIERFLOW}host_cache 64KiB"),
        "no room for checkpoint",
    );
    adjoint.fails(&format!("{TIERFLOW}host_cache lots"), "host_cache = lots");
    let only = format!("-ts_trajectory_solution_only {TIERFLOW}host_cache 1MiB");
    adjoint.fails(&only, "The adjoint needs the stages");
}

#[test]
fn steps_that_are_rolled_back_are_replaced() {
    let Some(adjoint) = Adjoint::built() else {
        return;
    };
    // An event rolls steps back, and the application does so after the step was stored. Then the file of a step is overwritten.
    for rolled_back in ["-event 1.53", "-again 20"] {
        for method in ["-ts_type rk -ts_adapt_type none", "-ts_type cn"] {
            let method = format!("{method} {rolled_back} -passes 2");
            let basic = format!("{method} -ts_trajectory_type basic");
            let expected = adjoint.gradients(1, &basic);
            assert_eq!(expected.len(), 2);
            let undisturbed = basic.replace(rolled_back, "");
            assert_ne!(adjoint.gradients(1, &undisturbed), expected);
            for place in PLACES {
                let options = format!("{method} {TIERFLOW}{place}");
                assert_eq!(adjoint.gradients(1, &options), expected, "{options}");
            }
        }
    }
}

#[test]
fn a_run_that_is_killed_does_not_hinder_the_next_one() {
    let Some(adjoint) = Adjoint::built() else {
        return;
    };
    let steps = "-ts_adapt_type none";
    let expected = adjoint.gradients(1, &format!("{steps} -ts_trajectory_type memory"));
    // A directory of one group serves only groups of the same size.
    let of_two = PLACES[2].replace("/kept", "/kept-by-two");
    let places = PLACES.into_iter().map(|place| (1, place));
    for (ranks, place) in places.chain([(2, of_two.as_str())]) {
        let options = format!("{steps} {TIERFLOW}{place}");
        let killed = adjoint.run(ranks, &format!("-kill 30 {options}"));
        assert!(!killed.status.success(), "{}", told(&killed));
        assert_eq!(adjoint.gradients(ranks, &options), expected, "{options}");
    }
}

#[test]
fn a_damaged_file_is_an_error_and_no_gradient() {
    let Some(adjoint) = Adjoint::built() else {
        return;
    };
    let script = adjoint.directory.path().join("damage");
    let damage =
        "for f in kept/rank-0/s*; do printf damaged | dd of=$f bs=1 seek=70000 conv=notrunc; done";
    std::fs::write(&script, format!("set -e\n{damage}\n")).unwrap();
    let between = "-ts_adapt_type none -between sh\u{a0}DIRECTORY/damage";
    let options = format!("{between} {TIERFLOW}{}", PLACES[2]);
    let output = adjoint.run(1, &options);
    assert!(!output.status.success(), "{}", told(&output));
    let said = told(&output);
    assert!(said.contains("is damaged at byte"), "{said}");
    assert!(!said.contains("gradient"), "{said}");
}

/// Four stages of 500 numbers for each of 80 steps are 1.22 MiB, and 1.53 MiB with the solutions.
#[test]
fn a_trajectory_for_adjoints_leaves_out_solutions() {
    let Some(adjoint) = Adjoint::built() else {
        return;
    };
    let method = "-ts_type rk -ts_rk_type 4 -ts_adapt_type none";
    let expected = adjoint.gradients(1, &format!("{method} -ts_trajectory_type memory"));
    let tight = format!("{method} {TIERFLOW}host_cache 1400KiB");
    assert_eq!(adjoint.gradients(1, &tight), expected);
    // A trajectory that is not for adjoints alone stores the solutions, too, and does not fit.
    let whole = format!("-ts_trajectory_adjointmode 0 {tight}");
    adjoint.fails(&whole, "no room for checkpoint");
}

/// Prints medians of the seconds of a forward and a backward pass, and of the processor time of all threads. The book has the numbers of
/// a run with `TIERFLOW_PETSC_LONG`, in a release build, on a machine with two idle cores.
#[test]
fn times_beside_petscs_own_trajectories() {
    let Some(adjoint) = Adjoint::built() else {
        return;
    };
    let is_long = std::env::var_os("TIERFLOW_PETSC_LONG").is_some();
    let (cells, count) = if is_long { (100_000, 7) } else { (500, 1) };
    for step in ["", " -linear"] {
        println!("{cells} cells{step}");
        compare_times(
            &adjoint,
            &format!("-ts_type rk -ts_rk_type 4 -ts_adapt_type none -cells {cells}{step}"),
            count,
        );
    }
}

fn compare_times(adjoint: &Adjoint, problem: &str, count: usize) {
    let memory = format!("{TIERFLOW}host_cache 1GiB");
    let below = format!("{TIERFLOW}host_cache 64MiB -ts_trajectory_tierflow_scratch DIRECTORY");
    let ways = [
        ("`memory`", "-ts_trajectory_type memory"),
        ("`tierflow`, host memory", &memory),
        ("`tierflow`, 64 MiB and a file", &below),
        ("`basic`", "-ts_trajectory_type basic"),
    ];
    let mut seconds = ways.map(|_| Vec::new());
    let mut gradients = std::collections::BTreeSet::new();
    for _ in 0..count {
        for ((_, way), seconds) in ways.iter().zip(&mut seconds) {
            let output = adjoint.run(1, &format!("{problem} {way}"));
            let text = String::from_utf8(output.stdout).unwrap();
            gradients.extend(text.lines().next().map(str::to_owned));
            let line = text.lines().find_map(|line| line.strip_prefix("seconds "));
            let numbers = line
                .unwrap()
                .split(' ')
                .map(|one| one.parse::<f64>().unwrap());
            seconds.push(numbers.collect::<Vec<_>>());
        }
    }
    assert_eq!(gradients.len(), 1);
    let median = |values: &mut dyn Iterator<Item = f64>| {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!(
        "| trajectory | forward | backward | over `memory` | processor time |\n|---|---|---|---|---|"
    );
    for ((name, _), times) in ways.iter().zip(&seconds) {
        let of = |index: usize| median(&mut times.iter().map(|run| run[index]));
        let runs = times.iter().zip(&seconds[0]);
        let ratio = median(&mut runs.map(|(run, other)| (run[0] + run[1]) / (other[0] + other[1])));
        let (forward, backward, processor) = (of(0), of(1), of(2));
        println!("| {name} | {forward:.2} s | {backward:.2} s | {ratio:.2} | {processor:.2} s |");
    }
}

#[test]
fn every_option_of_an_engine_is_one_of_the_trajectory() {
    let source = std::fs::read_to_string(home().join("petsc/tierflow_petsc.c")).unwrap();
    let keys = source.split("Keys[] = {").nth(1).unwrap();
    let keys = keys.split("};").next().unwrap();
    let keys: Vec<&str> = keys.split('"').skip(1).step_by(2).collect();
    let given_by_the_group = ["rank", "ranks", "run"];
    let all = tierflow_bind::OPTIONS.iter().map(|option| option.key);
    let all: Vec<&str> = all
        .filter(|key| !given_by_the_group.contains(key))
        .collect();
    assert_eq!(keys, all);
}
