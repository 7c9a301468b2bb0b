// Decodes blocks of crates/codec's `Bounded`, as src/bounded/block.rs does. Nothing in a container is trusted: every
// size is checked before what it leads to is read.
//
// Compiled to compute_80 PTX by `cargo xtask kernels`.

#include "codec_bounded.cuh"

template <typename F>
__device__ inline void decode(const Source& source, F* out, uint64_t raw_bytes, double bound,
                              uint32_t is_pointwise, Report* report) {
    const Quantiser quantiser = Quantiser::of<F>(bound, is_pointwise != 0);
    const uint32_t lane = threadIdx.x % 32, segment = threadIdx.x / 32;
    const uint32_t block = blockIdx.x;
    const uint64_t values = raw_bytes / sizeof(F);
    if (block == 0 && threadIdx.x < raw_bytes % sizeof(F))
        reinterpret_cast<unsigned char*>(out + values)[threadIdx.x] = tail_byte(source, threadIdx.x);
    if (source.blocks == 0) return;
    const uint64_t first = uint64_t(block) * BLOCK_VALUES + segment * SEGMENT;
    const uint32_t count = first < values ? uint32_t(min(uint64_t(SEGMENT), values - first)) : 0;
    out += first;

    const unsigned char* stored;
    uint64_t len;
    bool is_sound = find(source, block, &stored, &len) && (len == 0 || len >= BLOCK_HEADER_BYTES);
    // The words of this segment, and how many of them are widths.
    uint32_t all = 0, planes = 0;
    const uint32_t* words = nullptr;
    if (is_sound && len > 0) {
        const uint4 header = *reinterpret_cast<const uint4*>(stored);
        const uint32_t words_of[SEGMENTS]
            = {header.x & 0xFFFF, header.x >> 16, header.y & 0xFFFF, header.y >> 16};
        uint32_t at = BLOCK_HEADER_BYTES / 4, total = 0;
#pragma unroll
        for (uint32_t n = 0; n < SEGMENTS; ++n) {
            if (n < segment) at += words_of[n];
            if (n == segment) all = words_of[n];
            total += words_of[n];
        }
        planes = (header.z >> (8 * segment)) & 0xFF;
        words = reinterpret_cast<const uint32_t*>(stored) + at;
        const uint64_t needs = BLOCK_HEADER_BYTES + 4ull * total;
        is_sound = needs <= len && len - needs < UNIT && planes <= WIDTH_PLANES && planes <= all
            && (count > 0 || all == 0);
    }
    if (!is_sound) {
        report->outcome = CORRUPT;
        return;
    }
    if (count == 0) return;
    if (all == 0) {
        for (uint32_t at = lane; at < count; at += 32) out[at] = F(0);
        return;
    }
    uint32_t width = 0;
    for (uint32_t bit = 0; bit < planes; ++bit) width |= ((words[bit] >> lane) & 1) << bit;
    const bool is_wide = width > EXACT;
    const uint32_t own_words = is_wide ? 0 : group_words<F>(width);
    const uint32_t place_of = planes + sum_before(own_words, lane);
    const uint32_t end = __shfl_sync(FULL_WARP, place_of + own_words, 31);
    if (__any_sync(FULL_WARP, is_wide) || end != all) {
        if (lane == 0) report->outcome = CORRUPT;
        return;
    }
    int32_t before = 0;
#pragma unroll
    for (int part = 0; part < int(GROUPS); part += 8) {
        uint32_t loaded[8];
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const uint32_t group_width = __shfl_sync(FULL_WARP, width, part + n);
            const uint32_t* from = words + __shfl_sync(FULL_WARP, place_of, part + n);
            loaded[n] = lane < group_width ? from[lane] : 0;
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const uint32_t group_width = __shfl_sync(FULL_WARP, width, part + n);
            const uint32_t at = (part + n) * GROUP + lane;
            if (group_width == EXACT) {
                F value;
                if constexpr (sizeof(F) == 4) value = __uint_as_float(loaded[n]);
                else {
                    const uint32_t* from = words + __shfl_sync(FULL_WARP, place_of, part + n);
                    value = __longlong_as_double(from[2 * lane] | uint64_t(from[2 * lane + 1]) << 32);
                }
                if (at < count) out[at] = value;
                continue;
            }
            uint32_t own = 0;
            for (uint32_t bit = 0; bit < group_width; ++bit)
                own |= ((__shfl_sync(FULL_WARP, loaded[n], bit) >> lane) & 1) << bit;
            uint32_t multiple = (own >> 1) ^ (0u - (own & 1));
            if (group_width > 0) {
#pragma unroll
                for (int step_by = 1; step_by < 32; step_by *= 2) {
                    const uint32_t other = __shfl_up_sync(FULL_WARP, multiple, step_by);
                    if (lane >= step_by) multiple += other;
                }
            }
            multiple += uint32_t(before);
            before = int32_t(__shfl_sync(FULL_WARP, multiple, 31));
            if (at < count) out[at] = quantiser.value_of<F>(int32_t(multiple));
        }
    }
}

#define DECODE(NAME, F)                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                     \
    codec_bounded_decode_##NAME(const unsigned char* __restrict__ bytes, uint64_t stored_bytes,               \
                                uint32_t blocks, F* out, uint64_t raw_bytes, double bound,                    \
                                uint32_t is_pointwise, Report* report) {                                      \
        decode<F>(Source{bytes, stored_bytes, blocks, 0}, out, raw_bytes, bound, is_pointwise, report);       \
    }

DECODE(f32, float)
DECODE(f64, double)
