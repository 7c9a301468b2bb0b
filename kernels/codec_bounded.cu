// Encodes blocks of crates/codec's `Bounded`: the same bytes as src/bounded/block.rs.
//
// A warp encodes a segment, a lane one value of each of its groups: their bits become words by ballots. Sizes are
// known before anything is written, so values go from registers to their place.
//
// Compiled to compute_80 PTX by `cargo xtask kernels`.

#include "codec_bounded.cuh"

template <typename F>
__device__ inline void encode(const F* __restrict__ data, State* state, const Container& container,
                              double absolute, double share, uint32_t is_pointwise, Report* report) {
    __shared__ uint32_t words_of[SEGMENTS], planes_of[SEGMENTS];
    __shared__ uint32_t ticket;
    __shared__ uint64_t start;

    // A share of the largest magnitude, which is known by now. Zeros alone keep every bound. A header's bound is a normal number, and
    // a smaller one is kept by storing every value bit for bit: no value has a multiple then.
    double bound = absolute;
    bool is_exact_all = false;
    if (share > 0.0) {
        const double peak = sizeof(F) == 4 ? double(__uint_as_float(uint32_t(state->peak)))
                                           : __longlong_as_double(state->peak);
        const double least = 2.2250738585072014e-308, product = __dmul_rn(share, peak);
        bound = fmax(product, least);
        is_exact_all = peak > 0.0 && product < least;
    }
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(data);
    if (container.blocks == 0) {
        if (threadIdx.x == 0) write_header(container, bytes, 0, bound, report);
        return;
    }
    if (threadIdx.x == 0) ticket = atomicAdd(&state->ticket, 1);
    const Quantiser quantiser = Quantiser::of<F>(bound, is_pointwise != 0);
    __syncthreads();
    const uint32_t block = ticket;
    const uint32_t lane = threadIdx.x % 32, segment = threadIdx.x / 32;
    const uint64_t first = uint64_t(block) * BLOCK_VALUES + segment * SEGMENT;
    const uint64_t values = container.raw_bytes / sizeof(F);
    const uint32_t count = first < values ? uint32_t(min(uint64_t(SEGMENT), values - first)) : 0;
    const F* own = data + first;

    uint32_t stored[GROUPS];
    uint32_t width = 0;
    int32_t before = 0;
#pragma unroll
    for (int part = 0; part < int(GROUPS); part += 8) {
        F loaded[8];
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const uint32_t at = (part + n) * GROUP + lane;
            loaded[n] = at < count ? own[at] : F(0);
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const uint32_t group = part + n;
            int32_t multiple;
            const bool is_off = !quantiser.find(loaded[n], &multiple) || is_exact_all;
            const bool is_there = group * GROUP + lane < count;
            int32_t last = __shfl_up_sync(FULL_WARP, multiple, 1);
            if (lane == 0) last = before;
            const int32_t difference = int32_t(uint32_t(multiple) - uint32_t(last));
            stored[group] = is_there ? (uint32_t(difference) << 1) ^ uint32_t(difference >> 31) : 0;
            const uint32_t all = __reduce_or_sync(FULL_WARP, stored[group]);
            const bool is_exact = __any_sync(FULL_WARP, is_off && is_there);
            const int32_t end = __shfl_sync(FULL_WARP, multiple, 31);
            if (!is_exact) before = end;
            if (lane == group) width = is_exact ? EXACT : 32 - __clz(all);
        }
    }
    const uint32_t planes = 32 - __clz(__reduce_or_sync(FULL_WARP, width));
    const uint32_t words = group_words<F>(width);
    uint32_t place_of = sum_before(words, lane);
    const uint32_t all = planes + __shfl_sync(FULL_WARP, place_of + words, 31);
    place_of += planes;
    if (lane == 0) {
        words_of[segment] = all;
        planes_of[segment] = planes;
    }
    __syncthreads();

    uint32_t segment_at = BLOCK_HEADER_BYTES / 4, total = 0;
#pragma unroll
    for (uint32_t n = 0; n < SEGMENTS; ++n) {
        if (n < segment) segment_at += words_of[n];
        total += words_of[n];
    }
    if (segment == 0) {
        const uint32_t needs = total ? (BLOCK_HEADER_BYTES + 4 * total + UNIT - 1) / UNIT : 0;
        const uint64_t found = place(state, block, needs, lane);
        if (lane == 0) {
            const bool fits = enter(container, block, found + needs, true);
            start = fits ? payload_at(container.blocks) + found * UNIT : ~0ull;
            if (block == container.blocks - 1) write_header(container, bytes, found + needs, bound, report);
        }
    }
    __syncthreads();
    if (total == 0 || start == ~0ull) return;
    uint32_t* out = reinterpret_cast<uint32_t*>(container.out + start);
    if (threadIdx.x == 0)
        *reinterpret_cast<uint4*>(out) = make_uint4(
            words_of[0] | words_of[1] << 16, words_of[2] | words_of[3] << 16,
            planes_of[0] | planes_of[1] << 8 | planes_of[2] << 16 | planes_of[3] << 24, 0);
    if (threadIdx.x < 4 && total + threadIdx.x < (total + 3) / 4 * 4)
        out[BLOCK_HEADER_BYTES / 4 + total + threadIdx.x] = 0;
    out += segment_at;
    uint32_t word = 0;
    for (uint32_t bit = 0; bit < planes; ++bit) {
        const uint32_t ballot = __ballot_sync(FULL_WARP, (width >> bit) & 1);
        if (lane == bit) word = ballot;
    }
    if (lane < planes) out[lane] = word;
#pragma unroll
    for (int group = 0; group < int(GROUPS); ++group) {
        const uint32_t group_width = __shfl_sync(FULL_WARP, width, group);
        uint32_t* to = out + __shfl_sync(FULL_WARP, place_of, group);
        if (group_width == EXACT) {
            // Rare: read once more.
            const uint32_t at = group * GROUP + lane;
            const F value = at < count ? own[at] : F(0);
            if constexpr (sizeof(F) == 4) to[lane] = __float_as_uint(value);
            else {
                const uint64_t bits = uint64_t(__double_as_longlong(value));
                to[2 * lane] = uint32_t(bits);
                to[2 * lane + 1] = uint32_t(bits >> 32);
            }
            continue;
        }
        uint32_t own_word = 0;
        for (uint32_t bit = 0; bit < group_width; ++bit) {
            const uint32_t ballot = __ballot_sync(FULL_WARP, (stored[group] >> bit) & 1);
            if (lane == bit) own_word = ballot;
        }
        if (lane < group_width) to[lane] = own_word;
    }
}

#define ENCODE(NAME, F)                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                 \
    codec_bounded_encode_##NAME(const F* __restrict__ data, State* state, unsigned char* out,             \
                                uint64_t capacity, uint64_t raw_bytes, uint64_t kind, uint32_t blocks,    \
                                double absolute, double share, uint32_t is_pointwise, Report* report) {   \
        encode<F>(data, state, Container{out, capacity, raw_bytes, kind, blocks, sizeof(F)}, absolute,    \
                  share, is_pointwise, report);                                                           \
    }

ENCODE(f32, float)
ENCODE(f64, double)

// The bits of the largest finite magnitude: bits of magnitudes are in the order of what they stand for.
template <typename F, typename B>
__device__ inline void peak(const F* data, uint64_t values, B infinity, State* state) {
    __shared__ unsigned long long of_warps[8];
    const B* bits = reinterpret_cast<const B*>(data);
    const uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
    B most = 0;
    const auto see = [&](B seen) {
        const B magnitude = seen & ~(B(1) << (8 * sizeof(B) - 1));
        if (magnitude < infinity) most = max(most, magnitude);
    };
    constexpr uint64_t EACH = 16 / sizeof(B);
    const uint64_t vectors = values / EACH;
    for (uint64_t n = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; n < vectors; n += stride) {
        const uint4 loaded = reinterpret_cast<const uint4*>(data)[n];
        if constexpr (sizeof(B) == 4) {
            see(loaded.x), see(loaded.y), see(loaded.z), see(loaded.w);
        } else {
            see(loaded.x | B(loaded.y) << 32), see(loaded.z | B(loaded.w) << 32);
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < values % EACH) see(bits[vectors * EACH + threadIdx.x]);
    unsigned long long all = most;
    for (int step = 16; step > 0; step /= 2) all = max(all, __shfl_xor_sync(FULL_WARP, all, step));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = all;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (uint32_t warp = 1; warp < blockDim.x / 32; ++warp) all = max(all, of_warps[warp]);
        atomicMax(&state->peak, all);
    }
}

extern "C" __global__ void __launch_bounds__(256)
codec_peak_f32(const float* __restrict__ data, uint64_t values, State* state) {
    peak<float, uint32_t>(data, values, 0x7F800000u, state);
}

extern "C" __global__ void __launch_bounds__(256)
codec_peak_f64(const double* __restrict__ data, uint64_t values, State* state) {
    peak<double, unsigned long long>(data, values, 0x7FF0000000000000ull, state);
}
