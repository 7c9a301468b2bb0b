//! Tests of the command `tierflow` as its users run it.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod running;

use running::{json, repository, run, text};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tierflow_store::container::Element;
use tierflow_store::{Options, Region, Repository, Snapshot};

#[test]
fn versions_are_listed_and_shown() {
    let (_kept, path) = repository();
    let (code, answer) = json(&["list", &path]);
    assert_eq!(code, 0);
    let versions: Vec<_> = answer["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["version"].as_u64())
        .collect();
    assert_eq!(versions, (1..=6).map(Some).collect::<Vec<_>>());
    assert_eq!(answer["versions"][5]["bytes"], 2_000_024);
    assert_eq!(answer["damage"], Value::Array(vec![]));
    let human = text(&run(&["list", &path]).stdout);
    assert_eq!(human.lines().count(), 7, "{human}");

    let (code, answer) = json(&["show", &path]);
    assert_eq!((code, &answer["version"]), (0, &Value::from(6)));
    assert_eq!(
        answer["pieces"][0]["regions"][0]["shape"],
        serde_json::json!([2, 3])
    );
    let human = text(&run(&["show", &path, "6"]).stdout);
    assert!(
        human.contains("grid") && human.contains("<f4 [2, 3]") && human.contains("large"),
        "{human}"
    );
}

#[test]
fn verify_says_by_its_exit_code_what_it_found() {
    let (_kept, path) = repository();
    let (code, answer) = json(&["verify", &path]);
    assert_eq!(
        (code, &answer["sound"], &answer["pieces"]),
        (0, &Value::from(true), &Value::from(6))
    );
    let file = Path::new(&path).join("rank-0/v00000000000000000006.tfc");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[1_500_000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (code, answer) = json(&["verify", &path]);
    assert_eq!((code, &answer["sound"]), (1, &Value::from(false)));
    assert_eq!(answer["damage"][0]["version"], 6);
    assert_eq!(json(&["verify", &path, "5"]).0, 0);
    assert_eq!(json(&["verify", &path, "7"]).0, 2);
    let output = run(&["verify", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).contains("damaged: version 6: "),
        "{output:?}"
    );
    let output = run(&["export", &path, "6"]);
    assert!(
        text(&output.stderr).contains("version 5 is the newest older one"),
        "{output:?}"
    );
}

#[test]
fn a_reader_that_is_gone_leaves_the_exit_code_as_it_is() {
    let (_kept, path) = repository();
    let file = Path::new(&path).join("rank-0/v00000000000000000006.tfc");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[1_500_000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    for (arguments, code) in [(&["verify", &path][..], 1), (&["list", &path], 0)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tierflow"));
        let status = command.args(arguments).stdout(writer).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn prune_keeps_what_the_rules_keep() {
    let (_kept, path) = repository();
    let busy = Repository::open(&path, Options::default()).unwrap();
    let (code, message) = json(&["prune", &path, "--keep", "1"]);
    assert_eq!(code, 2);
    assert!(
        message
            .as_str()
            .unwrap()
            .contains("is in use: another process"),
        "{message}"
    );
    drop(busy);
    let (code, answer) = json(&["prune", &path, "--keep", "1", "--every", "3"]);
    assert_eq!(
        (code, &answer["versions"]),
        (0, &serde_json::json!([1, 2, 4, 5]))
    );
    let (_, answer) = json(&["list", &path]);
    assert_eq!(answer["versions"].as_array().unwrap().len(), 2);
    let (_, answer) = json(&["prune", &path, "--keep", "1", "--younger-than", "1d"]);
    assert_eq!(answer["versions"], serde_json::json!([]));
    assert_eq!(
        run(&["prune", &path]).status.code(),
        Some(2),
        "without a rule nothing is given up"
    );
}

#[test]
fn prune_can_be_tried_and_leaves_a_version_that_verifies() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let repository = Repository::open(&path, Options::default()).unwrap();
    let large = vec![7; 2_000_000];
    for version in 1..=3 {
        let regions = [Region::new("large", &large)];
        let snapshot = Snapshot::new(version, &regions);
        repository.save(&snapshot).unwrap();
    }
    drop(repository);
    let newest = path.join("rank-0/v00000000000000000003.tfc");
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[1_000_000] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let path = path.to_str().unwrap();
    for dry in [true, false] {
        let arguments = ["prune", path, "--keep", "1", "--dry-run"];
        let (code, answer) = json(&arguments[..4 + usize::from(dry)]);
        assert_eq!((code, &answer["versions"]), (0, &serde_json::json!([1])));
        let left = json(&["list", path]).1["versions"]
            .as_array()
            .unwrap()
            .len();
        assert_eq!(left, if dry { 3 } else { 2 });
    }
    assert_eq!(json(&["verify", path, "2"]).0, 0);
    let output = run(&["prune", path, "--keep", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("at least one"), "{output:?}");
}

#[test]
fn a_path_without_versions_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    for arguments in [
        &["list", path][..],
        &["show", path],
        &["verify", path],
        &["export", path],
        &["prune", path, "--keep", "1"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains("is no directory of versions"), "{said}");
    }
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn missing_versions_are_named() {
    let output = run(&["list", "/nonexistent/run"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("/nonexistent/run"),
        "{output:?}"
    );
    let (_kept, path) = repository();
    let output = run(&["show", &path, "99"]);
    assert!(
        text(&output.stderr).contains("no whole version 99; version 6 is the newest"),
        "{output:?}"
    );
}

#[test]
fn a_limit_of_a_files_size_is_an_error() {
    let (kept, path) = repository();
    let to = kept.path().join("copy");
    let script = "ulimit -f 64; exec \"$0\" copy \"$1\" \"$2\"";
    let output = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_tierflow"), &path])
        .arg(&to)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let expected = format!("the file system of {}", to.display());
    assert!(text(&output.stderr).contains(&expected), "{output:?}");
}

#[test]
fn a_cause_is_said_once() {
    let output = run(&["agent", "/nonexistent/run"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert_eq!(
        said.matches("No such file or directory").count(),
        1,
        "{said}"
    );
}

#[test]
fn shells_get_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(
            output.status.success() && text(&output.stdout).contains("prune"),
            "{shell}"
        );
    }
}

#[test]
fn the_manual_has_every_command() {
    let output = run(&["manual"]);
    let page = text(&output.stdout);
    assert!(
        output.status.success() && page.contains(".TH tierflow 1"),
        "{page}"
    );
    for command in ["LIST", "COMPARE", "AGENT", "DOCTOR"] {
        assert!(
            page.contains(&format!(".SH {command}\n.SS SYNOPSIS")),
            "{command}"
        );
    }
}

#[test]
fn a_disk_is_calibrated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let (code, answer) = json(&["calibrate", path, "--writers", "1,3", "--mib", "4"]);
    assert_eq!(code, 0, "{answer}");
    let samples = answer["samples"].as_array().unwrap();
    assert_eq!(
        (samples.len(), &samples[1]["writers"]),
        (2, &Value::from(3))
    );
    assert!(
        samples
            .iter()
            .all(|s| s["write_bytes_per_second"].as_u64().unwrap() > 0)
    );
    assert_eq!(json(&["calibrate", path, "--writers", "0"]).0, 2);
    let (code, error) = json(&["calibrate", path, "--mib", "18446744073709551615"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.as_str().unwrap().contains("between 4 and"), "{error}");
    assert_eq!(
        std::fs::read_dir(path).unwrap().count(),
        0,
        "nothing is left"
    );
}

#[test]
fn an_agent_is_run_asked_and_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    assert_eq!(json(&["agent", path, "--status"]).0, 2, "there is none");
    let mut agent = Command::new(env!("CARGO_BIN_EXE_tierflow"))
        .args(["agent", path])
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    let (mut code, mut answer) = json(&["agent", path, "--status"]);
    while code != 0 && begun.elapsed().as_secs() < 60 {
        (code, answer) = json(&["agent", path, "--status"]);
    }
    assert_eq!(answer["process"], agent.id());
    assert_eq!(json(&["agent", path, "--stop"]).0, 0);
    assert!(agent.wait().unwrap().success());
}

#[test]
fn single_versions_are_removed_and_copied() {
    let (kept, path) = repository();
    let to = kept.path().join("copy");
    let to = to.to_str().unwrap();
    let (code, answer) = json(&["copy", &path, to, "6", "2"]);
    assert_eq!((code, &answer["versions"]), (0, &serde_json::json!([2, 6])));
    let (code, answer) = json(&["verify", to]);
    assert_eq!((code, &answer["pieces"]), (0, &Value::from(2)));
    // A second copy of the same version does no harm. Without a version, the command copies all that are missing.
    assert_eq!(json(&["copy", &path, to]).0, 0);
    assert_eq!(json(&["verify", to]).1["pieces"], 6);
    let (code, answer) = json(&["copy", &path, to, "9"]);
    assert_eq!(code, 2);
    assert!(
        answer.as_str().unwrap().contains("no whole version 9"),
        "{answer}"
    );

    let (code, answer) = json(&["remove", to, "3", "4", "4"]);
    assert_eq!((code, &answer["versions"]), (0, &serde_json::json!([3, 4])));
    assert_eq!(json(&["verify", to]).1["pieces"], 4);
    let (code, answer) = json(&["remove", to, "3"]);
    assert_eq!(code, 2);
    assert!(
        answer.as_str().unwrap().contains("no version 3"),
        "{answer}"
    );
    let all = ["remove", to, "1", "2", "5", "6"];
    let (code, answer) = json(&all);
    assert_eq!(code, 2);
    assert!(answer.as_str().unwrap().contains("--force"), "{answer}");
    assert_eq!(json(&[&all[..], &["--force"]].concat()).0, 0);
    assert_eq!(json(&["list", to]).1["versions"], Value::Array(vec![]));
}

#[test]
fn differences_are_copied_and_removed_with_what_they_build_upon() {
    let (kept, path) = repository();
    let repository = Repository::open(&path, Options::default()).unwrap();
    for (version, base) in [(7, 5), (8, 7)] {
        let regions = [Region::new("grid", &[9])];
        let base = Some(base);
        repository
            .save(&Snapshot {
                version,
                base,
                regions: &regions,
            })
            .unwrap();
    }
    drop(repository);
    let to = kept.path().join("copy");
    let (code, answer) = json(&["copy", &path, to.to_str().unwrap(), "8"]);
    assert_eq!(
        (code, &answer["versions"]),
        (0, &serde_json::json!([5, 7, 8]))
    );
    let (code, answer) = json(&["remove", &path, "7"]);
    assert_eq!(code, 2);
    assert!(
        answer
            .as_str()
            .unwrap()
            .contains("version 8 is a difference"),
        "{answer}"
    );
    assert_eq!(json(&["remove", &path, "8", "7"]).0, 0);
}

#[test]
fn versions_of_a_group_are_copied_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (path, to) = (directory.path().join("run"), directory.path().join("copy"));
    for rank in 0..3 {
        let options = Options::default().rank(rank, 3).run(5);
        let repository = Repository::open(&path, options).unwrap();
        for version in 0..4 {
            let bytes = [rank as u8; 100];
            let regions = [Region::new("grid", &bytes)];
            repository.save(&Snapshot::new(version, &regions)).unwrap();
        }
    }
    let (path, to) = (path.to_str().unwrap(), to.to_str().unwrap());
    assert_eq!(json(&["copy", path, to, "1", "3"]).0, 0);
    let (_, answer) = json(&["list", to]);
    assert_eq!(answer["versions"][1]["version"], 3);
    assert_eq!(answer["versions"][1]["ranks"], 3);
    assert_eq!(json(&["remove", path, "0", "1"]).0, 0);
    assert_eq!(
        json(&["list", path]).1["versions"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

/// Saves three versions of a field. A value of the two newest versions is larger by `more` than in other histories.
fn history_of(path: &Path, more: f32) {
    let repository = Repository::open(path, Options::default()).unwrap();
    for version in 1..=3_u64 {
        let mut values: Vec<f32> = (0..6).map(|value| value as f32).collect();
        if version > 1 {
            values[4] += more;
        }
        let values: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let regions = [Region::new("grid", &values).array(Element::F32, &[2, 3])];
        let regions = &regions;
        let snapshot = Snapshot::new(version, regions);
        repository.save(&snapshot).unwrap();
    }
}

#[test]
fn compare_finds_where_two_histories_part() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (left, right) = (place("left"), place("right"));
    history_of(Path::new(&left), 0.0);
    history_of(Path::new(&right), 0.5);
    let (code, answer) = json(&["compare", &left, &right]);
    assert_eq!((code, &answer["versions"]), (1, &Value::from(3)));
    let different = answer["different"].as_array().unwrap();
    assert_eq!(different.len(), 2, "{answer}");
    assert_eq!(different[0]["version"], 2);
    assert_eq!(different[0]["first"], serde_json::json!([1, 1]));
    assert_eq!(
        (&different[0]["differ"], &different[0]["elements"]),
        (&Value::from(1), &Value::from(6))
    );
    assert_eq!(different[0]["largest"], 0.5);
    assert_eq!(json(&["compare", &left, &right, "--within", "0.5"]).0, 0);
    assert_eq!(json(&["compare", &left, &right, "1"]).0, 0);
    let (code, answer) = json(&["compare", &left, &right, "--first"]);
    assert_eq!((code, &answer["versions"]), (1, &Value::from(2)));
    // The command also compares two versions of one history.
    assert_eq!(json(&["compare", &right, &right, "1", "3"]).0, 1);
    assert_eq!(json(&["compare", &right, &right, "2", "3"]).0, 0);
    assert_eq!(json(&["compare", &left, &right, "--region", "none"]).0, 2);
    assert_eq!(json(&["compare", &left, &right, "7"]).0, 2);
    let human = text(&run(&["compare", &left, &right]).stdout);
    assert!(human.contains("2 differ, the first is 2"), "{human}");
}
