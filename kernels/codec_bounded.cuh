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

// What a multiple of the step stands for.
template <typename F>
__device__ inline F value_of(int32_t multiple, double step) {
    return from_double<F>(__dmul_rn(double(multiple), step));
}

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
