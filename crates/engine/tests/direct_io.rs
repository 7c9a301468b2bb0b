//! Tests of copies straight between device memory and the scratch file.
//!
//! Run the tests that need cuFile by name on a machine with cuFile and a GPU, with the directory of
//! `libcufile.so.0` in `LD_LIBRARY_PATH`. `TMPDIR` names a directory on a disk that udev knows, or in `/dev/shm`.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use tierflow_device::{Choice, Device, open};
use tierflow_engine::{
    BuildError, DirectIo, Engine, EngineBuilder, Error, Region, RegionMut, StraightStatistics,
    Version,
};
use tierflow_testing::assert_matches;

const SIZE: usize = 9 * (1 << 20) + 4321;
const VERSIONS: Version = 12;

/// Returns the builder of an engine with a device cache for three versions, and a file for the others.
fn builder(device: &Device, scratch: &Path) -> EngineBuilder {
    Engine::builder(device)
        .device_cache(3 * 10 * (1 << 20))
        .scratch(scratch)
}

fn content(version: Version) -> Vec<u8> {
    let seed = version as usize;
    let byte = |at: usize| ((at ^ (seed << 9)).wrapping_mul(0x9E37_79B9) >> 16) as u8;
    (0..SIZE).map(byte).collect()
}

/// Stores a history that is larger than the device cache, and restores it, newest first.
fn round_trip(device: &Device, builder: EngineBuilder) -> Option<StraightStatistics> {
    let engine = builder.build().unwrap();
    let stream = device.stream().unwrap();
    let field = device.alloc(SIZE).unwrap();
    engine.hint((0..VERSIONS).rev());
    for version in 0..VERSIONS {
        let mut lent = field.lend_mut(0..SIZE).unwrap();
        stream.write(&content(version), &mut lent).unwrap();
        drop(lent);
        engine.checkpoint(version, &[Region::from(&field)]).unwrap();
    }
    engine.wait().unwrap();
    for version in (0..VERSIONS).rev() {
        let mut back = [RegionMut::from(&field)];
        engine.restore(version, &mut back).unwrap();
        let mut bytes = vec![0; SIZE];
        stream
            .read(&field.lend(0..SIZE).unwrap(), &mut bytes)
            .unwrap();
        assert!(bytes == content(version), "version {version}");
    }
    println!("{}", engine.metrics());
    engine.metrics().direct
}

#[test]
fn without_cufile_an_engine_that_needs_it_is_not_built() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(Choice::Host).unwrap();
    let always = builder(&device, directory.path()).direct_io(DirectIo::Always);
    let error = always.build().unwrap_err();
    assert_matches!(error, Error::Build(BuildError::DirectIo { .. }));
    let said = error.to_string();
    assert!(
        said.contains("LD_LIBRARY_PATH") || said.contains("needs a CUDA device"),
        "{said}"
    );
    assert!(said.contains("measured direct I/O"), "{said}");
}

#[test]
fn without_a_file_there_is_nothing_to_copy_to() {
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .device_cache(1 << 20)
        .direct_io(DirectIo::Always);
    let error = engine.build().unwrap_err();
    assert!(
        error.to_string().contains("no scratch directory"),
        "{error}"
    );
}

#[test]
fn memory_of_the_host_takes_the_buffers() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(Choice::Host).unwrap();
    let direct = round_trip(&device, builder(&device, directory.path())).unwrap();
    assert_eq!((direct.down.direct, direct.up.direct), (0, 0));
    assert_eq!((direct.mode, direct.failed), (None, 0));
}

#[test]
fn an_engine_without_direct_copies_does_not_look_for_cufile() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(Choice::Host).unwrap();
    let never = builder(&device, directory.path()).direct_io(DirectIo::Never);
    assert_eq!(round_trip(&device, never), None);
}

#[test]
#[ignore = "needs an NVIDIA GPU and cuFile"]
fn a_history_goes_straight_to_the_file_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let always = builder(&device, directory.path()).direct_io(DirectIo::Always);
    let direct = round_trip(&device, always).unwrap();
    println!("{direct:?}");
    assert!(direct.mode.is_some());
    assert_eq!((&direct.closed, direct.failed), (&None, 0));
    assert_eq!((direct.down.buffered, direct.up.buffered), (0, 0));
    // At least all versions that the cache does not hold.
    let least = (VERSIONS - 3) * SIZE as u64;
    assert!(direct.down.direct >= least, "{direct:?}");
    assert!(direct.up.direct > 0, "{direct:?}");
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "the file has no name");
}

#[test]
#[ignore = "needs an NVIDIA GPU and cuFile"]
fn compatibility_mode_is_left_alone_where_the_faster_way_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let direct = round_trip(&device, builder(&device, directory.path())).unwrap();
    println!("{direct:?}");
    if direct.mode.is_none() {
        assert!(direct.closed.is_some());
        assert_eq!((direct.down.direct, direct.up.direct), (0, 0));
    }
    assert!(direct.down.buffered > 0);
}
