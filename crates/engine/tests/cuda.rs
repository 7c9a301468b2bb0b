//! The engine over GPU memory. Run by name on a machine that has one.

#![allow(clippy::unwrap_used)]

use tierflow_device::cuda::{Arg, Launch, Module};
use tierflow_device::{Choice, Device, Memory, Stream, open};
use tierflow_engine::{AfterRestore, Engine, Flush, Region, RegionMut, Version};

const MIB: usize = 1 << 20;

fn content(version: Version, length: usize) -> Vec<u8> {
    let mut state = version.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(length).collect()
}

/// Nothing is held any more once the transfers that were still under way have ended.
fn assert_drains(engine: &Engine) {
    let begun = std::time::Instant::now();
    while engine.metrics().tiers.iter().any(|tier| tier.used > 0) {
        assert!(
            begun.elapsed().as_secs() < 60,
            "bytes leaked: {:?}",
            engine.metrics().tiers
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

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
        // What comes after does not show in the checkpoint.
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
fn what_fits_no_cache_goes_through_staging() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let application = Application::new(&device, 21 * MIB);
    let scratch = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&device)
        .device_cache(8 * MIB)
        .host_cache(6 * MIB)
        .scratch(scratch.path())
        .build()
        .unwrap();
    // Straight to the file; device to file past the host; and the usual way.
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
    engine.prefetch_start();
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

/// Writes `value` to as many words, but only after so many cycles of the device's clock.
const LATE_FILL: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry late_fill(.param .u64 at, .param .u32 words, .param .u32 value, .param .u32 cycles)
{
    .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %a<8>;
    ld.param.u64 %a1, [at]; ld.param.u32 %r1, [words];
    ld.param.u32 %r2, [value]; ld.param.u32 %r3, [cycles];
    cvta.to.global.u64 %a1, %a1;
    cvt.u64.u32 %a2, %r3;
    mov.u64 %a3, %clock64;
wait:
    mov.u64 %a4, %clock64; sub.s64 %a5, %a4, %a3;
    setp.lt.s64 %p1, %a5, %a2; @%p1 bra wait;
    mov.u32 %r4, %tid.x; mov.u32 %r5, %ntid.x;
fill:
    setp.ge.u32 %p2, %r4, %r1; @%p2 bra done;
    mul.wide.u32 %a6, %r4, 4; add.s64 %a7, %a1, %a6;
    st.global.u32 [%a7], %r2;
    add.u32 %r4, %r4, %r5; bra fill;
done:
    ret;
}";

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn slots_are_ordered_after_kernels_that_nobody_waited_for() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let module = Module::load(device.as_cuda().unwrap(), LATE_FILL).unwrap();
    let kernel = module.function("late_fill").unwrap();
    let shape = Launch {
        grid: [1, 1, 1],
        block: [1024, 1, 1],
        shared_bytes: 0,
    };
    let late_fill = |stream: &Stream, address: u64, value: u32| {
        // A hundredth of a second and more, at 2 GHz and less.
        let args = [
            Arg::address(address),
            Arg::u32((MIB / 4) as u32),
            Arg::u32(value),
            Arg::u32(20_000_000),
        ];
        // SAFETY: the kernel writes 1 MiB from that address on, which is lent to the slot, and stays so until an event
        // behind the kernel is reached.
        unsafe { stream.launch(&kernel, shape, &args) }.unwrap();
    };
    let scratch = tempfile::tempdir().unwrap();
    let stream = device.stream().unwrap();
    // Room for four versions on the device: flushes and evictions come on the heels of commits.
    let engine = Engine::builder(&device)
        .device_cache(4 * MIB)
        .host_cache(8 * MIB)
        .scratch(scratch.path())
        .flush(Flush::Eager)
        .after_restore(AfterRestore::Discard)
        .build()
        .unwrap();
    let count = 24;
    let mut commits = Vec::new();
    for version in 0..count {
        let slot = engine.produce(version, MIB).unwrap();
        late_fill(&stream, slot.address(), version as u32 + 1);
        let begun = std::time::Instant::now();
        slot.commit_after(&stream).unwrap();
        commits.push(begun.elapsed());
    }
    commits.sort_unstable();
    println!("commit_after: median {:?}", commits[commits.len() / 2]);
    let mut bytes = vec![0; MIB];
    for version in (0..count).rev() {
        let slot = engine.consume(version).unwrap();
        stream.read(&slot, &mut bytes).unwrap();
        let words = bytes.chunks_exact(4);
        let word = (version as u32 + 1).to_le_bytes();
        assert!(words.into_iter().all(|w| w == word), "version {version}");
        slot.finish_after(&stream).unwrap();
    }
    // Discarded at once, and written anew by another stream: the first kernel must be over by then.
    let others = device.stream().unwrap();
    for version in count..count + 8 {
        let slot = engine.produce(version, MIB).unwrap();
        late_fill(&stream, slot.address(), 77);
        slot.commit_after(&stream).unwrap();
        engine.discard(version).unwrap();
        let mut slot = engine.produce(1000 + version, 4 * MIB).unwrap();
        slot.fill(&others, 5).unwrap();
        slot.commit();
        let slot = engine.consume(1000 + version).unwrap();
        let mut bytes = vec![0; 4 * MIB];
        others.read(&slot, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 5));
    }
    assert_drains(&engine);
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
        let mut slot = engine.produce(version, size(version)).unwrap();
        let source = device.alloc(size(version)).unwrap();
        let mut field = source.lend_mut(0..size(version)).unwrap();
        stream
            .write(&content(version, size(version)), &mut field)
            .unwrap();
        slot.copy_from(&stream, &field.into_read()).unwrap();
        slot.commit();
    }
    for version in (0..120).rev() {
        let slot = engine.consume(version).unwrap();
        let mut bytes = vec![0; size(version)];
        stream.read(&slot, &mut bytes).unwrap();
        assert!(bytes == content(version, size(version)), "{version}");
    }
    print!("{}", engine.metrics());
    assert_drains(&engine);
}
