//! Frames: encoded files of another format, whose first bytes stay readable without decoding. docs/src/codec.md describes
//! a frame byte by byte.

use crate::decode::{decode_all, decoded_len};
use crate::error::{Error, Invalid, Result};
use crate::header::{HEADER_BYTES, check, word};

const MAGIC: [u8; 8] = *b"tfframe\0";
const FORMAT: u64 = 1;

/// An encoded file: a header, the file's first bytes unencoded, and consecutive containers of the rest.
///
/// Frames and containers start with different bytes, so an encoded checkpoint is never taken for an encoded file.
///
/// ```
/// # fn main() -> tierflow_codec::Result<()> {
/// use tierflow_codec::{Codec, Element, Frame, Planes};
/// let file = [b"head".as_slice(), &[7; 100_000]].concat();
/// let (head, values) = file.split_at(4);
/// let mut stored = Frame::start(head, values.len() as u64);
/// stored.extend(Planes::new().encode_to_vec(values, Element::I8)?);
/// assert!(Frame::is_one(&stored) && stored.len() < file.len());
/// let frame = Frame::parse(&stored)?;
/// assert_eq!(frame.plain(), head);
/// assert_eq!(frame.to_vec(1 << 20)?, file);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    plain: &'a [u8],
    containers: &'a [u8],
    raw_bytes: u64,
}

impl<'a> Frame<'a> {
    /// Bytes of a frame's header.
    pub const HEADER_BYTES: usize = HEADER_BYTES;

    /// Returns true if these bytes start as a frame of any format version does.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Makes the start of a frame: its header, and `plain`, the file's first bytes. The caller appends containers of the
    /// `rest` bytes that follow.
    pub fn start(plain: &[u8], rest: u64) -> Vec<u8> {
        let mut header = [0; HEADER_BYTES];
        let raw_bytes = rest.saturating_add(plain.len() as u64);
        header[..8].copy_from_slice(&MAGIC);
        for (at, field) in [(8, FORMAT), (16, plain.len() as u64), (24, raw_bytes)] {
            header[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        let sum = check(&header);
        header[56..].copy_from_slice(&sum.to_le_bytes());
        [&header, plain].concat()
    }

    /// Reads a frame, and makes all checks that need no decoding. Allocates nothing, whatever the bytes are.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the bytes are no whole frame of a known format.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let Some((header, behind)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Error::corrupt("it is shorter than a frame's header"));
        };
        if !Self::is_one(header) {
            return Err(Error::corrupt("it does not start as a frame does"));
        }
        if word(header, 8) != FORMAT {
            return Err(Error::corrupt(
                "the frame's format is not known to this version",
            ));
        }
        if word(header, 56) != check(header) {
            return Err(Error::corrupt("the frame's check does not fit"));
        }
        if header[32..56].iter().any(|&byte| byte != 0) {
            return Err(Error::corrupt("the frame has fields that format 1 has not"));
        }
        let raw_bytes = word(header, 24);
        let plain = usize::try_from(word(header, 16)).ok();
        let (plain, containers) = plain
            .and_then(|plain| behind.split_at_checked(plain))
            .ok_or(Error::corrupt("the frame is shorter than it says"))?;
        let decoded = decoded_len(containers)?.checked_add(plain.len() as u64);
        if decoded != Some(raw_bytes) {
            return Err(Error::corrupt(
                "the frame does not hold as many bytes as it says",
            ));
        }
        Ok(Self {
            plain,
            containers,
            raw_bytes,
        })
    }

    /// Returns the first bytes of the file.
    pub fn plain(&self) -> &'a [u8] {
        self.plain
    }

    /// Returns the consecutive containers of the other bytes.
    pub fn containers(&self) -> &'a [u8] {
        self.containers
    }

    /// Returns the bytes of the file: at most 8192 times those of the frame.
    pub fn raw_bytes(&self) -> u64 {
        self.raw_bytes
    }

    /// Decodes the file to a new vector of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// [`Invalid::Limit`] if the file has more than `limit` bytes; [`Error::Corrupt`] if the bytes are damaged.
    pub fn to_vec(&self, limit: u64) -> Result<Vec<u8>> {
        let raw = self.raw_bytes;
        let bytes = usize::try_from(raw)
            .ok()
            .filter(|_| raw <= limit)
            .ok_or(Invalid::Limit { raw, limit })?;
        let mut file = vec![0; bytes];
        let (plain, values) = file.split_at_mut(self.plain.len());
        plain.copy_from_slice(self.plain);
        decode_all(self.containers, values)?;
        Ok(file)
    }
}
