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
    /// Returns the requested doors that can run. Prints the names of the others to the standard error.
    pub(crate) fn runnable() -> Vec<Self> {
        let asked: String = variable("TIERFLOW_DOORS", String::new());
        let is_asked = |door: &Self| {
            let name = format!("{door:?}").to_lowercase();
            asked.is_empty() || asked.split(',').any(|word| word == name)
        };
        let mut doors: Vec<Self> = ALL.into_iter().filter(is_asked).collect();
        doors.retain(|door| {
            let is_there = door.program().is_some();
            assert!(
                is_there || asked.is_empty(),
                "the door {door:?} is asked for"
            );
            is_there
        });
        doors
    }

    /// Returns the command of the door's program with these options and actions.
    pub(crate) fn command(self, options: &[String], actions: &[String]) -> Command {
        let program = self.program().unwrap();
        let mut command = Command::new(program);
        if self == Self::Python {
            command.args(["-X", "faulthandler", "-W", "default"]);
            command.arg(script("door.py"));
        }
        // Cargo's `LD_LIBRARY_PATH` begins with another folder, which may have an older build.
        command.env_remove("LD_LIBRARY_PATH");
        command.args(options).arg("--").args(actions);
        command
    }

    fn program(self) -> Option<&'static Path> {
        static PROGRAMS: [OnceLock<Option<PathBuf>>; 4] = [const { OnceLock::new() }; 4];
        let found = || match self {
            Self::Rust => carried("door").or_else(|| Some(env!("CARGO_BIN_EXE_door").into())),
            Self::C => carried("campaigns-tierflow").or_else(|| compiled("tierflow")),
            Self::Veloc => carried("campaigns-veloc").or_else(|| compiled("veloc")),
            Self::Python => python(),
        };
        PROGRAMS[self as usize].get_or_init(found).as_deref()
    }
}

/// Returns the file of this name from `cargo xtask dist` if the campaigns run from such a folder.
fn carried(name: &str) -> Option<PathBuf> {
    let folder: String = variable("TIERFLOW_CHILDREN", String::new());
    (!folder.is_empty()).then(|| Path::new(&folder).join(name))
}

/// Returns the path of a Python program in `children`.
pub(crate) fn script(name: &str) -> PathBuf {
    carried(name).unwrap_or_else(|| children().join(name))
}

fn children() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("children")
}

/// Compiles a program of `children` with the library of this build. Puts it beside the library.
fn compiled(name: &str) -> Option<PathBuf> {
    let mut works = Command::new("cc");
    let works = works.arg("--version").stdout(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        eprintln!("NOT RUN: the doors in C; there is no cc");
        return None;
    }
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap();
    let program = library.join(format!("campaigns-{name}"));
    let new = program.with_extension(std::process::id().to_string());
    let mut command = Command::new("sh");
    command.arg(children().join("compile.sh")).arg(name);
    command.arg(library).arg(&new);
    assert!(command.status().unwrap().success(), "{command:?}");
    std::fs::rename(new, &program).unwrap();
    Some(program)
}

/// Returns the interpreter of the door Python and of the S3 server.
pub(crate) fn interpreter() -> String {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(3).unwrap();
    let built = built.join("python/venv/bin/python");
    let any = || "python3".to_owned();
    let default = built.exists().then(|| built.display().to_string());
    variable("TIERFLOW_PYTHON", default.unwrap_or_else(any))
}

fn python() -> Option<PathBuf> {
    let python = interpreter();
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
