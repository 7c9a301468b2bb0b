//! Runs programs in C and C++ that use the library as an application does. `TIERFLOW_WRAPPER` may name a program that runs them, and
//! `TIERFLOW_CFLAGS` further options of their compilers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;
use support::{build, must, program, told};
use tierflow_agent::{Client, Settings, serve};
use tierflow_objects::History;

fn run(compiler: &str, standard: &str, source: &str) {
    run_with(compiler, standard, source, &[]);
}

fn run_with(compiler: &str, standard: &str, source: &str, arguments: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let options = [standard, "-pedantic", "-D_POSIX_C_SOURCE=200809L"];
    let built = build(compiler, &options, source, directory.path());
    must(program(&built).arg(directory.path()).args(arguments));
}

#[test]
fn an_engine_serves_c() {
    run("cc", "-std=c99", "engine.c");
}

#[test]
fn durable_versions_and_groups_serve_c() {
    run("cc", "-std=c99", "lasting.c");
}

#[test]
fn a_job_that_has_to_go_is_served_in_c() {
    run("cc", "-std=c99", "suspend.c");
}

#[test]
fn schedules_serve_c() {
    run("cc", "-std=c99", "schedule.c");
}

#[test]
fn an_agent_brings_what_c_and_veloc_leave_on_the_node() {
    let home = tempfile::tempdir().unwrap();
    let agent = home.path().join("serving");
    std::fs::create_dir(&agent).unwrap();
    let serving = {
        let agent = agent.clone();
        std::thread::spawn(move || serve(&agent, Settings::default()))
    };
    while Client::connect(&agent).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let built = build(
        "cc",
        &["-std=c99", "-D_POSIX_C_SOURCE=200809L"],
        "agent.c",
        home.path(),
    );
    must(program(&built).arg(home.path()).arg(&agent));
    Client::connect(&agent).unwrap().stop().unwrap();
    serving.join().unwrap().unwrap();
    let versions = |place: &str| {
        let kept = History::open(home.path().join(place)).unwrap().versions();
        kept.unwrap().len()
    };
    // A checkpoint of VELOC's API has two versions: a part and a head.
    assert_eq!((versions("external"), versions("p/tierflow/id-3")), (4, 4));
}

#[test]
fn an_engine_that_nobody_closed_ends_with_the_process_and_names_what_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-std=c99", "-pedantic", "-D_POSIX_C_SOURCE=200809L"];
    let built = build("cc", &options, "unclosed.c", directory.path());
    let errors = |what: &str| {
        let home = directory.path().join(what);
        std::fs::create_dir(&home).unwrap();
        let ended = program(&built).arg(home).arg(what).output().unwrap();
        assert!(ended.status.success(), "{}", told(&ended));
        String::from_utf8(ended.stderr).unwrap()
    };
    assert_eq!(errors("whole"), "");
    let kept = History::open(directory.path().join("whole/run")).unwrap();
    let kept = kept.versions().unwrap();
    let kept: Vec<u64> = kept.iter().map(|info| info.version).collect();
    assert_eq!(kept, (41..61).collect::<Vec<u64>>());
    let lost = "versions 42 to 60 are lost, as the engine ended before that was durable";
    let told = errors("lost");
    let start = format!("tierflow: {lost}");
    assert!(told.lines().any(|line| line.starts_with(&start)), "{told}");
    assert_eq!(told.matches("42 to 60").count(), 1, "{told}");
    let told = errors("callback");
    let start = "mine 3: opened without versions\n";
    assert!(told.starts_with(start), "{told}");
    assert!(told.contains(&format!("mine 1: {lost}")), "{told}");
}

#[test]
fn velocs_api_keeps_its_promises() {
    run("cc", "-std=c99", "veloc.c");
}

#[test]
fn failed_calls_of_velocs_api_leave_the_promised_state() {
    let cases = [
        "head",
        "late",
        "room",
        "second",
        "no-memory",
        "device",
        "damaged",
        "discarded",
        "time-line",
    ];
    for case in cases {
        run_with("cc", "-std=c99", "failures.c", &[case]);
    }
}

/// Runs only if `TIERFLOW_S3` has the URL of a bucket. Other variables have its endpoint and credentials.
#[test]
fn velocs_api_over_an_object_store() {
    let Ok(bucket) = std::env::var("TIERFLOW_S3") else {
        eprintln!("NOT RUN: name a bucket by TIERFLOW_S3, such as s3://runs");
        return;
    };
    let place = format!("{bucket}/veloc-{}", std::process::id());
    run_with("cc", "-std=c99", "veloc.c", &[&place]);
}

#[test]
fn the_gradients_of_a_wave_of_heat_and_of_lorenz_are_right() {
    run("c++", "-std=c++17", "../../examples/adjoints.cpp");
}

#[test]
fn the_classes_end_what_they_began() {
    run("c++", "-std=c++17", "classes.cpp");
}
