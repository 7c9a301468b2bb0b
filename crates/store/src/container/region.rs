//! Regions: the named arrays that a checkpoint is made of.

use super::head::Invalid;

/// Bytes of one row of the region table.
pub(super) const ROW: usize = 128;
/// The largest length of a region's name, in bytes of UTF-8.
pub const NAME_BYTES: usize = 1024;
/// Bytes of a name that its row holds. From format 4 on, the rest of a longer name follows the checksums of the blocks.
const ROW_NAME_BYTES: usize = 40;
/// The code of the last element type of format 3. Later types need format 4.
const LAST_OLD_ELEMENT: u8 = Element::Encoded as u8;
/// The largest number of regions in a record.
pub const REGION_LIMIT: usize = 65_536;
const DIMENSIONS: usize = 8;

macro_rules! elements {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $size:literal, $numpy:literal;)*) => {
        /// The type of a region's elements, little-endian.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[non_exhaustive]
        pub enum Element {
            $($(#[$doc])* $name = $code,)*
        }

        impl Element {
            fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the bytes of one element.
            #[must_use]
            pub fn size(self) -> u64 {
                match self {
                    $(Self::$name => $size,)*
                }
            }

            /// Returns NumPy's name of the type. Brain floats and 8-bit floats, which NumPy lacks, are opaque bytes.
            #[must_use]
            pub fn numpy(self) -> &'static str {
                match self {
                    $(Self::$name => $numpy,)*
                }
            }
        }
    };
}

elements! {
    /// Bytes of unknown meaning. The region has no shape.
    #[default]
    Bytes = 0, 1, "|u1";
    /// Unsigned, 8 bits.
    U8 = 1, 1, "|u1";
    /// Unsigned, 16 bits.
    U16 = 2, 2, "<u2";
    /// Unsigned, 32 bits.
    U32 = 3, 4, "<u4";
    /// Unsigned, 64 bits.
    U64 = 4, 8, "<u8";
    /// Signed, 8 bits.
    I8 = 5, 1, "|i1";
    /// Signed, 16 bits.
    I16 = 6, 2, "<i2";
    /// Signed, 32 bits.
    I32 = 7, 4, "<i4";
    /// Signed, 64 bits.
    I64 = 8, 8, "<i8";
    /// IEEE 754, 16 bits.
    F16 = 9, 2, "<f2";
    /// IEEE 754, 32 bits.
    F32 = 10, 4, "<f4";
    /// IEEE 754, 64 bits.
    F64 = 11, 8, "<f8";
    /// Brain float: the upper half of an `F32`.
    Bf16 = 12, 2, "|V2";
    /// Two `F32`: real, imaginary.
    C64 = 13, 8, "<c8";
    /// Two `F64`: real, imaginary.
    C128 = 14, 16, "<c16";
    /// Encoded bytes: compressed, or a difference. The only extent is the length of the decoded bytes.
    Encoded = 15, 1, "|u1";
    /// Truth values of one byte, 0 or 1. From format 4 on.
    Bool = 16, 1, "|b1";
    /// 8-bit float: 4 bits of exponent, 3 of mantissa, no infinity. From format 4 on.
    F8E4M3 = 17, 1, "|V1";
    /// 8-bit float: 5 bits of exponent, 2 of mantissa. From format 4 on.
    F8E5M2 = 18, 1, "|V1";
}

/// A row of the region table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionInfo {
    /// Name of the region, unique within the record.
    pub name: String,
    /// Offset of the region in bytes: from the start of the payload or, for a part, of the decoded payload.
    pub offset: u64,
    /// Length of the region in bytes.
    pub length: u64,
    /// The type of the region's elements.
    pub element: Element,
    /// The extents of the array, slowest first (C order); empty for [`Element::Bytes`] and for a single element. For
    /// [`Element::Encoded`], the length of the decoded bytes.
    pub shape: Vec<u64>,
}

impl RegionInfo {
    /// Returns the length of the region after decoding, in bytes; `None` if it is not encoded.
    #[must_use]
    pub fn decoded(&self) -> Option<u64> {
        let encoded = self.element == Element::Encoded;
        encoded.then(|| self.shape.first().copied())?
    }

    /// Checks that name, type, shape and length are valid and agree.
    ///
    /// # Errors
    /// [`Invalid`] if they are not or do not.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.name.is_empty() || self.name.len() > NAME_BYTES || self.name.contains('\0') {
            return Err(Invalid(
                "a region's name is not 1 to 1024 bytes without NUL",
            ));
        }
        if self.shape.len() > DIMENSIONS {
            return Err(Invalid("a region has more than 8 dimensions"));
        }
        if self.element == Element::Bytes {
            return if self.shape.is_empty() {
                Ok(())
            } else {
                Err(Invalid("a region of bytes has a shape"))
            };
        }
        if self.element == Element::Encoded {
            return match self.shape[..] {
                [_] => Ok(()),
                _ => Err(Invalid(
                    "an encoded region does not say what its length was",
                )),
            };
        }
        let bytes = self
            .shape
            .iter()
            .try_fold(self.element.size(), |bytes, extent| {
                bytes.checked_mul(*extent)
            });
        if bytes == Some(self.length) {
            Ok(())
        } else {
            Err(Invalid("a region's length is not that of its shape"))
        }
    }

    /// Returns the bytes of the name for which the row has no room.
    pub(super) fn name_rest(&self) -> &[u8] {
        let rest = self.name.as_bytes().get(ROW_NAME_BYTES..);
        rest.unwrap_or_default()
    }

    /// Returns true if only format 4 can hold the region.
    pub(super) fn needs_format_4(&self) -> bool {
        !self.name_rest().is_empty() || self.element as u8 > LAST_OLD_ELEMENT
    }

    /// Writes the row, without the rest of a long name. `is_part` is true for a region of the decoded payload.
    pub(super) fn encode(&self, row: &mut [u8], is_part: bool) {
        row[..8].copy_from_slice(&self.offset.to_le_bytes());
        row[8..16].copy_from_slice(&self.length.to_le_bytes());
        row[16] = self.element as u8;
        row[17] = self.shape.len() as u8;
        row[18] = u8::from(is_part);
        row[20..22].copy_from_slice(&(self.name_rest().len() as u16).to_le_bytes());
        for (at, extent) in self.shape.iter().enumerate() {
            row[24 + 8 * at..32 + 8 * at].copy_from_slice(&extent.to_le_bytes());
        }
        let start = self.name.len().min(ROW_NAME_BYTES);
        row[88..88 + start].copy_from_slice(&self.name.as_bytes()[..start]);
    }

    /// Returns the number of bytes of a row's name that lie behind the checksums.
    pub(super) fn rest_length(row: &[u8; ROW]) -> usize {
        usize::from(u16::from_le_bytes([row[20], row[21]]))
    }

    /// Decodes a row. Returns the region, and true if it is a part, a region of the decoded payload. `rest` is the rest of its
    /// name.
    pub(super) fn decode(row: &[u8; ROW], rest: &[u8]) -> Result<(Self, bool), Invalid> {
        let word = |at: usize| super::head::u64_at(row, at);
        let is_part = match row[18] {
            0 => false,
            1 => true,
            _ => return Err(Invalid("an unused field is not zero")),
        };
        let element = Element::from_code(row[16]).ok_or(Invalid("a region of an unknown type"))?;
        let dimensions = usize::from(row[17]);
        if dimensions > DIMENSIONS {
            return Err(Invalid("a region has more than 8 dimensions"));
        }
        let name = &row[88..];
        let end = name.iter().position(|byte| *byte == 0);
        let end = end.unwrap_or(ROW_NAME_BYTES);
        let unused = row[19..20]
            .iter()
            .chain(&row[22..24])
            .chain(&row[24 + 8 * dimensions..88])
            .chain(&name[end..]);
        if unused.into_iter().any(|byte| *byte != 0) {
            return Err(Invalid("an unused field is not zero"));
        }
        if end < ROW_NAME_BYTES && !rest.is_empty() {
            return Err(Invalid("a short name goes on behind the checksums"));
        }
        let name = [&name[..end], rest].concat();
        let info = Self {
            name: String::from_utf8(name).map_err(|_| Invalid("a region's name is not UTF-8"))?,
            offset: word(0),
            length: word(8),
            element,
            shape: (0..dimensions).map(|at| word(24 + 8 * at)).collect(),
        };
        info.check()?;
        Ok((info, is_part))
    }
}
