//! The kernels, loaded once, with a launch wrapper for each kind.
#![allow(unsafe_code, reason = "a launch is a promise about memory")]

use std::sync::Arc;

use tierflow_device::cuda::{Arg, Function, Launch, Module};
use tierflow_device::{Device, Stream};

use crate::element::Element;
use crate::error::{Error, Invalid, Result};
use crate::header::{CodecId, Header};
use crate::planes::Predictor;

const PLANES: &str = include_str!("../../ptx/codec_planes.ptx");
const PLANES_DECODE: &str = include_str!("../../ptx/codec_planes_decode.ptx");
const POLYNOMIAL: &str = include_str!("../../ptx/codec_polynomial.ptx");
const POLYNOMIAL_DECODE: &str = include_str!("../../ptx/codec_polynomial_decode.ptx");
const BOUNDED: &str = include_str!("../../ptx/codec_bounded.ptx");
const BOUNDED_DECODE: &str = include_str!("../../ptx/codec_bounded_decode.ptx");

/// Threads of a block of each kind of kernel: `THREADS` in the kernels' sources.
const PLANES_THREADS: u32 = 256;
const POLYNOMIAL_THREADS: u32 = 32;
const BOUNDED_THREADS: u32 = 128;

/// The kernels of this crate on one device. Load them once; clones share them.
#[derive(Clone, Debug)]
pub struct Kernels {
    device: Device,
    loaded: Arc<LoadedKernels>,
}

#[derive(Debug)]
struct LoadedKernels {
    multiprocessors: u32,
    clear: Function,
    /// Kernels for values of 1, 2, 4 and 8 bytes.
    planes_encode: [Function; 4],
    planes_decode: [Function; 4],
    /// Kernels for values of 4 and 8 bytes.
    polynomial_encode: [Function; 2],
    polynomial_decode: [Function; 2],
    peak: [Function; 2],
    bounded_encode: [Function; 2],
    bounded_decode: [Function; 2],
}

/// An input to encode, as addresses. A launch is sound if, until the stream is synchronised or an event recorded behind
/// the launch is done, the caller holds
/// - a loan of the header's `raw_bytes` at `data`, on the device, aligned to 16;
/// - a loan for writing of `capacity` bytes at `out`, which the device can reach, aligned to 16, long enough for the
///   header and the table of blocks;
/// - a loan for writing of a state for as many blocks at `state`, which no other launch uses meanwhile;
/// - a loan for writing of a report at `report`, which the device can reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encode {
    pub(super) header: Header,
    /// The share of a relative bound; 0 for other bounds and codecs.
    pub(super) share: f64,
    pub(super) data: u64,
    pub(super) state: u64,
    pub(super) out: u64,
    pub(super) capacity: u64,
    pub(super) report: u64,
}

/// A container to decode, as addresses. A launch is sound if the header was parsed, so that its lengths agree, and if,
/// until the stream is synchronised or an event recorded behind the launch is done, the caller holds
/// - a loan of the header's `stored_bytes` at `container`, which the device can reach, aligned to 16;
/// - a loan for writing of its `raw_bytes` at `out`, on the device, aligned to 16;
/// - a loan for writing of a report at `report`, which the device can reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decode {
    pub(super) header: Header,
    pub(super) container: u64,
    pub(super) out: u64,
    pub(super) report: u64,
}

impl Kernels {
    /// Compiles the kernels for a GPU. Costs some hundred milliseconds the first time; the driver caches the result.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotOnGpu`] if the device is no GPU; errors of the driver.
    pub fn load(device: &Device) -> Result<Self> {
        let cuda = device.as_cuda().ok_or(Invalid::NotOnGpu)?;
        let planes = Module::load(cuda, PLANES)?;
        let planes_decode = Module::load(cuda, PLANES_DECODE)?;
        let polynomial = Module::load(cuda, POLYNOMIAL)?;
        let polynomial_decode = Module::load(cuda, POLYNOMIAL_DECODE)?;
        let bounded = Module::load(cuda, BOUNDED)?;
        let bounded_decode = Module::load(cuda, BOUNDED_DECODE)?;
        let loaded = LoadedKernels {
            multiprocessors: device.info().multiprocessors.max(1),
            clear: planes.function("codec_clear")?,
            planes_encode: [
                planes.function("codec_planes_encode_1")?,
                planes.function("codec_planes_encode_2")?,
                planes.function("codec_planes_encode_4")?,
                planes.function("codec_planes_encode_8")?,
            ],
            planes_decode: [
                planes_decode.function("codec_planes_decode_1")?,
                planes_decode.function("codec_planes_decode_2")?,
                planes_decode.function("codec_planes_decode_4")?,
                planes_decode.function("codec_planes_decode_8")?,
            ],
            polynomial_encode: [
                polynomial.function("codec_polynomial_encode_4")?,
                polynomial.function("codec_polynomial_encode_8")?,
            ],
            polynomial_decode: [
                polynomial_decode.function("codec_polynomial_decode_4")?,
                polynomial_decode.function("codec_polynomial_decode_8")?,
            ],
            peak: [
                bounded.function("codec_peak_f32")?,
                bounded.function("codec_peak_f64")?,
            ],
            bounded_encode: [
                bounded.function("codec_bounded_encode_f32")?,
                bounded.function("codec_bounded_encode_f64")?,
            ],
            bounded_decode: [
                bounded_decode.function("codec_bounded_decode_f32")?,
                bounded_decode.function("codec_bounded_decode_f64")?,
            ],
        };
        Ok(Self {
            device: device.clone(),
            loaded: Arc::new(loaded),
        })
    }

    /// Returns the device of the kernels.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// # Safety
    /// As [`Encode`] says.
    pub(super) unsafe fn encode(&self, stream: &Stream, pass: &Encode) -> Result<()> {
        let header = pass.header;
        let blocks = header.blocks();
        let words = blocks + 8;
        let args = [Arg::address(pass.state), Arg::u64(words)];
        // SAFETY: two parameters of these types; the caller promises that the state has as many words.
        unsafe { stream.launch(&self.loaded.clear, self.strided(words), &args) }?;
        let wide = usize::from(header.element.bytes() == 8);
        match header.codec {
            CodecId::Planes if Predictor::of(&header) == Predictor::Polynomial => {
                let args = [
                    Arg::address(pass.data),
                    Arg::address(pass.state),
                    Arg::address(pass.out),
                    Arg::u64(pass.capacity),
                    Arg::u64(header.raw_bytes),
                    Arg::u64(kind(&header)),
                    Arg::u32(blocks as u32),
                    Arg::address(pass.report),
                ];
                let function = &self.loaded.polynomial_encode[wide];
                let shape = per_block(blocks, POLYNOMIAL_THREADS);
                // SAFETY: eight parameters of these types; the kernel accesses the same memory as the encoder of planes.
                Ok(unsafe { stream.launch(function, shape, &args) }?)
            }
            CodecId::Planes => {
                let args = [
                    Arg::address(pass.data),
                    Arg::address(pass.state),
                    Arg::address(pass.out),
                    Arg::u64(pass.capacity),
                    Arg::u64(header.raw_bytes),
                    Arg::u64(kind(&header)),
                    Arg::u32(blocks as u32),
                    Arg::u32(way(header.element, Predictor::of(&header))),
                    Arg::address(pass.report),
                ];
                let function = &self.loaded.planes_encode[by_width(header.element)];
                let shape = per_block(blocks, PLANES_THREADS);
                // SAFETY: nine parameters of these types. The kernel reads the input, and writes to `out` up to
                // `capacity`, to the state and to the report, which are all lent by the caller's promise.
                Ok(unsafe { stream.launch(function, shape, &args) }?)
            }
            CodecId::Bounded => {
                let values = header.raw_bytes / header.element.bytes() as u64;
                if pass.share > 0.0 {
                    let args = [
                        Arg::address(pass.data),
                        Arg::u64(values),
                        Arg::address(pass.state),
                    ];
                    let function = &self.loaded.peak[wide];
                    // SAFETY: three parameters of these types. The kernel reads `values` values, and writes to the
                    // state.
                    unsafe { stream.launch(function, self.strided(values / 4), &args) }?;
                }
                let args = [
                    Arg::address(pass.data),
                    Arg::address(pass.state),
                    Arg::address(pass.out),
                    Arg::u64(pass.capacity),
                    Arg::u64(header.raw_bytes),
                    Arg::u64(kind(&header)),
                    Arg::u32(blocks as u32),
                    Arg::f64(header.bound),
                    Arg::f64(pass.share),
                    Arg::u32(u32::from(header.is_pointwise())),
                    Arg::address(pass.report),
                ];
                let function = &self.loaded.bounded_encode[wide];
                let shape = per_block(blocks, BOUNDED_THREADS);
                // SAFETY: eleven parameters of these types; the kernel accesses the same memory as the encoder of planes.
                Ok(unsafe { stream.launch(function, shape, &args) }?)
            }
            CodecId::NvcompLz4 | CodecId::NvcompZstd => Err(other(header.codec)),
        }
    }

    /// # Safety
    /// As [`Decode`] says.
    pub(super) unsafe fn decode(&self, stream: &Stream, pass: &Decode) -> Result<()> {
        let header = pass.header;
        let blocks = header.blocks();
        let front = [
            Arg::address(pass.container),
            Arg::u64(header.stored_bytes),
            Arg::u32(blocks as u32),
            Arg::address(pass.out),
            Arg::u64(header.raw_bytes),
        ];
        let wide = usize::from(header.element.bytes() == 8);
        let report = Arg::address(pass.report);
        let [a, b, c, d, e] = front;
        // SAFETY of each launch: the arguments are as many as the kernel's parameters, and of their types. The kernel checks all
        // bytes of the container before it uses them as offsets, and writes to `out` and to the report, which are lent by the
        // caller's promise.
        match header.codec {
            CodecId::Planes if Predictor::of(&header) == Predictor::Polynomial => {
                let args = [a, b, c, d, e, report];
                let function = &self.loaded.polynomial_decode[wide];
                // SAFETY: as above, six parameters.
                unsafe { stream.launch(function, per_block(blocks, POLYNOMIAL_THREADS), &args) }?;
            }
            CodecId::Planes => {
                let way = Arg::u32(way(header.element, Predictor::of(&header)));
                let args = [a, b, c, d, e, way, report];
                let function = &self.loaded.planes_decode[by_width(header.element)];
                // SAFETY: as above, seven parameters.
                unsafe { stream.launch(function, per_block(blocks, PLANES_THREADS), &args) }?;
            }
            CodecId::Bounded => {
                let bound = Arg::f64(header.bound);
                let is_pointwise = Arg::u32(u32::from(header.is_pointwise()));
                let args = [a, b, c, d, e, bound, is_pointwise, report];
                let function = &self.loaded.bounded_decode[wide];
                // SAFETY: as above, eight parameters.
                unsafe { stream.launch(function, per_block(blocks, BOUNDED_THREADS), &args) }?;
            }
            CodecId::NvcompLz4 | CodecId::NvcompZstd => return Err(other(header.codec)),
        }
        Ok(())
    }

    /// Returns the shape of a launch of kernels that stride over their work.
    fn strided(&self, work: u64) -> Launch {
        let most = 8 * self.loaded.multiprocessors;
        let blocks = u32::try_from(work.div_ceil(256)).unwrap_or(u32::MAX);
        Launch {
            grid: [blocks.clamp(1, most), 1, 1],
            block: [256, 1, 1],
            shared_bytes: 0,
        }
    }
}

/// Makes the error for a codec that these kernels do not have.
fn other(codec: CodecId) -> Error {
    let asked = "the kernels of tierflow-codec";
    let written = codec.name();
    Invalid::OtherCodec { written, asked }.into()
}

/// Returns the shape of a launch with a thread block per block of values, and with one thread block for an empty input.
fn per_block(blocks: u64, threads: u32) -> Launch {
    Launch {
        grid: [(blocks as u32).max(1), 1, 1],
        block: [threads, 1, 1],
        shared_bytes: 0,
    }
}

/// Returns the second word of the header.
fn kind(header: &Header) -> u64 {
    let bytes = header.to_bytes(&[]);
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8..16]);
    u64::from_le_bytes(word)
}

/// Returns the `Way` of kernels/codec_planes.cuh, which does not cover polynomials.
fn way(element: Element, predictor: Predictor) -> u32 {
    match predictor {
        Predictor::None => u32::from(element.is_float()),
        Predictor::Previous | Predictor::Polynomial => 2,
    }
}

fn by_width(element: Element) -> usize {
    element.bytes().trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels, and the number of parameters that the wrappers pass.
    const WRAPPERS: [(&str, usize); 19] = [
        ("codec_clear", 2),
        ("codec_planes_encode_1", 9),
        ("codec_planes_encode_2", 9),
        ("codec_planes_encode_4", 9),
        ("codec_planes_encode_8", 9),
        ("codec_planes_decode_1", 7),
        ("codec_planes_decode_2", 7),
        ("codec_planes_decode_4", 7),
        ("codec_planes_decode_8", 7),
        ("codec_polynomial_encode_4", 8),
        ("codec_polynomial_encode_8", 8),
        ("codec_polynomial_decode_4", 6),
        ("codec_polynomial_decode_8", 6),
        ("codec_peak_f32", 3),
        ("codec_peak_f64", 3),
        ("codec_bounded_encode_f32", 11),
        ("codec_bounded_encode_f64", 11),
        ("codec_bounded_decode_f32", 8),
        ("codec_bounded_decode_f64", 8),
    ];

    #[test]
    fn the_ptx_has_the_kernels_that_are_launched_with_as_many_parameters() {
        let mut found: Vec<(String, usize)> = Vec::new();
        let all = [
            PLANES,
            PLANES_DECODE,
            POLYNOMIAL,
            POLYNOMIAL_DECODE,
            BOUNDED,
            BOUNDED_DECODE,
        ];
        for ptx in all {
            for entry in ptx.split(".visible .entry ").skip(1) {
                let (name, rest) = entry.split_once('(').unwrap();
                let parameters = rest.split_once(')').unwrap().0;
                found.push((name.to_owned(), parameters.matches(".param").count()));
            }
        }
        found.sort();
        let mut wrapped: Vec<_> = WRAPPERS.map(|(name, n)| (name.to_owned(), n)).to_vec();
        wrapped.sort();
        assert_eq!(found, wrapped);
    }
}
