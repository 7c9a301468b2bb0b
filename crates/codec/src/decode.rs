//! Decoding of containers of any codec.

use crate::bounded::Bounded;
use crate::codec::Codec;
use crate::error::{Error, Invalid, Result};
use crate::header::{CodecId, Header};
use crate::nvcomp::NvcompCodec;
use crate::planes::Planes;

/// Decodes a container of any codec of this crate to `out`, which is as long as [`Header::raw_bytes`].
///
/// # Errors
///
/// As for [`Codec::decode`], and [`Error::NotBuilt`](crate::Error::NotBuilt) if the build lacks the container's codec.
pub fn decode(container: &[u8], out: &mut [u8]) -> Result<()> {
    let header = Header::parse(container)?;
    match header.codec {
        CodecId::Planes => Planes::new().decode(container, out),
        CodecId::Bounded => Bounded::decode_any(container, out),
        CodecId::NvcompLz4 => NvcompCodec::Lz4.decode(&header, container, out),
        CodecId::NvcompZstd => NvcompCodec::Zstd.decode(&header, container, out),
    }
}

/// Returns the bytes to which consecutive containers decode: at most 8192 times the bytes of the containers, even if these
/// are damaged.
///
/// # Errors
///
/// [`Error::Corrupt`](crate::Error::Corrupt) if the bytes are no whole containers.
pub fn decoded_len(mut containers: &[u8]) -> Result<u64> {
    let mut len = 0;
    while !containers.is_empty() {
        let header = Header::parse(containers)?;
        let (stored, raw) = header.within(containers.len(), usize::MAX)?;
        len += raw as u64;
        containers = &containers[stored..];
    }
    Ok(len)
}

/// Decodes consecutive containers to `out`, which is as long as all their inputs together.
///
/// # Errors
///
/// As for [`Codec::decode`].
pub fn decode_all(mut containers: &[u8], mut out: &mut [u8]) -> Result<()> {
    while !out.is_empty() {
        let header = Header::parse(containers)?;
        let (stored, raw) = header.within(containers.len(), out.len())?;
        let (values, behind) = std::mem::take(&mut out).split_at_mut(raw);
        decode(containers, values)?;
        (containers, out) = (&containers[stored..], behind);
    }
    match containers {
        [] => Ok(()),
        _ => Err(Error::Corrupt {
            what: "there are more containers than bytes to decode",
        }),
    }
}

/// Decodes a container of any codec of this crate to a new vector of at most `limit` bytes, so that a damaged header
/// cannot ask for more.
///
/// # Errors
///
/// As for [`Codec::decode`], and [`Invalid::Limit`] if the container decodes to more than `limit` bytes.
pub fn decode_to_vec(container: &[u8], limit: u64) -> Result<Vec<u8>> {
    let raw = Header::parse(container)?.raw_bytes;
    let bytes = usize::try_from(raw)
        .ok()
        .filter(|_| raw <= limit)
        .ok_or(Invalid::Limit { raw, limit })?;
    let mut out = vec![0; bytes];
    decode(container, &mut out)?;
    Ok(out)
}
