//! Regions by name: whatever holds a version, each of its regions comes back alone, and the files say what it is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod hanging;
mod home;
mod vaults;

use hanging::Hanging;
use home::home;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tierflow_dedup::Tree;
use tierflow_device::{Choice, Device, Memory, open};
use tierflow_engine::{
    AfterRestore, Element, Engine, EngineBuilder, Error, Region, RegionInfo, RegionMut, Tier,
    Version,
};
use tierflow_store::{Options, Repository, Snapshot};
use tierflow_testing::assert_matches;
use vaults::Watched;

const TEMPERATURE: [u64; 2] = [25, 41];
/// Larger than a block of the files, and no multiple of one.
const VELOCITY: [u64; 3] = [3, 5, 20_003];
const VELOCITY_BYTES: usize = 3 * 5 * 20_003 * 4;
const NAMES: [&str; 5] = ["temperature", "seed", "region-2", "velocity", "nothing"];

/// The bytes of each region of a version; most are as they were before.
fn content(version: Version) -> [Vec<u8>; 5] {
    let bytes = |length: usize, salt: usize| -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length).map(|i| ((i * 131 + salt) >> 3) as u8).collect();
        for at in (version as usize % 97..length).step_by(9_973) {
            bytes[at] ^= version as u8;
        }
        bytes
    };
    let lengths = [25 * 41 * 8, 17, 5, VELOCITY_BYTES, 0];
    [0, 1, 2, 3, 4].map(|region| bytes(lengths[region], region * 7919))
}

fn whole(version: Version) -> Vec<u8> {
    content(version).concat()
}

fn checkpoint(engine: &Engine, device: &Device, version: Version) {
    let [temperature, seed, plain, velocity, nothing] = content(version);
    // Some lies in the middle of memory of the device.
    let memory = device.alloc(temperature.len() + 64).unwrap();
    let within = 32..32 + temperature.len();
    fill(device, &memory, within.start, &temperature);
    let regions = [
        Region::Memory(&memory, within).array("temperature", Element::F64, &TEMPERATURE),
        Region::from(&seed[..]).named("seed"),
        Region::from(&plain[..]),
        Region::from(&velocity[..]).array("velocity", Element::F32, &VELOCITY),
        Region::from(&nothing[..]).array("nothing", Element::F64, &[4, 0]),
    ];
    engine.checkpoint(version, &regions).unwrap();
}

fn fill(device: &Device, memory: &Memory, at: usize, bytes: &[u8]) {
    let mut loan = memory.lend_mut(at..at + bytes.len()).unwrap();
    device.stream().unwrap().write(bytes, &mut loan).unwrap();
}

fn assert_regions(regions: &[RegionInfo]) {
    let of = |region: &RegionInfo| (region.name.clone(), region.element, region.shape.clone());
    let said: Vec<_> = regions.iter().map(of).collect();
    let expected = [
        (Element::F64, TEMPERATURE.to_vec()),
        (Element::Bytes, vec![]),
        (Element::Bytes, vec![]),
        (Element::F32, VELOCITY.to_vec()),
        (Element::F64, vec![4, 0]),
    ];
    let names = NAMES.iter().map(|name| (*name).to_owned());
    let expected = names
        .zip(expected)
        .map(|(name, (element, shape))| (name, element, shape));
    assert_eq!(said, expected.collect::<Vec<_>>());
}

/// Every region alone, some together, into memory of both kinds; then the version is held still, and comes back as a whole.
fn assert_all_come_back(engine: &Engine, device: &Device, version: Version) {
    assert_regions(&engine.regions(version).unwrap());
    let expected = content(version);
    for (name, expected) in NAMES.iter().zip(&expected) {
        let mut bytes = vec![0xAA; expected.len()];
        let region = RegionMut::from(bytes.as_mut_slice());
        engine
            .call()
            .restore_regions(version, &mut [(name, region)])
            .unwrap();
        assert!(bytes == *expected, "{name} of version {version}");
    }
    let (mut seed, mut velocity) = (vec![0; 17], vec![0; VELOCITY_BYTES]);
    let memory = device.alloc(expected[0].len() + 10).unwrap();
    let mut some = [
        ("velocity", RegionMut::from(velocity.as_mut_slice())),
        ("temperature", RegionMut::Memory(&memory, 10..memory.len())),
        ("seed", RegionMut::from(seed.as_mut_slice())),
    ];
    let patient = engine.call().within(Duration::from_secs(100));
    patient.restore_regions(version, &mut some).unwrap();
    assert!(seed == expected[1] && velocity == expected[3], "{version}");
    let mut temperature = vec![0; expected[0].len()];
    let loan = memory.lend(10..memory.len()).unwrap();
    device
        .stream()
        .unwrap()
        .read(&loan, &mut temperature)
        .unwrap();
    assert!(temperature == expected[0], "version {version}");
    assert!(engine.versions().contains(&version));
    let mut bytes = vec![0; engine.restore_size(version).unwrap() as usize];
    let mut regions = [RegionMut::from(bytes.as_mut_slice())];
    engine.restore(version, &mut regions).unwrap();
    assert!(bytes == whole(version), "version {version}");
}

fn host() -> (Device, EngineBuilder) {
    let device = open(Choice::Host).unwrap();
    let builder = Engine::builder(&device).after_restore(AfterRestore::Discard);
    (device, builder)
}

fn size() -> usize {
    whole(0).len()
}

#[test]
fn regions_come_back_by_name_from_caches_and_scratch_files() {
    let directory = tempfile::tempdir().unwrap();
    let tiers: [fn(EngineBuilder, &Path) -> EngineBuilder; 4] = [
        |builder, _| builder.host_cache(8 * size()),
        |builder, path| builder.device_cache(2 * size()).scratch(path),
        |builder, path| builder.scratch(path),
        |builder, path| {
            let builder = builder.device_cache(2 * size()).host_cache(3 * size());
            builder.scratch(path).dedup(Tree { chunk: 64 })
        },
    ];
    for (number, with) in tiers.into_iter().enumerate() {
        let (device, builder) = host();
        let engine = with(builder, directory.path()).build().unwrap();
        for version in 0..5 {
            checkpoint(&engine, &device, version);
        }
        if number > 0 {
            engine.wait().unwrap();
        }
        for version in [3, 0, 4, 1, 2] {
            assert_all_come_back(&engine, &device, version);
            // Only the whole restore consumed the version.
            assert!(!engine.versions().contains(&version));
        }
    }
}

#[test]
fn files_say_what_the_regions_are_and_the_next_engine_knows() {
    let tiers: [fn(EngineBuilder) -> EngineBuilder; 3] = [
        |builder| builder,
        |builder| builder.host_cache(3 * size()),
        |builder| {
            builder
                .device_cache(2 * size())
                .host_cache(3 * size())
                .dedup(Tree { chunk: 64 })
        },
    ];
    for (number, with) in tiers.into_iter().enumerate() {
        let home = home();
        let start = || {
            let (device, builder) = host();
            let builder = builder.after_restore(AfterRestore::Keep);
            let builder = with(builder).node_local(&home.near).external(&home.far);
            (device, builder.build().unwrap())
        };
        let (device, engine) = start();
        (0..5).for_each(|version| checkpoint(&engine, &device, version));
        engine.close().unwrap();
        for directory in [&home.near, &home.far] {
            let repository = Repository::read_only(directory, Options::default()).unwrap();
            for version in 0..5 {
                let piece = repository.piece(version).unwrap();
                assert_regions(piece.layout());
                assert_eq!(piece.info().decoded.is_some(), number == 2);
                if number < 2 {
                    for (name, expected) in NAMES.iter().zip(content(version)) {
                        assert!(piece.read(name).unwrap() == expected, "{name}");
                    }
                }
            }
        }
        // A version keeps its names on the way to the host's memory and back to a directory that lost it.
        std::fs::remove_dir_all(&home.near).unwrap();
        for _life in 0..2 {
            let (device, engine) = start();
            assert_eq!(engine.versions(), (0..5).collect::<Vec<_>>());
            for version in [3, 0, 4, 1, 2] {
                assert_all_come_back(&engine, &device, version);
            }
            checkpoint(&engine, &device, 5);
            engine.wait().unwrap();
            assert_all_come_back(&engine, &device, 5);
            engine.discard(5).unwrap();
            engine.close().unwrap();
        }
    }
}

#[test]
fn large_regions_pass_through_what_is_staged_at_a_time() {
    let home = home();
    let scratch = tempfile::tempdir().unwrap();
    std::fs::create_dir(&home.far).unwrap();
    let lengths = [(9 << 20) + 13, 3, (5 << 20) + 1];
    let names = ["a", "b", "c"];
    let tiers: [fn(EngineBuilder) -> EngineBuilder; 2] =
        [|builder| builder, |builder| builder.device_cache(32 << 20)];
    for (number, with) in tiers.into_iter().enumerate() {
        for lasts in [true, false] {
            let (device, builder) = host();
            let builder = match lasts {
                true => with(builder).external(home.far.join(number.to_string())),
                false => with(builder).scratch(scratch.path()),
            };
            let engine = builder.build().unwrap();
            let sources = lengths.map(|length| device.alloc(length).unwrap());
            for (memory, byte) in sources.iter().zip(1..) {
                fill(&device, memory, 0, &vec![byte; memory.len()]);
            }
            let regions = names.iter().zip(&sources);
            let regions: Vec<_> = regions
                .map(|(name, m)| Region::from(m).named(name))
                .collect();
            engine.checkpoint(1, &regions).unwrap();
            engine.wait().unwrap();
            for (index, name) in names.iter().enumerate() {
                let memory = device.alloc(lengths[index]).unwrap();
                let mut region = [(*name, RegionMut::from(&memory))];
                engine.call().restore_regions(1, &mut region).unwrap();
                let mut bytes = vec![0; memory.len()];
                let loan = memory.lend(0..memory.len()).unwrap();
                device.stream().unwrap().read(&loan, &mut bytes).unwrap();
                assert!(bytes == vec![index as u8 + 1; bytes.len()], "{name}");
            }
        }
    }
}

#[test]
fn what_has_no_names_is_one_region_and_numbers_forget_theirs() {
    let home = home();
    let bytes = content(0)[0].clone();
    let builder = host().1.after_restore(AfterRestore::Keep);
    let engine = builder.external(&home.far).build().unwrap();
    let plain = Region::from(bytes.as_slice());
    let array = plain.clone().array("a", Element::F64, &TEMPERATURE);
    // A number that is used again.
    engine.checkpoint(1, &[array]).unwrap();
    engine.discard(1).unwrap();
    engine.close().unwrap();
    let engine = host().1.external(&home.far).build().unwrap();
    for version in [1, 2] {
        engine
            .checkpoint(version, &[plain.clone(), plain.clone()])
            .unwrap();
    }
    engine.close().unwrap();
    // Versions from before names look the same.
    let engine = host().1.external(&home.far).build().unwrap();
    for version in [1, 2] {
        let regions = engine.regions(version).unwrap();
        let [region] = regions.as_slice() else {
            panic!("{regions:?}");
        };
        assert_eq!(
            (region.name.as_str(), region.element),
            ("checkpoint", Element::Bytes)
        );
        let mut back = vec![0; 2 * bytes.len()];
        let mut named = [("checkpoint", RegionMut::from(back.as_mut_slice()))];
        engine.call().restore_regions(version, &mut named).unwrap();
        assert!(back == [bytes.clone(), bytes.clone()].concat());
    }
    drop(engine);
    // And what another program saved is known by its names.
    let repository = Repository::open(&home.far, Options::default()).unwrap();
    let regions = [
        tierflow_store::Region::new("x", &bytes),
        tierflow_store::Region::new("y", &[9]),
    ];
    let snapshot = Snapshot::new(7, &regions);
    repository.save(&snapshot).unwrap();
    drop(repository);
    let engine = host().1.external(&home.far).build().unwrap();
    let mut y = [0];
    let mut named = [("y", RegionMut::from(&mut y[..]))];
    engine.call().restore_regions(7, &mut named).unwrap();
    assert_eq!(y, [9]);
}

#[test]
fn names_that_cannot_be_are_refused_before_anything_happens() {
    let (_device, builder) = host();
    let engine = builder.host_cache(1 << 20).build().unwrap();
    let bytes = [1_u8; 80];
    let plain = || Region::from(&bytes[..]);
    let long = "n".repeat(1025);
    let wrong: [Vec<Region<'_>>; 6] = [
        vec![plain().named("")],
        vec![plain().named(&long)],
        vec![plain().array("a", Element::F64, &[9])],
        vec![plain().array("a", Element::Encoded, &[80])],
        vec![plain().named("a"), plain().named("a")],
        vec![plain(), plain().named("region-0")],
    ];
    for regions in wrong {
        assert_matches!(
            engine.checkpoint(1, &regions),
            Err(Error::NamedRegion { version: 1, .. })
        );
    }
    // The number is free.
    let good = [plain().array("a", Element::F64, &[10]), plain().named("b")];
    engine.checkpoint(1, &good).unwrap();
    let (mut first, mut second) = ([0; 80], [0; 80]);
    let mut asked: [(&str, &mut [u8]); 2] = [("a", &mut first), ("b", &mut second)];
    for (names, lengths) in [
        (["a", "c"], [80, 80]),
        (["a", "a"], [80, 80]),
        (["a", "b"], [80, 79]),
    ] {
        for ((name, _), given) in asked.iter_mut().zip(names) {
            *name = given;
        }
        let mut regions = asked.iter_mut().zip(lengths);
        let mut region = || {
            let ((name, bytes), length) = regions.next().unwrap();
            (*name, RegionMut::from(&mut bytes[..length]))
        };
        let mut regions = [region(), region()];
        assert_matches!(
            engine.call().restore_regions(1, &mut regions),
            Err(Error::NamedRegion { version: 1, .. })
        );
    }
    let error = engine.call().restore_regions(2, &mut []).unwrap_err();
    assert!(matches!(error, Error::Unknown { version: 2 }), "{error}");
}

/// From 1 024 names on, those of versions that are gone are looked for, some at a time. The new version may be among these.
#[test]
fn a_small_version_keeps_its_names_while_old_ones_are_looked_for() {
    let device = open(Choice::Host).unwrap();
    for _ in 0..60 {
        let builder = Engine::builder(&device).device_cache(64 << 20);
        let engine = builder.after_restore(AfterRestore::Keep).build().unwrap();
        for version in 0..1_024_u64 {
            let bytes = version.to_le_bytes();
            let region = Region::from(&bytes[..]).named("count");
            engine.checkpoint(version, &[region]).unwrap();
        }
        let mut bytes = [0; 8];
        let region = ("count", RegionMut::from(&mut bytes[..]));
        let restored = engine.call().restore_regions(1_023, &mut [region]);
        restored.unwrap();
        assert_eq!(u64::from_le_bytes(bytes), 1_023);
    }
}

#[test]
fn a_version_that_storage_could_not_keep_is_refused_before_it_is_taken_in() {
    let engine = host().1.host_cache(1 << 20).build().unwrap();
    let names: Vec<String> = (0..65_536).map(|region| region.to_string()).collect();
    let regions: Vec<Region<'_>> = names
        .iter()
        .map(|name| Region::from(&[7_u8][..]).named(name))
        .collect();
    assert_matches!(
        engine.checkpoint(1, &regions),
        Err(Error::NamedRegion { .. })
    );
    // Its number is free, and one region fewer is as many as a record has.
    engine.checkpoint(1, &regions[1..]).unwrap();
    let long = "x".repeat(1020);
    let names: Vec<String> = (0..65_535)
        .map(|region| format!("{long}{region}"))
        .collect();
    let regions: Vec<Region<'_>> = names
        .iter()
        .map(|name| Region::from(&[7_u8][..]).named(&name[..1024.min(name.len())]))
        .collect();
    assert_matches!(
        engine.checkpoint(2, &regions),
        Err(Error::NamedRegion { .. })
    );
}

#[test]
fn the_piece_of_a_version_that_is_cached_lies_where_it_outlives_the_engine() {
    let home = home();
    let (_, builder) = host();
    let builder = builder.host_cache(1 << 20).external(&home.far);
    let engine = builder.build().unwrap();
    assert_matches!(engine.piece(1, None), Err(Error::Unknown { version: 1 }));
    let bytes = [5_u8; 1000];
    let regions = [Region::from(&bytes[..]).named("seed")];
    engine.checkpoint(1, &regions).unwrap();
    engine.wait().unwrap();
    let piece = engine.piece(1, None).unwrap();
    assert_eq!(tierflow_engine::read_piece(&piece).unwrap(), bytes);
    // A call that asks for nothing succeeds.
    engine.call().restore_regions(1, &mut []).unwrap();
    assert_eq!(engine.metrics().restore.failed, 0);
}

#[test]
fn a_region_that_is_named_twice_has_its_outer_name_and_its_bytes() {
    let engine = Engine::builder(&open(Choice::Host).unwrap()).host_cache(1 << 20);
    let engine = engine.build().unwrap();
    for (version, length) in [(0, 100), (1, 100_000)] {
        let bytes = vec![7; length];
        let region = Region::Named {
            region: Box::new(Region::from(&bytes[..]).named("inner")),
            name: "outer",
            element: Element::Bytes,
            shape: &[],
        };
        engine.checkpoint(version, &[region]).unwrap();
        let mut back = vec![0; length];
        let regions = &mut [("outer", RegionMut::from(back.as_mut_slice()))];
        engine.call().restore_regions(version, regions).unwrap();
        assert!(back == bytes);
    }
}

#[test]
fn a_version_has_its_names_while_its_checkpoint_waits_for_room() {
    let directory = tempfile::tempdir().unwrap();
    let vault = Watched::new(directory.path(), Hanging::default());
    let engine = Engine::builder(&open(Choice::Host).unwrap()).host_cache(1 << 20);
    let tier = Tier::vault(Arc::clone(&vault) as _);
    let engine = engine.tier(tier).build().unwrap();
    vault.hold([0]);
    let bytes = vec![7; 1 << 20];
    let checkpoint =
        |version, name| engine.checkpoint(version, &[Region::from(&bytes[..]).named(name)]);
    checkpoint(0, "first").unwrap();
    let name = || Some(engine.regions(9).ok()?.pop()?.name);
    let first = std::thread::scope(|scope| {
        let waits = scope.spawn(|| checkpoint(9, "seed"));
        let first = loop {
            match name() {
                None if !waits.is_finished() => std::thread::yield_now(),
                first => break first,
            }
        };
        vault.release_all();
        waits.join().unwrap().unwrap();
        first
    });
    assert_eq!(first.as_deref(), Some("seed"));
    let used = checkpoint(9, "other");
    assert_matches!(used, Err(Error::VersionUsed { version: 9 }));
    assert_eq!(name(), first);
}
