//! Measurements on a GPU.

use std::time::Duration;

use tierflow_codec::{Codec, HEADER_BYTES, Header, Method, gpu};
use tierflow_device::{Choice, HostReservation, Memory, Pinned, Stream, open};

use crate::Result;
use crate::fields::Field;

const INPUT: usize = 1 << 30;
const ROUNDS: usize = 11;

/// The memory of containers.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Device,
    Host,
}

pub struct Bench {
    stream: Stream,
    encoder: gpu::Encoder,
    decoder: gpu::Decoder,
    data: Memory,
    device: Memory,
    host: HostReservation,
}

/// Median times of encoding and decoding.
pub struct Times {
    pub bytes: usize,
    pub on_device: [Duration; 2],
    pub across_the_bus: [Duration; 2],
}

impl Bench {
    pub fn new() -> Result<Self> {
        let device = open(Choice::Cuda { ordinal: 0 })?;
        let kernels = gpu::Kernels::load(&device)?;
        println!("{}", device.info().name);
        let room = INPUT + INPUT / 32;
        let host = device.reserve_host(room)?;
        let len = host.memory().len();
        host.touch(0..len)?;
        if let Pinned::No(why) = host.pin(0..len)? {
            return Err(why.into());
        }
        Ok(Self {
            stream: device.stream()?,
            encoder: gpu::Encoder::new(&kernels, INPUT as u64)?,
            decoder: gpu::Decoder::new(&kernels)?,
            data: device.alloc(INPUT)?,
            device: device.alloc(room)?,
            host,
        })
    }

    /// Returns the times of a method on an input. Checks that the container of one copy of the input equals `expected`.
    pub fn time(&mut self, input: &Field, method: &Method, expected: &[u8]) -> Result<Times> {
        let one = input.bytes.len();
        for start in (0..INPUT / one * one).step_by(one) {
            let mut part = self.data.lend_mut(start..start + one)?;
            self.stream.write(&input.bytes, &mut part)?;
        }
        let header = self.encode(input, method, one, Place::Device)?.0;
        let mut bytes = vec![0; header.stored_bytes as usize];
        let loan = self.device.lend(0..bytes.len())?;
        self.stream.read(&loan, &mut bytes)?;
        drop(loan);
        if bytes != expected {
            return Err(format!("{}: the GPU's container is another one", input.name).into());
        }
        let all = INPUT / one * one;
        Ok(Times {
            bytes: all,
            on_device: self.medians(input, method, all, Place::Device)?,
            across_the_bus: self.medians(input, method, all, Place::Host)?,
        })
    }

    fn medians(
        &mut self,
        input: &Field,
        method: &Method,
        len: usize,
        place: Place,
    ) -> Result<[Duration; 2]> {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            times[0].push(self.encode(input, method, len, place)?.1);
        }
        let mut front = [0; HEADER_BYTES];
        let memory = match place {
            Place::Device => &self.device,
            Place::Host => self.host.memory(),
        };
        self.stream
            .read(&memory.lend(0..HEADER_BYTES)?, &mut front)?;
        let header = Header::parse(&front)?;
        for _ in 0..ROUNDS {
            times[1].push(self.decode(&header, len, place)?);
        }
        Ok(times.map(|mut times| {
            times.sort();
            times[times.len() / 2]
        }))
    }

    fn encode(
        &mut self,
        input: &Field,
        method: &Method,
        len: usize,
        place: Place,
    ) -> Result<(Header, Duration)> {
        let most = method.max_encoded_len(len as u64, input.element)? as usize;
        let out = match place {
            Place::Device => gpu::OutputBuffer::device(&self.device, 0..most)?,
            Place::Host => gpu::OutputBuffer::pinned(&self.host, 0..most)?,
        };
        let data = self.data.lend(0..len)?;
        let start = self.stream.record_timed()?;
        let encoding = self
            .encoder
            .encode(&self.stream, method, input.element, data, out);
        let end = self.stream.record_timed()?;
        let header = encoding.wait().result?;
        end.synchronize()?;
        Ok((header, end.elapsed_since(&start)?))
    }

    fn decode(&self, header: &Header, len: usize, place: Place) -> Result<Duration> {
        let range = 0..header.stored_bytes as usize;
        let origin = match place {
            Place::Device => gpu::Origin::device(&self.device, range)?,
            Place::Host => gpu::Origin::pinned(&self.host, range)?,
        };
        let out = self.data.lend_mut(0..len)?;
        let start = self.stream.record_timed()?;
        let decoding = self.decoder.decode(&self.stream, header, origin, out);
        let end = self.stream.record_timed()?;
        decoding.wait().result?;
        end.synchronize()?;
        Ok(end.elapsed_since(&start)?)
    }
}
