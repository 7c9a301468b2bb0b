//! The GPU makes differences from checkpoints in its memory, and checkpoints from differences. Run these tests by name on a machine with
//! a GPU.

#![allow(clippy::unwrap_used)]

mod counters;

use tierflow_dedup::Tree;
use tierflow_device::{Choice, Device, Memory, Stream, open};
use tierflow_engine::{
    AfterRestore, Compression, Element, Engine, EngineBuilder, Flush, Region, RegionMut, Value,
    Version,
};

const SIZE: usize = (4 << 20) + 1000;

/// Returns a state that changes a little from version to version, and completely at every tenth.
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
fn every_version_comes_back_and_the_host_holds_the_changes() {
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
        // Checkpoints that changed completely, and those that begin a chain, are stored whole.
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

/// Counters in device memory behind an odd number of other bytes.
struct Bench {
    device: Device,
    stream: Stream,
    head: Memory,
    counters: Memory,
}

const HEAD: usize = 10_003;
const WHOLE: usize = HEAD + counters::SIZE;

impl Bench {
    fn new() -> Self {
        let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
        Self {
            stream: device.stream().unwrap(),
            head: device.alloc(HEAD).unwrap(),
            counters: device.alloc(counters::SIZE).unwrap(),
            device,
        }
    }

    fn builder(&self) -> EngineBuilder {
        Engine::builder(&self.device)
            .device_cache(4 * (WHOLE + (64 << 10)))
            .flush(Flush::Eager)
            .dedup(Tree { chunk: 128 })
            .compress(Compression::lossless(Value::I8).always())
    }

    fn head(version: Version) -> Vec<u8> {
        content(version / 7)[..HEAD].to_vec()
    }

    fn set(&self, memory: &Memory, bytes: &[u8]) {
        let mut loan = memory.lend_mut(0..bytes.len()).unwrap();
        self.stream.write(bytes, &mut loan).unwrap();
    }

    fn get(&self, memory: &Memory) -> Vec<u8> {
        let mut bytes = vec![0; memory.len()];
        let loan = memory.lend(0..bytes.len()).unwrap();
        self.stream.read(&loan, &mut bytes).unwrap();
        bytes
    }

    fn checkpoint(&self, engine: &Engine, version: Version) {
        self.set(&self.head, &Self::head(version));
        self.set(&self.counters, &counters::state(version));
        let shape = [counters::SIZE as u64 / 4];
        let regions = [
            Region::from(&self.head).named("head"),
            Region::from(&self.counters).array("counters", Element::U32, &shape),
        ];
        engine.checkpoint(version, &regions).unwrap();
    }

    fn assert_restores(&self, engine: &Engine, version: Version) {
        self.set(&self.head, &[0x55; HEAD]);
        self.set(&self.counters, &[0x55; counters::SIZE]);
        let mut regions = [RegionMut::from(&self.head), RegionMut::from(&self.counters)];
        engine.restore(version, &mut regions).unwrap();
        assert!(
            self.get(&self.head) == Self::head(version)
                && self.get(&self.counters) == counters::state(version),
            "version {version} came back wrong"
        );
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn differences_are_compressed_on_the_device_and_come_back_from_each_kind_of_tier() {
    let bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    let host = |builder: EngineBuilder| builder.host_cache(64 << 20);
    let scratch = |builder: EngineBuilder| builder.scratch(directory.path());
    let node = |builder: EngineBuilder| builder.node_local(directory.path().join("node"));
    type Below<'a> = &'a dyn Fn(EngineBuilder) -> EngineBuilder;
    let below: [Below<'_>; 4] = [&|b| scratch(host(b)), &host, &scratch, &|b| node(host(b))];
    for below in below {
        for after in [AfterRestore::Keep, AfterRestore::Discard] {
            let engine = below(bench.builder()).after_restore(after).build().unwrap();
            engine.hint((0..40).rev());
            (0..40).for_each(|version| bench.checkpoint(&engine, version));
            engine.wait().unwrap();
            let figures = engine.metrics().compression.unwrap();
            assert!(
                0 < figures.stored && figures.stored < figures.compressed / 2,
                "{figures:?}"
            );
            // The engine compresses differences, and not whole checkpoints.
            assert!(figures.compressed < 25 * WHOLE as u64, "{figures:?}");
            (0..40)
                .rev()
                .for_each(|version| bench.assert_restores(&engine, version));
            for version in engine.versions() {
                engine.discard(version).unwrap();
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_host_reads_differences_that_the_device_compressed_and_the_other_way_round() {
    let bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    let host = open(Choice::Host).unwrap();
    {
        let builder = bench.builder().node_local(directory.path());
        let engine = builder.build().unwrap();
        (0..20).for_each(|version| bench.checkpoint(&engine, version));
        engine.wait().unwrap();
        assert!(engine.metrics().compression.unwrap().stored > 0);
    }
    {
        // An engine with differences alone and other chunks reads them.
        let engine = Engine::builder(&host)
            .host_cache(4 * (WHOLE + 4096))
            .node_local(directory.path())
            .dedup(Tree { chunk: 64 })
            .build()
            .unwrap();
        for version in (0..20).rev() {
            let mut back = vec![0; WHOLE];
            let mut regions = [RegionMut::from(back.as_mut_slice())];
            engine.restore(version, &mut regions).unwrap();
            assert!(back[..HEAD] == Bench::head(version));
            assert!(back[HEAD..] == counters::state(version));
        }
    }
    {
        let engine = Engine::builder(&host)
            .host_cache(4 * (WHOLE + 4096))
            .node_local(directory.path())
            .dedup(Tree { chunk: 64 })
            .compress(Compression::lossless(Value::I32).always())
            .build()
            .unwrap();
        for version in 20..40 {
            let (head, counters) = (Bench::head(version), counters::state(version));
            let regions = [
                Region::from(head.as_slice()).named("head"),
                Region::from(counters.as_slice()).named("counters"),
            ];
            engine.checkpoint(version, &regions).unwrap();
        }
        engine.wait().unwrap();
    }
    let builder = bench.builder().node_local(directory.path());
    let engine = builder.build().unwrap();
    (0..40).for_each(|version| bench.assert_restores(&engine, version));
    (0..40)
        .rev()
        .for_each(|version| bench.assert_restores(&engine, version));
}
