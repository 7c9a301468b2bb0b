//! The kernels on an NVIDIA GPU make the same containers as the CPU, and decode them. `cargo test -p tierflow-codec --test cuda
//! -- --ignored`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail like tests"
)]

mod common;

use common::{Draws, LENGTHS, inputs};
use tierflow_codec::{
    Bound, Bounded, Codec, Element, Error, HEADER_BYTES, Header, Invalid, Method, Planes,
    Predictor, decode, gpu,
};
use tierflow_device::{Choice, Device, HostReservation, Memory, Stream, open};

const ROOM: usize = 1 << 20;

struct Gpu {
    device: Device,
    stream: Stream,
    kernels: gpu::Kernels,
    encoder: gpu::Encoder,
    decoder: gpu::Decoder,
    data: Memory,
    container: Memory,
    pinned: HostReservation,
}

fn gpu() -> Gpu {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    let kernels = gpu::Kernels::load(&device).unwrap();
    let pinned = device.reserve_host(ROOM).unwrap();
    let len = pinned.memory().len();
    pinned.touch(0..len).unwrap();
    assert_eq!(pinned.pin(0..len).unwrap(), tierflow_device::Pinned::Yes);
    Gpu {
        stream: device.stream().unwrap(),
        encoder: gpu::Encoder::new(&kernels, ROOM as u64).unwrap(),
        decoder: gpu::Decoder::new(&kernels).unwrap(),
        data: device.alloc(ROOM).unwrap(),
        container: device.alloc(ROOM).unwrap(),
        pinned,
        kernels,
        device,
    }
}

fn methods(element: Element) -> Vec<Method> {
    let mut methods = vec![
        Method::from(Planes::new()),
        Planes::with(Predictor::Previous).into(),
    ];
    if matches!(element, Element::F32 | Element::F64) {
        methods.push(Planes::with(Predictor::Polynomial).into());
        for bound in [
            Bound::Absolute(1e-3),
            Bound::Absolute(1e-30),
            Bound::Absolute(f64::MAX),
            Bound::Relative(1e-3),
            Bound::Relative(0.2),
            // With this share, most inputs of f32 have a bound below the smallest normal number.
            Bound::Relative(1e-307),
            Bound::PointwiseRelative(1e-3),
            Bound::PointwiseRelative(1.0),
            Bound::PointwiseRelative(1e-9),
        ] {
            methods.push(Bounded::new(bound).unwrap().into());
        }
    }
    methods
}

impl Gpu {
    fn upload(&self, memory: &Memory, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut loan = memory.lend_mut(0..bytes.len()).unwrap();
            self.stream.write(bytes, &mut loan).unwrap();
        }
    }

    fn download(&self, memory: &Memory, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        if len > 0 {
            let loan = memory.lend(0..len).unwrap();
            self.stream.read(&loan, &mut bytes).unwrap();
        }
        bytes
    }

    /// Encodes to `room` bytes of device or pinned memory.
    fn encode(
        &mut self,
        method: &Method,
        element: Element,
        input: &[u8],
        room: usize,
        to_host: bool,
    ) -> Result<(Header, Vec<u8>), Error> {
        self.upload(&self.data, input);
        self.upload(&self.container, &vec![0xA5; ROOM]);
        let out = if to_host {
            gpu::OutputBuffer::pinned(&self.pinned, 0..room).unwrap()
        } else {
            gpu::OutputBuffer::device(&self.container, 0..room).unwrap()
        };
        let data = self.data.lend(0..input.len()).unwrap();
        let done = self
            .encoder
            .encode(&self.stream, method, element, data, out)
            .wait();
        drop(done.out);
        let header = done.result?;
        let len = header.stored_bytes as usize;
        let bytes = if to_host {
            let loan = self.pinned.memory().lend(0..len).unwrap();
            loan.bytes().unwrap().to_vec()
        } else {
            let all = self.download(&self.container, ROOM);
            assert!(
                all[room..].iter().all(|&byte| byte == 0xA5),
                "it wrote behind its room"
            );
            all[..len].to_vec()
        };
        Ok((header, bytes))
    }

    /// Decodes from device or pinned memory, and checks the bytes around the output.
    fn decode(&self, container: &[u8], len: usize, from_host: bool) -> Result<Vec<u8>, Error> {
        let header = Header::parse(container)?;
        let origin = if from_host {
            let mut loan = self.pinned.memory().lend_mut(0..container.len()).unwrap();
            loan.bytes_mut().unwrap().copy_from_slice(container);
            drop(loan);
            gpu::Origin::pinned(&self.pinned, 0..container.len()).unwrap()
        } else {
            self.upload(&self.container, container);
            gpu::Origin::device(&self.container, 0..container.len()).unwrap()
        };
        self.upload(&self.data, &vec![0x5A; ROOM]);
        let out = self.data.lend_mut(0..len).unwrap();
        let done = self
            .decoder
            .decode(&self.stream, &header, origin, out)
            .wait();
        drop(done.out);
        let all = self.download(&self.data, ROOM);
        assert!(
            all[len..].iter().all(|&byte| byte == 0x5A),
            "it wrote behind the output"
        );
        done.result.map(|()| all[..len].to_vec())
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_gpu_makes_the_bytes_of_the_cpu_and_reads_them() {
    let mut gpu = gpu();
    let mut cases = 0;
    for element in Element::ALL {
        for n in LENGTHS {
            for (name, mut input) in inputs(element, n) {
                if n % 2 == 1 {
                    // The input ends within a value.
                    input.pop();
                }
                for method in methods(element) {
                    let to_host = cases % 5 == 0;
                    let what = format!("{name}, {method:?}, {element:?}, {} bytes", input.len());
                    let expected = method.encode_to_vec(&input, element).unwrap();
                    let room = expected.len();
                    let (header, bytes) = gpu
                        .encode(&method, element, &input, room, to_host)
                        .unwrap_or_else(|error| panic!("{what}: {error}"));
                    let at = bytes.iter().zip(&expected).position(|(a, b)| a != b);
                    assert!(bytes == expected, "{what}: they differ from byte {at:?} on");
                    assert_eq!(header, Header::parse(&expected).unwrap(), "{what}");
                    let mut output = vec![0; input.len()];
                    decode(&expected, &mut output).unwrap();
                    let back = gpu.decode(&expected, input.len(), to_host).unwrap();
                    let at = back.iter().zip(&output).position(|(a, b)| a != b);
                    assert!(back == output, "{what}: other values from byte {at:?} on");
                    cases += 1;
                }
            }
        }
    }
    assert!(cases > 2000);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn too_little_room_is_found_on_the_gpu() {
    let mut gpu = gpu();
    for element in [Element::Bf16, Element::F64] {
        let (_, input) = inputs(element, 40_000).swap_remove(2);
        for method in methods(element) {
            let len = method.encode_to_vec(&input, element).unwrap().len();
            for room in [0, HEADER_BYTES, len / 2, len - 1] {
                let full = gpu.encode(&method, element, &input, room, false);
                assert!(matches!(full, Err(Error::Full { .. })), "{room} of {len}");
            }
            assert!(gpu.encode(&method, element, &input, len, false).is_ok());
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn damaged_containers_do_no_harm_on_the_gpu() {
    let gpu = gpu();
    let mut random = Draws(5);
    let mut refused = 0;
    for element in [Element::I8, Element::Bf16, Element::F32, Element::F64] {
        for (name, input) in inputs(element, 5000) {
            for method in methods(element) {
                let sound = method.encode_to_vec(&input, element).unwrap();
                for _ in 0..40 {
                    let mut damaged = sound.clone();
                    if sound.len() <= HEADER_BYTES {
                        continue;
                    }
                    // Most edits hit the sizes.
                    let most = (sound.len() - HEADER_BYTES).min(if random.share() < 0.8 {
                        256
                    } else {
                        1 << 20
                    });
                    for _ in 0..1 + random.word() % 3 {
                        let at = HEADER_BYTES + random.word() as usize % most;
                        damaged[at] = if random.share() < 0.5 {
                            0xFF
                        } else {
                            random.word() as u8
                        };
                    }
                    let mut output = vec![0; input.len()];
                    let on_cpu = decode(&damaged, &mut output);
                    let on_gpu = gpu.decode(&damaged, input.len(), false);
                    assert_eq!(on_cpu.is_ok(), on_gpu.is_ok(), "{name}, {method:?}");
                    match on_gpu {
                        Ok(bytes) => assert!(bytes == output, "{name}, {method:?}"),
                        Err(error) => {
                            refused += 1;
                            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 100);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn memory_that_the_kernels_cannot_use_is_refused() {
    let mut gpu = gpu();
    let method = Method::from(Planes::new());
    let odd = gpu::OutputBuffer::device(&gpu.container, 8..4096);
    assert!(matches!(odd, Err(Error::Invalid(Invalid::Memory { .. }))));
    let output = || gpu::OutputBuffer::device(&gpu.container, 0..4096).unwrap();
    let refusal = |encoder: &mut gpu::Encoder, range| {
        let data = gpu.data.lend(range).unwrap();
        let encoding = encoder.encode(&gpu.stream, &method, Element::F32, data, output());
        encoding.wait().result.unwrap_err()
    };
    let refused = refusal(&mut gpu.encoder, 4..1028);
    assert!(matches!(refused, Error::Invalid(Invalid::Memory { .. })));
    let mut small = gpu::Encoder::new(&gpu.kernels, 1000).unwrap();
    let refused = refusal(&mut small, 0..1024);
    assert!(matches!(refused, Error::Invalid(Invalid::Limit { .. })));
    let container = method.encode_to_vec(&[1; 1024], Element::F32).unwrap();
    let refused = gpu.decode(&container, 1008, false).unwrap_err();
    assert!(matches!(refused, Error::Invalid(Invalid::Length { .. })));
    assert!(gpu.device.stream().is_ok());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn inputs_in_flight_do_not_meet() {
    let mut gpu = gpu();
    let other = gpu.device.stream().unwrap();
    let method = Method::from(Planes::new());
    let (_, input) = inputs(Element::Bf16, 40_000).swap_remove(2);
    let expected = method.encode_to_vec(&input, Element::Bf16).unwrap();
    gpu.upload(&gpu.data, &input);
    let rooms: Vec<Memory> = (0..8)
        .map(|_| gpu.device.alloc(ROOM / 4).unwrap())
        .collect();
    let encodings: Vec<gpu::Encoding> = rooms
        .iter()
        .enumerate()
        .map(|(n, room)| {
            let stream = if n % 2 == 0 { &gpu.stream } else { &other };
            let out = gpu::OutputBuffer::device(room, 0..ROOM / 4).unwrap();
            let data = gpu.data.lend(0..input.len()).unwrap();
            gpu.encoder
                .encode(stream, &method, Element::Bf16, data, out)
        })
        .collect();
    for (encoding, room) in encodings.into_iter().zip(&rooms) {
        let done = encoding.wait();
        drop(done.out);
        let len = done.result.unwrap().stored_bytes as usize;
        assert!(gpu.download(room, len) == expected);
    }
}
