//! What is to be saved, and where each byte of it will lie.

use crate::container::{BLOCK_BYTES, Element, Head, Kind, RegionInfo, UNIT, checksum, round_up};
use crate::file::BLOCK;
use crate::{Error, Result};

/// A region to be saved: borrowed bytes with a name.
#[derive(Debug, Clone, Copy)]
pub struct Region<'a> {
    name: &'a str,
    bytes: &'a [u8],
    element: Element,
    shape: &'a [u64],
}

impl<'a> Region<'a> {
    /// Bytes of which nothing is said. The name has 1 to 40 bytes.
    #[must_use]
    pub fn new(name: &'a str, bytes: &'a [u8]) -> Self {
        Self {
            name,
            bytes,
            element: Element::Bytes,
            shape: &[],
        }
    }

    /// Says what the bytes are: an array of up to 8 extents, slowest first, so that they can be exported as one.
    #[must_use]
    pub fn array(self, element: Element, shape: &'a [u64]) -> Self {
        Self {
            element,
            shape,
            ..self
        }
    }
}

/// One rank's piece of a version, to be saved.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// The version's number.
    pub version: u64,
    /// The version that this one is a difference against, which must be there.
    pub base: Option<u64>,
    /// Its regions. No two have the same name.
    pub regions: &'a [Region<'a>],
}

/// A piece laid out: its head (still without checksums) and the regions that fill the payload.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) head: Head,
    regions: &'a [Region<'a>],
}

/// What a piece is called, apart from what it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label {
    pub(crate) kind: Kind,
    pub(crate) sequence: u64,
    pub(crate) created: u64,
    pub(crate) run: u64,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
}

impl<'a> Layout<'a> {
    /// Lays `snapshot` out in a file of its own (`alone`), in whole blocks, or in as little as may be.
    pub(crate) fn new(snapshot: &Snapshot<'a>, label: Label, alone: bool) -> Result<Self> {
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
                length: region.bytes.len() as u64,
                element: region.element,
                shape: region.shape.to_vec(),
            };
            info.check()
                .map_err(|what| refused(format!("region {:?}: {what}", region.name)))?;
            end = round_up(end + info.length, unit).ok_or_else(too_large)?;
            regions.push(info);
        }
        let blocks = end.div_ceil(u64::from(BLOCK_BYTES));
        let size = Head::size(regions.len(), blocks).ok_or_else(too_large)?;
        let length = size.next_multiple_of(unit as u32);
        let head = Head {
            kind: label.kind,
            position: 0,
            version: snapshot.version,
            sequence: label.sequence,
            run: label.run,
            base: snapshot.base,
            created: label.created,
            rank: label.rank,
            ranks: label.ranks,
            length,
            payload_length: end,
            block_bytes: BLOCK_BYTES,
            regions,
            blocks: Vec::new(),
        };
        head.check_names()
            .map_err(|what| refused(what.to_string()))?;
        Ok(Self {
            head,
            regions: snapshot.regions,
        })
    }

    /// Fills `bytes` with the payload from `offset`: the regions and the zeros between them.
    pub(crate) fn fill(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        let infos = &self.head.regions;
        let mut done = 0;
        let first = infos.partition_point(|info| info.offset + info.length <= offset);
        for (info, region) in infos[first..].iter().zip(&self.regions[first..]) {
            if info.offset >= end {
                break;
            }
            let from = offset.max(info.offset);
            let to = end.min(info.offset + info.length);
            if from >= to {
                continue;
            }
            let (at, length) = ((from - offset) as usize, (to - from) as usize);
            let skip = (from - info.offset) as usize;
            bytes[done..at].fill(0);
            bytes[at..at + length].copy_from_slice(&region.bytes[skip..skip + length]);
            done = at + length;
        }
        bytes[done..].fill(0);
    }

    /// Appends the whole record to `record`, its head as if it lay at the start of a file. Returns the head's length.
    pub(crate) fn encode(&mut self, record: &mut Vec<u8>) -> Result<usize> {
        let start = record.len();
        let payload = start + self.head.length as usize;
        record.resize(start + self.head.record_length() as usize, 0);
        self.fill(0, &mut record[payload..]);
        let blocks = record[payload..].chunks(self.head.block_bytes as usize);
        self.head.blocks = blocks.map(checksum).collect();
        let head = encoded(&self.head)?;
        record[start..start + head.len()].copy_from_slice(&head);
        Ok(head.len())
    }
}

/// The head as it is written.
pub(crate) fn encoded(head: &Head) -> Result<Vec<u8>> {
    head.encode()
        .map_err(|what| Error::Argument(format!("version {}: {what}", head.version)))
}
