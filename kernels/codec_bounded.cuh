// Blocks of crates/codec's `Bounded`: what the encoder and the decoder share. src/bounded is the reference. Each
// operation on values is rounded as IEEE 754 says, and none is contracted with another.
#pragma once

#include "codec_container.cuh"

constexpr uint32_t SEGMENT = 1024, SEGMENTS = 4, BLOCK_VALUES = SEGMENT * SEGMENTS;
constexpr uint32_t GROUP = 32, GROUPS = SEGMENT / GROUP;
// The width of a group whose values are stored as they are, and the words of widths up to it.
constexpr uint32_t EXACT = 33, WIDTH_PLANES = 6;
constexpr uint32_t BLOCK_HEADER_BYTES = 16;
constexpr uint32_t THREADS = 32 * SEGMENTS;
constexpr double MOST_MULTIPLE = 1073741824.0;

template <typename F> __device__ inline F from_double(double value);
template <> __device__ inline float from_double<float>(double value) { return __double2float_rn(value); }
template <> __device__ inline double from_double<double>(double value) { return value; }

// The place of a value among all values by size: `Float::rank`.
__device__ inline int64_t rank_of(float value) {
    const int32_t bits = __float_as_int(value);
    return bits < 0 ? bits ^ 0x7FFFFFFF : bits;
}
__device__ inline int64_t rank_of(double value) {
    const int64_t bits = __double_as_longlong(value);
    return bits < 0 ? bits ^ 0x7FFFFFFFFFFFFFFFll : bits;
}
template <typename F> __device__ inline F of_rank(int64_t rank);
template <> __device__ inline float of_rank<float>(int64_t rank) {
    const int32_t bits = int32_t(rank);
    return __int_as_float(bits < 0 ? bits ^ 0x7FFFFFFF : bits);
}
template <> __device__ inline double of_rank<double>(int64_t rank) {
    return __longlong_as_double(rank < 0 ? rank ^ 0x7FFFFFFFFFFFFFFFll : rank);
}

// `Quantiser` of src/bounded/quantiser.rs.
struct Quantiser {
    double bound, step, per_unit;
    bool is_pointwise;

    template <typename F>
    static __device__ inline Quantiser of(double bound, bool is_pointwise) {
        const double in_binade = sizeof(F) == 4 ? 8388608.0 : 4503599627370496.0;
        const double twice = __dmul_rn(2.0, bound);
        const double step = is_pointwise ? fmax(floor(__dmul_rn(twice, in_binade)), 1.0) : twice;
        return Quantiser{bound, step, __ddiv_rn(1.0, step), is_pointwise};
    }

    // What a multiple of the step stands for.
    template <typename F>
    __device__ inline F value_of(int32_t multiple) const {
        if (is_pointwise) return of_rank<F>(int64_t(uint64_t(int64_t(multiple)) * uint64_t(int64_t(step))));
        return from_double<F>(__dmul_rn(double(multiple), step));
    }

    // The multiple nearest to a value; false if it is not within the bound.
    template <typename F>
    __device__ inline bool find(F value, int32_t* multiple) const {
        const double exact = value;
        const double unscaled = is_pointwise ? __ll2double_rn(rank_of(value)) : exact;
        const double within = is_pointwise ? __dmul_rn(bound, fabs(exact)) : bound;
        const double scaled = __dmul_rn(unscaled, per_unit);
        const bool fits = fabs(scaled) < MOST_MULTIPLE;
        *multiple = fits ? __double2int_rn(scaled) : 0;
        const double off = __dsub_rn(exact, double(value_of<F>(*multiple)));
        // An infinite value is within any share of itself.
        return fits && fabs(off) <= within && within < __longlong_as_double(0x7FF0000000000000ll);
    }
};

template <typename F>
__device__ inline uint32_t group_words(uint32_t width) {
    return width == EXACT ? GROUP * sizeof(F) / 4 : width;
}

// The sum of the values of the lanes before this one.
__device__ inline uint32_t sum_before(uint32_t value, uint32_t lane) {
    uint32_t end = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t before = __shfl_up_sync(FULL_WARP, end, step);
        if (lane >= step) end += before;
    }
    return end - value;
}
