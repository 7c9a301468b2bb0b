//! The contents of versions that are stored whole, as differences or compressed.

use anyhow::{Context, Result, bail, ensure};
use std::borrow::Cow;
use tierflow_codec::{Frame, Header};
use tierflow_dedup::{Chain, most_stored_bytes};
use tierflow_objects::History;
use tierflow_store::container::{Element, RegionInfo};
use tierflow_store::veloc::{self, Content, VelocHead};
use tierflow_store::{Error, Piece};

/// The contents of a rank's piece of a version, or of a checkpoint that consists of several versions.
pub(crate) enum PieceContents {
    Plain(Box<Piece>),
    /// A decoded version: its regions, and their bytes one after the other.
    Decoded(Vec<RegionInfo>, Vec<u8>),
    /// A checkpoint of VELOC: its regions, for each region the index of its part, and the parts.
    Named {
        regions: Vec<RegionInfo>,
        part_of: Vec<usize>,
        parts: Vec<Self>,
    },
}

/// The limit with which encoded versions of any size are decoded.
pub(crate) const ANY_SIZE: u64 = u64::MAX;

impl PieceContents {
    /// Opens a version in the first history that has it. The versions that it builds upon may lie in any of them. Fails for an encoded
    /// version of more than `most` bytes.
    pub(crate) fn of(histories: &[History], version: u64, rank: u32, most: u64) -> Result<Self> {
        Self::of_piece(found(histories, version, rank)?, histories, most)
    }

    /// Opens the contents of a piece. The versions that it builds upon may lie in any of the histories.
    pub(crate) fn of_piece(piece: Piece, histories: &[History], most: u64) -> Result<Self> {
        let (version, rank) = (piece.version(), piece.rank().0);
        let Some(size) = piece.head().decoded() else {
            return Ok(Self::Plain(Box::new(piece)));
        };
        ensure!(size <= most, "version {version} has more than {most} bytes");
        let mut regions = piece.layout().to_vec();
        if regions.is_empty() {
            regions.push(RegionInfo {
                name: "checkpoint".to_owned(),
                offset: 0,
                length: size,
                element: Element::Bytes,
                shape: Vec::new(),
            });
        }
        // The newest first.
        let mut differences = Vec::new();
        let mut next = Some(piece);
        while let Some(piece) = next {
            let [difference] = piece.regions() else {
                bail!(
                    "version {} is encoded by something else than an engine: it has to be restored by what saved it",
                    piece.version()
                );
            };
            let bytes = piece.read(&difference.name)?;
            if Header::is_one(&bytes) {
                let decode = || -> tierflow_codec::Result<Vec<u8>> {
                    let mut whole = vec![0; tierflow_codec::decoded_len(&bytes)? as usize];
                    tierflow_codec::decode_all(&bytes, &mut whole)?;
                    Ok(whole)
                };
                let whole = decode()
                    .with_context(|| format!("version {version} cannot be decompressed"))?;
                ensure!(
                    whole.len() as u64 == size,
                    "version {version} says that it has {size} bytes, and has {}",
                    whole.len()
                );
                return Ok(Self::Decoded(regions, whole));
            }
            let difference = match Frame::is_one(&bytes) {
                true => {
                    Frame::parse(&bytes).and_then(|frame| frame.to_vec(most_stored_bytes(size)))
                }
                false => Ok(bytes),
            };
            differences.push(difference.with_context(|| {
                format!(
                    "the difference of version {} cannot be decompressed",
                    piece.version()
                )
            })?);
            let base = piece.head().base;
            let base = base.map(|base| {
                found(histories, base, rank).with_context(|| {
                    format!(
                        "version {} is a difference against version {base}: name the directory that has it by --also",
                        piece.version()
                    )
                })
            });
            next = base.transpose()?;
        }
        let decoded = || -> tierflow_dedup::Result<Vec<u8>> {
            let mut chain = Chain::new();
            for bytes in differences.into_iter().rev() {
                chain.push(bytes)?;
            }
            let newest = chain.versions().last().unwrap_or_default();
            chain.to_vec(newest)
        };
        let decoded = decoded().with_context(|| {
            format!("version {version} cannot be put together from differences")
        })?;
        ensure!(
            decoded.len() as u64 == size,
            "version {version} says that it has {size} bytes, and has {}",
            decoded.len()
        );
        Ok(Self::Decoded(regions, decoded))
    }

    /// Opens one rank's piece of a checkpoint of VELOC: the protected regions, and the file.
    pub(crate) fn of_named(histories: &[History], head: &VelocHead, rank: u32) -> Result<Self> {
        let (mut regions, mut part_of, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for (index, content) in head.parts.iter().enumerate() {
            if content.bytes() > 0 {
                let number = veloc::part_of(head.serial, index);
                parts.push(Self::of(histories, number, rank, ANY_SIZE)?);
            }
            let mut offset = 0;
            for (name, length) in names_of(head, content, rank) {
                regions.push(RegionInfo {
                    name,
                    offset,
                    length,
                    element: Element::Bytes,
                    shape: Vec::new(),
                });
                offset += length;
                part_of.push(parts.len().saturating_sub(1));
            }
        }
        Ok(Self::Named {
            regions,
            part_of,
            parts,
        })
    }

    pub(crate) fn regions(&self) -> &[RegionInfo] {
        match self {
            Self::Plain(piece) => piece.regions(),
            Self::Decoded(regions, _) | Self::Named { regions, .. } => regions,
        }
    }

    /// Reads a region, and checks its checksums.
    pub(crate) fn read(&self, region: &RegionInfo) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Plain(piece) => Ok(Cow::Owned(piece.read(&region.name)?)),
            Self::Decoded(..) | Self::Named { .. } => self.read_part(region, 0, region.length),
        }
    }

    /// Reads `length` bytes of a region from `start` on, and checks their checksums.
    pub(crate) fn read_part(
        &self,
        region: &RegionInfo,
        start: u64,
        length: u64,
    ) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Plain(piece) => {
                let mut bytes = vec![0; usize::try_from(length)?];
                piece.restore_parts(&region.name, &mut [(start, &mut bytes)])?;
                Ok(Cow::Owned(bytes))
            }
            Self::Decoded(_, bytes) => {
                // `of_piece` checked that the bytes are as many as the head says.
                let from = usize::try_from(region.offset.saturating_add(start))?;
                let to = from.saturating_add(usize::try_from(length)?);
                Ok(Cow::Borrowed(bytes.get(from..to).unwrap_or_default()))
            }
            Self::Named { part_of, parts, .. } if length > 0 => {
                let known = self.regions().iter().position(|known| known == region);
                let part = known.and_then(|at| parts.get(*part_of.get(at)?));
                let missing = || format!("there is no region {:?}", region.name);
                let part = part.with_context(missing)?;
                let [whole] = part.regions() else {
                    bail!("the part of {:?} is not one of VELOC's", region.name);
                };
                part.read_part(whole, region.offset.saturating_add(start), length)
            }
            Self::Named { .. } => Ok(Cow::Borrowed(&[])),
        }
    }
}

/// Returns the names of a part's regions, and their bytes.
pub(crate) fn names_of(head: &VelocHead, content: &Content, rank: u32) -> Vec<(String, u64)> {
    match content {
        Content::Memory(regions) => {
            let name = |(id, bytes): &(i64, u64)| (format!("region-{id}"), *bytes);
            regions.iter().map(name).collect()
        }
        Content::File(bytes) => {
            let (name, version) = (&head.name, head.version);
            vec![(format!("{name}-{rank}-{version}.dat"), *bytes)]
        }
    }
}

fn found(histories: &[History], version: u64, rank: u32) -> Result<Piece> {
    let mut first: Option<Error> = None;
    for history in histories {
        let piece = history.piece_of(version, rank).or_else(|error| {
            // The base of a difference may lie elsewhere. Only groups of one rank write differences.
            let alone = history.own_piece(version).ok();
            alone.filter(|piece| piece.rank() == (rank, 1)).ok_or(error)
        });
        match piece {
            Ok(piece) => return Ok(piece),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.map_or_else(
        || anyhow::anyhow!("there is no directory"),
        anyhow::Error::from,
    ))
}
