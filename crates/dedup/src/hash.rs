//! The hash of chunks, and sums of hashes.
//!
//! The hash is XXH3-128 with the secret that XXH3 derives from the lineage's seed. Chunks of every length have the same
//! secret, on the CPU and in the kernels. With seed 0, the hash is plain XXH3-128. The reasons for this hash (ICPP'23 §2.4
//! has Murmur3-128):
//!
//! - a chunk of up to 128 bytes costs one 64 × 64 → 128 bit product for 16 bytes, and a longer one a 32 × 32 → 64 bit
//!   product for 8 bytes: about 1.6 and 0.8 integer instructions per byte. An H100 issues about 4.8 per byte that its
//!   memory delivers. Murmur3-128 needs about 1.9, all in one chain of dependent products;
//! - its reference on the CPU uses vector registers for long chunks;
//! - the hash is specified, and others have tested it.

use xxhash_rust::const_xxh3::const_custom_default_secret;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_secret};

/// The 128-bit hash of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub(crate) struct Digest {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// The hasher of the chunks of one lineage.
#[derive(Clone, Debug)]
pub(crate) struct Hasher {
    seed: u64,
    secret: [u8; 192],
    /// The secret, as words.
    words: [u64; 24],
}

impl Hasher {
    pub(crate) fn new(seed: u64) -> Self {
        let secret = const_custom_default_secret(seed);
        let mut words = [0; 24];
        for (word, bytes) in words.iter_mut().zip(secret.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self {
            seed,
            secret,
            words,
        }
    }

    /// Returns the seed of the secret.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    #[inline]
    pub(crate) fn digest(&self, chunk: &[u8]) -> Digest {
        // For the common short lengths, the dispatch over all lengths would be a third of the time.
        match chunk.len() {
            32 => self.digest_pieces::<2>(chunk),
            64 => self.digest_pieces::<4>(chunk),
            128 => self.digest_pieces::<8>(chunk),
            _ => self.digest_any(chunk),
        }
    }

    /// Returns XXH3-128 of 32, 64 or 128 bytes, computed from the middle outwards, two pieces at a time.
    #[inline]
    fn digest_pieces<const N: usize>(&self, chunk: &[u8]) -> Digest {
        let Ok(pieces) = <&[[u8; 16]; N]>::try_from(chunk.as_chunks().0) else {
            return self.digest_any(chunk);
        };
        let word = |piece: &[u8; 16], n: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&piece[8 * n..8 * n + 8]);
            u64::from_le_bytes(word)
        };
        let len = 16 * N as u64;
        let (mut low, mut high) = (len.wrapping_mul(PRIME_1), 0_u64);
        for near in (0..N / 2).rev() {
            let (a, b) = (&pieces[near], &pieces[N - 1 - near]);
            let (a0, a1, b0, b1) = (word(a, 0), word(a, 1), word(b, 0), word(b, 1));
            let secret = &self.words[4 * near..4 * near + 4];
            low = low.wrapping_add(fold(a0 ^ secret[0], a1 ^ secret[1])) ^ b0.wrapping_add(b1);
            high = high.wrapping_add(fold(b0 ^ secret[2], b1 ^ secret[3])) ^ a0.wrapping_add(a1);
        }
        let mixed = low
            .wrapping_mul(PRIME_1)
            .wrapping_add(high.wrapping_mul(PRIME_4))
            .wrapping_add(len.wrapping_mul(PRIME_2));
        Digest {
            low: avalanche(low.wrapping_add(high)),
            high: avalanche(mixed).wrapping_neg(),
        }
    }

    fn digest_any(&self, chunk: &[u8]) -> Digest {
        let hash = xxh3_128_with_secret(chunk, &self.secret);
        Digest {
            low: hash as u64,
            high: (hash >> 64) as u64,
        }
    }

    pub(crate) fn secret(&self) -> &[u8; 192] {
        &self.secret
    }
}

pub(crate) const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
pub(crate) const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;

/// Returns the exclusive or of the halves of a 128-bit product.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Computes the last step of XXH3.
fn avalanche(mut x: u64) -> u64 {
    x ^= x >> 37;
    x = x.wrapping_mul(0x1656_6791_9E37_79F9);
    x ^ (x >> 32)
}

/// Computes the last step of XXH64, a bijection: every bit of the argument affects every bit of the result.
pub(crate) fn stir(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(PRIME_2);
    x ^= x >> 29;
    x = x.wrapping_mul(PRIME_3);
    x ^ (x >> 32)
}

/// The identity of a sequence of chunks: a sum with a term for each chunk, which depends on the chunk's digest and place.
///
/// Any number of threads may add terms, in any order. A change of a few chunks costs a few terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Sum {
    fn term(digest: Digest, place: u64) -> Self {
        let n = place.wrapping_add(1);
        Self {
            low: stir(digest.low.wrapping_add(n.wrapping_mul(PRIME_1))),
            high: stir(digest.high ^ n.wrapping_mul(PRIME_2)),
        }
    }

    pub(crate) fn add(&mut self, digest: Digest, place: u64) {
        self.merge(Self::term(digest, place));
    }

    pub(crate) fn subtract(&mut self, other: Self) {
        self.low = self.low.wrapping_sub(other.low);
        self.high = self.high.wrapping_sub(other.high);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.low = self.low.wrapping_add(other.low);
        self.high = self.high.wrapping_add(other.high);
    }
}

/// Returns the sum of 32-bit little-endian words by their places, for metadata. The length of `bytes` is a multiple of four.
pub(crate) fn word_sum(bytes: &[u8]) -> u64 {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .zip(1_u64..)
        .fold(0, |sum: u64, (word, n)| {
            let word = u64::from(u32::from_le_bytes(*word));
            sum.wrapping_add(stir(word.wrapping_add(n.wrapping_mul(PRIME_1))))
        })
}

/// Returns the checksum of a header.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

    #[test]
    fn it_is_plain_xxh3_for_seed_0_and_seeded_xxh3_for_long_chunks() {
        let bytes: Vec<u8> = (0..3000_u32).map(|i| ((i * i) >> 5) as u8).collect();
        for len in [
            1, 3, 8, 16, 31, 32, 33, 64, 65, 127, 128, 129, 200, 240, 256, 1024, 3000,
        ] {
            let bytes = &bytes[..len];
            let as_u128 = |d: Digest| u128::from(d.high) << 64 | u128::from(d.low);
            assert_eq!(as_u128(Hasher::new(0).digest(bytes)), xxh3_128(bytes));
            let with_seed = Hasher::new(7);
            assert_eq!(with_seed.digest(bytes), with_seed.digest_any(bytes));
            let seeded = as_u128(Hasher::new(7).digest(bytes));
            assert_ne!(seeded, xxh3_128(bytes));
            if len > 240 {
                assert_eq!(seeded, xxh3_128_with_seed(bytes, 7));
            }
        }
    }

    #[test]
    fn a_sum_knows_places_and_forgets_what_is_removed() {
        let hasher = Hasher::new(0);
        let (a, b) = (hasher.digest(b"a"), hasher.digest(b"b"));
        let sum = |digests: &[Digest]| {
            let mut sum = Sum::default();
            for (digest, place) in digests.iter().zip(0..) {
                sum.add(*digest, place);
            }
            sum
        };
        assert_ne!(sum(&[a, b]), sum(&[b, a]));
        assert_ne!(sum(&[a]), sum(&[a, Digest::default()]));
        let mut changed = sum(&[a, b, a]);
        let mut removed = Sum::default();
        removed.add(b, 1);
        changed.subtract(removed);
        changed.add(a, 1);
        assert_eq!(changed, sum(&[a, a, a]));
        assert_ne!(
            word_sum(&[1, 0, 0, 0, 2, 0, 0, 0]),
            word_sum(&[2, 0, 0, 0, 1, 0, 0, 0])
        );
    }
}
