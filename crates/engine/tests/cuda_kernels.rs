//! Kernels write slots in the cache. Run these tests by name on a machine with a GPU.

#![allow(clippy::unwrap_used)]

use tierflow_device::cuda::{Arg, Launch, Module};
use tierflow_device::{Choice, Stream, open};
use tierflow_engine::{AfterRestore, Engine, Flush};

const MIB: usize = 1 << 20;

/// A kernel that waits for a number of cycles of the device's clock, and then writes `value` to a number of words.
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
    // The device has room for four versions, so flushes and evictions follow each commit closely.
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
        let slot = engine.call().produce(version, MIB).unwrap();
        late_fill(&stream, slot.address(), version as u32 + 1);
        let begun = std::time::Instant::now();
        slot.commit_after(&stream).unwrap();
        commits.push(begun.elapsed());
    }
    commits.sort_unstable();
    println!("commit_after: median {:?}", commits[commits.len() / 2]);
    let mut bytes = vec![0; MIB];
    for version in (0..count).rev() {
        let slot = engine.call().consume(version).unwrap();
        stream.read(&slot, &mut bytes).unwrap();
        let words = bytes.chunks_exact(4);
        let word = (version as u32 + 1).to_le_bytes();
        assert!(words.into_iter().all(|w| w == word), "version {version}");
        slot.finish_after(&stream).unwrap();
    }
    // A version is discarded or given up at once, and another stream writes its memory. The first kernel must have ended by then.
    let others = device.stream().unwrap();
    for version in count..count + 8 {
        let slot = engine.call().produce(version, MIB).unwrap();
        late_fill(&stream, slot.address(), 77);
        if version % 2 == 0 {
            slot.commit_after(&stream).unwrap();
            engine.discard(version).unwrap();
        } else {
            slot.give_up_after(&stream).unwrap();
        }
        let mut slot = engine.call().produce(1000 + version, 4 * MIB).unwrap();
        slot.fill(&others, 5).unwrap();
        slot.commit();
        let slot = engine.call().consume(1000 + version).unwrap();
        let mut bytes = vec![0; 4 * MIB];
        others.read(&slot, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 5));
    }
    engine.wait().unwrap();
}
