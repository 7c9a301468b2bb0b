//! The checksum of a container's header.

/// Corrects the checksum of a header, so that the checks behind it are reached.
pub fn seal(container: &mut [u8]) {
    let mut sum = 0_u64;
    for word in container[..56].chunks_exact(8) {
        let mut x = sum ^ u64::from_le_bytes(word.try_into().expect("eight bytes"));
        x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
        x ^= x >> 33;
        x = x.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        sum = x ^ (x >> 29);
    }
    container[56..64].copy_from_slice(&sum.to_le_bytes());
}
