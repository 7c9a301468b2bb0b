//! Builds programs in C, C++ and Fortran with the library of this build, and runs them.

#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Returns the crate's folder.
pub(crate) fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder in which Cargo put `libtierflow.so` of this build.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap().to_owned();
    assert!(
        deps.join("libtierflow.so").is_file(),
        "{} has no library",
        deps.display()
    );
    deps
}

/// Adds the options that link a program with the library. Call this after the compiler's inputs.
pub(crate) fn linked(command: &mut Command) -> &mut Command {
    let library = library();
    command
        .arg("-L")
        .arg(&library)
        .args(["-ltierflow", "-lm", "-lpthread"])
        .arg(format!("-Wl,-rpath,{}", library.display()))
}

/// Runs a command that must succeed. Returns its output.
pub(crate) fn must(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "{}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    )
}

/// Builds a program of `tests/c` in a directory with a compiler and its options. The options in `TIERFLOW_CFLAGS` (such as
/// `-fsanitize=address,undefined -fno-sanitize-recover=all`) come last.
pub(crate) fn build(compiler: &str, options: &[&str], source: &str, to: &Path) -> PathBuf {
    let program = to.join(Path::new(source).file_stem().unwrap());
    let mut command = Command::new(compiler);
    command.args(options).args([
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
    ]);
    let further = std::env::var("TIERFLOW_CFLAGS").unwrap_or_default();
    command.args(further.split_whitespace());
    command.args(["-DVELOC_WITHOUT_MPI", "-I"]);
    command
        .arg(home().join("include"))
        .arg(home().join("tests/c").join(source));
    must(linked(command.arg("-o").arg(&program)));
    program
}

/// Returns the command of a program. The command in `TIERFLOW_WRAPPER` (such as `valgrind -q --error-exitcode=9`) runs it, if there is one.
pub(crate) fn program(path: &Path) -> Command {
    let wrapper = std::env::var("TIERFLOW_WRAPPER").unwrap_or_default();
    let mut words = wrapper.split_whitespace();
    let mut command = match words.next() {
        None => Command::new(path),
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(path);
            command
        }
    };
    // Cargo's `LD_LIBRARY_PATH` begins with another folder, which may have an older build.
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// Returns the functions that a header declares.
pub(crate) fn declared(header: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(header).unwrap();
    let mut code = String::new();
    for (index, part) in text.split("/*").enumerate() {
        let part = if index == 0 {
            part
        } else {
            part.split_once("*/").unwrap().1
        };
        code.push_str(part);
    }
    // Names in parentheses are types and parameters that are functions.
    let mut names = BTreeSet::new();
    // The functions of C are at the beginning. Overloads for C++ follow.
    let code = code.split("\ninline ").next().unwrap_or_default();
    for statement in code.split(';') {
        let Some((before, _)) = statement.split_once('(') else {
            continue;
        };
        let name = before
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            .unwrap();
        if name.starts_with("tf_") || name.starts_with("VELOC_") {
            names.insert(name.to_owned());
        }
    }
    names
}

/// An MPI that is installed.
#[derive(Clone, Debug)]
pub(crate) struct Mpi {
    /// Suffix of the names of its programs: `.mpich`, `.openmpi` or empty.
    suffix: &'static str,
}

impl Mpi {
    /// Returns all installed MPIs, or the one that `TIERFLOW_MPI` names. A missing MPI is a panic if that variable is `required`, and is
    /// printed otherwise.
    pub(crate) fn installed() -> Vec<Self> {
        let works = |program: String| {
            let run = Command::new(program).arg("--version").output();
            run.is_ok_and(|output| output.status.success())
        };
        let has =
            |suffix: &&str| works(format!("mpicc{suffix}")) && works(format!("mpiexec{suffix}"));
        let named = std::env::var("TIERFLOW_MPI").unwrap_or_default();
        let is_asked = |suffix: &&str| match named.as_str() {
            "mpich" | "openmpi" => suffix.ends_with(&named),
            _ => true,
        };
        let all = [".mpich", ".openmpi"].into_iter();
        let mut found: Vec<&str> = all.filter(is_asked).filter(has).collect();
        if found.is_empty() {
            found = [""].into_iter().filter(has).collect();
        }
        assert!(
            named != "required" || found.len() >= 2,
            "MPICH and Open MPI are required, and there is {found:?}"
        );
        if found.is_empty() {
            eprintln!("NOT RUN: there is no mpicc; install mpich or openmpi");
        }
        found.into_iter().map(|suffix| Self { suffix }).collect()
    }

    pub(crate) fn tool(&self, name: &str) -> Command {
        Command::new(format!("{name}{}", self.suffix))
    }

    /// Returns the command that runs a program as `ranks` ranks.
    pub(crate) fn run(&self, ranks: u32, program: &Path) -> Command {
        let mut command = self.tool("mpiexec");
        command.env_remove("LD_LIBRARY_PATH");
        for (name, value) in [
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
        ] {
            command.env(name, value);
        }
        command.arg("-n").arg(ranks.to_string()).arg(program);
        command.stdin(Stdio::null());
        command
    }

    /// Builds an example in a directory. Returns `None` if there is no compiler for its language.
    pub(crate) fn example(&self, source: &str, to: &Path) -> Option<PathBuf> {
        self.program(&home().join("examples").join(source), &[], to)
    }

    /// Builds a program of one file, with options.
    pub(crate) fn program(&self, source: &Path, options: &[&str], to: &Path) -> Option<PathBuf> {
        let name = source
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace('.', "_");
        let program = to.join(format!("{name}{}", self.suffix));
        let include = home().join("include");
        let objects = to.join(format!("objects{}", self.suffix));
        std::fs::create_dir_all(&objects).unwrap();
        let object = |tool: &str, options: &[&str], source: &str| {
            let mut command = self.tool(tool);
            command
                .current_dir(&objects)
                .args(options)
                .args(["-O2", "-c", "-I"])
                .arg(&include);
            must(command.arg(home().join(source)));
            objects.join(Path::new(source).with_extension("o").file_name().unwrap())
        };
        let strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra"];
        let mut inputs = vec![object("mpicc", &strict, "mpi/tierflow_mpi.c")];
        let compiler = match source.extension().unwrap().to_str().unwrap() {
            "c" => "mpicc",
            "cpp" => "mpicxx",
            "f90" => {
                let works = self.tool("mpif90").arg("--version").output();
                if !works.is_ok_and(|output| output.status.success()) {
                    let named = std::env::var("TIERFLOW_MPI").unwrap_or_default();
                    assert!(named != "required", "gfortran is required");
                    eprintln!("NOT RUN: there is no Fortran compiler; install gfortran");
                    return None;
                }
                inputs.push(object("mpicc", &[], "fortran/tierflow_fortran.c"));
                inputs.push(object(
                    "mpif90",
                    &["-std=f2018", "-Wall"],
                    "fortran/veloc.f90",
                ));
                inputs.push(object(
                    "mpif90",
                    &["-std=f2018", "-Wall"],
                    "fortran/tierflow.f90",
                ));
                "mpif90"
            }
            other => panic!("{other}"),
        };
        let mut command = self.tool(compiler);
        command
            .current_dir(&objects)
            .args(["-O2", "-I"])
            .arg(&include)
            .args(options)
            .arg(source)
            .args(inputs);
        must(linked(command.arg("-o").arg(&program)));
        Some(program)
    }
}

/// Returns the numbers of the processes that run a program with an argument.
pub(crate) fn ranks_of(program: &Path, argument: &Path) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(number) = number else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let is_first = words.next() == Some(program.as_os_str().as_encoded_bytes());
        if is_first && words.any(|word| word == argument.as_os_str().as_encoded_bytes()) {
            found.push(number);
        }
    }
    found
}

/// Waits for a child, at most for `patience`. If it still runs then, calls `hangs` and kills the child. Returns its output.
pub(crate) fn wait_for(mut child: Child, patience: Duration, hangs: impl FnOnce()) -> Output {
    // The pipes are read while the child runs, as they hold little.
    let read = |from: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _as_far_as_it_goes = from.map(|mut from| from.read_to_end(&mut bytes));
            bytes
        })
    };
    let stdout = read(child.stdout.take().map(|from| Box::new(from) as _));
    let stderr = read(child.stderr.take().map(|from| Box::new(from) as _));
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(2));
    }
    if child.try_wait().unwrap().is_none() {
        hangs();
        child.kill().unwrap();
    }
    Output {
        status: child.wait().unwrap(),
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}
