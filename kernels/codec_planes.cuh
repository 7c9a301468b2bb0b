// Blocks of crates/codec's `Planes`: what the encoder and the decoder share. src/planes is the reference.
#pragma once

#include "codec_container.cuh"

constexpr uint32_t BLOCK_BYTES = 16384;
constexpr uint32_t SEGMENT = 1024;
constexpr uint32_t GROUP = 32;
constexpr uint32_t UNITS = 16;
constexpr uint32_t RANKS = 15;
constexpr uint32_t CODE_BYTES = 16;
constexpr uint32_t SIZES_BYTES = 2 * UNITS;
constexpr uint32_t STORED_RAW = 1 << 15;
constexpr uint32_t RAW = 0, CONSTANT = 1, PROFILES = 7;
constexpr uint32_t THREADS = 256, WARPS = THREADS / 32;

// Bits of the first code in the lowest four bits, of the second in the next four, and so on.
__device__ inline uint32_t profile_widths(uint32_t profile) {
    switch (profile) {
    case 2: return 0x2222;
    case 3: return 0x2221;
    case 4: return 0x2211;
    case 5: return 0x33;
    case 6: return 0x4;
    default: return 0;
    }
}

template <int W>
struct Values {
    static constexpr uint32_t SEGMENTS = UNITS / W;
    static constexpr uint32_t HEADER = SIZES_BYTES + 4 * SEGMENTS + CODE_BYTES * W;
    // Values in 16 bytes, which are one thread's.
    static constexpr int EACH = 16 / W;
};

template <int W> struct Word { using Type = uint32_t; };
template <> struct Word<8> { using Type = uint64_t; };

// What is done to values: `Bits` of src/planes/values.rs.
enum Way : uint32_t { PLAIN = 0, ROTATE = 1, DIFFERENCE = 2 };

template <int W>
__device__ inline typename Word<W>::Type forward(typename Word<W>::Type value, typename Word<W>::Type before,
                                                 uint32_t way) {
    using T = typename Word<W>::Type;
    constexpr int BITS = 8 * W;
    constexpr T MASK = T(~T(0)) >> (8 * sizeof(T) - BITS);
    if (way == DIFFERENCE) {
        const T difference = (value - before) & MASK;
        return ((difference << 1) & MASK) ^ (difference >> (BITS - 1) ? MASK : T(0));
    }
    if (way == ROTATE) return ((value << 1) & MASK) | (value >> (BITS - 1));
    return value;
}

// The value itself, or how it differs from the one before.
template <int W>
__device__ inline typename Word<W>::Type backward(typename Word<W>::Type stored, uint32_t way) {
    using T = typename Word<W>::Type;
    constexpr int BITS = 8 * W;
    constexpr T MASK = T(~T(0)) >> (8 * sizeof(T) - BITS);
    if (way == DIFFERENCE) return (stored >> 1) ^ ((stored & 1) ? MASK : T(0));
    if (way == ROTATE) return (stored >> 1) | ((stored & 1) << (BITS - 1));
    return stored;
}

// The values in 16 bytes.
template <int W>
__device__ inline void unpack(uint4 bytes, typename Word<W>::Type (&values)[16 / W]) {
    using T = typename Word<W>::Type;
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int n = 0; n < 16 / W; ++n) {
        if constexpr (W == 8) values[n] = words[2 * n] | T(words[2 * n + 1]) << 32;
        else if constexpr (W == 4) values[n] = words[n];
        else values[n] = (words[n * W / 4] >> (8 * W * (n % (4 / W)))) & ((1u << (8 * W)) - 1);
    }
}

template <int W>
__device__ inline uint4 pack(const typename Word<W>::Type (&values)[16 / W]) {
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int n = 0; n < 16 / W; ++n) {
        if constexpr (W == 8) {
            words[2 * n] = uint32_t(values[n]);
            words[2 * n + 1] = uint32_t(values[n] >> 32);
        } else if constexpr (W == 4) words[n] = values[n];
        else words[n * W / 4] |= (values[n] & ((1u << (8 * W)) - 1)) << (8 * W * (n % (4 / W)));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// The bytes of a plane of the values in 16 bytes, as a number.
template <int W>
__device__ inline uint4 plane_of(const typename Word<W>::Type (&values)[16 / W], int plane) {
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int n = 0; n < 16 / W; ++n)
        words[n / 4] |= (uint32_t(values[n] >> (8 * plane)) & 0xFF) << (8 * (n % 4));
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// Where in its unit's kilobyte, and in which segment, the values in 16 bytes start.
template <int W>
__device__ inline unsigned char* plane_place(unsigned char* units, uint32_t first, int plane) {
    return units + (plane * Values<W>::SEGMENTS + first / SEGMENT) * SEGMENT + first % SEGMENT;
}

__device__ inline uint32_t lanes_below(uint32_t lane) { return (1u << lane) - 1; }
