//! Measures ratios and speeds of every codec on fields like those of applications, or on files.
//!
//! `cargo run --release -p tierflow-codec --example ratios -- [--gpu] [--others] [--wave N] [--values N] [--write DIR]
//! [TYPE:FILE ...]`
//!
//! `--others` measures pco, too, on one thread. `RAYON_NUM_THREADS=1` limits Tierflow's codecs to one thread for comparison.
//!
//! `--write` writes the inputs to a directory, for other codecs. TYPE is bf16, f16, f32, f64, i8, i16, i32 or i64. With
//! `--gpu`, inputs are repeated up to 1 GiB, events time kernels, with containers in device memory and in pinned host
//! memory, and a container is compared with the CPU's.
#![allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a program"
)]

mod fields;
mod gpu;
mod others;

use std::error::Error;
use std::time::{Duration, Instant};

use fields::Field;
use tierflow_codec::{Bound, Bounded, Codec, Element, Method, Planes, decode};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let (mut on_gpu, mut has_others) = (None, false);
    let (mut wave, mut values) = (128, 1 << 22);
    let mut files = Vec::new();
    let mut folder = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number =
            || -> Result<usize> { Ok(args.next().ok_or("a number is missing")?.parse()?) };
        match arg.as_str() {
            "--gpu" => on_gpu = Some(gpu::Bench::new()?),
            "--others" => has_others = true,
            "--wave" => wave = number()?,
            "--values" => values = number()?,
            "--write" => folder = Some(args.next().ok_or("a directory is missing")?),
            _ => files.push(file(&arg)?),
        }
    }
    println!(
        "{:<24} {:<5} {:<28} {:>8} {:>8} {:>8}   GB/s of the input",
        "input", "type", "codec", "ratio", "encode", "decode"
    );
    let inputs = if files.is_empty() {
        let steps = wave * 45 / 16;
        let mut inputs = fields::waves(wave, steps, steps / 6);
        inputs.extend(fields::parameters(values));
        inputs
    } else {
        files
    };
    for (n, input) in inputs.iter().enumerate() {
        if let Some(folder) = &folder {
            let kind = format!("{:?}", input.element).to_lowercase();
            std::fs::write(format!("{folder}/{n}.{kind}"), &input.bytes)?;
        }
        for method in methods(input)? {
            row(input, &method, on_gpu.as_mut())?;
        }
        if has_others {
            for other in others::ALL {
                let stored = (other.encode)(input)?;
                let rates = [
                    median(|| (other.encode)(input)),
                    median(|| (other.decode)(input, &stored)),
                ];
                print(
                    input,
                    other.name,
                    stored.len(),
                    "CPU",
                    rates,
                    input.bytes.len(),
                );
            }
        }
    }
    Ok(())
}

fn file(arg: &str) -> Result<Field> {
    let (kind, path) = arg.split_once(':').ok_or("give TYPE:FILE")?;
    let element = match kind {
        "bf16" => Element::Bf16,
        "f16" => Element::F16,
        "f32" => Element::F32,
        "f64" => Element::F64,
        "i8" => Element::I8,
        "i16" => Element::I16,
        "i32" => Element::I32,
        "i64" => Element::I64,
        _ => return Err(format!("{kind} is no type of values").into()),
    };
    Ok(Field {
        name: path.rsplit('/').next().unwrap_or(path).into(),
        element,
        bytes: std::fs::read(path)?,
    })
}

fn methods(input: &Field) -> Result<Vec<Method>> {
    let mut methods: Vec<Method> = Planes::all(input.element).map(Method::from).collect();
    if input.name.starts_with("wave")
        || input.name.starts_with('w') && input.element == Element::F32
    {
        for bound in [1e-3, 1e-4] {
            methods.push(Bounded::new(Bound::Relative(bound))?.into());
        }
    }
    Ok(methods)
}

/// Rounds of a measurement on the CPU.
const ROUNDS: usize = 5;

fn median<T>(mut work: impl FnMut() -> T) -> Duration {
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            std::hint::black_box(work());
            started.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}

fn row(input: &Field, method: &Method, on_gpu: Option<&mut gpu::Bench>) -> Result<()> {
    let most = method.max_encoded_len(input.bytes.len() as u64, input.element)?;
    let (mut container, mut output) = (vec![1; most as usize], vec![1; input.bytes.len()]);
    let len = method.encode(&input.bytes, input.element, &mut container)?;
    let encode = median(|| method.encode(&input.bytes, input.element, &mut container));
    container.truncate(len);
    decode(&container, &mut output)?;
    let rates = [encode, median(|| decode(&container, &mut output))];
    let what = match method {
        Method::Planes(planes) => format!("planes, {:?}", planes.predictor()),
        Method::Bounded(bounded) => format!("bounded, {:?}", bounded.bound()),
        other => other.name().into(),
    };
    print(input, &what, len, "CPU", rates, input.bytes.len());
    if let Some(bench) = on_gpu {
        let times = bench.time(input, method, &container)?;
        print(input, &what, len, "GPU", times.on_device, times.bytes);
        let place = "GPU, pinned host memory";
        print(input, &what, len, place, times.across_the_bus, times.bytes);
    }
    Ok(())
}

/// Prints a line. The times are those of `bytes` bytes.
fn print(
    input: &Field,
    what: &str,
    stored: usize,
    place: &str,
    times: [Duration; 2],
    bytes: usize,
) {
    let [encode, decode] = times.map(|time| bytes as f64 / time.as_secs_f64() / 1e9);
    let ratio = input.bytes.len() as f64 / stored as f64;
    let kind = format!("{:?}", input.element).to_lowercase();
    println!(
        "{:<24} {kind:<5} {what:<28} {ratio:>8.3} {encode:>8.2} {decode:>8.2}   {place}",
        input.name
    );
}
