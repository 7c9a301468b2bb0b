//! `tierflow export`: writes regions as files of NumPy, safetensors, Zarr, or their bytes only.

mod numpy;
mod safetensors;
mod zarr;

use crate::contents::PieceContents;
use crate::output::{Output, bytes};
use crate::tree::TREE;
use crate::versions::Versions;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde::Serialize;
use std::borrow::Cow;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tierflow_store::container::RegionInfo;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Bytes from which on an entry of an archive needs the long form of its lengths.
const LONG: u64 = u32::MAX as u64;
/// The most bytes of a head in NumPy's format.
const HEAD: u64 = 1024;

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// The directory of versions, or the URL of an object store
    directory: PathBuf,
    /// The version; the newest if it is left out
    version: Option<u64>,
    /// The name of the checkpoint, where VELOC's interface wrote it; the version is that of the name
    #[arg(long)]
    name: Option<String>,
    /// Only these regions; all if none is named
    #[arg(long = "region")]
    regions: Vec<String>,
    /// The rank whose piece it is
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// Another directory of the same versions, such as external storage: what a difference builds upon may lie there alone
    #[arg(long)]
    also: Option<PathBuf>,
    /// The existing folder for the files, each named after its region
    #[arg(long, default_value = ".")]
    to: PathBuf,
    /// A file for each region in NumPy's format, one of NumPy's archives for all, one file of safetensors for all, or a file of nothing
    /// but bytes for each
    #[arg(long, value_enum, default_value_t = Format::Npy)]
    format: Format,
    /// Write over existing files
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Npy,
    Npz,
    Safetensors,
    Zarr,
    Raw,
}

impl Format {
    /// Returns the extension of the names of this format's files.
    fn extension(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Safetensors => "safetensors",
            Self::Zarr => "zarr",
            Self::Raw => "raw",
        }
    }
}

#[derive(Debug, Serialize)]
struct Exported {
    version: u64,
    rank: u32,
    files: Vec<String>,
    bytes: u64,
}

pub(crate) fn export(arguments: &ExportArguments, output: Output) -> Result<()> {
    let also = arguments.also.as_deref();
    let versions = Versions::open(&arguments.directory, also, output)?;
    let name = arguments.name.as_deref();
    let (version, contents) = versions.contents(name, arguments.version, arguments.rank)?;
    let chosen: Vec<&RegionInfo> = if arguments.regions.is_empty() {
        contents.regions().iter().collect()
    } else {
        let named = arguments.regions.iter().map(|name| {
            let mut regions = contents.regions().iter();
            regions
                .find(|region| region.name == *name)
                .with_context(|| format!("version {version} has no region {name:?}"))
        });
        named.collect::<Result<_>>()?
    };
    let total = chosen.iter().map(|region| region.length).sum();
    let bar = output.progress(total);
    let mut files = Vec::new();
    if let Format::Npz | Format::Safetensors | Format::Zarr = arguments.format {
        let rank = match arguments.rank {
            0 => String::new(),
            rank => format!("-rank-{rank}"),
        };
        let extension = arguments.format.extension();
        let path = arguments
            .to
            .join(format!("checkpoint-{version}{rank}.{extension}"));
        new(&path, arguments.force, |at| match arguments.format {
            Format::Zarr => zarr::write(at, &contents, &chosen, &bar),
            Format::Npz => archived(created(at)?, &contents, &chosen, &bar),
            _ => as_tensors(created(at)?, &contents, &chosen, &bar),
        })?;
        files.push(path.display().to_string());
    } else {
        for region in chosen {
            let path = arguments.to.join(file_name(region, arguments.format)?);
            let bytes = contents.read(region)?;
            let head = match arguments.format {
                Format::Raw => Vec::new(),
                _ => numpy::head(region),
            };
            new(&path, arguments.force, |at| {
                let mut file = created(at)?;
                file.write_all(&head)?;
                Ok(file.write_all(&bytes)?)
            })?;
            bar.inc(region.length);
            files.push(path.display().to_string());
        }
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

/// Writes regions into one of NumPy's archives.
fn archived(
    file: File,
    contents: &PieceContents,
    regions: &[&RegionInfo],
    bar: &ProgressBar,
) -> Result<()> {
    let mut archive = ZipWriter::new(file);
    for region in regions {
        let bytes = contents.read(region)?;
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        let stored = stored.large_file(region.length + HEAD >= LONG);
        archive.start_file(file_name(region, Format::Npy)?, stored)?;
        archive.write_all(&numpy::head(region))?;
        archive.write_all(&bytes)?;
        bar.inc(region.length);
    }
    archive.finish()?;
    Ok(())
}

/// Returns the JSON text of the version's tree, if it has one.
fn structure<'c>(
    contents: &'c PieceContents,
    regions: &[&RegionInfo],
) -> Result<Option<Cow<'c, [u8]>>> {
    let tree = regions.iter().find(|region| region.name == TREE);
    tree.map(|region| contents.read(region)).transpose()
}

/// Writes regions into one file of safetensors.
fn as_tensors(
    mut file: File,
    contents: &PieceContents,
    regions: &[&RegionInfo],
    bar: &ProgressBar,
) -> Result<()> {
    let structure = structure(contents, regions)?;
    let structure = structure.map(|json| String::from_utf8_lossy(&json).into_owned());
    file.write_all(&safetensors::head(regions, structure.as_deref())?)?;
    for region in regions.iter().filter(|region| region.name != TREE) {
        file.write_all(&contents.read(region)?)?;
        bar.inc(region.length);
    }
    Ok(())
}

/// Lets `write` make a file or a folder beside `path`, and renames it to `path` when it is whole. With `force`, it replaces an earlier export.
/// Fails if `path` exists and `force` is false, or if `path` is a folder that is not Zarr's; the existing file or folder stays.
fn new(path: &Path, force: bool, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let may_go = || force && (!path.is_dir() || path.join("zarr.json").is_file());
    ensure!(
        !path.exists() || may_go(),
        "{} is there already: add --force to write over what was exported before",
        path.display()
    );
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // No region's file has this name, as no name begins with a dot.
    let beside = path.with_file_name(format!(".{name}.part"));
    let written = remove(&beside).and_then(|()| write(&beside));
    let written = written.and_then(|()| {
        if path.is_dir() {
            remove(path)?;
        }
        Ok(std::fs::rename(&beside, path)?)
    });
    written
        .inspect_err(|_| {
            let _already_failed = remove(&beside);
        })
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Removes a file, or a folder with all that is in it, if it is there.
fn remove(path: &Path) -> Result<()> {
    let removed = match path.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Creates a new file.
fn created(path: &Path) -> Result<File> {
    Ok(File::create_new(path)?)
}

/// Returns the name of a region's file. Region names come from files that are not trusted: fails for a name that leads out of the folder.
fn file_name(region: &RegionInfo, format: Format) -> Result<String> {
    let name = &region.name;
    let plain = |c: char| !c.is_control() && c != '/' && c != '\\';
    ensure!(
        name.chars().all(plain) && !name.starts_with('.'),
        "region {name:?} cannot be a file's name: export it with the library"
    );
    let extension = match format {
        Format::Raw => Format::Raw,
        _ => Format::Npy,
    };
    Ok(format!("{name}.{}", extension.extension()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierflow_store::container::Element;

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
