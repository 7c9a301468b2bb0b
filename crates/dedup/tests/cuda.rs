//! The kernels on an NVIDIA GPU make the same differences as the CPU, and restore them. `cargo test -p tierflow-dedup
//! --test cuda -- --ignored`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail like tests"
)]

mod common;

use common::{Draws, METHODS, colliding_history, histories};
use tierflow_dedup::{Chain, Config, Error, Invalid, Lineage, Method, gpu};
use tierflow_device::{Choice, Device, Memory, Stream, WriteLoan, open};

struct Gpu {
    device: Device,
    stream: Stream,
    kernels: gpu::Kernels,
}

fn gpu() -> Gpu {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let kernels = gpu::Kernels::load(&device).unwrap();
    let stream = device.stream().unwrap();
    Gpu {
        device,
        stream,
        kernels,
    }
}

impl Gpu {
    fn upload(&self, memory: &Memory, data: &[u8]) {
        let mut loan = memory.lend_mut(0..data.len()).unwrap();
        self.stream.write(data, &mut loan).unwrap();
    }

    fn download(&self, loan: WriteLoan) -> Vec<u8> {
        let mut bytes = vec![0; loan.len()];
        self.stream.read(&loan.into_read(), &mut bytes).unwrap();
        bytes
    }
}

/// Describes the difference for people.
fn describe(what: &str, ours: &[u8], theirs: &[u8]) -> String {
    let at = ours.iter().zip(theirs).position(|(a, b)| a != b);
    let word = |bytes: &[u8], at: usize| {
        let field = bytes.get(at..at + 4).unwrap_or(&[0; 4]);
        u32::from_le_bytes(field.try_into().unwrap())
    };
    let head = |bytes: &[u8]| {
        format!(
            "form {}, {} bytes, payload {}, entries {} + {}",
            bytes[10],
            bytes.len(),
            word(bytes, 56),
            word(bytes, 64),
            word(bytes, 68)
        )
    };
    format!(
        "{what}: the GPU's {} is not the CPU's {}; first difference at {at:?}",
        head(ours),
        head(theirs)
    )
}

fn resident(gpu: &Gpu, chain: &Chain<Vec<u8>>) -> gpu::Resident {
    gpu::Resident::load_beside(&gpu.kernels, &gpu.stream, chain, |_| None).unwrap()
}

/// Encodes a history on the CPU and on the GPU, there into host and device memory in turn, and compares every byte. Restores every
/// version on the GPU.
fn compare(gpu: &Gpu, config: Config, history: &[Vec<u8>], what: &str) {
    let len = history[0].len();
    let data = gpu.device.alloc(len).unwrap();
    let mut on_gpu = gpu::GpuLineage::new(&gpu.kernels, config, len as u64).unwrap();
    // If no seed is set, the second lineage takes the seed of the first.
    let mut on_cpu = Lineage::new(*on_gpu.config()).unwrap();
    let room = on_gpu.most_stored_bytes();
    let host = gpu::pinned(&gpu.device, room).unwrap();
    let device = gpu.device.alloc(room).unwrap();
    let mut chain = Chain::new();
    for (checkpoint, version) in history.iter().zip(1..) {
        gpu.upload(&data, checkpoint);
        let to_host = version % 2 == 1;
        let output = if to_host {
            gpu::OutputBuffer::pinned(&host, 0..room).unwrap()
        } else {
            gpu::OutputBuffer::device(&device, 0..room).unwrap()
        };
        let loan = data.lend(0..len).unwrap();
        let done = on_gpu.encode(&gpu.stream, version, loan, output).wait();
        let summary = done
            .result
            .unwrap_or_else(|error| panic!("{what} {version}: {error}"));
        drop(done.out);
        let expected = on_cpu.encode(version, checkpoint).unwrap();
        let bytes = if to_host {
            host.memory()
                .lend(0..room)
                .unwrap()
                .bytes()
                .unwrap()
                .to_vec()
        } else {
            gpu.download(device.lend_mut(0..room).unwrap())
        };
        let bytes = &bytes[..summary.stored_bytes as usize];
        let what = format!(
            "{what}, {:?}, chunks of {}, version {version}",
            config.method, config.chunk
        );
        assert!(
            bytes == expected.as_bytes(),
            "{}",
            describe(&what, bytes, expected.as_bytes())
        );
        assert_eq!(summary, expected.summary());
        chain.push(bytes.to_vec()).unwrap();
    }

    let mut resident = resident(gpu, &chain);
    for (at, checkpoint) in history.iter().enumerate().rev() {
        let version = at as u64 + 1;
        let out = data.lend_mut(0..len).unwrap();
        let restored = resident.restore(&gpu.stream, version, out).wait();
        restored
            .result
            .unwrap_or_else(|error| panic!("{what} {version}: {error}"));
        let bytes = gpu.download(restored.out);
        assert!(bytes == *checkpoint, "{what}: version {version} differs");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_same_bytes_as_on_the_cpu_for_every_method_and_history() {
    let gpu = gpu();
    for (len, chunk) in [
        (40_000, 32),
        (1_000_003, 64),
        (655_360, 128),
        (300_001, 256),
        (900_001, 1024),
    ] {
        for (name, history) in histories(len, chunk) {
            for method in METHODS {
                compare(
                    &gpu,
                    Config::new(method).chunk(chunk as u32).seed(7),
                    &history,
                    name,
                );
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_chunk_size_and_tail() {
    let gpu = gpu();
    for shift in 5..=16 {
        let chunk: usize = 1 << shift;
        for tail in [
            0, 1, 2, 5, 11, 16, 17, 40, 70, 100, 128, 129, 200, 240, 241, 500, 1023,
        ] {
            let len = 67 * chunk + tail % chunk;
            let history = &histories(len, chunk)[0].1;
            compare(
                &gpu,
                Config::new(Method::Tree).chunk(chunk as u32),
                history,
                &format!("tail of {tail}"),
            );
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_number_of_chunks() {
    let gpu = gpu();
    for chunks in (1..=1025)
        .step_by(13)
        .chain([1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025])
    {
        let len = (chunks - 1) * 64 + 1 + (chunks * 7) % 64;
        let mut random = Draws(chunks as u64);
        let (a, b) = (random.bytes(len), random.bytes(len));
        let history = [a.clone(), b, a];
        compare(
            &gpu,
            Config::new(Method::Tree).chunk(64),
            &history,
            &format!("{chunks} chunks"),
        );
    }
}

/// `Auto` takes the same sample on the GPU and on the CPU: of small checkpoints, of large ones, and of changes with a period.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn auto_decides_as_on_the_cpu() {
    let gpu = gpu();
    for chunks in [1, 2, 63, 64, 65, 127, 128, 1000, 4095, 4096, 20_000] {
        let len = chunks * 64 - chunks % 3;
        let mut random = Draws(chunks as u64);
        let mut history = vec![random.bytes(len)];
        // The shares of changed chunks are around the one at which `Auto` decides. The places of the changes have a period, or none.
        for eighths in [0, 6, 7, 8, 7, 6] {
            let mut next = history[history.len() - 1].clone();
            for (at, chunk) in next.chunks_mut(64).enumerate() {
                let place = if eighths == 6 { at } else { random.index(8) };
                if place % 8 < eighths {
                    chunk.copy_from_slice(&random.bytes(chunk.len()));
                }
            }
            history.push(next);
        }
        for seed in 0..4 {
            let config = Config::new(Method::Auto).chunk(64).seed(seed);
            compare(&gpu, config, &history, &format!("{chunks} chunks"));
        }
        let config = Config::new(Method::Auto).chunk(64);
        compare(&gpu, config, &history, "a random seed");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_full_record_forgets_the_same() {
    let gpu = gpu();
    let mut random = Draws(11);
    let mut history = vec![random.bytes(500_000)];
    for round in 0..12 {
        let mut next = history[round].clone();
        // A third of the checkpoint changes each time, partly to data of earlier checkpoints.
        for _ in 0..2600 {
            let at = random.index(7812) * 64;
            if random.index(3) == 0 {
                let from = &history[random.index(history.len())];
                let piece = from[at..at + 64].to_vec();
                let to = random.index(7812) * 64;
                next[to..to + 64].copy_from_slice(&piece);
            } else {
                next[at..at + 8].copy_from_slice(&random.word().to_le_bytes());
            }
        }
        history.push(next);
    }
    for capacity in [0, 12_000, 20_000] {
        let config = Config::new(Method::Tree)
            .chunk(64)
            .record_capacity(capacity);
        compare(&gpu, config, &history, &format!("record of {capacity}"));
    }
}

/// `compare` also compares the summaries, which count the collisions.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn verification_finds_the_same_collisions_as_on_the_cpu() {
    let gpu = gpu();
    let history = colliding_history();
    for method in METHODS {
        let config = Config::new(method).chunk(32).seed(0).verify(true);
        compare(&gpu, config, &history, "collisions");
        for (name, history) in histories(100_003, 64) {
            let config = Config::new(method).chunk(64).verify(true);
            compare(&gpu, config, &history, name);
        }
    }
    // A record that drops chunks moves the bytes that it compares with.
    let history = &histories(300_000, 64)[0].1;
    let config = Config::new(Method::Tree).chunk(64).verify(true);
    compare(&gpu, config.record_capacity(0), history, "a small record");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn encodings_in_flight_follow_each_other_on_any_stream() {
    let gpu = gpu();
    let history = &histories(2_000_000, 64)[0].1;
    let len = history[0].len();
    let config = Config::new(Method::Tree).chunk(64);
    let mut on_gpu = gpu::GpuLineage::new(&gpu.kernels, config, len as u64).unwrap();
    let room = on_gpu.most_stored_bytes();
    let other = gpu.device.stream().unwrap();
    let mut flying = Vec::new();
    for (checkpoint, version) in history.iter().zip(1_u64..) {
        let data = gpu.device.alloc(len).unwrap();
        gpu.upload(&data, checkpoint);
        let host = gpu::pinned(&gpu.device, room).unwrap();
        let stream = if version % 2 == 0 {
            &gpu.stream
        } else {
            &other
        };
        let output = gpu::OutputBuffer::pinned(&host, 0..room).unwrap();
        let encoding = on_gpu.encode(stream, version, data.lend(0..len).unwrap(), output);
        flying.push((encoding, host));
    }
    let mut on_cpu = Lineage::new(*on_gpu.config()).unwrap();
    for ((encoding, host), (checkpoint, version)) in flying.into_iter().zip(history.iter().zip(1..))
    {
        let expected = on_cpu.encode(version, checkpoint).unwrap();
        let done = encoding.wait();
        assert_eq!(done.result.unwrap(), expected.summary());
        drop(done.out);
        let loan = host.memory().lend(0..expected.as_bytes().len()).unwrap();
        assert!(
            loan.bytes().unwrap() == expected.as_bytes(),
            "version {version}"
        );
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_resumed_lineage_goes_on_as_if_nothing_had_happened() {
    let gpu = gpu();
    let plain = Config::default().chunk(64).seed(5);
    let mut cases: Vec<_> = histories(200_007, 64)
        .into_iter()
        .map(|(name, history)| (name, history, plain))
        .collect();
    let verified = Config::default().chunk(32).seed(0).verify(true);
    cases.push(("collisions", colliding_history(), verified));
    for (name, history, config) in cases {
        for method in METHODS {
            let len = history[0].len();
            let mut config = config;
            config.method = method;
            let data = gpu.device.alloc(len).unwrap();
            let mut on_cpu = Lineage::new(config).unwrap();
            let mut chain: Chain<Vec<u8>> = Chain::new();
            for (checkpoint, version) in history.iter().zip(1..) {
                let mut resumed =
                    gpu::GpuLineage::resume(&gpu.kernels, config, len as u64, &chain).unwrap();
                let room = resumed.most_stored_bytes();
                let host = gpu::pinned(&gpu.device, room).unwrap();
                let output = gpu::OutputBuffer::pinned(&host, 0..room).unwrap();
                gpu.upload(&data, checkpoint);
                let loan = data.lend(0..len).unwrap();
                let done = resumed.encode(&gpu.stream, version, loan, output).wait();
                let expected = on_cpu.encode(version, checkpoint).unwrap();
                assert_eq!(done.result.unwrap(), expected.summary(), "{name} {version}");
                drop(done.out);
                let loan = host.memory().lend(0..expected.as_bytes().len()).unwrap();
                let bytes = loan.bytes().unwrap();
                let what = format!("{name}, {method:?}, version {version}");
                assert!(
                    bytes == expected.as_bytes(),
                    "{}",
                    describe(&what, bytes, expected.as_bytes())
                );
                chain.push(expected.into_bytes()).unwrap();
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_refused_encoding_gives_the_loans_back() {
    let gpu = gpu();
    let data = gpu.device.alloc(4096).unwrap();
    let mut lineage = gpu::GpuLineage::new(&gpu.kernels, Config::default(), 4000).unwrap();
    let room = lineage.most_stored_bytes();
    let host = gpu::pinned(&gpu.device, room).unwrap();
    let mut encode = |version, range, room| {
        let output = gpu::OutputBuffer::pinned(&host, 0..room).unwrap();
        lineage
            .encode(&gpu.stream, version, data.lend(range).unwrap(), output)
            .wait()
            .result
    };
    assert!(matches!(
        encode(1, 0..4001, room),
        Err(Error::Invalid(Invalid::Length { .. }))
    ));
    assert!(matches!(
        encode(1, 8..4008, room),
        Err(Error::Invalid(Invalid::Memory { .. }))
    ));
    assert!(matches!(
        encode(1, 0..4000, 512),
        Err(Error::Invalid(Invalid::TooSmall { .. }))
    ));
    assert!(encode(1, 0..4000, room).is_ok());
    assert!(matches!(
        encode(1, 0..4000, room),
        Err(Error::Invalid(Invalid::VersionOrder { .. }))
    ));
    assert_eq!((data.live_loans(), host.memory().live_loans()), (0, 0));
    let unpinned = gpu.device.reserve_host(4096).unwrap();
    assert!(gpu::OutputBuffer::pinned(&unpinned, 0..4096).is_err());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_damaged_payload_is_found_by_a_restore() {
    let gpu = gpu();
    let history = &histories(100_000, 64)[0].1;
    let mut lineage = Lineage::new(Config::new(Method::Tree).chunk(64)).unwrap();
    let mut chain = Chain::new();
    for (checkpoint, version) in history.iter().zip(1..) {
        let mut bytes = lineage.encode(version, checkpoint).unwrap().into_bytes();
        if version == 3 {
            *bytes.last_mut().unwrap() ^= 1;
        }
        chain.push(bytes).unwrap();
    }
    let data = gpu.device.alloc(100_000).unwrap();
    let mut resident = resident(&gpu, &chain);
    let mut restore = |version| {
        let out = data.lend_mut(0..100_000).unwrap();
        resident.restore(&gpu.stream, version, out).wait().result
    };
    assert!(restore(1).is_ok());
    assert!(matches!(restore(3), Err(Error::Corrupt { .. })));
    assert!(restore(2).is_ok());
    assert!(matches!(
        restore(9),
        Err(Error::Invalid(Invalid::NoSuchVersion { .. }))
    ));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn more_than_four_gibibytes() {
    let gpu = gpu();
    let len = (1_usize << 32) + (1 << 20) + 77;
    let mut data = Draws(1).bytes(1 << 20).repeat(len.div_ceil(1 << 20));
    data.truncate(len);
    // Each megabyte differs, and the last bytes lie beyond 4 GiB.
    for (megabyte, n) in data.chunks_mut(1 << 20).zip(0_u64..) {
        for chunk in megabyte.chunks_mut(128).filter(|chunk| chunk.len() >= 8) {
            chunk[..8].copy_from_slice(&n.to_le_bytes());
        }
    }
    let mut next = data.clone();
    next[len - 1] ^= 1;
    next[len - 100_000] ^= 1;
    compare(
        &gpu,
        Config::new(Method::Tree).chunk(128),
        &[data, next],
        "more than 4 GiB",
    );
}
