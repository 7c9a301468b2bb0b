//! The GPU compresses and decompresses checkpoints in its memory. Run these tests by name on a machine with a GPU.

#![allow(clippy::unwrap_used)]

use tierflow_device::{Choice, Device, Memory, Stream, open};
use tierflow_engine::{
    AfterRestore, Bound, Call, CompressedTiers, Compression, Element, Engine, EngineBuilder, Flush,
    Region, RegionMut, Value, Version,
};
use tierflow_testing::noise;

const VALUES: usize = (1 << 20) + 250;
const SIZE: usize = 4 * VALUES;
/// Bytes before the field, so that the field is not aligned.
const HEAD: usize = 10_003;
const VERSIONS: Version = 40;

fn field(version: Version) -> Vec<u8> {
    let front = (VALUES / VERSIONS as usize) * (version as usize + 1);
    let value = |n: usize| match n < front {
        true => ((front - n) as f32 / 40.0).sin() * (n as f32 / 9e5).cos(),
        false => 0.0,
    };
    (0..VALUES).flat_map(|n| value(n).to_le_bytes()).collect()
}

struct Bench {
    device: Device,
    stream: Stream,
    field: Memory,
    head: Memory,
}

impl Bench {
    fn new() -> Self {
        let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
        Self {
            stream: device.stream().unwrap(),
            field: device.alloc(SIZE).unwrap(),
            head: device.alloc(HEAD).unwrap(),
            device,
        }
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

    fn checkpoint(&self, engine: &Engine, version: Version, content: &[u8]) {
        self.checkpoint_by(engine.call(), version, content);
    }

    fn checkpoint_by(&self, call: Call<'_>, version: Version, content: &[u8]) {
        self.set(&self.field, content);
        self.set(&self.head, &noise(version, HEAD));
        let shape = [VALUES as u64];
        let regions = [
            Region::from(&self.head).named("head"),
            Region::from(&self.field).array("wave", Element::F32, &shape),
        ];
        call.checkpoint(version, &regions).unwrap();
    }

    /// Returns the restored field, after checking the bytes before it.
    fn restored(&self, engine: &Engine, version: Version) -> Vec<u8> {
        self.set(&self.field, &[0x55; SIZE]);
        self.set(&self.head, &[0x55; HEAD]);
        let mut regions = [RegionMut::from(&self.head), RegionMut::from(&self.field)];
        engine.restore(version, &mut regions).unwrap();
        assert!(self.get(&self.head) == noise(version, HEAD));
        self.get(&self.field)
    }

    fn builder(&self) -> EngineBuilder {
        Engine::builder(&self.device)
            .device_cache(4 * (SIZE + (64 << 10)))
            .flush(Flush::Eager)
            .compress(Compression::lossless(Value::I8))
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_version_comes_back_from_each_kind_of_tier() {
    let bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    let host = |builder: EngineBuilder| builder.host_cache(64 << 20);
    let large = |builder: EngineBuilder| builder.host_cache(256 << 20);
    let scratch = |builder: EngineBuilder| builder.scratch(directory.path());
    let node = |builder: EngineBuilder| builder.node_local(directory.path().join("node"));
    type Below<'a> = &'a dyn Fn(EngineBuilder) -> EngineBuilder;
    let below: [Below<'_>; 4] = [&|b| scratch(host(b)), &large, &scratch, &|b| node(host(b))];
    for below in below {
        for after in [AfterRestore::Keep, AfterRestore::Discard] {
            let engine = below(bench.builder()).after_restore(after).build().unwrap();
            engine.hint((0..VERSIONS).rev());
            for version in 0..VERSIONS {
                bench.checkpoint(&engine, version, &field(version));
            }
            engine.wait().unwrap();
            let compression = engine.metrics().compression.unwrap();
            assert!(compression.stored > 0, "{compression:?}");
            for version in (0..VERSIONS).rev() {
                assert!(
                    bench.restored(&engine, version) == field(version),
                    "{version}"
                );
            }
            for version in engine.versions() {
                engine.discard(version).unwrap();
            }
        }
    }
}

/// Versions are compressed on their way from device memory, from host memory, and from a disk.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_version_comes_back_whichever_tiers_are_compressed() {
    let bench = Bench::new();
    for tiers in [CompressedTiers::Storage, CompressedTiers::External] {
        for host_cache in [64 << 20, 0] {
            let directory = tempfile::tempdir().unwrap();
            let how = Compression::lossless(Value::I8).always().on(tiers);
            let engine = bench.builder().compress(how).host_cache(host_cache);
            let engine = engine.scratch(directory.path());
            let engine = engine.external(directory.path().join("external"));
            let engine = engine.build().unwrap();
            engine.hint((0..VERSIONS).rev());
            for version in 0..VERSIONS {
                bench.checkpoint(&engine, version, &field(version));
            }
            engine.wait().unwrap();
            let compression = engine.metrics().compression.unwrap();
            assert!(compression.stored > 0, "{compression:?}");
            for version in (0..VERSIONS).rev() {
                let back = bench.restored(&engine, version);
                assert!(back == field(version), "{version}");
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_bounded_field_comes_back_within_its_bound_and_by_any_regions() {
    let bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    let how = Compression::lossless(Value::I8).within("wave", Bound::Relative(1e-3));
    let engine = bench
        .builder()
        .scratch(directory.path())
        .compress(how)
        .build()
        .unwrap();
    // The error bound of a call replaces that of the engine.
    let error_of = |version: Version| (version % 2 == 1).then_some(1e-4);
    for version in 0..VERSIONS {
        let call = engine.call();
        let call = match error_of(version) {
            Some(error) => call.within_error(error),
            None => call,
        };
        bench.checkpoint_by(call, version, &field(version));
    }
    engine.wait().unwrap();
    let values = |bytes: &[u8]| -> Vec<f32> {
        let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        bytes.chunks_exact(4).map(value).collect()
    };
    for version in 0..VERSIONS {
        // A restore of one region to ordinary memory gives the same values as one to the device.
        let mut alone = vec![0; SIZE];
        let region = ("wave", RegionMut::from(alone.as_mut_slice()));
        engine
            .call()
            .restore_regions(version, &mut [region])
            .unwrap();
        let back = bench.restored(&engine, version);
        // The device cache may still hold this version uncompressed.
        let truth = values(&field(version));
        let peak = truth
            .iter()
            .fold(0.0_f32, |peak, value| peak.max(value.abs()));
        for back in [&back, &alone] {
            let back = values(back);
            let error = error_of(version).unwrap_or(1e-3 * f64::from(peak));
            let is_near =
                |(value, back): (&f32, &f32)| (f64::from(*value) - f64::from(*back)).abs() <= error;
            assert!(truth.iter().zip(&back).all(is_near), "{version}");
        }
    }
    let compression = engine.metrics().compression.unwrap();
    assert!(
        compression.stored < compression.compressed / 5,
        "{compression:?}"
    );
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn versions_that_cannot_be_compressed_are_stored_as_they_are() {
    let bench = Bench::new();
    let engine = bench.builder().host_cache(512 << 20).build().unwrap();
    for version in 0..VERSIONS {
        bench.checkpoint(&engine, version, &noise(version + 100, SIZE));
    }
    engine.wait().unwrap();
    let compression = engine.metrics().compression.unwrap();
    assert_eq!(compression.compressed, 0, "{compression:?}");
    for version in (0..VERSIONS).rev() {
        assert!(bench.restored(&engine, version) == noise(version + 100, SIZE));
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn host_and_device_read_each_others_compressed_versions() {
    let bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    let host = open(Choice::Host).unwrap();
    let on_host = || {
        Engine::builder(&host)
            .host_cache(2 * SIZE)
            .compress(Compression::lossless(Value::F32))
    };
    {
        let engine = bench
            .builder()
            .node_local(directory.path())
            .build()
            .unwrap();
        (0..8).for_each(|version| bench.checkpoint(&engine, version, &field(version)));
        engine.wait().unwrap();
    }
    {
        let engine = on_host().node_local(directory.path()).build().unwrap();
        for version in 0..8 {
            let mut back = vec![0; SIZE];
            let region = ("wave", RegionMut::from(back.as_mut_slice()));
            engine
                .call()
                .restore_regions(version, &mut [region])
                .unwrap();
            assert!(back == field(version));
        }
        for version in 8..12 {
            let (head, wave) = (noise(version, HEAD), field(version));
            let regions = [
                Region::from(head.as_slice()).named("head"),
                Region::from(wave.as_slice()).named("wave"),
            ];
            engine.checkpoint(version, &regions).unwrap();
        }
        engine.wait().unwrap();
    }
    let engine = bench
        .builder()
        .node_local(directory.path())
        .build()
        .unwrap();
    for version in 0..12 {
        assert!(bench.restored(&engine, version) == field(version));
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU, and takes all of its memory"]
fn without_device_memory_versions_go_as_they_are_and_the_host_decodes() {
    let bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    {
        let engine = bench
            .builder()
            .node_local(directory.path())
            .build()
            .unwrap();
        (0..8).for_each(|version| bench.checkpoint(&engine, version, &field(version)));
        engine.wait().unwrap();
        assert!(engine.metrics().compression.unwrap().stored > 0);
    }
    let engine = bench
        .builder()
        .node_local(directory.path())
        .build()
        .unwrap();
    let mut taken = Vec::new();
    let mut size = 8 << 30;
    while size >= 1 << 20 {
        match bench.device.alloc(size) {
            Ok(memory) => taken.push(memory),
            Err(_) => size /= 2,
        }
    }
    engine.hint(0..8);
    engine.hints().prefetch_start();
    for version in 0..8 {
        assert!(bench.restored(&engine, version) == field(version));
    }
    for version in 8..16 {
        bench.checkpoint(&engine, version, &field(version));
    }
    engine.wait().unwrap();
    let compression = engine.metrics().compression.unwrap();
    assert_eq!(compression.compressed, 0, "{compression:?}");
    drop(taken);
    for version in 0..16 {
        assert!(bench.restored(&engine, version) == field(version));
    }
}

/// Builds without nvCOMP read versions that nvCOMP compressed.
#[test]
#[ignore = "needs an NVIDIA GPU and nvCOMP"]
fn any_build_with_its_codecs_reads_versions_of_nvcomp() {
    use tierflow_engine::NvcompCodec;
    let bench = Bench::new();
    for codec in NvcompCodec::ALL {
        let directory = tempfile::tempdir().unwrap();
        let how = Compression::lossless(Value::I8).nvcomp(codec).always();
        let how = how.within("bounded", Bound::Relative(1e-3));
        let build = |how: Compression| {
            let engine = bench.builder().compress(how).host_cache(64 << 20);
            let engine = engine.node_local(directory.path());
            engine.build().unwrap()
        };
        {
            let engine = build(how.clone());
            engine.hint((0..VERSIONS).rev());
            for version in 0..VERSIONS {
                bench.checkpoint(&engine, version, &field(version));
            }
            engine.wait().unwrap();
            let compression = engine.metrics().compression.unwrap();
            assert!(
                compression.stored < compression.compressed / 3 * 2,
                "{compression:?}"
            );
            for version in (0..VERSIONS).rev() {
                let back = bench.restored(&engine, version);
                assert!(back == field(version), "{codec}, {version}");
            }
        }
        // An engine with nvCOMP, one without, and one without a GPU read the versions.
        for how in [how, Compression::lossless(Value::F32)] {
            let engine = build(how);
            for version in 0..VERSIONS {
                assert!(bench.restored(&engine, version) == field(version));
            }
        }
        let host = open(Choice::Host).unwrap();
        let engine = Engine::builder(&host)
            .host_cache(2 * SIZE)
            .compress(Compression::lossless(Value::F32))
            .node_local(directory.path())
            .build()
            .unwrap();
        for version in 0..VERSIONS {
            let mut back = vec![0; SIZE];
            let region = ("wave", RegionMut::from(back.as_mut_slice()));
            engine
                .call()
                .restore_regions(version, &mut [region])
                .unwrap();
            assert!(back == field(version), "{codec}, {version}");
        }
    }
}
