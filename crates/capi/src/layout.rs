//! That C lays out what it hands over as Rust does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::mem::{offset_of, size_of};
use std::process::Command;

use crate::api::{RawCall, RawCalls, RawMetrics, RawNamed, RawSuspension};
use crate::failure::Status;
use crate::group::RawGroup;
use crate::memory::RawRegion;

#[test]
fn structures_and_codes_are_the_same_in_c() {
    let rust: &[(&str, usize)] = &[
        ("sizeof(tf_group)", size_of::<RawGroup>()),
        ("offsetof(tf_group, ranks)", offset_of!(RawGroup, ranks)),
        ("offsetof(tf_group, run)", offset_of!(RawGroup, run)),
        (
            "offsetof(tf_group, all_gather)",
            offset_of!(RawGroup, all_gather),
        ),
        ("offsetof(tf_group, release)", offset_of!(RawGroup, release)),
        ("offsetof(tf_group, context)", offset_of!(RawGroup, context)),
        ("offsetof(tf_group, send)", offset_of!(RawGroup, send)),
        ("offsetof(tf_group, flush)", offset_of!(RawGroup, flush)),
        ("offsetof(tf_group, threads)", offset_of!(RawGroup, threads)),
        ("sizeof(tf_region)", size_of::<RawRegion>()),
        ("offsetof(tf_region, bytes)", offset_of!(RawRegion, bytes)),
        ("offsetof(tf_region, place)", offset_of!(RawRegion, place)),
        ("sizeof(tf_named)", size_of::<RawNamed>()),
        ("offsetof(tf_named, region)", offset_of!(RawNamed, region)),
        ("sizeof(tf_call)", size_of::<RawCall>()),
        ("offsetof(tf_call, seconds)", offset_of!(RawCall, seconds)),
        ("sizeof(tf_calls)", size_of::<RawCalls>()),
        (
            "offsetof(tf_calls, blocked_seconds)",
            offset_of!(RawCalls, blocked_seconds),
        ),
        ("sizeof(tf_metrics)", size_of::<RawMetrics>()),
        (
            "offsetof(tf_metrics, consume)",
            offset_of!(RawMetrics, consume),
        ),
        (
            "offsetof(tf_metrics, restores_from)",
            offset_of!(RawMetrics, restores_from),
        ),
        ("sizeof(tf_suspension)", size_of::<RawSuspension>()),
        (
            "offsetof(tf_suspension, newest)",
            offset_of!(RawSuspension, newest),
        ),
        (
            "offsetof(tf_suspension, seconds)",
            offset_of!(RawSuspension, seconds),
        ),
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
    let directory = tempfile::tempdir().unwrap();
    let mut source = String::from(
        "#define VELOC_WITHOUT_MPI\n#include \"veloc.h\"\n#include <stdio.h>\nint main(void) {\n",
    );
    for (what, _) in rust {
        source.push_str(&format!("    printf(\"%zu\\n\", (size_t)({what}));\n"));
    }
    source.push_str("    return 0;\n}\n");
    let (path, program) = (
        directory.path().join("layout.c"),
        directory.path().join("layout"),
    );
    std::fs::write(&path, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .arg("-I")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include"));
    let built = compiler
        .arg(&path)
        .arg("-o")
        .arg(&program)
        .status()
        .unwrap();
    assert!(built.success());
    let output = Command::new(&program).output().unwrap().stdout;
    let printed = String::from_utf8(output).unwrap();
    let c: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(c.len(), rust.len());
    for ((what, rust), c) in rust.iter().zip(c) {
        assert_eq!(*rust, c, "{what}");
    }
}
