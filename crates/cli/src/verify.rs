//! `tierflow verify`.

use crate::output::{DamageRow, Output, bytes};
use crate::show::opened;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug, Serialize)]
struct Verified {
    sound: bool,
    pieces: u64,
    bytes: u64,
    damage: Vec<DamageRow>,
}

pub(crate) fn verify(directory: &Path, version: Option<u64>, output: Output) -> Result<ExitCode> {
    let history = opened(directory, output)?;
    let bar = output.progress(0);
    let scrubbed = history.verify(version, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    if let Some(version) = version {
        let found = scrubbed.pieces > 0 || !scrubbed.damage.is_empty();
        ensure!(found, "there is no version {version}");
    }
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
