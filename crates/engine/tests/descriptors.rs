//! A process that may open no more files gets an error that says so.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region};

// The limit holds for the whole process, so this file has one test.
#[test]
fn an_engine_without_descriptors_says_so_and_reads_alone_never() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(Choice::Host).unwrap();
    let build = || {
        let engine = Engine::builder(&device).host_cache(1 << 20);
        engine.external(directory.path()).build()
    };
    let save = |engine: &Engine, version| {
        engine.checkpoint(version, &[Region::from(&[1_u8; 5000][..])])?;
        engine.wait()
    };
    save(&build().unwrap(), 0).unwrap();
    let before = getrlimit(Resource::Nofile);
    let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let mut outcomes = Vec::new();
    for more in 0..24 {
        let limit = Rlimit {
            current: Some(used + more),
            ..before
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        let saved = build().and_then(|engine| save(&engine, 1 + more));
        setrlimit(Resource::Nofile, before).unwrap();
        outcomes.push(saved.map_err(|error| error.to_string()));
    }
    for outcome in &outcomes {
        if let Err(text) = outcome {
            assert!(text.contains("open files"), "{text}");
        }
    }
    assert!(outcomes.first().is_some_and(Result::is_err));
    assert!(outcomes.last().is_some_and(Result::is_ok), "{outcomes:?}");
}
