//! The programs of the doors.

use super::draws::variable;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Door {
    Rust,
    C,
    Veloc,
    Python,
}

const ALL: [Door; 4] = [Door::Rust, Door::C, Door::Veloc, Door::Python];

impl Door {
    /// Those that are asked for and can be run. Of the others it is said that they are not run.
    pub(crate) fn runnable() -> Vec<Self> {
        let asked: String = variable("TIERFLOW_DOORS", String::new());
        let is_asked = |door: &Self| {
            let name = format!("{door:?}").to_lowercase();
            asked.is_empty() || asked.split(',').any(|word| word == name)
        };
        ALL.into_iter()
            .filter(is_asked)
            .filter(|door| door.program().is_some())
            .collect()
    }

    /// Runs its program with these options and actions.
    pub(crate) fn command(self, options: &[String], actions: &[String]) -> Command {
        let program = self.program().unwrap();
        let mut command = Command::new(program);
        if self == Self::Python {
            command.args(["-X", "faulthandler", "-W", "default"]);
            command.arg(children().join("door.py"));
        }
        // Cargo's names another folder first, in which an older build may lie.
        command.env_remove("LD_LIBRARY_PATH");
        command.args(options).arg("--").args(actions);
        command
    }

    fn program(self) -> Option<&'static Path> {
        static C: OnceLock<Option<PathBuf>> = OnceLock::new();
        static VELOC: OnceLock<Option<PathBuf>> = OnceLock::new();
        static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
        match self {
            Self::Rust => Some(Path::new(env!("CARGO_BIN_EXE_door"))),
            Self::C => C.get_or_init(|| compiled("tierflow")).as_deref(),
            Self::Veloc => VELOC.get_or_init(|| compiled("veloc")).as_deref(),
            Self::Python => PYTHON.get_or_init(python).as_deref(),
        }
    }
}

fn children() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("children")
}

/// Compiles a program of `children` against the library of this build.
fn compiled(name: &str) -> Option<PathBuf> {
    let mut works = Command::new("cc");
    let works = works.arg("--version").stdout(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        eprintln!("NOT RUN: the doors in C; there is no cc");
        return None;
    }
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap();
    // Beside the test, as the library is.
    let program = library.join(format!("campaigns-{name}"));
    let new = program.with_extension(std::process::id().to_string());
    let include = children().join("../../../crates/capi/include");
    let options = [
        "-std=gnu99",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
    ];
    let mut command = Command::new("cc");
    command.args(options).arg(include).arg("-o").arg(&new);
    command.arg(children().join(format!("{name}.c"))).arg("-L");
    command.arg(library).arg("-ltierflow");
    command.arg(format!("-Wl,-rpath,{}", library.display()));
    assert!(command.status().unwrap().success(), "{command:?}");
    std::fs::rename(new, &program).unwrap();
    Some(program)
}

fn python() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(3).unwrap();
    let built = built.join("python/venv/bin/python").display().to_string();
    let python = variable("TIERFLOW_PYTHON", built);
    let mut command = Command::new(&python);
    command
        .args(["-c", "import tierflow"])
        .stderr(Stdio::null());
    if !command.status().is_ok_and(|status| status.success()) {
        eprintln!(
            "NOT RUN: the door Python; {python} has no module tierflow: `cargo xtask python --wheel`, or TIERFLOW_PYTHON"
        );
        return None;
    }
    Some(PathBuf::from(python))
}
