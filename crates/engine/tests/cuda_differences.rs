//! Differences made of checkpoints in GPU memory, and checkpoints made of them there. Run by name on a machine that has
//! a GPU.

#![allow(clippy::unwrap_used)]

use tierflow_dedup::Tree;
use tierflow_device::{Choice, Memory, Stream, open};
use tierflow_engine::{AfterRestore, Engine, Flush, Region, RegionMut, Version};

const SIZE: usize = (4 << 20) + 1000;

/// A state that changes a little from version to version, and every tenth time altogether.
fn content(version: Version) -> Vec<u8> {
    let word = |at: u64| {
        let mixed = (at ^ (version / 10) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 31).to_le_bytes()
    };
    let mut state: Vec<u8> = (0..SIZE as u64 / 8).flat_map(word).collect();
    for change in 1..=version {
        for n in 0..50 {
            let at = (change * 7919 + n * 104_729) as usize % (SIZE - 8);
            state[at..at + 8].copy_from_slice(&(change << 8 | n).to_le_bytes());
        }
    }
    state
}

fn assert_restores(engine: &Engine, version: Version, back: &Memory, stream: &Stream) {
    let mut loan = back.lend_mut(0..SIZE).unwrap();
    stream.fill(&mut loan, 0x55).unwrap();
    drop(loan);
    let mut regions = [RegionMut::Memory(back, 0..SIZE)];
    engine.restore(version, &mut regions).unwrap();
    let mut bytes = vec![0; SIZE];
    let loan = back.lend(0..SIZE).unwrap();
    stream.read(&loan, &mut bytes).unwrap();
    assert!(
        bytes == content(version),
        "version {version} came back wrong"
    );
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_version_comes_back_and_the_host_holds_what_changed() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let stream = device.stream().unwrap();
    let (field, back) = (device.alloc(SIZE).unwrap(), device.alloc(SIZE).unwrap());
    for after in [AfterRestore::Keep, AfterRestore::Discard] {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::builder(&device)
            .device_cache(4 * (SIZE + 4096))
            .host_cache(64 << 20)
            .scratch(directory.path())
            .after_restore(after)
            .flush(Flush::Eager)
            .dedup(Tree { chunk: 128 })
            .build()
            .unwrap();
        engine.hint((0..40).rev());
        for version in 0..40 {
            let mut loan = field.lend_mut(0..SIZE).unwrap();
            stream.write(&content(version), &mut loan).unwrap();
            drop(loan);
            let regions = [Region::Memory(&field, 0..SIZE)];
            engine.checkpoint(version, &regions).unwrap();
        }
        engine.wait().unwrap();
        // Whole checkpoints are those that changed altogether, and those that begin a chain.
        let tiers = engine.metrics().tiers;
        let file = tiers.iter().find(|tier| tier.name == "file").unwrap();
        assert!(file.used < 10 * SIZE as u64, "{} bytes", file.used);
        for version in (0..40).rev() {
            assert_restores(&engine, version, &back, &stream);
        }
        let brought = engine.metrics().hops;
        assert!(
            brought
                .iter()
                .any(|hop| hop.to == "device" && hop.transfers > 0)
        );
    }
}
