//! Compressors of single checkpoints, for comparison: lz4 and zstd on the CPU with all cores, and the codecs of an installed nvCOMP on
//! the GPU.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rayon::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde::Deserialize;
use tempfile::NamedTempFile;
use tierflow_codec::{Codec, Element, Planes};
use tierflow_dedup::{Config, Lineage, Method};

use super::workloads::{Size, WORKLOADS, Workload};
use crate::experiments::Run;
use crate::machine;

/// Bytes that one call of one thread compresses.
const PIECE: usize = 1 << 20;

/// Bytes of a chunk of the differences.
const CHUNK: u32 = 128;

/// The program that runs nvCOMP through its Python package, which contains the library. The build therefore needs no nvCOMP.
const NVCOMP: &str = include_str!("nvcomp.py");

pub(crate) fn codecs(run: &mut Run) -> Result<()> {
    let size = Size {
        bytes: if run.is_quick() { 4 << 20 } else { 256 << 20 },
        checkpoints: 10,
    };
    let measured = if run.is_quick() { 2 } else { 4 };
    let mut nvcomp = Some(()).filter(|()| machine::has_gpu());
    if nvcomp.is_none() {
        eprintln!("  nvCOMP needs an NVIDIA GPU, and this machine has none");
    }
    for workload in WORKLOADS {
        let name = format!("workload={}", workload.name);
        run.cell(&name, Duration::from_secs(100), |run| {
            let history = workload.beginning(size, measured);
            let case = |method: &str| format!("{name}, method={method}");
            on_cpu(run, &case("lz4"), &history, lz4_flex::compress)?;
            on_cpu(run, &case("zstd"), &history, zstd)?;
            let element = match workload.name.starts_with("gdv") {
                true => Element::I32,
                false => Element::F32,
            };
            after_differences(run, case, &history, element)?;
            if nvcomp.is_some() {
                nvcomp = on_gpu(run, case, &history)?;
            }
            Ok(())
        })?;
    }
    let bytes = if run.is_quick() { 1 << 20 } else { 16 << 20 };
    for workload in WORKLOADS.iter().filter(|one| one.name.starts_with("gdv")) {
        let name = format!("workload={}, checkpoints=2 to 40", workload.name);
        run.cell(&name, Duration::from_secs(60), |run| {
            by_checkpoints(run, workload, bytes)
        })?;
    }
    Ok(())
}

/// Compresses with zstd. The Rust implementation has only this level, so the ratio is a lower bound of zstd's ratio.
fn zstd(piece: &[u8]) -> Vec<u8> {
    compress_to_vec(piece, CompressionLevel::Fastest)
}

/// Measures the ratios of zstd and of the differences by the number of checkpoints in which the same work is done, and the number from
/// which on the differences are smaller (ICPP'23, Figure 5). A ratio hardly depends on the bytes, and a history of 40 checkpoints has
/// to fit into memory.
fn by_checkpoints(run: &mut Run, workload: &Workload, bytes: usize) -> Result<()> {
    let mut smaller_from = None;
    for checkpoints in [2, 3, 4, 5, 7, 10, 20, 40] {
        let history = workload.history(Size { bytes, checkpoints });
        let case = |method: &str| {
            let name = workload.name;
            format!("workload={name}, method={method}, checkpoints={checkpoints}")
        };
        let mut compressed = on_cpu(run, &case("zstd"), &history, zstd)?;
        let whole = history[0].len() * (history.len() - 1);
        if let Some(stored) = by_program(&history)? {
            let ratio = whole as f64 / stored as f64;
            run.value(&case("zstd-3"), "ratio", "1", ratio)?;
            compressed = compressed.min(stored);
        }
        let mut lineage = Lineage::new(Config::new(Method::Tree).chunk(CHUNK))?;
        let mut stored = 0;
        for (state, version) in history.iter().zip(0..) {
            let difference = lineage.encode(version, state)?;
            stored += match version {
                0 => 0,
                _ => difference.into_bytes().len(),
            };
        }
        run.value(&case("tree"), "ratio", "1", whole as f64 / stored as f64)?;
        smaller_from = match stored < compressed {
            true => smaller_from.or(Some(checkpoints)),
            false => None,
        };
    }
    if let Some(checkpoints) = smaller_from {
        run.value(
            &format!("workload={}, method=tree", workload.name),
            "smaller than zstd from",
            "checkpoints",
            checkpoints as f64,
        )?;
    }
    Ok(())
}

/// Returns the bytes to which the program `zstd` compresses all checkpoints but the first, each as a whole; `None` if it is not
/// installed.
fn by_program(history: &[Vec<u8>]) -> Result<Option<usize>> {
    let mut stored = 0;
    for state in &history[1..] {
        let mut file = NamedTempFile::new()?;
        file.write_all(state)?;
        let output = Command::new("zstd")
            .args(["-3", "-q", "-c"])
            .arg(file.path())
            .output();
        let Ok(output) = output else {
            return Ok(None);
        };
        ensure!(output.status.success(), "zstd ended with {}", output.status);
        stored += output.stdout.len();
    }
    Ok(Some(stored))
}

/// Compresses a history on the CPU. Returns the compressed bytes. The first checkpoint does not count, as in the paper.
pub(super) fn on_cpu(
    run: &mut Run,
    case: &str,
    history: &[Vec<u8>],
    compress: impl Fn(&[u8]) -> Vec<u8> + Sync,
) -> Result<usize> {
    let (mut stored, mut seconds) = (0, 0.0);
    for state in &history[1..] {
        let began = Instant::now();
        let pieces = state.par_chunks(PIECE).map(|piece| compress(piece).len());
        stored += pieces.sum::<usize>();
        seconds += began.elapsed().as_secs_f64();
    }
    let bytes = history[0].len() as f64 * (history.len() - 1) as f64;
    run.value(case, "ratio", "1", bytes / stored as f64)?;
    run.value(case, "encode", "bytes/s", bytes / seconds)?;
    Ok(stored)
}

/// Measures compressors on differences, each in pieces as above, and the codec of the engine on differences and on checkpoints.
fn after_differences(
    run: &mut Run,
    case: impl Fn(&str) -> String,
    history: &[Vec<u8>],
    element: Element,
) -> Result<()> {
    let mut lineage = Lineage::new(Config::new(Method::Tree).chunk(CHUNK))?;
    let mut differences = Vec::new();
    for (state, version) in history.iter().zip(0..) {
        let difference = lineage.encode(version, state)?;
        let payload = difference.summary().payload_bytes as usize;
        differences.push((difference.into_bytes(), payload));
    }
    differences.remove(0);
    let bytes = history[0].len() * differences.len();
    type Compress<'a> = &'a (dyn Fn(&[u8]) -> usize + Sync);
    let compressors: [(&str, Compress<'_>); 3] = [
        ("tree", &|piece| piece.len()),
        ("tree, lz4", &|piece| lz4_flex::compress(piece).len()),
        ("tree, zstd", &|piece| {
            compress_to_vec(piece, CompressionLevel::Fastest).len()
        }),
    ];
    for (name, compress) in compressors {
        let pieces = differences
            .par_iter()
            .flat_map(|(difference, _)| difference.par_chunks(PIECE));
        let stored: usize = pieces.map(compress).sum();
        run.value(&case(name), "ratio", "1", bytes as f64 / stored as f64)?;
    }
    let whole: Vec<_> = history[1..]
        .iter()
        .map(|state| vec![(state.as_slice(), element)])
        .collect();
    planes(run, &case("planes"), &whole, bytes)?;
    let one: Vec<_> = differences
        .iter()
        .map(|(difference, _)| vec![(difference.as_slice(), element)])
        .collect();
    planes(run, &case("tree, planes"), &one, bytes)?;
    let apart: Vec<_> = differences
        .iter()
        .map(|(difference, payload)| {
            let (metadata, payload) = difference.split_at(difference.len() - payload);
            vec![(metadata, Element::I32), (payload, element)]
        })
        .collect();
    planes(run, &case("tree, planes, metadata apart"), &apart, bytes)
}

/// Measures the engine's codec on inputs in parts, which stand for `checkpoints` bytes of checkpoints: the ratio to those bytes, and
/// the rates of the inputs' own bytes. An input that does not become smaller counts uncompressed.
fn planes(
    run: &mut Run,
    case: &str,
    inputs: &[Vec<(&[u8], Element)>],
    checkpoints: usize,
) -> Result<()> {
    let (mut stored, mut raw, mut encoding, mut decoding) = (0, 0, 0.0, 0.0);
    for parts in inputs {
        let (mut made, mut all) = (0, 0);
        for &(part, element) in parts {
            let codec = Planes::chosen_for(part, element);
            let most = codec.max_encoded_len(part.len() as u64, element)?;
            let (mut out, mut back) = (vec![1; most as usize], vec![1; part.len()]);
            let began = Instant::now();
            let encoded = codec.encode(part, element, &mut out)?;
            encoding += began.elapsed().as_secs_f64();
            let began = Instant::now();
            tierflow_codec::decode(&out[..encoded], &mut back)?;
            decoding += began.elapsed().as_secs_f64();
            ensure!(back == part, "{case}: what came back is not what went in");
            made += encoded;
            all += part.len();
        }
        stored += made.min(all);
        raw += all;
    }
    run.value(case, "ratio", "1", checkpoints as f64 / stored as f64)?;
    run.value(case, "encode", "bytes/s", raw as f64 / encoding)?;
    run.value(case, "decode", "bytes/s", raw as f64 / decoding)?;
    Ok(())
}

/// A line of nvcomp.py.
#[derive(Deserialize)]
#[serde(untagged)]
enum CodecLine {
    Missing {
        missing: String,
    },
    Refused {
        codec: String,
        error: String,
    },
    Measured {
        codec: String,
        bytes: f64,
        stored: f64,
        compressing: f64,
        seconds: f64,
    },
}

/// Measures the codecs of nvCOMP. Returns `None`, and prints a line, if nvCOMP is not installed.
fn on_gpu(run: &mut Run, case: impl Fn(&str) -> String, history: &[Vec<u8>]) -> Result<Option<()>> {
    let folder = tempfile::tempdir()?;
    let mut files = Vec::new();
    for (state, n) in history[1..].iter().zip(0..) {
        let path = folder.path().join(format!("checkpoint-{n}"));
        std::fs::write(&path, state)?;
        files.push(path);
    }
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let output = Command::new(&python)
        .arg("-c")
        .arg(NVCOMP)
        .args(&files)
        .stderr(Stdio::inherit())
        .output();
    let Ok(output) = output else {
        eprintln!("  nvCOMP is not measured: there is no {python:?}; set $PYTHON");
        return Ok(None);
    };
    ensure!(
        output.status.success(),
        "nvcomp.py ended with {}",
        output.status
    );
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match serde_json::from_str(line).with_context(|| format!("nvcomp.py said {line:?}"))? {
            CodecLine::Missing { missing } => {
                eprintln!("  nvCOMP is not installed ({missing}): pip install nvidia-nvcomp-cu13");
                return Ok(None);
            }
            CodecLine::Refused { codec, error } => eprintln!("  nvCOMP's {codec} refused: {error}"),
            CodecLine::Measured {
                codec,
                bytes,
                stored,
                compressing,
                seconds,
            } => {
                let case = case(&format!("nvcomp-{}", codec.to_lowercase()));
                run.value(&case, "ratio", "1", bytes / stored)?;
                run.value(&case, "encode", "bytes/s", bytes / compressing)?;
                run.value(&case, "end to end", "bytes/s", bytes / seconds)?;
            }
        }
    }
    Ok(Some(()))
}
