//! Tests of the engine over GPU memory. Run them by name on a machine with a GPU.

#![allow(clippy::unwrap_used)]

mod history;

use history::assert_drains;
use tierflow_device::{Choice, Device, Memory, Stream, open};
use tierflow_engine::{AfterRestore, Cache, Engine, Region, RegionMut, Tier, Version};
use tierflow_testing::noise as content;
use tierflow_tier_alloc::{HostPool, PoolOptions};

const MIB: usize = 1 << 20;

struct Application {
    stream: Stream,
    field: Memory,
    back: Memory,
}

impl Application {
    fn new(device: &Device, largest: usize) -> Self {
        let (field, back) = (
            device.alloc(largest).unwrap(),
            device.alloc(largest).unwrap(),
        );
        Self {
            stream: device.stream().unwrap(),
            field,
            back,
        }
    }

    fn checkpoint(&self, engine: &Engine, version: Version, length: usize) {
        self.stream
            .write(
                &content(version, length),
                &mut self.field.lend_mut(0..length).unwrap(),
            )
            .unwrap();
        let half = length / 2;
        let regions = [
            Region::Memory(&self.field, 0..half),
            Region::Memory(&self.field, half..length),
        ];
        engine.checkpoint(version, &regions).unwrap();
        // Later writes do not change the checkpoint.
        self.stream
            .fill(&mut self.field.lend_mut(0..length).unwrap(), 0xAA)
            .unwrap();
    }

    fn assert_restores(&self, engine: &Engine, version: Version, length: usize) {
        self.stream
            .fill(&mut self.back.lend_mut(0..length).unwrap(), 0x55)
            .unwrap();
        engine
            .restore(version, &mut [RegionMut::Memory(&self.back, 0..length)])
            .unwrap();
        let mut bytes = vec![0; length];
        self.stream
            .read(&self.back.lend(0..length).unwrap(), &mut bytes)
            .unwrap();
        assert!(
            bytes == content(version, length),
            "version {version} came back wrong"
        );
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_order_gives_the_bytes_back_through_all_tiers() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let count = 120_u64;
    let size = |version: Version| 1 + (version as usize * 7_919_000) % (6 * MIB);
    let application = Application::new(&device, 6 * MIB);
    let orders: [fn(u64, u64) -> u64; 3] = [|i, n| n - 1 - i, |i, _| i, |i, n| i * 37 % n];
    for order in orders {
        for hinted in [true, false] {
            let scratch = tempfile::tempdir().unwrap();
            let engine = Engine::builder(&device)
                .device_cache(32 * MIB)
                .host_cache(96 * MIB)
                .scratch(scratch.path())
                .after_restore(AfterRestore::Discard)
                .build()
                .unwrap();
            if hinted {
                engine.hint((0..count).map(|i| order(i, count)));
            }
            for version in 0..count {
                application.checkpoint(&engine, version, size(version));
            }
            for step in 0..count {
                let version = order(step, count);
                application.assert_restores(&engine, version, size(version));
            }
            print!("{}", engine.metrics());
            assert_drains(&engine);
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn versions_that_fit_no_cache_go_through_staging() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let application = Application::new(&device, 21 * MIB);
    let scratch = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&device)
        .device_cache(8 * MIB)
        .host_cache(6 * MIB)
        .scratch(scratch.path())
        .build()
        .unwrap();
    // The versions go from the call to the file, from the device to the file past the host, and through all tiers.
    for (version, length) in [
        (0, 21 * MIB - 3),
        (1, 7 * MIB + 1),
        (2, MIB),
        (3, 7 * MIB),
        (4, 7 * MIB + 77),
    ] {
        application.checkpoint(&engine, version, length);
    }
    engine.wait().unwrap();
    engine.hint([1, 0, 3, 4, 2]);
    engine.hints().prefetch_start();
    for (version, length) in [
        (1, 7 * MIB + 1),
        (0, 21 * MIB - 3),
        (3, 7 * MIB),
        (4, 7 * MIB + 77),
        (2, MIB),
    ] {
        application.assert_restores(&engine, version, length);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn consumed_in_place_through_all_tiers() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let stream = device.stream().unwrap();
    let engine = Engine::builder(&device)
        .device_cache(32 * MIB)
        .host_cache(96 * MIB)
        .scratch(scratch.path())
        .after_restore(AfterRestore::Discard)
        .build()
        .unwrap();
    let size = |version: Version| 1 + (version as usize * 7_919_000) % (6 * MIB);
    engine.hint((0..120).rev());
    for version in 0..120 {
        let mut slot = engine.call().produce(version, size(version)).unwrap();
        let source = device.alloc(size(version)).unwrap();
        let mut field = source.lend_mut(0..size(version)).unwrap();
        stream
            .write(&content(version, size(version)), &mut field)
            .unwrap();
        slot.copy_from(&stream, &field.into_read()).unwrap();
        slot.commit();
    }
    for version in (0..120).rev() {
        let slot = engine.call().consume(version).unwrap();
        let mut bytes = vec![0; size(version)];
        stream.read(&slot, &mut bytes).unwrap();
        assert!(bytes == content(version, size(version)), "{version}");
    }
    print!("{}", engine.metrics());
    assert_drains(&engine);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn two_engines_share_a_pool_of_pinned_memory() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let pool = HostPool::in_process(PoolOptions::new(1 << 30)).unwrap();
    let limit = |engine: &Engine| engine.metrics().tiers[1].limit;
    std::thread::scope(|scope| {
        for client in 0..2_u64 {
            let (device, pool) = (&device, &pool);
            scope.spawn(move || {
                let scratch = tempfile::tempdir().unwrap();
                let application = Application::new(device, 16 * MIB);
                let engine = Engine::builder(device)
                    .device_cache(64 * MIB)
                    .tier(Tier::host(0).pool(pool))
                    .scratch(scratch.path())
                    .build()
                    .unwrap();
                // The second engine comes when the first has borrowed the whole pool.
                let begun = std::time::Instant::now();
                while pool.members().unwrap().len() < 2 && client == 0 {
                    if limit(&engine) == 1 << 30 || begun.elapsed().as_secs() > 60 {
                        break;
                    }
                }
                let versions = client * 1000..client * 1000 + 90;
                for version in versions.clone() {
                    application.checkpoint(&engine, version, 16 * MIB - 4096);
                }
                let begun = std::time::Instant::now();
                while limit(&engine) < 512 << 20 {
                    assert!(begun.elapsed().as_secs() < 60, "half of it is its own");
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                for version in versions.rev() {
                    application.assert_restores(&engine, version, 16 * MIB - 4096);
                }
                println!("client {client}: {:?}", engine.reports().host.unwrap());
            });
        }
    });
    assert!(pool.members().unwrap().is_empty());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn device_memory_is_lent_to_another_phase() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::new(&device, 16 * MIB);
    let engine = Engine::builder(&device)
        .device_cache(4 << 30)
        .host_cache(1 << 30)
        .scratch(scratch.path())
        .build()
        .unwrap();
    for version in 0..60 {
        application.checkpoint(&engine, version, 16 * MIB);
    }
    let before = device.free_bytes().unwrap();
    let patience = std::time::Duration::from_secs(60);
    let begun = std::time::Instant::now();
    engine.resize(Cache::Device, 128 * MIB, patience).unwrap();
    println!("given back after {:?}", begun.elapsed());
    assert!(device.free_bytes().unwrap() - before >= 2 << 30);
    (0..60).for_each(|version| application.assert_restores(&engine, version, 16 * MIB));
    let begun = std::time::Instant::now();
    engine.resize(Cache::Device, usize::MAX, patience).unwrap();
    println!("back again after {:?}", begun.elapsed());
    (0..60).for_each(|version| application.assert_restores(&engine, version, 16 * MIB));
}
