//! Snapshots, and the layout of their bytes in a record.

use super::Piece;
use super::encoded::RecordLabel;
use crate::container::{BLOCK_BYTES, Element, Head, RegionInfo, UNIT, checksum, round_up};
use crate::file::BLOCK;
use crate::panics::guarded;
use crate::{Error, Result};

/// Fills memory with the bytes of a region from an offset on. Several threads call it.
pub type Pull<'a> = dyn Fn(u64, &mut [u8]) -> Result<()> + Sync + 'a;

/// Waits until a piece may be published.
pub type Ready<'a> = dyn Fn() -> Result<()> + 'a;

/// A region to save: a name, and bytes that are borrowed, or fetched when they are written.
#[derive(Debug, Clone, Copy)]
pub struct Region<'a> {
    name: &'a str,
    bytes: Bytes<'a>,
    element: Element,
    shape: &'a [u64],
    parts: &'a [RegionInfo],
}

#[derive(Clone, Copy)]
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Pulled(u64, &'a Pull<'a>),
}

impl Bytes<'_> {
    fn length(&self) -> u64 {
        match self {
            Self::Borrowed(bytes) => bytes.len() as u64,
            Self::Pulled(length, _) => *length,
        }
    }

    /// Fills `into` from `offset` on; the range is within the region.
    fn fill(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        match self {
            Self::Borrowed(bytes) => {
                let from = offset as usize;
                into.copy_from_slice(&bytes[from..from + into.len()]);
                Ok(())
            }
            Self::Pulled(_, pull) => guarded("fetching a region", || pull(offset, into)),
        }
    }
}

impl std::fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.length())
    }
}

impl<'a> Region<'a> {
    /// Makes a region of bytes of unknown meaning. The name has 1 to 1024 bytes.
    #[must_use]
    pub fn new(name: &'a str, bytes: &'a [u8]) -> Self {
        Self {
            name,
            bytes: Bytes::Borrowed(bytes),
            element: Element::Bytes,
            shape: &[],
            parts: &[],
        }
    }

    /// Makes a region of `length` bytes that `pull` fetches, a few MiB at a time and in any order. An error of `pull` becomes the
    /// error of the save.
    #[must_use]
    pub fn pulled(name: &'a str, length: u64, pull: &'a Pull<'a>) -> Self {
        Self {
            bytes: Bytes::Pulled(length, pull),
            ..Self::new(name, &[])
        }
    }

    /// Declares the bytes an array of up to 8 extents, slowest first, so that they can be exported as one.
    #[must_use]
    pub fn array(self, element: Element, shape: &'a [u64]) -> Self {
        Self {
            element,
            shape,
            ..self
        }
    }

    /// Declares the regions that the bytes become once they are decoded, with their offsets in the decoded bytes of all regions of
    /// the snapshot. Only for [`Element::Encoded`].
    #[must_use]
    pub fn decoded_to(self, parts: &'a [RegionInfo]) -> Self {
        Self { parts, ..self }
    }
}

/// The piece of one rank of a version, to be saved.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// Number of the version.
    pub version: u64,
    /// The version that this one is a difference against. A difference counts once its base is whole.
    pub base: Option<u64>,
    /// The regions of the piece. No two have the same name.
    pub regions: &'a [Region<'a>],
}

impl<'a> Snapshot<'a> {
    /// Makes a snapshot of a piece that builds upon no other version.
    #[must_use]
    pub const fn new(version: u64, regions: &'a [Region<'a>]) -> Self {
        Self {
            version,
            base: None,
            regions,
        }
    }
}

/// The layout of a piece: its head, still without checksums, and the source of its payload.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) head: Head,
    payload: Payload<'a>,
}

#[derive(Debug)]
enum Payload<'a> {
    Regions(&'a [Region<'a>]),
    /// The payload of another piece, byte for byte.
    Copy(&'a Piece),
}

impl<'a> Layout<'a> {
    /// Lays out `snapshot`: in whole blocks for its own file if `alone` is true, else in as few bytes as possible.
    pub(crate) fn new(snapshot: &Snapshot<'a>, label: RecordLabel, alone: bool) -> Result<Self> {
        let refused = |what| Error::Argument(format!("version {}: {what}", snapshot.version));
        let too_large = || refused("it is too large for one record".to_owned());
        if snapshot.base.is_some_and(|base| base >= snapshot.version) {
            return Err(refused("the base must be an older version".to_owned()));
        }
        let unit = if alone { BLOCK } else { UNIT } as u64;
        let mut end = 0;
        let mut regions = Vec::with_capacity(snapshot.regions.len());
        for region in snapshot.regions {
            let info = RegionInfo {
                name: region.name.to_owned(),
                offset: end,
                length: region.bytes.length(),
                element: region.element,
                shape: region.shape.to_vec(),
            };
            info.check()
                .map_err(|what| refused(format!("region {:?}: {what}", region.name)))?;
            let ends = end.checked_add(info.length);
            end = ends
                .and_then(|end| round_up(end, unit))
                .ok_or_else(too_large)?;
            regions.push(info);
        }
        let parts = snapshot.regions.iter().flat_map(|region| region.parts);
        let parts: Vec<RegionInfo> = parts.cloned().collect();
        let mut head = Head {
            kind: label.kind,
            position: 0,
            version: snapshot.version,
            sequence: label.sequence,
            epoch: label.epoch,
            run: label.run,
            base: snapshot.base,
            created: label.created,
            rank: label.rank,
            ranks: label.ranks,
            length: 0,
            payload_length: end,
            block_bytes: BLOCK_BYTES,
            regions,
            parts,
            blocks: Vec::new(),
        };
        let least = head.least_length().ok_or_else(too_large)?;
        head.length = least.next_multiple_of(unit as u32);
        head.check_names()
            .map_err(|what| refused(what.to_string()))?;
        Ok(Self {
            head,
            payload: Payload::Regions(snapshot.regions),
        })
    }

    /// Lays out a copy of a piece with the same payload, checksums and identity. A copy of a format 1 piece gets `sequence`, which
    /// belongs to its new place.
    pub(crate) fn copy(piece: &'a Piece, sequence: u64, alone: bool) -> Result<Self> {
        let mut head = Head {
            position: 0,
            ..piece.head().clone()
        };
        if head.epoch == 0 {
            head.sequence = sequence;
        }
        if alone {
            head.length = head.length.next_multiple_of(BLOCK as u32);
        }
        encoded(&head)?;
        Ok(Self {
            head,
            payload: Payload::Copy(piece),
        })
    }

    /// Fills `bytes` with the payload from `offset`, the start of a block: with the regions and the zeros between them.
    pub(crate) fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let regions = match self.payload {
            Payload::Regions(regions) => regions,
            Payload::Copy(piece) => return piece.fill(offset, bytes),
        };
        let end = offset + bytes.len() as u64;
        let infos = &self.head.regions;
        let mut done = 0;
        let first = infos.partition_point(|info| info.offset + info.length <= offset);
        for (info, region) in infos[first..].iter().zip(&regions[first..]) {
            if info.offset >= end {
                break;
            }
            let from = offset.max(info.offset);
            let to = end.min(info.offset + info.length);
            if from >= to {
                continue;
            }
            let (at, length) = ((from - offset) as usize, (to - from) as usize);
            bytes[done..at].fill(0);
            let into = &mut bytes[at..at + length];
            region.bytes.fill(from - info.offset, into)?;
            done = at + length;
        }
        bytes[done..].fill(0);
        Ok(())
    }

    /// Appends the whole record to `record`, with a head for the start of a file. Returns the length of the head.
    pub(crate) fn encode(&mut self, record: &mut Vec<u8>) -> Result<usize> {
        let start = record.len();
        let payload = start + self.head.length as usize;
        record.resize(start + self.head.record_length() as usize, 0);
        if let Err(error) = self.fill(0, &mut record[payload..]) {
            record.truncate(start);
            return Err(error);
        }
        let blocks = record[payload..].chunks(self.head.block_bytes as usize);
        self.head.blocks = blocks.map(checksum).collect();
        let head = encoded(&self.head)?;
        record[start..start + head.len()].copy_from_slice(&head);
        Ok(head.len())
    }
}

/// Returns the bytes of a head as they are written.
pub(crate) fn encoded(head: &Head) -> Result<Vec<u8>> {
    head.encode()
        .map_err(|what| Error::Argument(format!("version {}: {what}", head.version)))
}
