//! Programs that were compiled with the headers of the last release run on the library of today. `tests/abi` has these headers in a
//! folder that is named by the part of the version that compatible releases share. The folder changes only with the soname.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{declared, home, linked, must, program};

/// Returns the folder of the last release's headers.
fn released() -> PathBuf {
    home().join("tests/abi/0.1")
}

fn compile(source: &Path, headers: &Path) -> PathBuf {
    let built = source.with_extension("");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"]);
    compiler.arg(headers).arg(source).arg("-o").arg(&built);
    must(linked(&mut compiler));
    built
}

/// Returns the values, sizes and offsets of the constants and structures of the released header, as printed by a program that is compiled
/// with the headers in `headers`.
fn told_with(headers: &Path, directory: &Path) -> String {
    let text = std::fs::read_to_string(released().join("tierflow.h")).unwrap();
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"tierflow.h\"\nint main(void) {\n",
    );
    let mut told = 0;
    let mut tell = |what: &str| {
        told += 1;
        source.push_str(&format!(
            "    printf(\"%s %ld\\n\", \"{what}\", (long)({what}));\n"
        ));
    };
    let code = without_comments(&text);
    for part in code.split("enum ").skip(1) {
        let Some((_, values)) = part.split_once('{').filter(|(name, _)| name.len() < 40) else {
            continue;
        };
        for value in values.split('}').next().unwrap().split(',') {
            tell(value.split('=').next().unwrap().trim());
        }
    }
    for part in code.split("typedef struct ").skip(1) {
        let (name, rest) = part.split_once('{').unwrap();
        let name = name.trim();
        tell(&format!("sizeof({name})"));
        for member in rest.split('}').next().unwrap().split(';') {
            // The name of a function pointer is in parentheses.
            let function = member.split_once("(*").map(|(_, name)| name);
            let member = function.unwrap_or(member).split(['[', ')']).next();
            let member = member.unwrap().trim().rsplit([' ', '*']).next().unwrap();
            if !member.is_empty() {
                tell(&format!("offsetof({name}, {member})"));
            }
        }
    }
    assert!(told > 80, "{told}");
    source.push_str("    return 0;\n}\n");
    let path = directory.join("layout.c");
    std::fs::write(&path, source).unwrap();
    must(&mut program(&compile(&path, headers)))
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap().to_owned();
    let rest = parts.map(|part| part.split_once("*/").unwrap().1);
    std::iter::once(first.as_str()).chain(rest).collect()
}

#[test]
fn a_program_of_the_last_release_runs() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("program.c");
    std::fs::copy(released().join("program.c"), &source).unwrap();
    let run = directory.path().join("run");
    std::fs::create_dir(&run).unwrap();
    must(program(&compile(&source, &released())).arg(run));
}

#[test]
fn structures_and_constants_are_those_of_the_last_release() {
    let directory = tempfile::tempdir().unwrap();
    let then = told_with(&released(), directory.path());
    let now = told_with(&home().join("include"), directory.path());
    assert_eq!(then, now);
}

#[test]
fn functions_of_the_last_release_are_there() {
    for header in ["tierflow.h", "veloc.h"] {
        let then = declared(&released().join(header));
        let now = declared(&home().join("include").join(header));
        let gone: BTreeSet<_> = then.difference(&now).collect();
        assert!(then.len() > 20 && gone.is_empty(), "{header}: {gone:?}");
    }
}
