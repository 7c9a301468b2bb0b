//! Programs in C and C++ that use the library as an application does. `TIERFLOW_WRAPPER` may name what runs them, and
//! `TIERFLOW_CFLAGS` how else they are compiled.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::{build, must, program};

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
fn what_lasts_and_groups_serve_c() {
    run("cc", "-std=c99", "lasting.c");
}

#[test]
fn a_job_that_has_to_go_is_served_in_c() {
    run("cc", "-std=c99", "suspend.c");
}

#[test]
fn velocs_api_does_what_it_says() {
    run("cc", "-std=c99", "veloc.c");
}

#[test]
#[ignore = "needs an S3 server by the environment (AWS_ENDPOINT_URL and so on), with a bucket `runs`"]
fn velocs_api_over_an_object_store() {
    let place = format!("s3://runs/veloc-{}", std::process::id());
    run_with("cc", "-std=c99", "veloc.c", &[&place]);
}

#[test]
fn the_classes_end_what_they_began() {
    run("c++", "-std=c++17", "classes.cpp");
}
