//! Compressors of other projects, for comparison.

use std::io::Error;

use pco::standalone::{simple_compress, simple_decompress};
use tierflow_codec::Element;

use crate::fields::Field;

type Stored = Result<Vec<u8>, Error>;

/// A compressor of another project.
pub struct Other {
    pub name: &'static str,
    pub encode: fn(&Field) -> Stored,
    pub decode: fn(&Field, &[u8]) -> Stored,
}

/// The compressors that are measured.
pub const ALL: [Other; 1] = [Other {
    name: "pco",
    encode: |field| {
        let config = pco::ChunkConfig::default();
        match field.element {
            Element::F32 => simple_compress(&values(field, f32::from_le_bytes), &config),
            Element::F64 => simple_compress(&values(field, f64::from_le_bytes), &config),
            Element::I64 => simple_compress(&values(field, i64::from_le_bytes), &config),
            Element::I32 => simple_compress(&values(field, i32::from_le_bytes), &config),
            _ => simple_compress(&values(field, u16::from_le_bytes), &config),
        }
        .map_err(Error::other)
    },
    decode: |field, stored| {
        match field.element {
            Element::F32 => {
                simple_decompress::<f32>(stored).map(|v| bytes(&v, |v| v.to_le_bytes()))
            }
            Element::F64 => {
                simple_decompress::<f64>(stored).map(|v| bytes(&v, |v| v.to_le_bytes()))
            }
            Element::I64 => {
                simple_decompress::<i64>(stored).map(|v| bytes(&v, |v| v.to_le_bytes()))
            }
            Element::I32 => {
                simple_decompress::<i32>(stored).map(|v| bytes(&v, |v| v.to_le_bytes()))
            }
            _ => simple_decompress::<u16>(stored).map(|v| bytes(&v, |v| v.to_le_bytes())),
        }
        .map_err(Error::other)
    },
}];

fn values<T, const W: usize>(field: &Field, of: fn([u8; W]) -> T) -> Vec<T> {
    field
        .bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| of(*bytes))
        .collect()
}

fn bytes<T: Copy, const W: usize>(values: &[T], of: fn(T) -> [u8; W]) -> Vec<u8> {
    values.iter().flat_map(|value| of(*value)).collect()
}
