//! `tierflow verify`.

use crate::names::numbers;
use crate::output::{DamageRow, Output, bytes};
use crate::redundancy;
use crate::show::{located, opened};
use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use tierflow_store::Scrubbed;

#[derive(Debug, Serialize)]
struct Verified {
    sound: bool,
    pieces: u64,
    bytes: u64,
    damage: Vec<DamageRow>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// The directory of versions, one above it, or the URL of an object store: s3://bucket/prefix
    directory: PathBuf,
    /// Only this version
    version: Option<u64>,
    /// The name of the checkpoint, where VELOC's interface wrote it; the version is that of the name
    #[arg(long, requires = "version")]
    name: Option<String>,
}

pub(crate) fn verify(arguments: &VerifyArguments, output: Output) -> Result<ExitCode> {
    let directory = located(&arguments.directory)?;
    if redundancy::is_node(&directory) {
        let version = arguments.version;
        let version = version.map(|version| (arguments.name.as_deref(), version));
        return redundancy::verify(&directory, version, output);
    }
    let history = opened(&directory, output)?;
    let bar = output.progress(0);
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let mut scrubbed = Scrubbed::default();
    match arguments.version {
        None => scrubbed = history.scrub(None, &progress)?,
        Some(version) => {
            for number in numbers(&history, arguments.name.as_deref(), &[version])? {
                let one = history.scrub(Some(number), &progress)?;
                scrubbed.pieces += one.pieces;
                scrubbed.bytes += one.bytes;
                scrubbed.damage.extend(one.damage);
            }
            let found = scrubbed.pieces > 0 || !scrubbed.damage.is_empty();
            ensure!(found, "there is no version {version}");
        }
    }
    bar.finish_and_clear();
    let verified = Verified {
        sound: scrubbed.damage.is_empty(),
        pieces: scrubbed.pieces,
        bytes: scrubbed.bytes,
        damage: scrubbed.damage.iter().map(DamageRow::from).collect(),
    };
    let mut text = format!(
        "{} piece(s) of {} are sound\n",
        verified.pieces,
        bytes(verified.bytes)
    );
    text.extend(verified.damage.iter().map(DamageRow::line));
    output.answer(&verified, &text)?;
    Ok(ExitCode::from(u8::from(!verified.sound)))
}
