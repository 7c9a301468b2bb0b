//! The same on a GPU.

use std::time::Duration;

use tierflow_codec::{Codec, Header, Method, gpu};
use tierflow_device::{Choice, Device, Memory, Stream, open};

use crate::Result;
use crate::fields::Field;

const INPUT: usize = 1 << 30;
const ROUNDS: usize = 11;

pub struct Bench {
    stream: Stream,
    encoder: gpu::Encoder,
    decoder: gpu::Decoder,
    data: Memory,
    container: Memory,
    _device: Device,
}

impl Bench {
    pub fn new() -> Result<Self> {
        let device = open(Choice::Cuda { ordinal: 0 })?;
        let kernels = gpu::Kernels::load(&device)?;
        println!("{}", device.info().name);
        Ok(Self {
            stream: device.stream()?,
            encoder: gpu::Encoder::new(&kernels, INPUT as u64)?,
            decoder: gpu::Decoder::new(&kernels)?,
            data: device.alloc(INPUT)?,
            container: device.alloc(INPUT + INPUT / 32)?,
            _device: device,
        })
    }

    /// The median times to encode and to decode, and of how many bytes. The container of one copy of the input
    /// must be the one that is given.
    pub fn time(
        &mut self,
        input: &Field,
        method: &Method,
        expected: &[u8],
    ) -> Result<([Duration; 2], usize)> {
        let one = input.bytes.len();
        for start in (0..INPUT / one * one).step_by(one) {
            let mut part = self.data.lend_mut(start..start + one)?;
            self.stream.write(&input.bytes, &mut part)?;
        }
        let header = self.encode(input, method, one)?.0;
        let mut bytes = vec![0; header.stored_bytes as usize];
        let loan = self.container.lend(0..bytes.len())?;
        self.stream.read(&loan, &mut bytes)?;
        drop(loan);
        if bytes != expected {
            return Err(format!("{}: the GPU's container is another one", input.name).into());
        }

        let all = INPUT / one * one;
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            let (_, time) = self.encode(input, method, all)?;
            times[0].push(time);
        }
        // The header of the container itself, for the bytes behind the last value.
        let mut front = [0; tierflow_codec::HEADER_BYTES];
        let loan = self.container.lend(0..front.len())?;
        self.stream.read(&loan, &mut front)?;
        drop(loan);
        let header = Header::parse(&front)?;
        let out = self.data.lend_mut(0..all)?;
        let mut out = Some(out);
        for _ in 0..ROUNDS {
            let origin = gpu::Origin::device(&self.container, 0..header.stored_bytes as usize)?;
            let start = self.stream.record_timed()?;
            let loan = out.take().ok_or("the output is gone")?;
            let decoding = self.decoder.decode(&self.stream, &header, origin, loan);
            let end = self.stream.record_timed()?;
            let done = decoding.wait();
            done.result?;
            out = Some(done.out);
            end.synchronize()?;
            times[1].push(end.elapsed_since(&start)?);
        }
        let median = |mut times: Vec<Duration>| {
            times.sort();
            times[times.len() / 2]
        };
        Ok((times.map(median), all))
    }

    fn encode(&mut self, input: &Field, method: &Method, len: usize) -> Result<(Header, Duration)> {
        let most = method.max_encoded_len(len as u64, input.element)? as usize;
        let out = gpu::Landing::device(&self.container, 0..most)?;
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
}
