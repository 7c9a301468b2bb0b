//! Values as bytes, one after the other: messages between ranks, and small files.

use crate::part_and_parity::Intact;
use crate::{Digest, Manifest, Member, Set};

/// The bytes of a message that is being written.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        (bytes.len() as u64).put(self);
        self.0.extend(bytes);
    }
}

/// The bytes of a message that are not read yet. The methods return `None` for bytes that no [`Writer`] wrote.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::take(self)?;
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// A value that is written to messages and read from them.
pub(crate) trait Wire: Sized {
    fn put(&self, to: &mut Writer);

    /// Takes the next value of a message; `None` for bytes that [`put`](Self::put) did not write.
    fn take(from: &mut Reader<'_>) -> Option<Self>;

    /// Returns a message of this value alone.
    fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        self.put(&mut to);
        to.0
    }

    /// Returns the value of a message that has this value alone.
    fn decode(message: &[u8]) -> Option<Self> {
        let mut from = Reader(message);
        let value = Self::take(&mut from)?;
        from.0.is_empty().then_some(value)
    }
}

impl Wire for u64 {
    fn put(&self, to: &mut Writer) {
        to.0.extend(self.to_le_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (word, rest) = from.0.split_first_chunk()?;
        from.0 = rest;
        Some(Self::from_le_bytes(*word))
    }
}

/// Implements `Wire` for numbers, which messages have as words of 64 bits.
macro_rules! words {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, to: &mut Writer) {
                (*self as u64).put(to);
            }

            fn take(from: &mut Reader<'_>) -> Option<Self> {
                Self::try_from(u64::take(from)?).ok()
            }
        }
    )*};
}

words!(u32, usize);

impl Wire for bool {
    fn put(&self, to: &mut Writer) {
        u32::from(*self).put(to);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let word = u64::take(from)?;
        (word <= 1).then_some(word == 1)
    }
}

impl Wire for String {
    fn put(&self, to: &mut Writer) {
        to.bytes(self.as_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Self::from_utf8(from.bytes()?.to_vec()).ok()
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, to: &mut Writer) {
        self.len().put(to);
        self.iter().for_each(|one| one.put(to));
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let count = usize::take(from)?;
        (0..count).map(|_| T::take(from)).collect()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, to: &mut Writer) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl Wire for Option<Manifest> {
    fn put(&self, to: &mut Writer) {
        to.bytes(&self.as_ref().map(Manifest::encode).unwrap_or_default());
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        match from.bytes()? {
            [] => Some(None),
            bytes => Manifest::decode(bytes).map(Some),
        }
    }
}

/// Implements `Wire` for a struct: messages have its fields in this order.
macro_rules! wire {
    ($kind:ty { $($field:ident),* }) => {
        impl $crate::wire::Wire for $kind {
            fn put(&self, to: &mut $crate::wire::Writer) {
                $($crate::wire::Wire::put(&self.$field, to);)*
            }

            fn take(from: &mut $crate::wire::Reader<'_>) -> Option<Self> {
                Some(Self { $($field: $crate::wire::Wire::take(from)?),* })
            }
        }
    };
}

pub(crate) use wire;

wire!(Digest { bytes, hash });
wire!(Intact { part, parity });
wire!(Member { rank, node });
wire!(Set { tolerates, members });
wire!(tierflow_store::Truncation { epoch, from });
