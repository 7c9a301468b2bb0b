//! If a GPU fails for good, only versions that lay in its memory alone are lost, and the engine names them at its end. The process cannot
//! use the GPU afterwards, so this test is a program of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::time::Duration;

use tierflow_device::cuda::Failure;
use tierflow_device::{Choice, Error as DeviceError, open};
use tierflow_engine::{Engine, Error, Region, RegionMut, Version};
use tierflow_testing::noise;

const MIB: usize = 1 << 20;
const LENGTH: usize = 8 * MIB;
const COUNT: Version = 24;

/// Returns a version's bytes. The function is fast, so that the disk is still behind when the GPU fails.
fn content(version: Version, noise: &[u8]) -> Vec<u8> {
    let mut bytes = noise.to_vec();
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn is_of_device(error: &Error) -> bool {
    matches!(error, Error::Device(DeviceError::Lost { .. }))
}

fn assert_restored(engine: &Engine, version: Version, noise: &[u8]) -> Result<(), Error> {
    let mut bytes = vec![0; LENGTH];
    engine.restore(version, &mut [RegionMut::from(&mut bytes[..])])?;
    assert!(bytes == content(version, noise), "{version}");
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU, which its process loses"]
fn only_what_lay_in_its_memory_alone_is_lost_and_named() {
    let node = tempfile::tempdir().unwrap();
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let engine = Engine::builder(&device)
        .device_cache(48 * MIB)
        .host_cache(96 * MIB)
        .node_local(node.path())
        .closing_patience(Duration::from_secs(60))
        .build()
        .unwrap();
    let stream = device.stream().unwrap();
    let field = device.alloc(LENGTH).unwrap();
    let noise = noise(1, LENGTH);
    let failure = Failure::load(&device).unwrap();
    for version in 0..COUNT {
        let mut loan = field.lend_mut(0..LENGTH).unwrap();
        stream.write(&content(version, &noise), &mut loan).unwrap();
        drop(loan);
        let region = Region::Memory(&field, 0..LENGTH);
        engine.checkpoint(version, &[region]).unwrap();
    }
    failure.enqueue(&stream, Duration::ZERO).unwrap();
    let waits = stream.synchronize();
    assert!(matches!(waits, Err(DeviceError::Lost { .. })), "{waits:?}");

    let refused = engine.checkpoint(COUNT, &[Region::Memory(&field, 0..LENGTH)]);
    let refused = refused.unwrap_err();
    assert!(is_of_device(&refused), "{refused}");
    let mut back = 0;
    for version in 0..COUNT {
        let is_durable = engine.is_durable(version);
        match assert_restored(&engine, version, &noise) {
            Ok(()) => back += 1,
            Err(error) => {
                println!("{version}: {error}");
                assert!(!is_durable, "the disk has {version}");
            }
        }
    }
    println!("{back} of {COUNT} came back to this process");
    println!("{}", engine.metrics());
    let lost: BTreeSet<Version> = match engine.close() {
        Ok(()) => BTreeSet::new(),
        Err(Error::Lost {
            versions,
            kept,
            cause,
            ..
        }) => {
            println!("lost {versions:?}, kept {kept:?}: {cause}");
            versions.into_iter().collect()
        }
        Err(error) => panic!("{error}"),
    };
    assert!(
        lost.len() <= 48 / 8,
        "{lost:?} do not fit the device's cache"
    );

    let host = open(Choice::Host).unwrap();
    let next = Engine::builder(&host)
        .node_local(node.path())
        .build()
        .unwrap();
    let found = next.versions();
    let expected: Vec<Version> = (0..COUNT)
        .filter(|version| !lost.contains(version))
        .collect();
    assert_eq!(found, expected);
    for version in found {
        assert_restored(&next, version, &noise).unwrap();
    }
}
