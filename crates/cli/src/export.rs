//! `tierflow export`: regions as NumPy arrays or as they are.

use crate::output::{Output, bytes};
use crate::show::{chosen, opened};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tierflow_store::Piece;
use tierflow_store::container::{Element, RegionInfo};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The directory of versions
    directory: PathBuf,
    /// The version; the newest if it is left out
    version: Option<u64>,
    /// Only these regions; all if none is named
    #[arg(long = "region")]
    regions: Vec<String>,
    /// Whose piece
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// The existing folder for the files, each named after its region
    #[arg(long, default_value = ".")]
    to: PathBuf,
    /// NumPy's format, or nothing but the bytes
    #[arg(long, value_enum, default_value_t = Format::Npy)]
    format: Format,
    /// Write over existing files
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Npy,
    Raw,
}

#[derive(Debug, Serialize)]
struct Exported {
    version: u64,
    rank: u32,
    files: Vec<String>,
    bytes: u64,
}

pub(crate) fn export(arguments: &Arguments, output: Output) -> Result<()> {
    let repository = opened(&arguments.directory)?;
    let version = chosen(&repository, arguments.version)?;
    let piece = repository.piece_of(version, arguments.rank)?;
    let chosen: Vec<&RegionInfo> = if arguments.regions.is_empty() {
        piece.regions().iter().collect()
    } else {
        let named = arguments.regions.iter().map(|name| {
            let mut regions = piece.regions().iter();
            regions
                .find(|region| region.name == *name)
                .with_context(|| format!("version {version} has no region {name:?}"))
        });
        named.collect::<Result<_>>()?
    };
    let base = piece.head().base;
    ensure!(
        base.is_none(),
        "version {version} is a difference against version {}: it has to be restored, not exported",
        base.unwrap_or_default()
    );
    let encoded = chosen.iter().find(|region| region.decoded().is_some());
    ensure!(
        encoded.is_none(),
        "version {version} is encoded: it has to be restored by what saved it, not exported"
    );
    let total = chosen.iter().map(|region| region.length).sum();
    let bar = output.progress(total);
    let mut files = Vec::new();
    for region in chosen {
        let path = arguments.to.join(file_name(region, arguments.format)?);
        write(&piece, region, &path, arguments)?;
        bar.inc(region.length);
        files.push(path.display().to_string());
    }
    bar.finish_and_clear();
    let exported = Exported {
        version,
        rank: arguments.rank,
        files,
        bytes: total,
    };
    let mut text = format!("version {version}, {}\n", bytes(total));
    text.extend(exported.files.iter().map(|file| format!("{file}\n")));
    output.answer(&exported, &text)
}

/// Names come from files that anybody may have made: none leads out of the folder.
fn file_name(region: &RegionInfo, format: Format) -> Result<String> {
    let name = &region.name;
    let plain = |c: char| !c.is_control() && c != '/' && c != '\\';
    ensure!(
        name.chars().all(plain) && !name.starts_with('.'),
        "region {name:?} cannot be a file's name: export it with the library"
    );
    Ok(match format {
        Format::Npy => format!("{name}.npy"),
        Format::Raw => format!("{name}.raw"),
    })
}

fn write(piece: &Piece, region: &RegionInfo, path: &Path, arguments: &Arguments) -> Result<()> {
    // Checked before a byte of it is written.
    let bytes = piece.read(&region.name)?;
    let mut options = OpenOptions::new();
    options.write(true);
    if arguments.force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let failed = || format!("cannot write {}", path.display());
    let mut file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
            "{} is there already: add --force to write over it",
            path.display()
        ),
        opened => opened.with_context(failed)?,
    };
    if arguments.format == Format::Npy {
        file.write_all(&npy_head(region)).with_context(failed)?;
    }
    file.write_all(&bytes).with_context(failed)
}

/// The head of an .npy file, format 1.0.
fn npy_head(region: &RegionInfo) -> Vec<u8> {
    let extents = match region.element {
        Element::Bytes => vec![region.length],
        _ => region.shape.clone(),
    };
    let extents: String = extents.iter().map(|extent| format!("{extent}, ")).collect();
    let kind = region.element.numpy();
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({extents}), }}");
    // Magic, two bytes of version, two of length, the text, a newline: a multiple of 64.
    let padding = (10 + text.len() + 1).next_multiple_of(64) - (10 + text.len() + 1);
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let mut head = b"\x93NUMPY\x01\x00".to_vec();
    // Eight extents of twenty digits are far below 64 KiB.
    head.extend((text.len() as u16).to_le_bytes());
    head.extend(text.as_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(name: &str, element: Element, shape: &[u64]) -> RegionInfo {
        RegionInfo {
            name: name.to_owned(),
            offset: 0,
            length: 24,
            element,
            shape: shape.to_vec(),
        }
    }

    #[test]
    fn numpys_head_is_padded_to_64_bytes() {
        let head = npy_head(&region("grid", Element::F32, &[2, 3]));
        assert_eq!(head.len(), 128);
        let text = String::from_utf8_lossy(&head[10..]);
        let expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, ), }";
        assert_eq!(text.trim_end(), expected);
        assert!(text.ends_with(" \n"));
        let text = String::from_utf8(npy_head(&region("b", Element::Bytes, &[]))[10..].to_vec());
        assert!(
            text.unwrap()
                .contains("'|u1', 'fortran_order': False, 'shape': (24, )")
        );
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        for name in ["../up", "/etc/passwd", "..", ".hidden", "a\nb"] {
            assert!(
                file_name(&region(name, Element::Bytes, &[]), Format::Raw).is_err(),
                "{name}"
            );
        }
        assert_eq!(
            file_name(&region("a b", Element::U8, &[24]), Format::Raw).unwrap(),
            "a b.raw"
        );
    }
}
