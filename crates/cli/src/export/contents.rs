//! What a version consists of, whether it lies as it is, as a difference or compressed.

use anyhow::{Context, Result, bail, ensure};
use std::borrow::Cow;
use tierflow_codec::{Frame, Header};
use tierflow_dedup::{Chain, most_stored_bytes};
use tierflow_objects::History;
use tierflow_store::container::{Element, RegionInfo};
use tierflow_store::{Error, Piece};

/// One rank's piece of a version.
pub(super) enum PieceContents {
    Plain(Box<Piece>),
    /// Put together from differences: its regions, and their bytes one after the other.
    Decoded(Vec<RegionInfo>, Vec<u8>),
}

impl PieceContents {
    /// Finds a version in the first of these that has it, and what it builds upon in any of them.
    pub(super) fn of(histories: &[History], version: u64, rank: u32) -> Result<Self> {
        let piece = found(histories, version, rank)?;
        let Some(size) = piece.head().decoded() else {
            return Ok(Self::Plain(Box::new(piece)));
        };
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

    pub(super) fn regions(&self) -> &[RegionInfo] {
        match self {
            Self::Plain(piece) => piece.regions(),
            Self::Decoded(regions, _) => regions,
        }
    }

    /// The bytes of one of its regions, checked.
    pub(super) fn read(&self, region: &RegionInfo) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Plain(piece) => Ok(Cow::Owned(piece.read(&region.name)?)),
            Self::Decoded(_, bytes) => {
                // The head was found to agree with the length.
                let from = usize::try_from(region.offset)?;
                let to = from + usize::try_from(region.length)?;
                Ok(Cow::Borrowed(bytes.get(from..to).unwrap_or_default()))
            }
        }
    }
}

fn found(histories: &[History], version: u64, rank: u32) -> Result<Piece> {
    let mut first: Option<Error> = None;
    for history in histories {
        let piece = history.piece_of(version, rank).or_else(|error| {
            // What a difference builds upon may lie elsewhere: those are of groups of one.
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
