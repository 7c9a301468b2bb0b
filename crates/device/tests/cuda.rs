//! Tests of the CUDA back end, on a machine with a GPU:
//! `cargo test -p tierflow-device --test cuda -- --ignored`.

use std::time::Instant;

use tierflow_device::cuda::{Arg, Launch, Module};
use tierflow_device::{
    Choice, Device, Error, Event, HostReservation, Pinned, Stream, Transfer, conformance, open,
};

fn gpu() -> tierflow_device::Result<Device> {
    open(Choice::Cuda { ordinal: 0 })
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn conforms() {
    let device = gpu().unwrap();
    println!("{:?}", device.info());
    for case in conformance::CASES {
        let start = Instant::now();
        case.run(&device).unwrap();
        println!("{:8.1?}  {}", start.elapsed(), case.name);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn opening_again_and_dropping_in_any_order() {
    let (one, two) = (gpu().unwrap(), gpu().unwrap());
    let memory = one.alloc(1 << 20).unwrap();
    drop(one);
    let stream = two.stream().unwrap();
    drop(two);
    // Two handles of one GPU: a stream of one copies memory of the other.
    stream
        .write(&[3; 1 << 20], &mut memory.lend_mut(0..1 << 20).unwrap())
        .unwrap();
    let mut seen = vec![0; 1 << 20];
    stream
        .read(&memory.lend(0..1 << 20).unwrap(), &mut seen)
        .unwrap();
    assert!(seen.iter().all(|&byte| byte == 3));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn everything_is_given_back() {
    let device = gpu().unwrap();
    // The first stream and the first copies fill caches of the driver, which keep their memory.
    conformance::run_all(&device).unwrap();
    let before = device.free_bytes().unwrap();
    {
        let reservation = device.reserve(1 << 30).unwrap();
        for start in (0..1 << 30).step_by(64 << 20) {
            reservation.map(start..start + (64 << 20)).unwrap();
        }
        let taken = before - device.free_bytes().unwrap();
        assert!(taken >= 1 << 30, "{taken} bytes taken by 1 GiB");
    }
    assert_eq!(device.free_bytes().unwrap(), before);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn host_pieces_are_really_pinned() {
    let device = gpu().unwrap();
    let host = device.reserve_host(64 << 20).unwrap();
    host.touch(0..64 << 20).unwrap();
    for start in (0..64 << 20).step_by(16 << 20) {
        assert_eq!(host.pin(start..start + (16 << 20)).unwrap(), Pinned::Yes);
    }
    assert_eq!(host.pinned_bytes(), 64 << 20);
    assert_eq!(HostReservation::GRANULARITY, 2 << 20);
}

const SCALE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 data, .param .u32 count, .param .f32 by)
{
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %a<4>; .reg .f32 %f<3>;
    ld.param.u64 %a1, [data]; ld.param.u32 %r1, [count]; ld.param.f32 %f1, [by];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1; @%p bra DONE;
    cvta.to.global.u64 %a2, %a1; mul.wide.u32 %a3, %r5, 4; add.u64 %a2, %a2, %a3;
    ld.global.f32 %f2, [%a2]; mul.f32 %f2, %f2, %f1; st.global.f32 [%a2], %f2;
DONE:
    ret;
}
";

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_kernel_scales_an_array() {
    let device = gpu().unwrap();
    let module = Module::load(device.as_cuda().unwrap(), SCALE).unwrap();
    let scale = module.function("scale").unwrap();
    assert!(matches!(module.function("scala"), Err(Error::Invalid(_))));
    let nonsense = Module::load(device.as_cuda().unwrap(), "this is no PTX").unwrap_err();
    assert!(matches!(nonsense, Error::Driver { .. }), "{nonsense}");

    let count = 1000_u32;
    let memory = device.alloc(4 * count as usize).unwrap();
    let stream = device.stream().unwrap();
    let values: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let mut loan = memory.lend_mut(0..memory.len()).unwrap();
    stream.write(&values, &mut loan).unwrap();
    let shape = Launch {
        grid: [8, 1, 1],
        block: [128, 1, 1],
        shared_bytes: 0,
    };
    let args = [Arg::address(loan.address()), Arg::u32(count), Arg::f32(0.5)];
    // SAFETY: the kernel takes an address, a count and a factor, touches `count` floats from that
    // address, and the loan of them is held until the stream is synchronised.
    unsafe { stream.launch(&scale, shape, &args) }.unwrap();
    stream.synchronize().unwrap();
    let mut seen = vec![0; memory.len()];
    stream.read(&loan.into_read(), &mut seen).unwrap();
    for (i, bytes) in seen.chunks_exact(4).enumerate() {
        assert_eq!(
            f32::from_le_bytes(bytes.try_into().unwrap()),
            i as f32 * 0.5
        );
    }
}

/// Queues copies of some milliseconds on a stream. Returns an event behind them, and the copies.
fn busy(device: &Device, stream: &Stream) -> tierflow_device::Result<(Event, Vec<Transfer>)> {
    const PART: usize = 256 << 20;
    let (from, to) = (device.alloc(PART)?, device.alloc(32 * PART)?);
    let copies = (0..32).map(|part| {
        let target = to.lend_mut(part * PART..(part + 1) * PART)?;
        Ok(stream.copy(from.lend(0..PART)?, target))
    });
    let copies = copies.collect::<tierflow_device::Result<_>>()?;
    Ok((stream.record()?, copies))
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn streams_of_other_libraries_are_waited_for() {
    let device = gpu().unwrap();
    let theirs = device.stream().unwrap();
    let handle = theirs.cuda_handle().unwrap();
    let waits: [(&str, &dyn Fn() -> Stream); 3] = [
        ("adopted", &|| {
            // SAFETY: `theirs` is there for the whole test.
            unsafe { device.adopt_stream(handle) }.unwrap()
        }),
        ("one", &|| {
            let ours = device.stream().unwrap();
            // SAFETY: as above.
            unsafe { ours.wait_for_foreign(handle) }.unwrap();
            ours
        }),
        ("all", &|| {
            let ours = device.stream().unwrap();
            ours.wait_for_all_work().unwrap();
            ours
        }),
    ];
    for (name, wait) in waits {
        // Another test may hold the driver for longer than the copies take. Then there is nothing to wait for.
        let waited = (0..100).any(|_| {
            let (ends, copies) = busy(&device, &theirs).unwrap();
            let is_early = !ends.is_done().unwrap();
            let ours = wait();
            ours.synchronize().unwrap();
            assert!(ends.is_done().unwrap(), "{name}");
            drop((ours, copies));
            is_early
        });
        assert!(waited, "{name}: nothing to wait for");
    }
    // SAFETY: as above.
    assert!(!unsafe { device.is_captured(handle) }.unwrap());
    // A stream that was adopted remains usable for its owner after the adopted handle is dropped.
    theirs.record().unwrap().synchronize().unwrap();
    // The default streams have handles of their own.
    for handle in 0..3 {
        // SAFETY: these are always there.
        let stream = unsafe { device.adopt_stream(handle) }.unwrap();
        stream.synchronize().unwrap();
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_driver_knows_whose_memory_it_is() {
    let device = gpu().unwrap();
    let cuda = device.as_cuda().unwrap();
    let memory = device.alloc(4096).unwrap();
    let loan = memory.lend(1000..2000).unwrap();
    assert_eq!(cuda.owner_of(loan.address()).unwrap(), Some(0));
    let plain = [0_u8; 16];
    let address = plain.as_ptr().expose_provenance() as u64;
    assert_eq!(cuda.owner_of(address).unwrap(), None);
    assert_eq!(cuda.owner_of(0).unwrap(), None);
    let pinned = device.reserve_host(1 << 20).unwrap();
    let loan = pinned.memory().lend(0..16).unwrap();
    let address = loan.bytes().unwrap().as_ptr().expose_provenance() as u64;
    assert_eq!(cuda.owner_of(address).unwrap(), None);
}

/// PyTorch captures graphs in the mode `global`, in which calls of other threads that may wait are refused, and spoil the capture.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_graph_that_is_captured_disturbs_nothing_and_is_not_disturbed() {
    use cudarc::driver::{result, sys};
    let device = gpu().unwrap();
    let memory = device.alloc(64 << 20).unwrap();
    let stream = device.stream().unwrap();
    let mut lent = memory.lend_mut(0..64 << 20).unwrap();
    stream.fill(&mut lent, 7).unwrap();
    let event = stream.record().unwrap();
    let cuda = device.as_cuda().unwrap();
    let kind = result::stream::StreamKind::NonBlocking;
    let captured = {
        let _entered = cuda.enter().unwrap();
        result::stream::create(kind).unwrap()
    };
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    let begun = {
        let _entered = cuda.enter().unwrap();
        // SAFETY: the stream is alive.
        unsafe { sys::cuStreamBeginCapture_v2(captured, mode) }
    };
    begun.result().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            event.synchronize().unwrap();
            assert!(event.is_done().unwrap());
            drop(device.alloc(2 << 20).unwrap());
            drop(device.reserve_host(2 << 20).unwrap());
            device.stream().unwrap().synchronize().unwrap();
        });
    });
    event.synchronize().unwrap();
    assert!(event.is_done().unwrap());
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and `graph` is a valid place for the answer.
    let ended = unsafe { sys::cuStreamEndCapture(captured, &raw mut graph) };
    ended.result().unwrap();
    // SAFETY: the graph is alive, and nothing uses it.
    let destroyed = unsafe { sys::cuGraphDestroy(graph) };
    destroyed.result().unwrap();
    // SAFETY: the stream is alive, and nothing uses it.
    unsafe { result::stream::destroy(captured) }.unwrap();
}

/// An application may destroy its streams while the device still has adopted handles of them. The handles may name other streams then.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn an_adopted_stream_that_orders_work_is_let_go_without_a_wait() {
    let device = gpu().unwrap();
    let theirs = device.stream().unwrap();
    let handle = theirs.cuda_handle().unwrap();
    let is_let_go = (0..100).any(|_| {
        let (ends, copies) = busy(&device, &theirs).unwrap();
        // SAFETY: `theirs` is there for the whole test.
        let adopted = unsafe { device.adopt_stream(handle) }.unwrap();
        let behind = adopted.record().unwrap();
        drop(adopted);
        // Another test may keep the driver for longer than the copies take.
        let is_early = !ends.is_done().unwrap();
        behind.synchronize().unwrap();
        assert!(ends.is_done().unwrap());
        drop(copies);
        is_early
    });
    assert!(is_let_go);
}
