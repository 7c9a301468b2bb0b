// Blocks of differences from polynomials of crates/codec's `Planes`: what the encoder and the decoder share.
// src/planes/polynomial and src/planes/prefix.rs are the reference. A warp has a block, and a thread a lane of it.
#pragma once

#include "codec_container.cuh"

constexpr uint32_t BLOCK_BYTES = 16384;
constexpr uint32_t LANE = 128, GROUP = 32, GROUPS = LANE / GROUP;
constexpr uint32_t ORDERS = 6;
constexpr uint32_t ORDER_BYTES = 4;
constexpr uint32_t CLASSES = 65, LONGEST = 8;
// A thread has every 32nd class.
constexpr uint32_t CLASSES_EACH = 3;
constexpr uint32_t MOST_UNITS = (ORDER_BYTES + BLOCK_BYTES + UNIT - 1) / UNIT, MOST_WORDS = MOST_UNITS * UNIT / 4;

// The shares of the values before, the nearest first, for the polynomials through 0 to 6 values.
__constant__ float SHARES[ORDERS + 1][ORDERS] = {
    {0, 0, 0, 0, 0, 0},  {1, 0, 0, 0, 0, 0},    {2, -1, 0, 0, 0, 0},     {3, -3, 1, 0, 0, 0},
    {4, -6, 4, -1, 0, 0}, {5, -10, 10, -5, 1, 0}, {6, -15, 20, -15, 6, -1}};

template <int W>
struct Real;

template <>
struct Real<4> {
    using Bits = uint32_t;
    static constexpr Bits EXPONENT = 0x7F800000u, SIGN = 0x80000000u;
    static constexpr Bits SMALL = Bits(24) << 23;
    static __device__ inline Bits add(Bits sum, float share, Bits value) {
        return __float_as_uint(__fadd_rn(__uint_as_float(sum), __fmul_rn(share, __uint_as_float(value))));
    }
    static __device__ inline uint32_t length(Bits bits) { return 32 - __clz(int(bits)); }
};

template <>
struct Real<8> {
    using Bits = uint64_t;
    static constexpr Bits EXPONENT = 0x7FF0000000000000ull, SIGN = 0x8000000000000000ull;
    static constexpr Bits SMALL = Bits(53) << 52;
    static __device__ inline Bits add(Bits sum, float share, Bits value) {
        return uint64_t(__double_as_longlong(
            __dadd_rn(__longlong_as_double(int64_t(sum)), __dmul_rn(double(share), __longlong_as_double(int64_t(value))))));
    }
    static __device__ inline uint32_t length(Bits bits) { return 64 - __clzll(int64_t(bits)); }
};

template <int W>
struct Shape {
    static constexpr uint32_t VALUES = BLOCK_BYTES / W;
    static constexpr uint32_t LANES = VALUES / LANE;
    static constexpr uint32_t MASK_WORDS = LANES / 8;
    static constexpr uint32_t LENGTH_WORDS = W + 1;
    // Words of the header before the bits of the lanes.
    static constexpr uint32_t FRONT_WORDS = ORDER_BYTES / 4 + MASK_WORDS + LENGTH_WORDS;
    // A value more between lanes, so that threads read from different banks.
    static constexpr uint32_t ROOM = LANES * (LANE + 1);
    static __device__ inline uint32_t place(uint32_t n) { return n / LANE * (LANE + 1) + n % LANE; }
};

// `Real::expected`.
template <int W>
__device__ inline typename Real<W>::Bits expected(uint32_t order, const typename Real<W>::Bits (&before)[ORDERS]) {
    using R = Real<W>;
    if (order < 2) return order == 0 ? 0 : before[0];
    typename R::Bits sum = 0;
#pragma unroll
    for (int n = int(ORDERS) - 1; n >= 0; --n) {
        if (n >= int(order)) continue;
        const bool is_small = (before[n] & R::EXPONENT) < R::SMALL;
        sum = R::add(sum, SHARES[order][n], is_small ? 0 : before[n]);
    }
    const bool is_usual = (sum & R::EXPONENT) != R::EXPONENT && (sum & ~R::SIGN) != 0;
    return is_usual ? sum : 0;
}

// The place of a value among all values by size, and the inverse.
template <int W>
__device__ inline typename Real<W>::Bits rank(typename Real<W>::Bits bits) {
    return bits & Real<W>::SIGN ? bits ^ ~Real<W>::SIGN : bits;
}

template <int W>
__device__ inline typename Real<W>::Bits difference(typename Real<W>::Bits value, typename Real<W>::Bits expected) {
    using T = typename Real<W>::Bits;
    const T between = rank<W>(value) - rank<W>(expected);
    return (between << 1) ^ (between & Real<W>::SIGN ? ~T(0) : T(0));
}

template <int W>
__device__ inline typename Real<W>::Bits value(typename Real<W>::Bits difference, typename Real<W>::Bits expected) {
    using T = typename Real<W>::Bits;
    const T between = (difference >> 1) ^ (difference & 1 ? ~T(0) : T(0));
    return rank<W>(rank<W>(expected) + between);
}

// A value joins those before the next one.
template <typename T>
__device__ inline void advance(T (&before)[ORDERS], T value) {
#pragma unroll
    for (int n = int(ORDERS) - 1; n > 0; --n) before[n] = before[n - 1];
    before[0] = value;
}

__device__ inline uint32_t lanes_below(uint32_t lane) { return (1u << lane) - 1; }

__device__ inline uint32_t sum_of_warp(uint32_t value) { return __reduce_add_sync(FULL_WARP, value); }

// The sum of the values of the lanes before.
__device__ inline uint32_t sum_before(uint32_t value, uint32_t lane) {
    uint32_t end = value;
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(FULL_WARP, end, step);
        if (lane >= step) end += other;
    }
    return end - value;
}

// The code of a class as the top bits of LONGEST: codes are in the order of their lengths, then of their classes.
__device__ inline uint32_t code_of(const unsigned char* lengths, uint32_t own) {
    uint32_t code = 0;
    for (uint32_t other = 0; other < CLASSES; ++other) {
        const uint32_t length = lengths[other];
        const bool is_before = length < lengths[own] || (length == lengths[own] && other < own);
        if (length > 0 && is_before) code += (1u << LONGEST) >> length;
    }
    return code;
}

// The first bit of a code is the lowest one where it is stored.
__device__ inline uint32_t turned(uint32_t code) { return __brev(code) >> (32 - LONGEST); }
