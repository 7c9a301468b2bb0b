//! Tests of the name of external storage: a path or a URL.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Region};

fn engine(external: &str) -> EngineBuilder {
    let device = open(Choice::Host).unwrap();
    Engine::builder(&device)
        .host_cache(1 << 20)
        .external(external)
}

#[test]
fn a_file_url_is_the_directory() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a b");
    let url = format!("file://{}/a%20b", home.path().display());
    let first = engine(&url).build().unwrap();
    first
        .checkpoint(3, &[Region::from([7; 100].as_slice())])
        .unwrap();
    first.close().unwrap();
    assert!(path.join("rank-0").is_dir());
    let second = engine(path.to_str().unwrap()).build().unwrap();
    assert_eq!(second.latest(None), Some(3));
}

#[test]
fn a_url_that_leads_nowhere_says_what_to_do() {
    let error = |url: &str| engine(url).build().unwrap_err().to_string();
    let text = error("file://elsewhere/path");
    assert!(text.contains("write file:///path"), "{text}");
    let text = error("s4://bucket/prefix");
    let expected = match cfg!(feature = "objects") {
        true => "write s3://bucket/prefix",
        false => "feature `objects` of tierflow-engine",
    };
    assert!(text.contains(expected), "{text}");
}

/// The builder refuses credentials in a URL. The error names the environment variables for them, and does not repeat them.
#[cfg(feature = "objects")]
#[test]
fn a_url_with_credentials_is_refused_without_repeating_them() {
    let error = engine("s3://key:geheim@bucket/prefix").build().unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains("environment variables"), "{text}");
    assert!(!text.contains("geheim"), "{text}");
}
