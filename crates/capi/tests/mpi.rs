//! Runs the examples as MPI programs, with MPICH and with Open MPI. The ranks are killed at random instants, and resume to the same result
//! bit for bit. `TIERFLOW_KILLS` sets the number of kills. `TIERFLOW_MPI=required` makes a missing MPI an error, `mpich` and
//! `openmpi` choose one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tierflow_store::{Options, Repository};

use support::{Mpi, home, must, ranks_of, told, wait_for};
use tierflow_testing::{Draws, variable};

/// Time limit of a run. Every run is shorter, and the ranks wait for each other for less.
const PATIENCE: Duration = Duration::from_secs(100);
const STEPS: u32 = 120;
const EVERY: u32 = 10;

/// An example and its arguments. Each history of runs has a directory of its own.
struct Case {
    name: &'static str,
    source: &'static str,
    /// Arguments between the directory or configuration and the number of steps.
    more: &'static [&'static str],
    reads_configuration: bool,
}

const CASES: &[Case] = &[
    Case {
        name: "C, memory",
        source: "heat_veloc.c",
        more: &["memory"],
        reads_configuration: true,
    },
    Case {
        name: "C, file",
        source: "heat_veloc.c",
        more: &["file"],
        reads_configuration: true,
    },
    Case {
        name: "C++",
        source: "heat_tf.cpp",
        more: &[],
        reads_configuration: false,
    },
    Case {
        name: "Fortran",
        source: "heat.f90",
        more: &[],
        reads_configuration: true,
    },
];

impl Case {
    /// Writes the example's configuration to an empty directory. Returns the path of the configuration, or a directory if it reads none.
    fn place(&self, directory: &Path) -> PathBuf {
        if !self.reads_configuration {
            let place = directory.join("external");
            std::fs::create_dir_all(&place).unwrap();
            return place;
        }
        let configuration = directory.join("heat.cfg");
        let text = format!(
            "scratch = {0}/scratch\npersistent = {0}/persistent\nmax_versions = 2\nhost_cache = 16MiB\ngroup_patience = 30\n",
            directory.display()
        );
        std::fs::write(&configuration, text).unwrap();
        configuration
    }

    fn run(&self, mpi: &Mpi, ranks: u32, program: &Path, place: &Path, steps: u32) -> Command {
        let mut command = mpi.run(ranks, program);
        command
            .arg(place)
            .args(self.more)
            .arg(steps.to_string())
            .arg(EVERY.to_string());
        // In the file mode the example names its files without a directory.
        command.current_dir(place.parent().unwrap());
        command
    }
}

/// Asserts that all ranks keep the same versions.
fn keep_the_same(directory: &Path, ranks: u32) {
    let pieces = |rank| {
        let options = Options::default().rank(rank, ranks);
        let opened = Repository::read_only(directory, options).unwrap();
        let pieces = opened.own_pieces().unwrap().into_iter();
        pieces.map(|piece| piece.version).collect::<Vec<u64>>()
    };
    for rank in 1..ranks {
        assert_eq!(pieces(rank), pieces(0), "{}", directory.display());
    }
}

/// Returns the rest of the last printed line that begins with `word`.
fn last<'a>(printed: &'a str, word: &str) -> Option<&'a str> {
    let mut lines = printed.lines().rev();
    lines
        .find_map(|line| line.trim().strip_prefix(word))
        .map(str::trim)
}

#[test]
fn a_run_goes_on_from_where_the_last_one_ended() {
    let directory = tempfile::tempdir().unwrap();
    for mpi in Mpi::installed() {
        for case in CASES {
            let Some(program) = mpi.example(case.source, directory.path()) else {
                continue;
            };
            for ranks in [1, 4] {
                let own = tempfile::tempdir_in(&directory).unwrap();
                let place = case.place(own.path());
                let first = must(&mut case.run(&mpi, ranks, &program, &place, 30));
                assert_eq!(last(&first, "from"), Some("0"), "{}: {first}", case.name);
                let longer = must(&mut case.run(&mpi, ranks, &program, &place, 60));
                assert_eq!(last(&longer, "from"), Some("30"), "{}: {longer}", case.name);
                let other = tempfile::tempdir_in(&directory).unwrap();
                let place = case.place(other.path());
                let whole = must(&mut case.run(&mpi, ranks, &program, &place, 60));
                assert_eq!(
                    last(&longer, "result"),
                    last(&whole, "result"),
                    "{}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn fortran_arrays_of_every_rank_come_back() {
    let directory = tempfile::tempdir().unwrap();
    for mpi in Mpi::installed() {
        let source = home().join("tests/fortran/arrays.f90");
        let Some(program) = mpi.program(&source, &[], directory.path()) else {
            continue;
        };
        let own = tempfile::tempdir_in(&directory).unwrap();
        let configuration = CASES[0].place(own.path());
        let external = own.path().join("external");
        std::fs::create_dir(&external).unwrap();
        let printed = must(mpi.run(2, &program).args([&external, &configuration]));
        assert_eq!(printed.matches("passed").count(), 2, "{printed}");
    }
}

#[test]
fn fortran_jobs_that_have_to_go_leave_arrays_by_their_names() {
    let directory = tempfile::tempdir().unwrap();
    for mpi in Mpi::installed() {
        let source = home().join("tests/fortran/suspend.f90");
        let Some(program) = mpi.program(&source, &[], directory.path()) else {
            continue;
        };
        let external = tempfile::tempdir_in(&directory).unwrap();
        let printed = must(mpi.run(2, &program).arg(external.path()));
        assert_eq!(printed.matches("passed").count(), 2, "{printed}");
    }
}

#[test]
fn calls_behind_the_end_of_mpi_fail_and_end_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    for mpi in Mpi::installed() {
        let source = home().join("tests/c/finalized.c");
        let Some(program) = mpi.program(&source, &[], directory.path()) else {
            continue;
        };
        let own = tempfile::tempdir_in(&directory).unwrap();
        let printed = must(mpi.run(2, &program).arg(CASES[0].place(own.path())));
        assert_eq!(printed.matches("passed").count(), 2, "{printed}");
    }
}

#[test]
fn killed_ranks_resume_to_the_same_bits() {
    let kills: u64 = variable("TIERFLOW_KILLS", 16);
    let seed = variable("TIERFLOW_SEED", 7);
    let mut draws = Draws(seed);
    let directory = tempfile::tempdir().unwrap();
    let mpis = Mpi::installed();
    let share = kills.div_ceil((mpis.len().max(1) * CASES.len()) as u64);
    for mpi in &mpis {
        for case in CASES {
            if let Some(program) = mpi.example(case.source, directory.path()) {
                killed(case, mpi, &program, share, &mut draws);
            }
        }
    }
}

/// Kills a random rank of `kills` runs of an example at random instants, and lets each history of runs reach its end.
fn killed(case: &Case, mpi: &Mpi, program: &Path, kills: u64, draws: &mut Draws) {
    let ranks = 3;
    let calm = tempfile::tempdir().unwrap();
    let begun = std::time::Instant::now();
    let expected = must(&mut case.run(mpi, ranks, program, &case.place(calm.path()), STEPS));
    let length = u64::try_from(begun.elapsed().as_millis()).unwrap().max(50);
    let expected = last(&expected, "result").unwrap().to_owned();
    let (mut done, mut resumed, mut left_alone) = (0, 0, 0);
    while done < kills {
        let own = tempfile::tempdir().unwrap();
        let place = case.place(own.path());
        let mut durable = 0;
        loop {
            let mut command = case.run(mpi, ranks, program, &place, STEPS);
            let child = command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let wants_kill = done < kills;
            if wants_kill {
                std::thread::sleep(Duration::from_millis(draws.below(length)));
                let processes = ranks_of(program, &place);
                if !processes.is_empty() {
                    let victim = processes[draws.below(processes.len() as u64) as usize];
                    // The rank may have ended by itself meanwhile.
                    let _ended = Command::new("kill")
                        .args(["-9", &victim.to_string()])
                        .status();
                    done += 1;
                }
            }
            let number = child.id();
            let output = wait_for(child, PATIENCE, || {
                // An mpiexec that has no ranks left is not our fault: that of Open MPI 4 hangs now and then.
                let left = ranks_of(program, &place);
                assert!(
                    left.is_empty(),
                    "{}: ranks {left:?} of {number} hang",
                    case.name
                );
                left_alone += 1;
            });
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            if let Some(from) = last(&printed, "from") {
                let from: u32 = from.parse().unwrap();
                assert!(
                    from >= durable,
                    "{}: from {from}, after {durable}",
                    case.name
                );
                resumed += u64::from(from > 0);
            }
            // A run that ends before its first durable checkpoint prints no such line.
            if let Some(newest) = last(&printed, "durable") {
                durable = durable.max(newest.parse().unwrap());
            }
            if let Some(result) = last(&printed, "result") {
                assert_eq!(result, expected, "{}", case.name);
                if case.reads_configuration && output.status.success() {
                    let home = own
                        .path()
                        .join(format!("persistent/tierflow/ranks-{ranks}"));
                    keep_the_same(&home, ranks);
                }
                break;
            }
            assert!(
                wants_kill,
                "{}: no rank was killed, and {}",
                case.name,
                told(&output)
            );
        }
    }
    eprintln!(
        "{mpi:?}, {}: {done} kills, {resumed} runs resumed; mpiexec hung without ranks {left_alone} times",
        case.name
    );
}
