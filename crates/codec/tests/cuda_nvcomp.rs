//! Codecs of the nvCOMP that the user installed, on an NVIDIA GPU.
//! `cargo test -p tierflow-codec --features nvcomp --test cuda_nvcomp -- --ignored`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests fail like tests"
)]

mod common;
#[path = "common/nvcomp.rs"]
mod nvcomp;

use common::{Draws, LENGTHS, inputs};
use tierflow_codec::{
    Element, Error, HEADER_BYTES, Header, Invalid, NvcompCodec, decode, decode_to_vec, gpu,
};
use tierflow_device::{Choice, Device, Memory, Stream, open};

const ROOM: usize = 1 << 22;

struct Gpu {
    device: Device,
    stream: Stream,
    coder: gpu::NvcompCoder,
    data: Memory,
    container: Memory,
}

impl Gpu {
    fn new() -> Self {
        let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
        let nvcomp = gpu::Nvcomp::load(&device).unwrap();
        Self {
            stream: device.stream().unwrap(),
            coder: gpu::NvcompCoder::new(&nvcomp),
            data: device.alloc(ROOM).unwrap(),
            container: device.alloc(ROOM).unwrap(),
            device,
        }
    }

    /// Writes `bytes` to the start of the memory, and `behind` to the rest.
    fn set(&self, memory: &Memory, bytes: &[u8], behind: u8) {
        let mut all = memory.lend_mut(0..ROOM).unwrap();
        self.stream.fill(&mut all, behind).unwrap();
        let (mut front, _) = all.split_at(bytes.len());
        if !bytes.is_empty() {
            self.stream.write(bytes, &mut front).unwrap();
        }
    }

    /// Returns the first `len` bytes. Checks that the rest is still `behind`.
    fn get(&self, memory: &Memory, len: usize, behind: u8) -> Vec<u8> {
        let mut bytes = vec![0; ROOM];
        let loan = memory.lend(0..ROOM).unwrap();
        self.stream.read(&loan, &mut bytes).unwrap();
        let untouched = bytes[len..].iter().all(|&byte| byte == behind);
        assert!(untouched, "it wrote behind its room");
        bytes.truncate(len);
        bytes
    }

    fn encode(
        &mut self,
        of: (NvcompCodec, Element),
        input: &[u8],
        room: usize,
    ) -> Result<Vec<u8>, Error> {
        self.set(&self.data, input, 0x5A);
        self.set(&self.container, &[], 0xA5);
        let data = self.data.lend(0..input.len()).unwrap();
        let out = gpu::OutputBuffer::device(&self.container, 0..room).unwrap();
        let header = self.coder.encode(&self.stream, of, data, out)?;
        let bytes = self.get(&self.container, header.stored_bytes as usize, 0xA5);
        assert_eq!(Header::parse(&bytes).unwrap(), header);
        Ok(bytes)
    }

    fn decode(&mut self, container: &[u8], len: usize) -> Result<Vec<u8>, Error> {
        let header = Header::parse(container)?;
        self.set(&self.container, container, 0xA5);
        self.set(&self.data, &[], 0x5A);
        let origin = gpu::Origin::device(&self.container, 0..container.len()).unwrap();
        let out = self.data.lend_mut(0..len).unwrap();
        let decoded = self.coder.decode(&self.stream, &header, origin, out);
        let bytes = self.get(&self.data, len, 0x5A);
        decoded.map(|()| bytes)
    }
}

/// Returns an input of many blocks, some of which cannot be compressed.
fn long(element: Element) -> Vec<u8> {
    let mut random = Draws(9);
    let mut bytes = vec![7; 150_000];
    bytes.extend((0..200_000).map(|_| random.word() as u8));
    bytes.extend((0..300_000).map(|n| (n / 900) as u8));
    bytes.truncate(bytes.len() / element.bytes() * element.bytes() + element.bytes() / 2);
    bytes
}

#[test]
#[ignore = "needs an NVIDIA GPU and nvCOMP"]
fn containers_of_nvcomp_are_read_by_the_processor_and_lz4_by_the_device() {
    let mut gpu = Gpu::new();
    for element in Element::ALL {
        let of_lengths = LENGTHS.into_iter().flat_map(|n| inputs(element, n));
        for (name, input) in of_lengths.chain([("long", long(element))]) {
            for codec in NvcompCodec::ALL {
                let what = format!("{name}, {codec}, {element:?}, {} bytes", input.len());
                let most = codec.max_encoded_len(input.len() as u64, element).unwrap();
                let encoded = gpu.encode((codec, element), &input, most as usize);
                let encoded = encoded.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(encoded.len() as u64 <= most, "{what}");
                let back = decode_to_vec(&encoded, ROOM as u64).unwrap();
                assert!(back == input, "{what}: by the processor");
                let by_device = gpu.decode(&encoded, input.len());
                match codec.is_decoded_on_device() {
                    true => assert!(by_device.unwrap() == input, "{what}: by the device"),
                    false => assert!(matches!(
                        by_device,
                        Err(Error::Invalid(Invalid::OtherCodec { .. }))
                    )),
                }
            }
            let other = nvcomp::container(NvcompCodec::Lz4, element, &input);
            let back = gpu.decode(&other, input.len()).unwrap();
            assert!(back == input, "{name}: of another encoder");
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU and nvCOMP"]
fn inputs_of_many_blocks_come_back() {
    const LEN: usize = (100 << 20) + 12_345;
    let mut gpu = Gpu::new();
    let mut random = Draws(3);
    let input: Vec<u8> = (0..LEN)
        .map(|n| match n >> 20 & 3 {
            0 => 0,
            1 => (n / 300) as u8,
            _ => random.word() as u8 & 0x33,
        })
        .collect();
    let element = Element::F32;
    let room = NvcompCodec::Lz4.max_encoded_len(LEN as u64, element);
    let room = room.unwrap() as usize;
    let data = gpu.device.alloc(LEN).unwrap();
    let container = gpu.device.alloc(room).unwrap();
    for codec in NvcompCodec::ALL {
        let mut all = data.lend_mut(0..LEN).unwrap();
        gpu.stream.write(&input, &mut all).unwrap();
        let out = gpu::OutputBuffer::device(&container, 0..room).unwrap();
        let of = (codec, element);
        let encoded = gpu.coder.encode(&gpu.stream, of, all.into_read(), out);
        let header = encoded.unwrap();
        let stored = header.stored_bytes as usize;
        assert!(header.ratio() > 1.5, "{codec}: {}", header.ratio());
        let mut bytes = vec![0; stored];
        let lent = container.lend(0..stored).unwrap();
        gpu.stream.read(&lent, &mut bytes).unwrap();
        assert!(decode_to_vec(&bytes, LEN as u64).unwrap() == input);
        if codec.is_decoded_on_device() {
            let mut out = data.lend_mut(0..LEN).unwrap();
            gpu.stream.fill(&mut out, 0x5A).unwrap();
            let origin = gpu::Origin::device(&container, 0..stored).unwrap();
            let decoded = gpu.coder.decode(&gpu.stream, &header, origin, out);
            decoded.unwrap();
            let mut back = vec![0; LEN];
            let lent = data.lend(0..LEN).unwrap();
            gpu.stream.read(&lent, &mut back).unwrap();
            assert!(back == input, "{codec}");
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU and nvCOMP"]
fn too_little_room_is_found() {
    let mut gpu = Gpu::new();
    let input = long(Element::F32);
    for codec in NvcompCodec::ALL {
        let of = (codec, Element::F32);
        let len = gpu.encode(of, &input, ROOM).unwrap().len();
        assert!(len < input.len());
        for room in [0, HEADER_BYTES, len / 2, len - 1] {
            let full = gpu.encode(of, &input, room);
            assert!(matches!(full, Err(Error::Full { .. })), "{room} of {len}");
        }
        assert!(gpu.encode(of, &input, len).is_ok());
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU and nvCOMP"]
fn damaged_containers_do_no_harm() {
    let mut gpu = Gpu::new();
    let mut random = Draws(5);
    let mut refused = 0;
    let input = long(Element::I16);
    let sound = gpu.encode((NvcompCodec::Lz4, Element::I16), &input, ROOM);
    let sound = sound.unwrap();
    for _ in 0..400 {
        let mut damaged = sound.clone();
        let table = random.share() < 0.3;
        let most = if table {
            48
        } else {
            sound.len() - HEADER_BYTES
        };
        for _ in 0..1 + random.word() % 4 {
            let at = HEADER_BYTES + random.word() as usize % most;
            damaged[at] = random.word() as u8;
        }
        let mut output = vec![0; input.len()];
        let on_cpu = decode(&damaged, &mut output);
        // An input refused by one decoder may be accepted by the other: a match beyond the block's end, for example.
        match (on_cpu, gpu.decode(&damaged, input.len())) {
            (Ok(()), Ok(bytes)) => assert!(bytes == output),
            (_, Err(error)) => {
                refused += 1;
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
            }
            (Err(_), Ok(_)) => {}
        }
    }
    assert!(refused > 100, "{refused}");
    assert!(gpu.decode(&sound, input.len()).unwrap() == input);
    assert!(gpu.device.stream().is_ok());
}
