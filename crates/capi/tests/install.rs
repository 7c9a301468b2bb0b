//! pkg-config and CMake find the files that `cargo xtask install` installs, and a program that is built with them runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::Command;
use support::{Mpi, home, must};

fn works(program: &str) -> bool {
    let run = Command::new(program).arg("--version").output();
    run.is_ok_and(|output| output.status.success())
}

/// Returns true if a tool is installed. Panics if it is missing and `TIERFLOW_MPI` is `required`.
fn has(tool: &str) -> bool {
    let has = works(tool);
    let is_required = std::env::var("TIERFLOW_MPI").is_ok_and(|value| value == "required");
    assert!(has || !is_required, "{tool} is required");
    if !has {
        eprintln!("NOT RUN: there is no {tool}; install it");
    }
    has
}

/// Returns the folder of libraries below the prefix as Debian names it. The default is another folder.
fn libraries() -> String {
    format!("lib/{}-linux-gnu", std::env::consts::ARCH)
}

/// Asserts that the library exports the C interface alone, and that each symbol has the version of the release that introduced it.
fn exports_are_ours(library: &Path) {
    let names = must(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library),
    );
    let names: Vec<&str> = names
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| !name.starts_with("TIERFLOW_"))
        .collect();
    assert!(names.len() > 50, "{} exports {names:?}", library.display());
    for name in names {
        let ours = name.starts_with("tf_") || name.starts_with("VELOC_");
        assert!(ours && name.ends_with("@@TIERFLOW_0.1"), "{name}");
    }
}

/// The program of a user.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <tierflow.h>
int main(void) {
    tf_options options;
    tf_engine engine;
    double field[100] = {1.5}, other[100];
    tf_region from = {field, sizeof field, TF_PLACE_HOST}, to = {other, sizeof other, TF_PLACE_HOST};
    if (tf_options_new(&options) || tf_options_set(options, "device", "host") ||
        tf_options_set(options, "host_cache", "1MiB") || tf_open(options, NULL, &engine) ||
        tf_checkpoint(engine, 1, &from, 1, NULL) || tf_restore(engine, 1, &to, 1, NULL) || tf_close(engine)) {
        fprintf(stderr, "%s\n", tf_error_message());
        return 1;
    }
    return other[0] != 1.5;
}
"#;

const BY_CMAKE: &str = r#"
cmake_minimum_required(VERSION 3.14)
project(user C CXX)
foreach(other 0.0 0.2 1.0)
  find_package(tierflow ${other} QUIET)
  if(tierflow_FOUND)
    message(FATAL_ERROR "tierflow ${other} was found")
  endif()
endforeach()
find_package(tierflow ${RELEASE} EXACT REQUIRED)
find_package(tierflow 0.1 REQUIRED)
add_executable(shared user.c)
target_link_libraries(shared tierflow::tierflow)
add_executable(archive user.c)
target_link_libraries(archive tierflow::static)
find_package(MPI COMPONENTS C)
if(MPI_C_FOUND)
  find_package(veloc REQUIRED)
  add_executable(heat ${EXAMPLES}/heat_veloc.c)
  target_link_libraries(heat veloc::client veloc::modules er::er axl::axl)
endif()
"#;

fn by_pkg_config(prefix: &Path, directory: &Path) {
    let flags = |kind: &[&str]| -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(kind).arg("tierflow");
        let printed = must(command.env(
            "PKG_CONFIG_PATH",
            prefix.join(libraries()).join("pkgconfig"),
        ));
        printed.split_whitespace().map(str::to_owned).collect()
    };
    for (name, kind) in [
        ("shared", &["--cflags", "--libs"][..]),
        ("modversion", &["--modversion"]),
    ] {
        let flags = flags(kind);
        if name == "modversion" {
            assert_eq!(flags, [env!("CARGO_PKG_VERSION")]);
            continue;
        }
        let program = directory.join(name);
        let mut compiler = Command::new("cc");
        compiler
            .arg(directory.join("user.c"))
            .arg("-o")
            .arg(&program)
            .args(flags);
        must(compiler.arg(format!("-Wl,-rpath,{}", prefix.join(libraries()).display())));
        must(Command::new(&program).env_remove("LD_LIBRARY_PATH"));
    }
}

/// Runs the commands of one of the book's tutorials, with the environment that the environment module sets.
fn by_the_book(page: &str, prefix: &Path, directory: &Path) {
    let page = home().join("../../docs/src/tutorials").join(page);
    let page = std::fs::read_to_string(page).unwrap();
    let libraries = prefix.join(libraries());
    let path = std::env::var("PATH").unwrap();
    let mut commands = 0;
    for block in page.split("```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').unwrap();
        if language == "c" {
            let name = text.split(' ').nth(1).unwrap();
            std::fs::write(directory.join(name), text).unwrap();
            continue;
        }
        assert_eq!(language, "sh");
        let mut bash = Command::new("bash");
        bash.current_dir(directory)
            .args(["-euo", "pipefail", "-c", text]);
        bash.env("PATH", format!("{}:{path}", prefix.join("bin").display()));
        bash.env("PKG_CONFIG_PATH", libraries.join("pkgconfig"));
        must(bash.env("LD_LIBRARY_PATH", &libraries));
        commands += 1;
    }
    assert!(commands > 2, "the page has {commands} commands");
}

fn by_cmake(prefix: &Path, directory: &Path) {
    let build = directory.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(directory).arg("-B").arg(&build);
    configure.arg(concat!("-DRELEASE=", env!("CARGO_PKG_VERSION")));
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    configure.arg(format!("-DEXAMPLES={}", home().join("examples").display()));
    must(&mut configure);
    must(Command::new("cmake").arg("--build").arg(&build));
    for name in ["shared", "archive"] {
        must(Command::new(build.join(name)).env_remove("LD_LIBRARY_PATH"));
    }
    assert_eq!(build.join("heat").is_file(), !Mpi::installed().is_empty());
}

/// Builds a program by a makefile that links with VELOC's library by name.
fn by_velocs_name(mpi: &Mpi, prefix: &Path, directory: &Path) {
    let program = directory.join("by-name");
    let mut compiler = mpi.tool("mpicc");
    compiler.arg(home().join("examples/heat_veloc.c"));
    compiler
        .arg("-I")
        .arg(prefix.join("include"))
        .arg("-L")
        .arg(prefix.join(libraries()));
    compiler.arg("-lveloc-client").arg("-o").arg(&program);
    must(compiler.arg(format!("-Wl,-rpath,{}", prefix.join(libraries()).display())));
    let configuration = directory.join("heat.cfg");
    let scratch = directory.join("scratch");
    std::fs::write(&configuration, format!("scratch = {}\n", scratch.display())).unwrap();
    let mut run = mpi.run(2, &program);
    must(run.arg(&configuration).args(["memory", "20", "10"]));
}

#[test]
fn pkg_config_and_cmake_find_it() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let prefix = image.join("opt/tierflow");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut install = Command::new(cargo);
    install
        .current_dir(home())
        .args(["xtask", "install", "--profile", "dev-install"])
        .args(["--prefix", "/opt/tierflow", "--libdir", &libraries()])
        .env("DESTDIR", &image);
    let mpis = Mpi::installed();
    if let Some(mpi) = mpis.first() {
        install.arg("--mpicc").arg(mpi.tool("mpicc").get_program());
    }
    must(&mut install);
    let libraries = prefix.join(libraries());
    exports_are_ours(&libraries.join("libtierflow.so"));
    let dynamic = must(
        Command::new("readelf")
            .arg("-d")
            .arg(libraries.join("libtierflow.so")),
    );
    assert!(
        dynamic.contains("Library soname: [libtierflow.so.0.1]"),
        "{dynamic}"
    );
    if let Some(mpi) = mpis.first() {
        exports_are_ours(&libraries.join("libveloc-client.so"));
        by_velocs_name(mpi, &prefix, directory.path());
    }
    std::fs::write(directory.path().join("user.c"), PROGRAM).unwrap();
    std::fs::write(directory.path().join("CMakeLists.txt"), BY_CMAKE).unwrap();
    if has("pkg-config") {
        by_pkg_config(&prefix, directory.path());
        for page in ["c.md", "operator.md"] {
            by_the_book(page, &prefix, directory.path());
        }
    }
    if has("cmake") {
        by_cmake(&prefix, directory.path());
    }
}
