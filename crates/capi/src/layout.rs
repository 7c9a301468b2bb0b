//! A test: C and Rust lay out the structures of `tierflow.h` in the same way.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::mem::{offset_of, size_of};
use std::process::Command;

use crate::api::{
    RawAction, RawCall, RawCalls, RawDifference, RawMachine, RawMetrics, RawNamed, RawSuspension,
    RawTier,
};
use crate::failure::Status;
use crate::group::RawGroup;
use crate::memory::RawRegion;

/// Lists expressions of C for sizes and offsets, each with the value in Rust.
macro_rules! layout {
    ($($c:ident is $rust:ident: $($field:ident)*;)*) => {
        [$((concat!("sizeof(", stringify!($c), ")"), size_of::<$rust>()),
            $((concat!("offsetof(", stringify!($c), ", ", stringify!($field), ")"), offset_of!($rust, $field)),)*)*]
    };
}

#[test]
fn structures_and_codes_are_the_same_in_c() {
    let sizes = layout! {
        tf_group is RawGroup: ranks run all_gather release context send flush threads;
        tf_region is RawRegion: bytes place;
        tf_named is RawNamed: region;
        tf_call is RawCall: seconds;
        tf_calls is RawCalls: blocked_seconds;
        tf_metrics is RawMetrics: consume restores_from;
        tf_suspension is RawSuspension: newest seconds;
        tf_tier is RawTier: up;
        tf_machine is RawMachine: tiers count;
        tf_action is RawAction: to;
        tf_difference is RawDifference: largest rank region;
    };
    let codes = [
        ("TF_OK", Status::Ok as usize),
        ("TF_ARGUMENT", Status::Argument as usize),
        ("TF_UNKNOWN", Status::Unknown as usize),
        ("TF_NO_ROOM", Status::NoRoom as usize),
        ("TF_TIMED_OUT", Status::TimedOut as usize),
        ("TF_STALLED", Status::Stalled as usize),
        ("TF_DAMAGED", Status::Damaged as usize),
        ("TF_STORAGE", Status::Storage as usize),
        ("TF_DEVICE", Status::Device as usize),
        ("TF_GROUP", Status::Group as usize),
        ("TF_CLOSED", Status::Closed as usize),
        ("TF_INTERNAL", Status::Internal as usize),
        ("TF_PLACE_ANY", crate::memory::ANYWHERE as usize),
        ("TF_PLACE_HOST", crate::memory::HOST as usize),
        ("TF_PLACE_DEVICE", crate::memory::DEVICE as usize),
        ("VELOC_MAX_NAME", crate::veloc::ROUTED),
        ("VELOC_OBSERVE_CKPT_END", crate::veloc::AT_END as usize),
    ];
    let rust: Vec<(&str, usize)> = sizes.into_iter().chain(codes).collect();
    let directory = tempfile::tempdir().unwrap();
    let mut source = String::from(
        "#define VELOC_WITHOUT_MPI\n#include \"veloc.h\"\n#include <stdio.h>\nint main(void) {\n",
    );
    for (what, _) in &rust {
        source.push_str(&format!("    printf(\"%zu\\n\", (size_t)({what}));\n"));
    }
    source.push_str("    return 0;\n}\n");
    let path = directory.path().join("layout.c");
    let program = path.with_extension("");
    std::fs::write(&path, source).unwrap();
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let compiler = |of: &mut Command| of.arg(include).arg(&path).arg("-o").arg(&program).status();
    let built = compiler(&mut Command::new("cc")).unwrap();
    assert!(built.success());
    let output = Command::new(&program).output().unwrap().stdout;
    let printed = String::from_utf8(output).unwrap();
    let c: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(c.len(), rust.len());
    for ((what, rust), c) in rust.iter().zip(c) {
        assert_eq!(*rust, c, "{what}");
    }
}
