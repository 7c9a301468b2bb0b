//! The library exports the functions that the headers declare, and no others. C and C++ compile the headers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::process::Command;
use support::{declared, home, library, must};

/// Functions in `mpi/tierflow_mpi.c`, which the application compiles.
const OF_MPI: &[&str] = &["VELOC_Init", "tf_mpi_group"];

/// Overloaded functions with a type each: C++ takes the address of the overload that has this type.
const OVERLOADED: &[(&str, &str)] = &[
    ("VELOC_Mem_protect", "int (*)(int, void *, size_t, size_t)"),
    ("VELOC_Recover_size", "int (*)(int)"),
    ("VELOC_Restart", "int (*)(const char *, int)"),
];

/// The prefix of the C functions of a crate that S3 needs. No option of that crate leaves them out.
const OF_CHECKSUMS: &str = "crc_fast_";

fn exported() -> BTreeSet<String> {
    let nm = must(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library().join("libtierflow.so")),
    );
    nm.lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| !name.starts_with(OF_CHECKSUMS))
        .map(str::to_owned)
        .collect()
}

#[test]
fn declared_functions_are_exported_and_no_others() {
    let mut all = declared(&home().join("include/tierflow.h"));
    all.extend(declared(&home().join("include/veloc.h")));
    all.retain(|name| !OF_MPI.contains(&name.as_str()));
    assert!(all.len() > 50, "{all:?}");
    assert_eq!(exported(), all);
}

#[test]
fn every_option_is_told() {
    let text = std::fs::read_to_string(home().join("include/tierflow.h")).unwrap();
    let list = text.split("Chooses something by its name").nth(1).unwrap();
    let list = list.split("int tf_options_set").next().unwrap();
    let words: BTreeSet<&str> = list
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    for option in tierflow_bind::OPTIONS {
        assert!(words.contains(option.key), "{}", option.key);
    }
}

#[test]
fn c_and_cpp_take_every_address() {
    let directory = tempfile::tempdir().unwrap();
    let mut all = declared(&home().join("include/tierflow.h"));
    all.extend(declared(&home().join("include/veloc.h")));
    all.retain(|name| !OF_MPI.contains(&name.as_str()));
    let mut source = String::from(
        "#include <string.h>\n#include \"veloc.h\"\ntypedef void (*any)(void);\nany all[] = {\n",
    );
    for name in &all {
        let overloaded = OVERLOADED.iter().find(|(other, _)| other == name);
        let typed = overloaded.map_or(String::new(), |(_, of)| format!("({of})"));
        source.push_str(&format!("    (any){typed}{name},\n"));
    }
    source.push_str("};\nint main(void) { return strcmp(tf_version(), TIERFLOW_VERSION) != 0 || all[0] == 0; }\n");
    for (compiler, standard, file) in [
        ("cc", "-std=c99", "all.c"),
        ("c++", "-std=c++11", "all.cpp"),
        ("c++", "-std=c++17", "all.cpp"),
    ] {
        let path = directory.path().join(file);
        std::fs::write(&path, &source).unwrap();
        let program = directory.path().join("all");
        let mut command = Command::new(compiler);
        command.args([
            standard,
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-DVELOC_WITHOUT_MPI",
            "-I",
        ]);
        command
            .arg(home().join("include"))
            .arg(&path)
            .arg("-o")
            .arg(&program);
        must(support::linked(&mut command));
        must(&mut Command::new(&program));
    }
}
