//! The head of a record: the kind, the position, the regions, and the checksums of the whole record.

use super::region::{REGION_LIMIT, ROW, RegionInfo};
use super::{UNIT, checksum, round_up};
use thiserror::Error;

/// The first eight bytes of a record.
pub const MAGIC: [u8; 8] = *b"TIERFLOW";
/// The newest version of the format. Heads that use none of its additions are written in the oldest format that can hold them. All
/// formats can be read.
pub const FORMAT: u32 = 4;
/// The format of heads of epoch 0.
const FORMAT_WITHOUT_EPOCH: u32 = 1;
/// The format of heads with an epoch and without parts.
const FORMAT_WITHOUT_PARTS: u32 = 2;
/// The format of heads with parts, for names of up to 40 bytes and element types up to
/// [`Element::Encoded`](super::Element::Encoded).
const FORMAT_WITH_PARTS: u32 = 3;
/// Bytes of payload under one checksum in records written here. Readers accept any multiple of 256 up to 1 GiB.
pub const BLOCK_BYTES: u32 = 1 << 20;
/// The largest length of a head, in bytes: enough for 64 Ki regions and 7 TiB of payload in blocks of 1 MiB.
pub const HEAD_LIMIT: u32 = 64 << 20;
/// Bytes before the region table.
pub(super) const FIXED: usize = 96;
const NO_BASE: u64 = u64::MAX;
const LARGEST_BLOCK: u32 = 1 << 30;

/// The fault of bytes that are no head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Invalid(pub(crate) &'static str);

impl Invalid {
    /// Returns the fault in words.
    #[must_use]
    pub fn what(self) -> &'static str {
        self.0
    }
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The piece of one rank of a version.
    Piece,
    /// The list of all ranks' pieces of a version: the payload is [rows](super::rows).
    Manifest,
    /// The list of a segment's records, its last one: the payload is [rows](super::rows).
    Index,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Piece, Self::Manifest, Self::Index];
}

/// A record's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The kind of the record.
    pub kind: Kind,
    /// Offset of the record in its file, in bytes. A record that was copied into the payload of another one has the wrong offset,
    /// so it is not taken for a record.
    pub position: u64,
    /// The checkpoint's number.
    pub version: u64,
    /// Number of the record within its epoch, as counted by the rank. Of two records with the same version and epoch, the one with
    /// the higher sequence counts.
    pub sequence: u64,
    /// Number of the run among all runs that wrote as this rank. Of two records with the same version, the one with the higher
    /// epoch counts. 0 in format 1.
    pub epoch: u32,
    /// Number of the application's run that wrote the record. The pieces of one version must have the same.
    pub run: u64,
    /// The version that this one is a difference against. The base and all of its bases are kept as long as this one.
    pub base: Option<u64>,
    /// Time of the write, in nanoseconds since 1970 by the writer's clock. Nothing is ordered by it.
    pub created: u64,
    /// The rank whose piece this is.
    pub rank: u32,
    /// Number of ranks of the group, and so of the version's pieces.
    pub ranks: u32,
    /// Length of the head in bytes, a multiple of [`UNIT`]. The payload follows at once.
    pub length: u32,
    /// Length of the payload in bytes, a multiple of [`UNIT`]. The record ends with the payload.
    pub payload_length: u64,
    /// Bytes of payload under one checksum; the last block may be shorter.
    pub block_bytes: u32,
    /// The content of the payload.
    pub regions: Vec<RegionInfo>,
    /// The regions of the decoded payload, with their offsets in it. Empty if the payload is not encoded or these regions are not
    /// known.
    pub parts: Vec<RegionInfo>,
    /// The checksum of each block.
    pub blocks: Vec<u64>,
}

impl Head {
    /// Returns the length of all regions after decoding, in bytes; `None` if none of them is encoded.
    #[must_use]
    pub fn decoded(&self) -> Option<u64> {
        let is_encoded = |region: &RegionInfo| region.decoded().is_some();
        let lengths = self.regions.iter();
        let lengths = lengths.map(|region| region.decoded().unwrap_or(region.length));
        let is_any = self.regions.iter().any(is_encoded);
        // The lengths come from a file and may be wrong, so the sum saturates.
        is_any.then(|| lengths.fold(0, u64::saturating_add))
    }

    /// Returns the length of the whole record in bytes, a multiple of [`UNIT`].
    #[must_use]
    pub fn record_length(&self) -> u64 {
        u64::from(self.length).saturating_add(self.payload_length)
    }

    /// Returns a checksum over the regions and the checksums of the blocks. Copies have the same; different contents have different
    /// ones.
    #[must_use]
    pub fn content(&self) -> u64 {
        let mut bytes = Vec::with_capacity(8 + self.rows() * ROW + self.blocks.len() * 8);
        bytes.extend(self.payload_length.to_le_bytes());
        self.encode_table(&mut bytes);
        bytes.extend(self.blocks.iter().flat_map(|block| block.to_le_bytes()));
        self.encode_name_rests(&mut bytes);
        checksum(&bytes)
    }

    /// Returns the number of rows of the region table.
    fn rows(&self) -> usize {
        self.regions.len() + self.parts.len()
    }

    fn encode_table(&self, bytes: &mut Vec<u8>) {
        let regions = self.regions.iter().map(|region| (region, false));
        let parts = self.parts.iter().map(|part| (part, true));
        for (row, is_part) in regions.chain(parts) {
            let at = bytes.len();
            bytes.resize(at + ROW, 0);
            row.encode(&mut bytes[at..], is_part);
        }
    }

    /// Appends the ends of long names, for which the rows have no room, in the table's order.
    fn encode_name_rests(&self, bytes: &mut Vec<u8>) {
        for row in self.regions.iter().chain(&self.parts) {
            bytes.extend(row.name_rest());
        }
    }

    fn format(&self) -> u32 {
        let mut rows = self.regions.iter().chain(&self.parts);
        match (self.epoch, self.parts.is_empty()) {
            _ if rows.any(RegionInfo::needs_format_4) => FORMAT,
            (_, false) => FORMAT_WITH_PARTS,
            (0, true) => FORMAT_WITHOUT_EPOCH,
            (_, true) => FORMAT_WITHOUT_PARTS,
        }
    }

    /// Returns the least length of this head in bytes, `None` if no head may be as long. The checksums need not be there yet.
    pub(crate) fn least_length(&self) -> Option<u32> {
        let rows = self.regions.iter().chain(&self.parts);
        let rests = rows.map(|row| row.name_rest().len() as u64).sum();
        Self::size(self.rows(), rests, self.block_count())
    }

    /// Checks that one record can have these regions, both as they are and encoded as a single region: a head has at most
    /// [`REGION_LIMIT`] rows and [`HEAD_LIMIT`] bytes.
    ///
    /// # Errors
    /// [`Invalid`] if it cannot.
    pub fn check_regions(regions: &[RegionInfo]) -> Result<(), Invalid> {
        // The region of the encoded bytes counts, too.
        let rows = regions.len() + 1;
        if rows > REGION_LIMIT {
            return Err(Invalid("a checkpoint has 65535 regions at most: join some"));
        }
        let rests = regions.iter().map(|row| row.name_rest().len() as u64).sum();
        let padded = |region: &RegionInfo| region.length.saturating_add(UNIT as u64);
        let bytes = regions.iter().map(padded).fold(0, u64::saturating_add);
        let size = Self::size(rows, rests, bytes.div_ceil(u64::from(BLOCK_BYTES)));
        size.map(drop).ok_or(Invalid(
            "the names of all regions are too long, or the regions too large, for one checkpoint",
        ))
    }

    /// Returns the least length in bytes of a head with so many rows, bytes of long names, and blocks; `None` if no head may have
    /// them.
    fn size(rows: usize, name_rests: u64, blocks: u64) -> Option<u32> {
        let table = (rows as u64).checked_mul(ROW as u64)?;
        let size = blocks
            .checked_mul(8)?
            .checked_add(table)?
            .checked_add(name_rests)?
            .checked_add(FIXED as u64 + 8)?;
        let size = u32::try_from(round_up(size, UNIT as u64)?).ok()?;
        (size <= HEAD_LIMIT && rows <= REGION_LIMIT).then_some(size)
    }

    /// Returns the number of the payload's blocks.
    pub(crate) fn block_count(&self) -> u64 {
        self.payload_length.div_ceil(u64::from(self.block_bytes))
    }

    /// Returns the bytes of the head as they are written.
    ///
    /// # Errors
    /// [`Invalid`] if the fields contradict each other.
    pub fn encode(&self) -> Result<Vec<u8>, Invalid> {
        let size = self.length;
        self.check(self.rows())?;
        self.check_size(self.least_length())?;
        if self.blocks.len() as u64 != self.block_count() {
            return Err(Invalid("not one checksum for each block"));
        }
        for region in self.regions.iter().chain(&self.parts) {
            region.check()?;
        }
        self.check_places()?;
        self.check_parts()?;
        let mut bytes = Vec::with_capacity(size as usize);
        bytes.extend(MAGIC);
        bytes.extend(self.format().to_le_bytes());
        bytes.extend(size.to_le_bytes());
        for word in [
            self.payload_length,
            self.position,
            self.version,
            self.sequence,
            self.run,
            self.base.unwrap_or(NO_BASE),
            self.created,
        ] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.rank.to_le_bytes());
        bytes.extend(self.ranks.to_le_bytes());
        bytes.extend(self.block_bytes.to_le_bytes());
        bytes.extend((self.rows() as u32).to_le_bytes());
        bytes.extend((self.kind as u32).to_le_bytes());
        bytes.extend(self.epoch.to_le_bytes());
        self.encode_table(&mut bytes);
        for block in &self.blocks {
            bytes.extend(block.to_le_bytes());
        }
        self.encode_name_rests(&mut bytes);
        bytes.resize(size as usize - 8, 0);
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        Ok(bytes)
    }

    /// Returns the length of a head in bytes, from the first [`UNIT`] bytes of its record. [`decode`](Self::decode) takes so many
    /// bytes.
    ///
    /// # Errors
    /// [`Invalid`] if no record of this format starts there.
    pub fn length(start: &[u8; UNIT]) -> Result<usize, Invalid> {
        if start[..8] != MAGIC {
            return Err(Invalid("no record starts here"));
        }
        if !(FORMAT_WITHOUT_EPOCH..=FORMAT).contains(&u32_at(start, 8)) {
            return Err(Invalid(
                "a format that this version of Tierflow does not know",
            ));
        }
        let length = u32_at(start, 12);
        check_length(length)?;
        Ok(length as usize)
    }

    /// Decodes a head from exactly its bytes. Allocates at most a few times their length, whatever the bytes say.
    ///
    /// # Errors
    /// [`Invalid`] if [`encode`](Self::encode) does not write such bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let start = bytes.first_chunk().ok_or(Invalid("the head is cut off"))?;
        let length = Self::length(start)?;
        if bytes.len() != length {
            return Err(Invalid("the head is cut off"));
        }
        if u64_at(bytes, length - 8) != checksum(&bytes[..length - 8]) {
            return Err(Invalid("the head's checksum does not match"));
        }
        let word = |at| u64_at(bytes, at);
        let rows = u32_at(bytes, 84) as usize;
        let mut head = Self {
            kind: *Kind::ALL
                .get(u32_at(bytes, 88) as usize)
                .ok_or(Invalid("a record of an unknown kind"))?,
            length: length as u32,
            payload_length: word(16),
            position: word(24),
            version: word(32),
            sequence: word(40),
            epoch: u32_at(bytes, 92),
            run: word(48),
            base: Some(word(56)).filter(|base| *base != NO_BASE),
            created: word(64),
            rank: u32_at(bytes, 72),
            ranks: u32_at(bytes, 76),
            block_bytes: u32_at(bytes, 80),
            regions: Vec::new(),
            parts: Vec::new(),
            blocks: Vec::new(),
        };
        head.check(rows)?;
        let (table, sums) = bytes[FIXED..length - 8].split_at(rows * ROW);
        let (sums, mut rests) = sums.split_at(8 * head.block_count() as usize);
        for row in table.as_chunks::<ROW>().0 {
            let rest = rests.split_at_checked(RegionInfo::rest_length(row));
            let (rest, others) = rest.ok_or(Invalid("a region's name is cut off"))?;
            rests = others;
            let (row, is_part) = RegionInfo::decode(row, rest)?;
            match (is_part, head.parts.is_empty()) {
                (true, _) => head.parts.push(row),
                (false, true) => head.regions.push(row),
                (false, false) => return Err(Invalid("a region comes after the parts")),
            }
        }
        if head.format() != u32_at(bytes, 8) {
            return Err(Invalid("the fields are none of its format"));
        }
        head.check_places()?;
        head.check_parts()?;
        if rests.iter().any(|byte| *byte != 0) {
            return Err(Invalid("an unused field is not zero"));
        }
        let words = sums.as_chunks::<8>().0.iter();
        head.blocks = words.map(|word| u64::from_le_bytes(*word)).collect();
        head.check_names()?;
        Ok(head)
    }

    /// Checks that the fixed fields agree with each other and with a table of so many rows.
    fn check(&self, rows: usize) -> Result<(), Invalid> {
        check_length(self.length)?;
        if self.ranks == 0 || self.rank >= self.ranks {
            return Err(Invalid("the rank is none of the group's"));
        }
        if self.base.is_some_and(|base| base >= self.version) {
            return Err(Invalid("the base is not an older version"));
        }
        let unit = UNIT as u64;
        if self.block_bytes == 0
            || self.block_bytes > LARGEST_BLOCK
            || !u64::from(self.block_bytes).is_multiple_of(unit)
        {
            return Err(Invalid("the block size is impossible"));
        }
        if !self.position.is_multiple_of(unit) || !self.payload_length.is_multiple_of(unit) {
            return Err(Invalid("a length or position is no multiple of 256"));
        }
        let end = u64::from(self.length)
            .checked_add(self.payload_length)
            .and_then(|length| self.position.checked_add(length));
        if end.is_none() {
            return Err(Invalid("the record ends behind all files"));
        }
        self.check_size(Self::size(rows, 0, self.block_count()))
    }

    /// Checks that tables of `least` bytes fit into the head.
    fn check_size(&self, least: Option<u32>) -> Result<(), Invalid> {
        match least {
            Some(least) if least <= self.length => Ok(()),
            _ => Err(Invalid("the tables do not fit into the head")),
        }
    }

    /// Checks that the regions lie within the payload, one behind the other.
    fn check_places(&self) -> Result<(), Invalid> {
        let mut end = 0;
        for region in &self.regions {
            if region.offset < end {
                return Err(Invalid(
                    "a region starts before the end of the previous one",
                ));
            }
            let ends = region.offset.checked_add(region.length);
            end = ends
                .filter(|end| *end <= self.payload_length)
                .ok_or(Invalid("a region ends behind the payload"))?;
        }
        Ok(())
    }

    /// Checks that the parts, if there are any, lie within the decoded payload.
    fn check_parts(&self) -> Result<(), Invalid> {
        let decoded = self.decoded();
        if self.parts.is_empty() {
            return Ok(());
        }
        let decoded = decoded.ok_or(Invalid("there are parts of what is not encoded"))?;
        let ends = |part: &RegionInfo| part.offset.checked_add(part.length);
        if (self.parts.iter()).any(|part| ends(part).is_none_or(|end| end > decoded)) {
            return Err(Invalid("a part ends behind what is decoded"));
        }
        if self.parts.iter().any(|part| part.decoded().is_some()) {
            return Err(Invalid("a part is encoded"));
        }
        Ok(())
    }

    pub(crate) fn check_names(&self) -> Result<(), Invalid> {
        for rows in [&self.regions, &self.parts] {
            let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
            names.sort_unstable();
            if names.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(Invalid("two regions have the same name"));
            }
        }
        Ok(())
    }
}

fn check_length(length: u32) -> Result<(), Invalid> {
    if length == 0 || length > HEAD_LIMIT || !(length as usize).is_multiple_of(UNIT) {
        return Err(Invalid("the head's length is impossible"));
    }
    Ok(())
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
