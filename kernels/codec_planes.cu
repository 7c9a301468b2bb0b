// Encodes blocks of crates/codec's `Planes`: the same bytes as src/planes/block.rs.
//
// A thread block encodes one block of values: 16 KiB, in shared memory from the first step to the last. Its
// place is known from the blocks before, so that each byte is read once and written once.
//
// Compiled to compute_80 PTX by `cargo xtask kernels`.

#include "codec_planes.cuh"

// Fills `units` with the planes of the values, and `masks` with which groups are there.
template <int W>
__device__ inline void split(const unsigned char* values, uint32_t bytes, uint32_t way, unsigned char* units,
                             uint32_t* masks) {
    using T = typename Word<W>::Type;
    constexpr int EACH = Values<W>::EACH;
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t part = 0; part < BLOCK_BYTES / 16 / THREADS; ++part) {
        const uint32_t at = 16 * (part * THREADS + threadIdx.x);
        uint4 loaded = make_uint4(0, 0, 0, 0);
        if (at + 16 <= bytes) loaded = *reinterpret_cast<const uint4*>(values + at);
        else if (at < bytes) {
            uint32_t words[4] = {0, 0, 0, 0};
            for (uint32_t n = 0; n < bytes - at; ++n) words[n / 4] |= uint32_t(values[at + n]) << (8 * (n % 4));
            loaded = make_uint4(words[0], words[1], words[2], words[3]);
        }
        T own[EACH], stored[EACH];
        unpack<W>(loaded, own);
        const uint32_t first = at / W;
        T before = 0;
        if (way == DIFFERENCE) {
            before = __shfl_up_sync(FULL_WARP, own[EACH - 1], 1);
            if (first % SEGMENT == 0) before = 0;
            else if (lane == 0 && at < bytes) {
                before = 0;
                for (int n = 0; n < W; ++n) before |= T(values[at - W + n]) << (8 * n);
            }
        }
        T any = 0;
#pragma unroll
        for (int n = 0; n < EACH; ++n) {
            // What is behind the last value is nothing.
            stored[n] = at + W * n < bytes ? forward<W>(own[n], n == 0 ? before : own[n - (n > 0)], way) : 0;
            any |= stored[n];
        }
#pragma unroll
        for (int plane = 0; plane < W; ++plane) {
            const uint4 word = plane_of<W>(stored, plane);
            unsigned char* place = plane_place<W>(units, first, plane);
            if constexpr (W == 1) *reinterpret_cast<uint4*>(place) = word;
            else if constexpr (W == 2) *reinterpret_cast<uint2*>(place) = make_uint2(word.x, word.y);
            else if constexpr (W == 4) *reinterpret_cast<uint32_t*>(place) = word.x;
            else *reinterpret_cast<uint16_t*>(place) = uint16_t(word.x);
        }
        const uint32_t there = __ballot_sync(FULL_WARP, any != 0);
        if (lane == 0) {
            uint32_t groups = 0;
#pragma unroll
            for (int group = 0; group < 16 / W; ++group) {
                const uint32_t own_lanes = (there >> (2 * W * group)) & ((1u << (2 * W)) - 1);
                groups |= uint32_t(own_lanes != 0) << group;
            }
            if (groups) atomicOr(&masks[first / SEGMENT], groups << (first % SEGMENT / GROUP));
        }
    }
}

// `Code::shortest` of src/planes/code.rs, by one warp.
__device__ __noinline__ void shortest(const uint32_t* histogram, uint32_t total, unsigned char* code,
                                unsigned char* ranks, uint32_t lane) {
    // How often, and then the lower byte first.
    uint32_t keys[8];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        keys[n] = histogram[32 * n + lane] << 8 | (255 - (32 * n + lane));
        ranks[32 * n + lane] = RANKS;
    }
    __syncwarp();
    uint32_t ranked[RANKS + 1];
    ranked[0] = 0;
    uint32_t symbol = 0;
    uint32_t profile = RAW;
#pragma unroll
    for (int rank = 0; rank < int(RANKS); ++rank) {
        uint32_t most = 0;
#pragma unroll
        for (int n = 0; n < 8; ++n) most = max(most, keys[n]);
        most = __reduce_max_sync(FULL_WARP, most);
        const uint32_t count = most >> 8;
        // Where even the most frequent byte is rare, no profile is shorter than the bytes.
        if (rank == 0 && 32 * count <= total) {
            if (lane < CODE_BYTES) code[lane] = 0;
            return;
        }
#pragma unroll
        for (int n = 0; n < 8; ++n)
            if (keys[n] == most) keys[n] &= 0xFF;
        ranked[rank + 1] = ranked[rank] + count;
        if (lane == rank) {
            symbol = 255 - (most & 0xFF);
            if (count) ranks[symbol] = rank;
        }
    }
    uint32_t fewest = 8 * total;
    if (ranked[1] == total) {
        profile = CONSTANT;
        fewest = 0;
    }
    const uint32_t left[RANKS + 1] = {
        total - ranked[0], total - ranked[1], total - ranked[2], total - ranked[3], total - ranked[4],
        total - ranked[5], total - ranked[6], total - ranked[7], total - ranked[8], total - ranked[9],
        total - ranked[10], total - ranked[11], total - ranked[12], total - ranked[13], total - ranked[14],
        total - ranked[15]};
    const uint32_t bits[PROFILES - 2] = {
        2 * (left[0] + left[3] + left[6] + left[9]) + 8 * left[12],
        left[0] + 2 * (left[1] + left[4] + left[7]) + 8 * left[10],
        left[0] + left[1] + 2 * (left[2] + left[5]) + 8 * left[8],
        3 * (left[0] + left[7]) + 8 * left[14],
        4 * left[0] + 8 * left[15]};
#pragma unroll
    for (int n = 0; n < int(PROFILES) - 2; ++n)
        if (bits[n] < fewest) {
            fewest = bits[n];
            profile = n + 2;
        }
    const uint32_t shifted = __shfl_up_sync(FULL_WARP, symbol, 1);
    if (lane < CODE_BYTES) code[lane] = lane == 0 ? profile : profile == RAW ? 0 : shifted;
}

// Codes of WIDTH bits for `count` bytes, the first of which are groups of `unit` where there is a mask, and else those of
// `list`. What has longer codes is put to the front of `list`. Returns how many that are. By one warp.
template <uint32_t WIDTH>
__device__ inline uint32_t encode_level(const unsigned char* unit, uint32_t mask, unsigned char* list, uint32_t count,
                                        const unsigned char* ranks, uint32_t first, uint32_t* out, uint32_t lane) {
    constexpr uint32_t ESCAPE = (1u << WIDTH) - 1;
    const uint32_t groups = (count + GROUP - 1) / GROUP;
    uint32_t escaped = 0;
#pragma unroll 4
    for (uint32_t group = 0; group < groups; ++group) {
        const uint32_t at = group * GROUP + lane;
        const bool is_valid = at < count;
        uint32_t byte;
        if (mask) {
            byte = unit[(__ffs(mask) - 1) * GROUP + lane];
            mask &= mask - 1;
        } else byte = list[at];
        const uint32_t code = is_valid ? min(ranks[byte] - first, ESCAPE) : 0;
        uint32_t word = 0, escaping = FULL_WARP;
#pragma unroll
        for (uint32_t bit = 0; bit < WIDTH; ++bit) {
            const uint32_t all = __ballot_sync(FULL_WARP, (code >> bit) & 1);
            escaping &= all;
            if (lane == bit) word = all;
        }
        if (lane < WIDTH) out[group * WIDTH + lane] = word;
        // Never ahead of what is still to be read.
        if (code == ESCAPE) list[escaped + __popc(escaping & lanes_below(lane))] = byte;
        escaped += __popc(escaping);
    }
    __syncwarp();
    return escaped;
}

// `unit::encode` of src/planes/unit.rs, by one warp. `list` has room for a segment.
__device__ __noinline__ uint32_t encode_unit(const unsigned char* unit, uint32_t mask, uint32_t profile,
                                       const unsigned char* ranks, uint32_t* packed, unsigned char* list,
                                       uint32_t lane) {
    const uint32_t bytes = GROUP * __popc(mask);
    if (profile == CONSTANT || bytes == 0) return 0;
    uint32_t used = 0, count = bytes, first = 0, there = mask;
    bool fits = profile != RAW;
    for (uint32_t widths = profile_widths(profile); fits && widths; widths >>= 4) {
        const uint32_t width = widths & 15, words = (count + GROUP - 1) / GROUP * width;
        if (4 * (used + words) > bytes) {
            fits = false;
            break;
        }
        uint32_t* out = packed + used;
        switch (width) {
        case 1: count = encode_level<1>(unit, there, list, count, ranks, first, out, lane); break;
        case 2: count = encode_level<2>(unit, there, list, count, ranks, first, out, lane); break;
        case 3: count = encode_level<3>(unit, there, list, count, ranks, first, out, lane); break;
        default: count = encode_level<4>(unit, there, list, count, ranks, first, out, lane);
        }
        there = 0;
        used += words;
        first += (1u << width) - 1;
    }
    const uint32_t tail = (count + 3) / 4;
    if (fits && 4 * (used + tail) <= bytes) {
        for (uint32_t n = lane; n < tail; n += 32) {
            uint32_t word = 0;
            for (uint32_t k = 0; k < 4; ++k)
                if (4 * n + k < count) word |= uint32_t(list[4 * n + k]) << (8 * k);
            packed[used + n] = word;
        }
        return used + tail;
    }
    if (mask == FULL_WARP) {
        const uint4* from = reinterpret_cast<const uint4*>(unit);
        for (uint32_t n = lane; n < SEGMENT / 16; n += 32) reinterpret_cast<uint4*>(packed)[n] = from[n];
        return STORED_RAW;
    }
    uint32_t group = 0;
    for (there = mask; there; there &= there - 1, ++group)
        if (lane < 8)
            packed[8 * group + lane] = reinterpret_cast<const uint32_t*>(unit)[8 * (__ffs(there) - 1) + lane];
    return STORED_RAW;
}

template <int W>
__device__ inline void encode(const unsigned char* data, State* state, const Container& container, uint32_t way,
                              Report* report) {
    constexpr uint32_t SEGMENTS = Values<W>::SEGMENTS, HEADER = Values<W>::HEADER;
    __shared__ __align__(16) unsigned char units[BLOCK_BYTES];
    __shared__ __align__(16) uint32_t packed[BLOCK_BYTES / 4];
    // Histograms of the planes, then lists of the warps.
    __shared__ __align__(16) uint32_t scratch[WARPS * SEGMENT / 4];
    __shared__ unsigned char ranks[W][256];
    __shared__ __align__(16) uint32_t header[HEADER / 4];
    __shared__ uint32_t starts[UNITS];
    __shared__ uint32_t ticket, words_of_units;
    __shared__ uint64_t start;
    static_assert(W * 256 <= WARPS * SEGMENT / 4, "the histograms fit");

    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (container.blocks == 0) {
        if (threadIdx.x == 0) write_header(container, data, 0, 0.0, report);
        return;
    }
    if (threadIdx.x == 0) ticket = atomicAdd(&state->ticket, 1);
    for (uint32_t n = threadIdx.x; n < W * 256; n += THREADS) scratch[n] = 0;
    if (threadIdx.x < HEADER / 4) header[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t block = ticket;
    uint16_t* sizes = reinterpret_cast<uint16_t*>(header);
    uint32_t* masks = header + SIZES_BYTES / 4;
    unsigned char* codes = reinterpret_cast<unsigned char*>(masks + SEGMENTS);

    const uint64_t values_bytes = container.raw_bytes / W * W;
    const uint64_t from = uint64_t(block) * BLOCK_BYTES;
    const uint32_t bytes = uint32_t(min(uint64_t(BLOCK_BYTES), values_bytes - from));
    split<W>(data + from, bytes, way, units, masks);
    __syncthreads();

    uint32_t there = 0;
#pragma unroll
    for (uint32_t segment = 0; segment < SEGMENTS; ++segment) there += __popc(masks[segment]);
    if (there > 0) {
        for (uint32_t unit = warp; unit < UNITS; unit += WARPS) {
            uint32_t* histogram = scratch + unit / SEGMENTS * 256;
            // Four bytes a lane, and eight lanes a group.
            const uint32_t mask = masks[unit % SEGMENTS];
            const uint32_t* words = reinterpret_cast<const uint32_t*>(units + unit * SEGMENT);
#pragma unroll
            for (uint32_t part = 0; part < SEGMENT / 128; ++part) {
                const uint32_t word = words[32 * part + lane];
                if (!(mask >> (4 * part + lane / 8) & 1)) continue;
#pragma unroll
                for (int n = 0; n < 4; ++n) atomicAdd(&histogram[(word >> (8 * n)) & 0xFF], 1);
            }
        }
        __syncthreads();
        if (warp < W)
            shortest(scratch + 256 * warp, GROUP * there, codes + CODE_BYTES * warp, ranks[warp], lane);
        __syncthreads();
        unsigned char* list = reinterpret_cast<unsigned char*>(scratch) + warp * SEGMENT;
        for (uint32_t unit = warp; unit < UNITS; unit += WARPS) {
            const uint32_t plane = unit / SEGMENTS;
            const uint32_t size = encode_unit(units + unit * SEGMENT, masks[unit % SEGMENTS],
                                              codes[CODE_BYTES * plane], ranks[plane],
                                              packed + unit * SEGMENT / 4, list, lane);
            if (lane == 0) sizes[unit] = uint16_t(size);
        }
        __syncthreads();
    }
    if (warp == 0) {
        uint32_t words = 0;
        if (lane < UNITS && there > 0)
            words = sizes[lane] == STORED_RAW ? GROUP / 4 * __popc(masks[lane % SEGMENTS]) : sizes[lane];
        uint32_t end = words;
        for (int step = 1; step < int(UNITS); step *= 2) {
            const uint32_t before = __shfl_up_sync(FULL_WARP, end, step);
            if (lane >= step) end += before;
        }
        if (lane < UNITS) starts[lane] = end - words;
        const uint32_t all = __shfl_sync(FULL_WARP, end, UNITS - 1);
        const uint32_t needs = there > 0 ? (HEADER + 4 * all + UNIT - 1) / UNIT : 0;
        const uint64_t found = place(state, block, needs, lane);
        if (lane == 0) {
            words_of_units = all;
            const bool fits = enter(container, block, found + needs, true);
            start = fits ? payload_at(container.blocks) + found * UNIT : ~0ull;
            if (block == container.blocks - 1) write_header(container, data, found + needs, 0.0, report);
        }
    }
    __syncthreads();
    if (there == 0 || start == ~0ull) return;
    uint32_t* out = reinterpret_cast<uint32_t*>(container.out + start);
    if (threadIdx.x < HEADER / 4) out[threadIdx.x] = header[threadIdx.x];
    const uint32_t behind = HEADER / 4 + words_of_units;
    if (threadIdx.x < 4 && behind + threadIdx.x < (behind + 3) / 4 * 4) out[behind + threadIdx.x] = 0;
    for (uint32_t unit = warp; unit < UNITS; unit += WARPS) {
        const uint32_t words
            = sizes[unit] == STORED_RAW ? GROUP / 4 * __popc(masks[unit % SEGMENTS]) : sizes[unit];
        for (uint32_t n = lane; n < words; n += 32)
            out[HEADER / 4 + starts[unit] + n] = packed[unit * SEGMENT / 4 + n];
    }
}

#define ENCODE(W)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                \
    codec_planes_encode_##W(const unsigned char* __restrict__ data, State* state, unsigned char* out,    \
                            uint64_t capacity, uint64_t raw_bytes, uint64_t kind, uint32_t blocks,       \
                            uint32_t way, Report* report) {                                              \
        encode<W>(data, state, Container{out, capacity, raw_bytes, kind, blocks, W}, way, report);       \
    }

ENCODE(1)
ENCODE(2)
ENCODE(4)
ENCODE(8)

// Makes a state ready for the next input.
extern "C" __global__ void __launch_bounds__(256)
codec_clear(uint64_t* state, uint64_t words) {
    const uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t n = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; n < words; n += stride) state[n] = 0;
}
