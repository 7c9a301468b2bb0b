//! Pseudo-random numbers that are the same in every run.

/// Returns the SplitMix64 number of a seed or of an index.
pub fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns a number in `0..1` from the upper 53 bits of a random word.
pub fn unit(word: u64) -> f64 {
    (word >> 11) as f64 / (1_u64 << 53) as f64
}

/// Fills `bytes` with the xorshift64 sequence of `seed`, which no compressor makes smaller.
pub fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = mix(seed.wrapping_add(1)) | 1;
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}
