//! Conversion between bits of many values and words.

/// Returns the lowest bit of each byte of `bytes`: the bit of byte `i` becomes bit `i`.
pub(crate) const fn low_bits(bytes: u64) -> u8 {
    // The bit of byte i is at 8 i, and belongs at 56 + i. A single product shifts each bit by 56 - 7 i.
    ((bytes & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The inverse of [`low_bits`]: byte `i` of an entry is bit `i` of its index.
pub(crate) static SPREAD: [u64; 256] = {
    let mut spread = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let mut place = 0;
        while place < 8 {
            spread[bits] |= ((bits as u64 >> place) & 1) << (8 * place);
            place += 1;
        }
        bits += 1;
    }
    spread
};

/// Transposes bits: bit `j` of word `i` becomes bit `i` of word `j`.
pub(crate) fn transpose(words: &mut [u32; 32]) {
    let mut mask = 0x0000_FFFF_u32;
    let mut step = 16;
    while step > 0 {
        for start in (0..32).step_by(2 * step) {
            for at in start..start + step {
                let swapped = ((words[at] >> step) ^ words[at + step]) & mask;
                words[at] ^= swapped << step;
                words[at + step] ^= swapped;
            }
        }
        step /= 2;
        mask ^= mask << step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_gathered_and_spread() {
        for bits in 0..=255_u8 {
            assert_eq!(low_bits(SPREAD[usize::from(bits)]), bits);
            assert_eq!(
                low_bits(SPREAD[usize::from(bits)] | 0xFEFE_FEFE_FEFE_FEFE),
                bits
            );
        }
        assert_eq!(SPREAD[0b101], 0x0001_0001);
    }

    #[test]
    fn a_transposed_matrix_has_rows_for_columns() {
        let mut words: [u32; 32] =
            std::array::from_fn(|n| (n as u32 + 1).wrapping_mul(0x9E37_79B1));
        let before = words;
        transpose(&mut words);
        for (i, word) in words.iter().enumerate() {
            for (j, other) in before.iter().enumerate() {
                assert_eq!((word >> j) & 1, (other >> i) & 1, "{i} {j}");
            }
        }
    }
}
