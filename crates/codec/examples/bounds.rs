//! Checks the promise of every kind of bound, of containers as they are stored: each value that comes back differs by no more
//! than its bound, as `f64` compares it, or is the same bit for bit.
//!
//! `cargo run --release -p tierflow-codec --example bounds -- [--gpu] [--f32 STEP] [--f64 COUNT] [--bound N] [--part K/OF]`
//!
//! Two passes take every STEP-th chunk of 2^20 of all 2^32 bit patterns of `f32`, by default each. The first has neighbouring bit
//! patterns in a chunk, so all values of a chunk are within one power of two. The second has both signs of 32 powers of two in a
//! chunk, so a relative bound meets values far below the chunk's largest one. Half of the COUNT bit patterns of `f64` are random;
//! the others are random with magnitudes near the bound, or near 1. `--bound` takes the N-th bound alone, from 0 on, and
//! `--part` the K-th of OF equal parts of each pass, from 1 on: so a pass may be run in pieces. With `--gpu`, kernels encode each chunk, too, and decode it: the container has to be the same, and the values.
//!
//! `cargo test -p tierflow-codec --example bounds` takes a sample of each pass and bound.
#![allow(missing_docs, unreachable_pub, reason = "a program")]

use std::error::Error;
use std::time::Instant;

use rayon::prelude::*;
use tierflow_codec::{Bound, Bounded, Codec, Element, Header, Method, decode, gpu};
use tierflow_device::{Choice, Memory, Stream, open};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bit patterns of a chunk.
const CHUNK: u64 = 1 << 20;

/// Bounds from coarse to as fine as a type resolves.
const BOUNDS: [Bound; 12] = [
    Bound::Absolute(1e30),
    Bound::Absolute(1e-3),
    Bound::Absolute(1e-30),
    Bound::Absolute(f64::MIN_POSITIVE),
    Bound::Relative(1.0),
    Bound::Relative(1e-3),
    Bound::Relative(1e-9),
    Bound::Relative(1e-300),
    Bound::PointwiseRelative(1.0),
    Bound::PointwiseRelative(1e-2),
    Bound::PointwiseRelative(1e-5),
    Bound::PointwiseRelative(1e-9),
];

fn main() -> Result<()> {
    let mut on_gpu = None;
    let mut share = Share {
        step: 1,
        count: 1_000_000_000,
        part: 1,
        of: 1,
    };
    let mut bounds = &BOUNDS[..];
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut text = || args.next().ok_or("a number is missing");
        match arg.as_str() {
            "--gpu" => on_gpu = Some(Gpu::new()?),
            "--f32" => share.step = text()?.parse()?,
            "--f64" => share.count = text()?.parse()?,
            "--part" => {
                let text = text()?;
                let (part, of) = text.split_once('/').ok_or("give a part as 1/8")?;
                (share.part, share.of) = (part.parse()?, of.parse()?);
            }
            "--bound" => {
                let one = BOUNDS.get(text()?.parse()?..).and_then(<[_]>::first);
                bounds = std::slice::from_ref(one.ok_or("there are fewer bounds")?);
            }
            other => return Err(format!("{other} is no option").into()),
        }
    }
    if share.step == 0 || share.part == 0 || share.part > share.of {
        return Err("give a step from 1 on, and a part from 1/OF to OF/OF".into());
    }
    println!(
        "{:<32} {:<12} {:>16} {:>16} {:>10}",
        "bound", "values", "checked", "changed", "seconds"
    );
    for bound in bounds {
        for pass in PASSES {
            let begun = Instant::now();
            let checked = pass.check(*bound, share, &mut on_gpu)?;
            print(*bound, pass.name, checked, begun);
        }
    }
    Ok(())
}

/// The values of a pass that are checked.
#[derive(Clone, Copy)]
struct Share {
    /// Every `step`-th chunk of `f32` is checked.
    step: u64,
    /// Values of `f64`.
    count: u64,
    /// The number of the part of these, from 1 on.
    part: u64,
    /// Number of equal parts that the pass is cut into.
    of: u64,
}

/// A way to put bit patterns into chunks.
struct Pass {
    name: &'static str,
    element: Element,
    /// The bit pattern of a value of a chunk.
    value: fn(Bound, chunk: u64, n: u64) -> u64,
}

const PASSES: [Pass; 3] = [
    Pass {
        name: "f32, near",
        element: Element::F32,
        value: |_, chunk, n| chunk * CHUNK + n,
    },
    Pass {
        name: "f32, spread",
        element: Element::F32,
        value: |_, chunk, n| u64::from(spread(chunk as u32, n as u32)),
    },
    Pass {
        name: "f64",
        element: Element::F64,
        value: |bound, chunk, n| {
            let near = match (chunk % 4, bound) {
                (1, Bound::Absolute(bound)) => bound,
                (3, Bound::Absolute(bound)) => 1e6 * bound,
                (1 | 3, _) => 1.0,
                _ => 0.0,
            };
            pattern(mix(chunk * CHUNK + n), near)
        },
    },
];

impl Pass {
    /// Checks a share of all `f32`, or of values of `f64`.
    fn check(&self, bound: Bound, share: Share, on_gpu: &mut Option<Gpu>) -> Result<Checked> {
        let chunks = match self.element {
            Element::F32 => (1_u64 << 12).div_ceil(share.step),
            _ => share.count.div_ceil(CHUNK),
        };
        let step = match self.element {
            Element::F32 => share.step,
            _ => 1,
        };
        // Parts take chunks in turn, so each part has values of all magnitudes.
        let part = (share.part - 1..chunks).step_by(share.of as usize);
        let chunks: Vec<u64> = part.map(|chunk| chunk * step).collect();
        check(bound, self.element, &chunks, on_gpu, |chunk| {
            let values = (0..CHUNK).map(|n| (self.value)(bound, chunk, n));
            match self.element {
                Element::F32 => values
                    .flat_map(|bits| (bits as u32).to_le_bytes())
                    .collect(),
                _ => values.flat_map(u64::to_le_bytes).collect(),
            }
        })
    }
}

/// Value `n` of a chunk that mixes magnitudes: a permutation of all bit patterns of `f32`.
///
/// A chunk has both signs, and 32 powers of two from the largest down: its number gives the high 3 bits of the exponent and 9 bits of
/// the mantissa. The high 4 of these 9 bits are rotated by the exponent, so that the largest value of a chunk meets values of all
/// mantissas in the powers of two below.
const fn spread(chunk: u32, n: u32) -> u32 {
    let (window, high, low) = (chunk >> 9, chunk >> 5 & 15, chunk & 31);
    let (sign, power, middle) = (n & 1, n >> 1 & 31, n >> 6);
    let high = (high + 5 * power) & 15;
    sign << 31 | window << 28 | power << 23 | high << 19 | middle << 5 | low
}

fn print(bound: Bound, kind: &str, checked: Checked, begun: Instant) {
    println!(
        "{:<32} {kind:<12} {:>16} {:>16} {:>10.1}",
        format!("{bound:?}"),
        checked.values,
        checked.changed,
        begun.elapsed().as_secs_f64()
    );
}

/// A random word (Vigna 2015, SplitMix64).
const fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns the random bits, with an exponent within 16 of that of `near` if `near` is not 0.
fn pattern(random: u64, near: f64) -> u64 {
    let exponent = near.to_bits() >> 52;
    if exponent == 0 {
        return random;
    }
    let off = (random >> 52 & 31).wrapping_sub(16);
    let exponent = exponent.wrapping_add(off).clamp(1, 2046);
    (random & !(0x7FF << 52)) | exponent << 52
}

/// Values that were checked, and those that came back changed.
#[derive(Clone, Copy, Default)]
struct Checked {
    values: u64,
    changed: u64,
}

fn check(
    bound: Bound,
    element: Element,
    chunks: &[u64],
    on_gpu: &mut Option<Gpu>,
    of: impl Fn(u64) -> Vec<u8> + Sync,
) -> Result<Checked> {
    let codec = Bounded::new(bound)?;
    let mut all = Checked::default();
    // Some chunks at a time, so that a GPU has them one after the other.
    for chunks in chunks.chunks(64) {
        let done: Vec<_> = chunks
            .par_iter()
            .map(|chunk| {
                let input = of(*chunk);
                let container = codec
                    .encode_to_vec(&input, element)
                    .map_err(|e| e.to_string())?;
                let mut output = vec![0; input.len()];
                decode(&container, &mut output).map_err(|e| e.to_string())?;
                let checked = compare(bound, element, &input, &output)?;
                Ok((input, container, output, checked))
            })
            .collect::<std::result::Result<_, String>>()?;
        for (input, container, output, checked) in done {
            all.values += checked.values;
            all.changed += checked.changed;
            if let Some(gpu) = on_gpu {
                gpu.compare(&codec.into(), element, &input, &container, &output)?;
            }
        }
    }
    Ok(all)
}

/// Checks a chunk against the promise without the codec's code.
fn compare(
    bound: Bound,
    element: Element,
    input: &[u8],
    output: &[u8],
) -> std::result::Result<Checked, String> {
    let width = element.bytes();
    let wide = |bytes: &[u8]| match *bytes {
        [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => f64::NAN,
    };
    let peak = input
        .chunks_exact(width)
        .map(|bytes| wide(bytes).abs())
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    let mut checked = Checked::default();
    for (before, after) in input.chunks_exact(width).zip(output.chunks_exact(width)) {
        checked.values += 1;
        if before == after {
            continue;
        }
        checked.changed += 1;
        let (before, after) = (wide(before), wide(after));
        let most = match bound {
            Bound::Absolute(bound) => bound,
            Bound::Relative(share) => share * peak,
            Bound::PointwiseRelative(share) => share * before.abs(),
            _ => 0.0,
        };
        if !(before.is_finite() && (before - after).abs() <= most) {
            return Err(format!(
                "{bound:?}, {element:?}: {before:e} came back as {after:e}, which is more than {most:e} off"
            ));
        }
    }
    Ok(checked)
}

/// The kernels, and memory for a chunk.
struct Gpu {
    stream: Stream,
    encoder: gpu::Encoder,
    decoder: gpu::Decoder,
    data: Memory,
    container: Memory,
}

impl Gpu {
    fn new() -> Result<Self> {
        let device = open(Choice::Cuda { ordinal: 0 })?;
        let kernels = gpu::Kernels::load(&device)?;
        let most = 8 * CHUNK as usize;
        Ok(Self {
            stream: device.stream()?,
            encoder: gpu::Encoder::new(&kernels, most as u64)?,
            decoder: gpu::Decoder::new(&kernels)?,
            data: device.alloc(most)?,
            container: device.alloc(2 * most)?,
        })
    }

    fn compare(
        &mut self,
        method: &Method,
        element: Element,
        input: &[u8],
        container: &[u8],
        output: &[u8],
    ) -> Result<()> {
        self.stream
            .write(input, &mut self.data.lend_mut(0..input.len())?)?;
        let most = method.max_encoded_len(input.len() as u64, element)? as usize;
        let out = gpu::OutputBuffer::device(&self.container, 0..most)?;
        let data = self.data.lend(0..input.len())?;
        let encoding = self
            .encoder
            .encode(&self.stream, method, element, data, out);
        let header = encoding.wait().result?;
        let mut bytes = vec![0; header.stored_bytes as usize];
        self.stream
            .read(&self.container.lend(0..bytes.len())?, &mut bytes)?;
        if bytes != container {
            return Err("the container of the GPU is another one".into());
        }
        let header = Header::parse(&bytes)?;
        let origin = gpu::Origin::device(&self.container, 0..bytes.len())?;
        let out = self.data.lend_mut(0..input.len())?;
        self.decoder
            .decode(&self.stream, &header, origin, out)
            .wait()
            .result?;
        let mut back = vec![0; input.len()];
        self.stream
            .read(&self.data.lend(0..input.len())?, &mut back)?;
        if back != output {
            return Err("the values of the GPU are other ones".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Share = Share {
        // A step that is coprime to the number of windows of exponents meets all of them.
        step: 509,
        count: CHUNK,
        part: 1,
        of: 1,
    };

    #[test]
    fn parts_are_the_whole() {
        let whole = Share {
            step: 409,
            ..SAMPLE
        };
        let bound = BOUNDS[1];
        for pass in &PASSES[..2] {
            let checked = |share| pass.check(bound, share, &mut None).unwrap();
            let parts = (1..=3).map(|part| {
                checked(Share {
                    part,
                    of: 3,
                    ..whole
                })
            });
            let (values, changed) = parts.fold((0, 0), |(values, changed), part| {
                (values + part.values, changed + part.changed)
            });
            let all = checked(whole);
            assert_eq!(
                (values, changed),
                (all.values, all.changed),
                "{}",
                pass.name
            );
        }
    }

    #[test]
    fn a_sample_keeps_every_bound() {
        for bound in BOUNDS {
            for pass in PASSES {
                let checked = pass.check(bound, SAMPLE, &mut None);
                let checked = checked.unwrap_or_else(|error| panic!("{}: {error}", pass.name));
                assert!(checked.values >= CHUNK, "{}", pass.name);
            }
        }
    }

    #[test]
    fn the_spread_is_a_permutation_of_chunks_of_32_powers_of_two() {
        let mut seen = vec![false; 1 << 20];
        // All values of the bits that `spread` moves. Of each field that it only copies, two bits suffice.
        for chunk in (0..1 << 12).filter(|chunk| chunk & 0b11110 == 0) {
            for n in (0..1 << 20).filter(|n| n >> 8 == 0) {
                let bits = spread(chunk, n);
                let middle = bits >> 5 & 0x3FFF;
                assert!(middle < 4);
                let key = bits >> 19 << 4 | middle << 1 | bits & 1;
                assert!(!std::mem::replace(&mut seen[key as usize], true));
            }
        }
        let magnitudes = (0..1 << 20).map(|n| spread(3 << 9, n) >> 23 & 0xFF);
        let mut magnitudes: Vec<u32> = magnitudes.collect();
        magnitudes.sort_unstable();
        magnitudes.dedup();
        assert_eq!(magnitudes, (96..128).collect::<Vec<_>>());
    }

    #[test]
    fn a_value_beyond_its_bound_is_found() {
        let of = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
        let (before, after) = (of([1000.0, 1.0]), of([1000.0, 2.5]));
        let compared = |bound| compare(bound, Element::F32, &before, &after);
        assert!(compared(Bound::Relative(1e-3)).is_err());
        assert!(compared(Bound::Relative(2e-3)).is_ok());
    }
}
