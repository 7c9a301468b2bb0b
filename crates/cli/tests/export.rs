//! Tests of exported files, of regions that are stored whole and of regions that are restored from differences.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod running;

use running::{json, repository, run, text, values};
use std::path::Path;
use std::process::Command;
use tierflow_codec::{Codec, Element as Value, Frame, Planes};
use tierflow_store::container::{Element, RegionInfo};
use tierflow_store::{Options, Region, Repository, Snapshot};

#[test]
fn regions_are_exported() {
    let (kept, path) = repository();
    let to = kept.path().join("out");
    std::fs::create_dir(&to).unwrap();
    let to = to.to_str().unwrap();
    let (code, answer) = json(&["export", &path, "6", "--to", to]);
    assert_eq!((code, answer["files"].as_array().unwrap().len()), (0, 2));
    let npy = std::fs::read(Path::new(to).join("grid.npy")).unwrap();
    assert!(npy.starts_with(b"\x93NUMPY\x01\x00") && npy.ends_with(&values()));
    assert_eq!(npy.len(), 128 + 24);
    let raw = [
        "export", &path, "1", "--region", "grid", "--format", "raw", "--to", to,
    ];
    assert_eq!(json(&raw).0, 0);
    assert_eq!(
        std::fs::read(Path::new(to).join("grid.raw")).unwrap(),
        values()
    );
    let output = run(&raw);
    assert_eq!(output.status.code(), Some(2), "no file is written over");
    assert!(text(&output.stderr).contains("--force"), "{output:?}");
    assert_eq!(json(&[&raw[..], &["--force"]].concat()).0, 0);
    assert_eq!(
        json(&["export", &path, "1", "--region", "large", "--to", to]).0,
        2
    );
}

#[test]
fn an_export_that_fails_leaves_what_was_there() {
    let (kept, path) = repository();
    let out = kept.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let files = |format: &str| match format {
        "npy" | "raw" => vec![format!("grid.{format}"), format!("large.{format}")],
        format => vec![format!("checkpoint-6.{format}")],
    };
    let names = || {
        let entries = std::fs::read_dir(&out).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<String>>()
    };
    let export = |format: &str, is_full: bool| {
        // Writes beyond the limit fail as on a full disk.
        let limit = if is_full { "ulimit -f 64; " } else { "" };
        let script = format!(
            "trap '' XFSZ; {limit}exec \"$0\" export \"$1\" 6 --to \"$2\" --format {format} --force"
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tierflow"), &path]);
        command.arg(&out).output().unwrap()
    };
    for format in ["npy", "raw", "npz", "safetensors", "zarr"] {
        let before = names();
        let output = export(format, true);
        assert_eq!(output.status.code(), Some(2), "{format}: {output:?}");
        let left: Vec<String> = names().difference(&before).cloned().collect();
        let whole = files(format);
        assert!(
            left.iter().all(|name| *name == whole[0] && whole.len() > 1),
            "{left:?}"
        );
        // A file from an earlier export stays as it is if the next export fails.
        let output = export(format, false);
        assert!(output.status.success(), "{format}: {output:?}");
        let last = out.join(whole.last().unwrap());
        let read = || match last.is_dir() {
            true => std::fs::read(last.join("large/c/0")).unwrap(),
            false => std::fs::read(&last).unwrap(),
        };
        let (there, bytes) = (names(), read());
        assert_eq!(export(format, true).status.code(), Some(2));
        assert_eq!(names(), there);
        assert!(read() == bytes, "{format}");
    }
}

/// Returns a difference in the frame in which an engine with compression stores it.
fn framed(difference: &[u8]) -> Vec<u8> {
    let (header, rest) = difference.split_at(tierflow_dedup::HEADER_BYTES);
    let containers = Planes::new().encode_to_vec(rest, Value::I32).unwrap();
    [Frame::start(header, rest.len() as u64), containers].concat()
}

/// Saves ten checkpoints of two arrays as differences, some of them compressed. Returns the arrays' bytes.
fn differences(path: &Path) -> Vec<Vec<u8>> {
    let repository = Repository::open(path, Options::default()).unwrap();
    let mut lineage =
        tierflow_dedup::Lineage::new(tierflow_dedup::Tree { chunk: 64 }.into()).unwrap();
    let mut bytes: Vec<u8> = (0..20_000_u32).flat_map(|i| i.to_le_bytes()).collect();
    let length = bytes.len() as u64;
    let part = |name: &str, offset, length, element, shape: &[u64]| RegionInfo {
        name: name.to_owned(),
        offset,
        length,
        element,
        shape: shape.to_vec(),
    };
    let parts = [
        part("a", 0, length - 80, Element::U32, &[length / 4 - 20]),
        part("b", length - 80, 80, Element::F64, &[2, 5]),
    ];
    let versions = (0..10_u64).map(|version| {
        bytes[version as usize * 97] ^= 0xFF;
        let difference = lineage.encode(version, &bytes).unwrap();
        let extent = [length];
        let stored = match version % 3 {
            0 => framed(difference.as_bytes()),
            _ => difference.as_bytes().to_vec(),
        };
        let region = Region::new("difference", &stored);
        let region = region.array(Element::Encoded, &extent);
        // The first ones were written before regions had names.
        let region = match version {
            0..5 => region,
            _ => region.decoded_to(&parts),
        };
        repository
            .save(&Snapshot {
                version,
                base: version.checked_sub(1),
                regions: &[region],
            })
            .unwrap();
        bytes.clone()
    });
    versions.collect()
}

#[test]
fn differences_are_exported_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (home, to) = (directory.path().join("run"), directory.path().join("out"));
    let contents = differences(&home);
    std::fs::create_dir(&to).unwrap();
    let (home, target) = (home.to_str().unwrap(), to.to_str().unwrap());
    let export = |version: &str| {
        let all = [
            "export", home, version, "--to", target, "--format", "raw", "--force",
        ];
        let (code, answer) = json(&all);
        assert_eq!(code, 0, "{answer}");
        answer["files"].as_array().unwrap().len()
    };
    assert_eq!(export("9"), 2);
    let read = |name: &str| std::fs::read(to.join(name)).unwrap();
    assert!([read("a.raw"), read("b.raw")].concat() == contents[9]);
    assert_eq!(export("3"), 1);
    assert!(read("checkpoint.raw") == contents[3]);
    let shown = text(&run(&["show", home, "9"]).stdout);
    assert!(
        shown.contains("decoded:\n  a ") && shown.contains("<f8 [2, 5]"),
        "{shown}"
    );

    // The base of the differences is in another directory only.
    let near = directory.path().join("near");
    let near = near.to_str().unwrap();
    assert_eq!(json(&["copy", home, near, "9"]).0, 0);
    {
        let repository = Repository::open(near, Options::default()).unwrap();
        repository.remove_even_bases(&(0..9).collect()).unwrap();
    }
    let (code, answer) = json(&["export", near, "9", "--to", target, "--force"]);
    assert_eq!(code, 2);
    assert!(answer.as_str().unwrap().contains("--also"), "{answer}");
    let also = [
        "export", near, "9", "--to", target, "--also", home, "--force",
    ];
    assert_eq!(json(&also).0, 0);
    let b = read("b.npy");
    assert!(b.ends_with(&contents[9][contents[9].len() - 80..]));
}

#[test]
fn all_regions_go_into_one_archive_that_numpy_reads() {
    let (kept, path) = repository();
    let to = kept.path().to_str().unwrap();
    let npz = ["export", &path, "6", "--format", "npz", "--to", to];
    assert_eq!(json(&npz).0, 0);
    assert_eq!(json(&npz).0, 2, "no file is written over");
    let archive = std::fs::File::open(kept.path().join("checkpoint-6.npz")).unwrap();
    let mut archive = zip::ZipArchive::new(archive).unwrap();
    let names: Vec<String> = archive
        .file_names()
        .map(|name| name.unwrap().into_owned())
        .collect();
    assert_eq!(names, ["grid.npy", "large.npy"]);
    let mut grid = Vec::new();
    let mut entry = archive.by_name("grid.npy").unwrap();
    std::io::Read::read_to_end(&mut entry, &mut grid).unwrap();
    assert!(grid.starts_with(b"\x93NUMPY\x01\x00") && grid.ends_with(&values()));
}

#[test]
fn compressed_versions_are_exported_whole() {
    use tierflow_codec::{Codec, Element as Value, Planes, Predictor};
    let directory = tempfile::tempdir().unwrap();
    let (home, to) = (directory.path().join("run"), directory.path().join("out"));
    std::fs::create_dir(&to).unwrap();
    let bytes: Vec<u8> = (0..20_000_u32).flat_map(|i| i.to_le_bytes()).collect();
    let (first, second) = bytes.split_at(30_000);
    let encode = |bytes: &[u8], value| {
        Planes::with(Predictor::Previous)
            .encode_to_vec(bytes, value)
            .unwrap()
    };
    let containers = [encode(first, Value::I8), encode(second, Value::I32)].concat();
    assert!(containers.len() < bytes.len() / 2);
    let extent = [bytes.len() as u64];
    for (version, containers) in [(1, &containers[..]), (2, &containers[..4000])] {
        let region = Region::new("compressed", containers).array(Element::Encoded, &extent);
        let repository = Repository::open(&home, Options::default()).unwrap();
        repository.save(&Snapshot::new(version, &[region])).unwrap();
    }
    let (home, target) = (home.to_str().unwrap(), to.to_str().unwrap());
    let export = |version| json(&["export", home, version, "--to", target, "--format", "raw"]);
    assert_eq!(export("1").0, 0);
    assert!(std::fs::read(to.join("checkpoint.raw")).unwrap() == bytes);
    let (code, answer) = export("2");
    assert_eq!(code, 2);
    assert!(
        answer.as_str().unwrap().contains("decompressed"),
        "{answer}"
    );
}

/// Saves a tree of two arrays and a plain value, as Python's `Engine.save` does.
fn tree(path: &Path) {
    let repository = Repository::open(path, Options::default()).unwrap();
    let structure = br#"{"root": {"dict": [["model", {"dict": [["w", {"array": "model/w", "of": "torch"}]]}], ["step", 7],
        ["moments", [{"array": "moments/0", "of": "numpy"}]]]}}"#;
    let (weights, moments) = (values(), [1; 16]);
    let regions = [
        Region::new("~tree", structure),
        Region::new("model/w", &weights).array(Element::F32, &[2, 3]),
        Region::new("moments/0", &moments).array(Element::C128, &[1]),
    ];
    let snapshot = Snapshot::new(1, &regions);
    repository.save(&snapshot).unwrap();
}

#[test]
fn trees_are_drawn() {
    let directory = tempfile::tempdir().unwrap();
    tree(directory.path());
    let path = directory.path().to_str().unwrap();
    let shown = text(&run(&["show", path]).stdout);
    let drawn = "tree:\n  model\n    w  <f4 [2, 3]\n  step  7\n  moments\n    0  <c16 [1]\n";
    assert!(shown.ends_with(drawn), "{shown}");
    let (_, answer) = json(&["show", path]);
    assert_eq!(answer["pieces"][0]["tree"]["root"]["dict"][1][1], 7);
}

#[test]
fn tensors_are_exported_as_their_format_says() {
    let directory = tempfile::tempdir().unwrap();
    tree(directory.path());
    let path = directory.path().to_str().unwrap();
    let all = ["export", path, "--format", "safetensors", "--to", path];
    let (code, error) = json(&all);
    assert_eq!(code, 2, "there is no such type");
    assert!(error.as_str().unwrap().contains("moments/0"), "{error}");
    assert!(!directory.path().join("checkpoint-1.safetensors").exists());
    let some = ["--region", "~tree", "--region", "model/w"];
    let (code, answer) = json(&[&all[..], &some].concat());
    assert_eq!(code, 0, "{answer}");
    let file = std::fs::read(directory.path().join("checkpoint-1.safetensors")).unwrap();
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    assert_eq!(length % 8, 0);
    let head: serde_json::Value = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let expected = serde_json::json!({"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]});
    assert_eq!(head["model/w"], expected);
    assert!(
        head["__metadata__"]["tree"]
            .as_str()
            .unwrap()
            .contains("model/w")
    );
    assert_eq!(head.as_object().unwrap().len(), 2);
    assert_eq!(file[8 + length..], values());
}

#[test]
fn a_region_with_the_name_of_the_metadata_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    let regions = [Region::new("__metadata__", &[7; 8])];
    repository.save(&Snapshot::new(1, &regions)).unwrap();
    let (code, error) = json(&["export", path, "--format", "safetensors", "--to", path]);
    assert_eq!(code, 2, "{error}");
    assert!(error.as_str().unwrap().contains("--format npy"), "{error}");
}

#[test]
fn arrays_are_exported_as_zarr_says() {
    let directory = tempfile::tempdir().unwrap();
    tree(directory.path());
    let path = directory.path().to_str().unwrap();
    let all = ["export", path, "--format", "zarr", "--to", path];
    let (code, answer) = json(&all);
    assert_eq!(code, 0, "{answer}");
    let folder = directory.path().join("checkpoint-1.zarr");
    let node = |name: &str| -> serde_json::Value {
        let text = std::fs::read(folder.join(name).join("zarr.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    assert_eq!(node("")["attributes"]["tree"]["root"]["dict"][1][1], 7);
    assert_eq!(node("model")["node_type"], "group");
    let array = node("model/w");
    assert_eq!(
        (&array["data_type"], &array["shape"]),
        (&"float32".into(), &serde_json::json!([2, 3]))
    );
    assert_eq!(
        std::fs::read(folder.join("model/w/c/0/0")).unwrap(),
        values()
    );
    assert_eq!(node("moments/0")["data_type"], "complex128");
    let (code, answer) = json(&all);
    assert_eq!(code, 2);
    assert!(answer.as_str().unwrap().contains("--force"), "{answer}");
    assert_eq!(json(&[&all[..], &["--force"]].concat()).0, 0);
}

/// Returns a repository of a tree whose array lies within so many dicts.
fn within_dicts(levels: usize) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap().to_owned();
    let name = vec!["a"; levels].join("/");
    let leaf = format!(r#"{{"array":"{name}","of":"numpy"}}"#);
    let root = (0..levels).fold(leaf, |node, _| format!(r#"{{"dict":[["a",{node}]]}}"#));
    let structure = format!(r#"{{"tree":1,"root":{root}}}"#).into_bytes();
    let regions = [
        Region::new("~tree", &structure),
        Region::new(&name, &[1, 2, 3]).array(Element::U8, &[3]),
    ];
    let repository = Repository::open(&path, Options::default()).unwrap();
    repository.save(&Snapshot::new(1, &regions)).unwrap();
    (directory, path)
}

#[test]
fn a_tree_may_be_as_deep_as_python_saves_it() {
    let (_kept, path) = within_dicts(200);
    let shown = run(&["show", &path, "1"]);
    assert!(text(&shown.stdout).contains("|u1 [3]"), "{shown:?}");
    for format in ["zarr", "safetensors"] {
        let exported = run(&["export", &path, "--format", format, "--to", &path]);
        assert!(exported.status.success(), "{exported:?}");
    }
    let (_kept, path) = within_dicts(300);
    let refused = run(&["show", &path, "1"]);
    assert_eq!(refused.status.code(), Some(2));
    let why = text(&refused.stderr);
    assert!(why.contains("more than 700"), "{why}");
}

#[test]
fn an_array_of_zarr_has_no_arrays_below_it() {
    let rows = [1; 8];
    for names in [["a", "a/b"], ["a/b", "a"]] {
        let directory = tempfile::tempdir().unwrap();
        let repository = Repository::open(directory.path(), Options::default()).unwrap();
        let region = |name| Region::new(name, &rows).array(Element::F32, &[2]);
        let regions = names.map(region);
        repository.save(&Snapshot::new(1, &regions)).unwrap();
        let path = directory.path().to_str().unwrap();
        let (code, error) = json(&["export", path, "--format", "zarr", "--to", path]);
        assert_eq!(code, 2, "{names:?}: {error}");
        let error = error.as_str().unwrap();
        assert!(error.contains(r#"\"a\" and \"a/b\""#), "{names:?}: {error}");
    }
}
