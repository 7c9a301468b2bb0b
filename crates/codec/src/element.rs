//! Types of the values in an input.

/// The type of an input's values, which are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Element {
    /// Integers of one byte, signed or unsigned; also bytes of unknown meaning.
    I8 = 1,
    /// Integers of two bytes.
    I16 = 2,
    /// Integers of four bytes.
    I32 = 3,
    /// Integers of eight bytes.
    I64 = 4,
    /// IEEE 754 binary16.
    F16 = 5,
    /// The upper half of a binary32.
    Bf16 = 6,
    /// IEEE 754 binary32.
    F32 = 7,
    /// IEEE 754 binary64.
    F64 = 8,
}

impl Element {
    /// All types.
    pub const ALL: [Self; 8] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
    ];

    /// Returns the bytes of a value.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 => 1,
            Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// Returns true if values have a sign bit on top and an exponent below it.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|element| *element as u8 == code)
    }
}
