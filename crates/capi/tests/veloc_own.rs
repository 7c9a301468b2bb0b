//! VELOC's own programs are built unchanged with Tierflow's headers, killed and resumed. `TIERFLOW_VELOC` names a checkout of VELOC
//! (with `test/fheatdis.f90` of its Fortran branch if that program is to run, too). Without a checkout the test does nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Mpi, build, home, must, ranks_of, told, wait_for};
use tierflow_testing::{Draws, variable};

const PATIENCE: Duration = Duration::from_secs(300);

/// VELOC's programs. The flag is true for a program that fails by itself in its first run.
const PROGRAMS: &[(&str, bool)] = &[
    ("heatdis_mem.c", false),
    ("heatdis_file.c", false),
    ("heatdis_fault.cpp", true),
    ("fheatdis.f90", false),
];

/// A directory with the configuration of VELOC's own test.
struct Place {
    directory: tempfile::TempDir,
    configuration: PathBuf,
}

impl Place {
    fn new(parent: &Path) -> Self {
        let directory = tempfile::tempdir_in(parent).unwrap();
        let configuration = directory.path().join("fheatdis.cfg");
        let text = format!(
            "scratch = {0}/scratch\npersistent = {0}/persistent\nmeta = {0}/meta\nmax_versions = 2\nscratch_versions = 1\nmode = async\nchksum = true\n",
            directory.path().display()
        );
        std::fs::write(&configuration, text).unwrap();
        Self {
            directory,
            configuration,
        }
    }

    fn command(&self, mpi: &Mpi, ranks: u32, program: &Path) -> Command {
        let mut command = mpi.run(ranks, program);
        // The MiB of a rank. The Fortran program has a fixed size, and reads the same file from the directory in which it runs.
        command.arg("1").arg(&self.configuration);
        command.current_dir(self.directory.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn newest(&self, ranks: u32) -> PathBuf {
        let persistent = self.directory.path().join("persistent/tierflow");
        persistent.join(format!("ranks-{ranks}"))
    }
}

#[test]
fn velocs_programs_run_are_killed_and_resume() {
    let Some(checkout) = std::env::var_os("TIERFLOW_VELOC").map(PathBuf::from) else {
        eprintln!("NOT RUN: TIERFLOW_VELOC names no checkout of VELOC");
        return;
    };
    let kills: u32 = variable("TIERFLOW_KILLS", 2);
    let directory = tempfile::tempdir().unwrap();
    let same = build("cc", &["-std=c99"], "same.c", directory.path());
    let mut draws = Draws(5);
    for mpi in Mpi::installed() {
        for (name, fails) in PROGRAMS {
            let source = checkout.join("test").join(name);
            if !source.is_file() {
                eprintln!("NOT RUN: the checkout has no test/{name}");
                continue;
            }
            let root = home().display().to_string();
            let options: &[&str] = match name.ends_with(".f90") {
                true => &["-fallow-argument-mismatch"],
                false => &["-I", &root],
            };
            let Some(program) = mpi.program(&source, options, directory.path()) else {
                continue;
            };
            for ranks in [1, 4, 8] {
                let begun = Instant::now();
                let calm = Place::new(directory.path());
                for attempt in 0.. {
                    let output = calm.command(&mpi, ranks, &program).output().unwrap();
                    if output.status.success() {
                        break;
                    }
                    assert!(*fails && attempt == 0, "{name}: {}", told(&output));
                }
                let length = u64::try_from(begun.elapsed().as_millis()).unwrap();
                let place = Place::new(directory.path());
                let resumed = resumes(&mpi, &program, &place, (ranks, kills), length, &mut draws);
                let compared =
                    must(Command::new(&same).args([calm.newest(ranks), place.newest(ranks)]));
                assert_eq!(compared.lines().count(), ranks as usize);
                eprintln!(
                    "{mpi:?}, {name}, {ranks} ranks: resumed {resumed} times, the same result"
                );
            }
        }
    }
}

/// Runs a program to its end, and kills a rank `kills` times meanwhile. Returns the number of runs that continued from a checkpoint.
fn resumes(
    mpi: &Mpi,
    program: &Path,
    place: &Place,
    (ranks, kills): (u32, u32),
    length: u64,
    draws: &mut Draws,
) -> usize {
    let mut resumed = 0;
    for attempt in 0.. {
        let child = place.command(mpi, ranks, program).spawn().unwrap();
        if attempt < kills {
            // A third of the run's time is mostly enough for the first checkpoint.
            std::thread::sleep(Duration::from_millis(
                length / 3 + draws.below(length * 2 / 3),
            ));
            if let Some(victim) = ranks_of(program, &place.configuration).first() {
                let _ended = Command::new("kill")
                    .args(["-9", &victim.to_string()])
                    .status();
            }
        }
        let output = wait_for(child, PATIENCE, || {
            let left = ranks_of(program, &place.configuration);
            assert!(left.is_empty(), "ranks {left:?} hang");
        });
        let printed = String::from_utf8_lossy(&output.stdout);
        let is_restart = |line: &&str| line.contains("estart") && !line.contains("test restart");
        resumed += usize::from(printed.lines().any(|line| is_restart(&line)));
        if output.status.success() {
            break;
        }
        // A program that fails by itself does so in its first run only.
        assert!(attempt <= kills, "{}", told(&output));
    }
    resumed
}
