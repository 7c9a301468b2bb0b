//! The code of a plane, which gives frequent bytes short codes.
//!
//! Bytes are ranked by frequency. A first code of `b` bits names one of the `2^b - 1` most frequent bytes, or escapes to a
//! second code. The second code names one of the next bytes or escapes, and so on. A byte without a code is stored as it
//! is. All first codes are stored together, then all second codes, and so on. So a processor with many lanes reads and
//! writes codes without following a string of bits.

use super::GROUP;

/// Largest number of bytes with codes.
pub(super) const RANKS: usize = 15;
/// Bytes of a stored code: the profile, then the bytes by rank.
pub(super) const CODE_BYTES: usize = 1 + RANKS;

/// Profile of a plane that is stored unencoded.
pub(super) const RAW: u8 = 0;
/// Profile of a plane whose bytes are all the same; that byte has rank 0.
pub(super) const CONSTANT: u8 = 1;
/// The profiles from 2 on: the bits of the first code, of the second, and so on.
pub(super) const WIDTHS: [&[u32]; 5] = [&[2, 2, 2, 2], &[1, 2, 2, 2], &[1, 1, 2, 2], &[3, 3], &[4]];

/// The code of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) profile: u8,
    pub(super) symbols: [u8; RANKS],
}

impl Code {
    /// Returns the shortest code for a plane with this histogram of bytes.
    pub(super) fn shortest(histogram: &[u32; 256]) -> Self {
        let total: u32 = histogram.iter().sum();
        let mut symbols = [0; RANKS];
        // Number of bytes with one of the first ranks, by the number of ranks.
        let mut ranked = [0; RANKS + 1];
        let mut left = *histogram;
        for rank in 0..RANKS {
            // Of equally frequent bytes the lowest comes first.
            let most = left.iter().copied().max().unwrap_or(0);
            let symbol = left.iter().position(|&count| count == most).unwrap_or(0);
            symbols[rank] = symbol as u8;
            ranked[rank + 1] = ranked[rank] + most;
            left[symbol] = 0;
        }
        let mut profile = if ranked[1] == total { CONSTANT } else { RAW };
        let mut fewest = if ranked[1] == total { 0 } else { 8 * total };
        for (n, widths) in WIDTHS.iter().enumerate() {
            let mut bits = 0;
            let mut rank = 0;
            for width in *widths {
                bits += width * (total - ranked[rank]);
                rank += (1 << width) - 1;
            }
            bits += 8 * (total - ranked[rank]);
            if bits < fewest {
                fewest = bits;
                profile = n as u8 + 2;
            }
        }
        if profile == RAW {
            symbols = [0; RANKS];
        }
        Self { profile, symbols }
    }

    pub(super) fn parse(bytes: &[u8; CODE_BYTES]) -> Result<Self, &'static str> {
        let [profile, symbols @ ..] = *bytes;
        if usize::from(profile) >= 2 + WIDTHS.len() {
            return Err("a plane's profile is not known");
        }
        Ok(Self { profile, symbols })
    }

    pub(super) fn to_bytes(self) -> [u8; CODE_BYTES] {
        let mut bytes = [self.profile; CODE_BYTES];
        bytes[1..].copy_from_slice(&self.symbols);
        bytes
    }

    /// Returns the bits of the first code, of the second, and so on; `None` for profiles without codes.
    pub(super) fn widths(&self) -> Option<&'static [u32]> {
        WIDTHS
            .get(usize::from(self.profile).checked_sub(2)?)
            .copied()
    }

    /// Returns the rank of each byte; [`RANKS`] for bytes without one.
    pub(super) fn ranks(&self) -> [u8; 256] {
        let mut ranks = [RANKS as u8; 256];
        for (rank, &symbol) in self.symbols.iter().enumerate().rev() {
            ranks[usize::from(symbol)] = rank as u8;
        }
        ranks
    }
}

/// Returns the number of words for `count` codes of `width` bits: a word per bit for each group.
pub(super) const fn code_words(count: usize, width: u32) -> usize {
    count.div_ceil(GROUP) * width as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_code_is_taken() {
        let mut histogram = [0; 256];
        histogram[7] = 100;
        assert_eq!(Code::shortest(&histogram).profile, CONSTANT);
        assert_eq!(Code::shortest(&histogram).symbols[0], 7);
        histogram[3] = 100;
        // Two bytes of one bit each: the shortest code here.
        assert_eq!(Code::shortest(&histogram).symbols[..2], [3, 7]);
        assert_eq!(Code::shortest(&[4; 256]).profile, RAW);
        let flat: [u32; 256] = std::array::from_fn(|byte| u32::from(byte < 15));
        assert_eq!(Code::shortest(&flat).widths(), Some(&[4][..]));
    }

    #[test]
    fn every_profile_has_ranks_enough() {
        for widths in WIDTHS {
            let ranks: usize = widths.iter().map(|width| (1 << width) - 1).sum();
            assert!(ranks <= RANKS, "{widths:?}");
        }
    }
}
