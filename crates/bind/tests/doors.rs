//! The tables of options and calls agree with the doors (C, Python, Rust) and with the book.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;

use calls::{CALLS, CallInfo};
use std::collections::BTreeSet;
use std::path::PathBuf;

use tierflow_bind::{Kind, OPTIONS, OptionInfo, Options, parse};

/// Returns the text of a file of the workspace, or `None` in a package of this crate alone.
fn file(path: &str) -> Option<String> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    std::fs::read_to_string(root.join(path)).ok()
}

/// Returns the names of a cell. A cell that says why there is none has no names.
fn names(cell: &'static str) -> impl Iterator<Item = &'static str> {
    let is_reason = cell.starts_with("— ");
    cell.split_whitespace().filter(move |_| !is_reason)
}

fn column(cell: impl Fn(&CallInfo) -> &'static str) -> BTreeSet<String> {
    let all = CALLS.iter().flat_map(|call| names(cell(call)));
    all.map(str::to_owned).collect()
}

/// Asserts that a door and the table have the same names, apart from those in `beside`, which belong to the door below.
fn same(door: &str, has: BTreeSet<String>, table: BTreeSet<String>, beside: &BTreeSet<String>) {
    assert!(has.len() > 20, "{door}: {has:?}");
    let missing: Vec<_> = has.difference(&table).collect();
    assert!(missing.is_empty(), "the table lacks {door}'s {missing:?}");
    let beside = has.union(beside).cloned().collect();
    let invented: Vec<_> = table.difference(&beside).collect();
    assert!(invented.is_empty(), "{door} lacks {invented:?}");
}

/// Returns the identifier before the first parenthesis.
fn before_parenthesis(text: &str) -> Option<&str> {
    let (before, _) = text.split_once('(')?;
    let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_');
    name.into_iter().next().filter(|name| !name.is_empty())
}

/// Returns the functions that a header of C declares.
fn declared(header: &str) -> BTreeSet<String> {
    let code = header.split("\ninline ").next().unwrap_or_default();
    let lines = code.lines().filter(|line| line.ends_with(';'));
    let found = lines.filter_map(before_parenthesis);
    let is_one = |name: &&str| name.starts_with("tf_") || name.starts_with("VELOC_");
    found.filter(is_one).map(str::to_owned).collect()
}

/// Returns the public methods (`Type::method`) of these types from the text of an interface.
fn public(api: &str, types: &[&str]) -> BTreeSet<String> {
    let ours = ["drop", "deref", "fmt", "from", "default"];
    let lines = api.lines().filter_map(|line| {
        let (path, _) = line.split_once("fn ")?.1.split_once('(')?;
        // Parameters of types have paths of their own.
        let mut depth = 0;
        let is_outside = |c: &char| {
            depth += usize::from(*c == '<');
            let is_outside = depth == 0;
            depth -= usize::from(*c == '>');
            is_outside
        };
        let plain: String = path.chars().filter(is_outside).collect();
        let mut path = plain.split("::").skip(1);
        let (of, name) = (path.next()?, path.next()?);
        (types.contains(&of) && !ours.contains(&name)).then(|| format!("{of}::{name}"))
    });
    lines.collect()
}

const TYPES: &[&str] = &[
    "Engine",
    "EngineBuilder",
    "Call",
    "Hints",
    "Metrics",
    "ProduceSlot",
    "ConsumeSlot",
    "Suspension",
    "Notice",
    "Tier",
    "MemoryCache",
    "Group",
];

#[test]
fn rusts_methods_are_in_the_tables() {
    let Some(api) = file("crates/engine/api.txt") else {
        return;
    };
    let mut table = column(|call| call.rust);
    let options = OPTIONS.iter().flat_map(|option| names(option.rust));
    table.extend(options.map(str::to_owned));
    let mut beside = public(&api, &["Region", "Differences"]);
    for (of, types) in [
        ("objects", ["History"]),
        ("tier-alloc", ["HostPool"]),
        ("store", ["Retention"]),
        ("store", ["Repository"]),
        ("store", ["Faults"]),
        ("redundancy", ["Redundancy"]),
        ("redundancy", ["NodeProtection"]),
        ("schedule", ["Machine"]),
        ("schedule", ["Schedule"]),
    ] {
        let text = file(&format!("crates/{of}/api.txt")).unwrap();
        // Modules are in the paths of the interface.
        let text = text.replace("repository::retention::", "");
        beside.extend(public(&text, &types));
    }
    same("Rust", public(&api, TYPES), table, &beside);
}

#[test]
fn pythons_methods_are_in_the_table() {
    let Some(stub) = file("crates/python/tierflow/_tierflow.pyi") else {
        return;
    };
    let (mut class, mut has) = ("", BTreeSet::from(["__version__".to_owned()]));
    let options = file("crates/python/tierflow/_options.py").unwrap();
    let classes = options
        .lines()
        .filter_map(|line| line.strip_prefix("class "));
    has.extend(classes.map(|class| class.trim_end_matches(':').to_owned()));
    for line in stub.lines() {
        if let Some(rest) = line.strip_prefix("class ") {
            class = rest.split([':', '(']).next().unwrap();
        } else if let Some(name) = line.strip_prefix("def ") {
            has.insert(name.split('(').next().unwrap().to_owned());
        } else if let Some(name) = line.strip_prefix("    def ") {
            let name = name.split('(').next().unwrap();
            if name == "__new__" {
                has.insert(class.to_owned());
            }
            if !name.starts_with("__") && !class.starts_with('_') {
                has.insert(format!("{class}.{name}"));
            }
        }
    }
    // Parts of `Redundancy`, `Engine.save` and `StorageWriter`.
    for part in ["words_of_redundancy", "flatten", "descriptors", "gather"] {
        has.remove(part);
    }
    same("Python", has, column(|call| call.python), &BTreeSet::new());
    let keywords = stub.split("class Engine:").nth(1).unwrap();
    let keywords = keywords.split(") -> Self").next().unwrap();
    let words = keywords.lines().filter_map(|line| line.split_once(": "));
    let has: BTreeSet<&str> = words.map(|(key, _)| key.trim()).collect();
    let keys = OPTIONS.iter().map(|option| option.key);
    let table: BTreeSet<&str> = keys.chain(["group", "retention"]).collect();
    assert_eq!(has, table, "keywords of Engine");
}

#[test]
fn declarations_of_headers_and_modules_are_in_the_table() {
    let Some(header) = file("crates/capi/include/tierflow.h") else {
        return;
    };
    let below = |path: &str| file(&format!("crates/capi/{path}")).unwrap();
    let mut c = declared(&header);
    c.extend(declared(&below("include/tierflow_mpi.h")));
    same("C", c.clone(), column(|call| call.c), &BTreeSet::new());
    let veloc = declared(&below("include/veloc.h"));
    same("VELOC", veloc.clone(), column(|call| call.veloc), &c);

    let (mut class, mut is_public, mut cpp) = ("", true, BTreeSet::new());
    for line in below("include/tierflow.hpp").lines() {
        match line.strip_prefix("    ") {
            _ if line.starts_with("class ") => class = line.split_whitespace().nth(1).unwrap(),
            _ if line.starts_with("};") => class = "",
            None if line.ends_with("ic:") || line == "private:" => is_public = line != "private:",
            None if line.starts_with("template <") => {
                cpp.insert(before_parenthesis(line).unwrap().to_owned());
            }
            Some(method)
                if is_public && !class.is_empty() && !method.starts_with([' ', '/', '{']) =>
            {
                let name = before_parenthesis(method);
                let is_method = |name: &&str| name.starts_with(char::is_lowercase);
                cpp.extend(
                    name.filter(is_method)
                        .map(|name| format!("{class}::{name}")),
                );
            }
            _ => {}
        }
    }
    same("C++", cpp, column(|call| call.cpp), &c);

    for (module, table, prefix) in [
        ("fortran/tierflow.f90", column(|call| call.fortran), "tf_"),
        ("fortran/veloc.f90", veloc, "VELOC_"),
    ] {
        let text = below(module);
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("end "));
        let words = lines.filter_map(|line| {
            let words = line
                .split_once("function ")
                .or_else(|| line.split_once("subroutine "));
            before_parenthesis(words?.1)
        });
        let is_one = |name: &&str| {
            name.starts_with(prefix) && !name.ends_with("_c") && !name.ends_with("_f")
        };
        let has: BTreeSet<String> = words.filter(is_one).map(str::to_owned).collect();
        // Generic names stand for procedures of other names. A group is given by its communicator.
        let generic = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("interface "));
        let has = has.into_iter().chain(generic.map(str::to_owned)).collect();
        let mut table = table;
        table.remove("VELOC_Init_group");
        same(module, has, table, &BTreeSet::new());
    }
}

#[test]
fn sizes_are_written_with_units() {
    assert_eq!(parse::bytes("4GiB"), Ok(4 << 30));
    assert_eq!(parse::bytes("512 MB"), Ok(512_000_000));
    assert_eq!(parse::bytes("1_000"), Ok(1000));
    for wrong in ["", "-1", "4 GiBs", "GiB", "99999999 TiB"] {
        assert!(parse::bytes(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn unknown_keys_and_wrong_values_are_told_apart() {
    let mut options = Options::default();
    assert_eq!(options.set("host_cache", "1MiB"), Some(Ok(())));
    assert!(options.set("host_cash", "1MiB").is_none());
    let wrong = options.set("flush", "soon");
    let text = wrong.and_then(Result::err).map(|failure| failure.text);
    assert_eq!(text.as_deref(), Some("flush = soon: write eager or needed"));
}

#[test]
fn the_file_for_all_programs_of_a_machine_has_options() {
    let Some(text) = file("packaging/tierflow.conf") else {
        return;
    };
    let keys: Vec<String> = parse::lines(&text).unwrap().into_keys().collect();
    let known = |key: &String| OPTIONS.iter().any(|option| option.key == key);
    assert!(keys.len() > 2 && keys.iter().all(known), "{keys:?}");
}

/// Returns true if the value is a list of GPUs, and not one of several names.
fn is_a_list(option: &OptionInfo) -> bool {
    matches!(option.key, "peers" | "overflow")
}

/// Returns an example of the option's kind of value.
fn example(option: &OptionInfo) -> &'static str {
    match option.kind {
        Kind::Bytes => "1MiB",
        Kind::Number => "2",
        Kind::Seconds => "1.5",
        Kind::Flag => "true",
        Kind::Path | Kind::Paths => "/tmp",
        Kind::Name(names) if is_a_list(option) => names,
        Kind::Name(names) => names.split(", ").next().unwrap_or_default(),
    }
}

#[test]
fn every_option_of_the_table_can_be_set() {
    for option in OPTIONS {
        let set = Options::default().set(option.key, example(option));
        assert_eq!(set, Some(Ok(())), "{}", option.key);
        if let Kind::Name(names) = option.kind
            && !is_a_list(option)
        {
            for name in names.split(", ") {
                let set = Options::default().set(option.key, name);
                assert_eq!(set, Some(Ok(())), "{} = {name}", option.key);
            }
        }
    }
}

/// Returns a cell as the book has it: names as code, or the reason why there is none.
fn cell(text: &'static str) -> String {
    match text.starts_with("— ") {
        true => text.to_owned(),
        false => names(text)
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

#[test]
fn the_book_has_the_tables() {
    let Some(book) = file("docs/src/options.md") else {
        return;
    };
    let mut options =
        String::from("| option | value | chooses | Rust | VELOC |\n|---|---|---|---|---|\n");
    for option in OPTIONS {
        let kind = match option.kind {
            Kind::Bytes => "bytes".to_owned(),
            Kind::Number => "number".to_owned(),
            Kind::Seconds => "seconds".to_owned(),
            Kind::Flag => "`true`, `false`".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::Paths => "directories".to_owned(),
            Kind::Name(names) if is_a_list(option) => format!("`{names}`"),
            Kind::Name(names) => format!("`{}`", names.replace(", ", "`, `")),
        };
        let also = match option.also {
            "" => String::new(),
            how => format!(" ({how})"),
        };
        let (key, help) = (option.key, option.help);
        let (rust, veloc) = (cell(option.rust), cell(option.veloc));
        options.push_str(&format!(
            "| `{key}` | {kind} | {help}{also} | {rust} | {veloc} |\n"
        ));
    }
    let mut calls = String::from(
        "| does | Rust | Python | C | C++ | Fortran | VELOC |\n|---|---|---|---|---|---|---|\n",
    );
    for call in CALLS {
        let cells = [
            call.rust,
            call.python,
            call.c,
            call.cpp,
            call.fortran,
            call.veloc,
        ];
        assert!(cells.iter().all(|text| text.len() > 2), "{}", call.does);
        let cells = cells.map(cell).join(" | ");
        calls.push_str(&format!("| {} | {cells} |\n", call.does));
    }
    for table in [options, calls] {
        assert!(
            book.contains(&table),
            "docs/src/options.md needs this table:\n{table}"
        );
    }
}
