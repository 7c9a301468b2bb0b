// Decodes blocks of crates/codec's `Planes`, as src/planes/block.rs does. Nothing in a container is trusted: every
// size is checked before what it leads to is read.
//
// Compiled to compute_80 PTX by `cargo xtask kernels`.

#include "codec_planes.cuh"

// Puts a unit's bytes into their places; groups that are not there are zero. By one warp. False if the unit is
// not as long as its codes, or its profile is not known.
__device__ __noinline__ bool decode_unit(const uint32_t* stored, uint32_t size, uint32_t words, uint32_t mask,
                                   const unsigned char* code, unsigned char* unit, unsigned char* list,
                                   uint32_t lane) {
    const uint32_t bytes = GROUP * __popc(mask), profile = code[0];
    const unsigned char* symbols = code + 1;
    if (profile >= PROFILES) return false;
    if (bytes == 0 || profile == CONSTANT) {
        if (size != 0) return false;
        for (uint32_t group = 0; group < GROUP; ++group)
            unit[group * GROUP + lane] = mask >> group & 1 ? symbols[0] : 0;
        return true;
    }
    if (size == STORED_RAW) {
        // Eight lanes a group.
        for (uint32_t group = lane / 8; group < GROUP; group += 4) {
            const uint32_t from = __popc(mask & lanes_below(group));
            reinterpret_cast<uint32_t*>(unit)[8 * group + lane % 8]
                = mask >> group & 1 ? stored[8 * from + lane % 8] : 0;
        }
        return true;
    }
    const uint32_t widths = profile_widths(profile);
    if (widths == 0) return false;

    // Where the codes of each length start, how many there are, and how many longer ones the groups before
    // a lane's have.
    uint32_t at = 0, count = bytes, levels = 0, first = 0;
    uint32_t start_of[4], count_of[4], base_of[4];
#pragma unroll
    for (int level = 0; level < 4; ++level) {
        start_of[level] = count_of[level] = base_of[level] = 0;
        const uint32_t width = (widths >> (4 * level)) & 15;
        if (width == 0) continue;
        start_of[level] = at;
        count_of[level] = count;
        const uint32_t groups = (count + GROUP - 1) / GROUP;
        if (at + groups * width > words) return false;
        uint32_t all = 0;
        if (lane < groups) {
            const uint32_t lanes = count - lane * GROUP;
            all = lanes >= GROUP ? FULL_WARP : lanes_below(lanes);
            for (uint32_t bit = 0; bit < width; ++bit) all &= stored[at + lane * width + bit];
        }
        uint32_t end = __popc(all);
        for (int step = 1; step < 32; step *= 2) {
            const uint32_t before = __shfl_up_sync(FULL_WARP, end, step);
            if (lane >= step) end += before;
        }
        base_of[level] = end - __popc(all);
        count = __shfl_sync(FULL_WARP, end, 31);
        at += groups * width;
        first += (1u << width) - 1;
        levels = level + 1;
    }
    if (at + (count + 3) / 4 != words) return false;

    // The longest codes first: they give the bytes that the next shorter ones do not name.
    const unsigned char* tail = reinterpret_cast<const unsigned char*>(stored + at);
    for (uint32_t n = lane; n < count; n += 32) list[n] = tail[n];
    __syncwarp();
#pragma unroll
    for (int level = 3; level >= 0; --level) {
        if (level >= levels) continue;
        const uint32_t width = (widths >> (4 * level)) & 15, escape = (1u << width) - 1;
        first -= escape;
        const uint32_t groups = (count_of[level] + GROUP - 1) / GROUP;
        // Backwards: what is written lies behind what is still to be read.
        uint32_t place = GROUP;
        for (uint32_t group = groups; group-- > 0;) {
            const uint32_t* words_at = stored + start_of[level] + group * width;
            uint32_t code_here = 0, all = FULL_WARP;
            for (uint32_t bit = 0; bit < width; ++bit) {
                const uint32_t word = words_at[bit];
                all &= word;
                code_here |= ((word >> lane) & 1) << bit;
            }
            const uint32_t base = __shfl_sync(FULL_WARP, base_of[level], group);
            // A lane behind the last code may read what is nothing, but not outside of the list.
            const uint32_t lower = min(base + __popc(all & lanes_below(lane)), SEGMENT - 1);
            const unsigned char byte = code_here == escape ? list[lower] : symbols[first + code_here];
            if (level == 0) {
                do {
                    --place;
                    if (!(mask >> place & 1)) unit[place * GROUP + lane] = 0;
                } while (!(mask >> place & 1));
                unit[place * GROUP + lane] = byte;
            } else {
                __syncwarp();
                list[group * GROUP + lane] = byte;
                __syncwarp();
            }
        }
        if (level == 0)
            while (place-- > 0) unit[place * GROUP + lane] = 0;
    }
    return true;
}

template <int W>
__device__ inline void store(unsigned char* out, uint32_t at, uint32_t bytes,
                             const typename Word<W>::Type (&values)[16 / W]) {
    const uint4 packed = pack<W>(values);
    if (at + 16 <= bytes) *reinterpret_cast<uint4*>(out + at) = packed;
    else if (at < bytes) {
        const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
        for (uint32_t n = 0; n < bytes - at; ++n) out[at + n] = uint8_t(words[n / 4] >> (8 * (n % 4)));
    }
}

template <int W>
__device__ inline void load(unsigned char* units, uint32_t at, typename Word<W>::Type (&stored)[16 / W]) {
    using T = typename Word<W>::Type;
#pragma unroll
    for (int n = 0; n < 16 / W; ++n) stored[n] = 0;
#pragma unroll
    for (int plane = 0; plane < W; ++plane) {
        const unsigned char* place = plane_place<W>(units, at / W, plane);
        uint32_t words[4] = {0, 0, 0, 0};
        if constexpr (W == 1) {
            const uint4 all = *reinterpret_cast<const uint4*>(place);
            words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
        } else if constexpr (W == 2) {
            const uint2 all = *reinterpret_cast<const uint2*>(place);
            words[0] = all.x, words[1] = all.y;
        } else if constexpr (W == 4) words[0] = *reinterpret_cast<const uint32_t*>(place);
        else words[0] = *reinterpret_cast<const uint16_t*>(place);
#pragma unroll
        for (int n = 0; n < 16 / W; ++n) stored[n] |= T((words[n / 4] >> (8 * (n % 4))) & 0xFF) << (8 * plane);
    }
}

// Joins units to values.
template <int W>
__device__ inline void join(unsigned char* units, unsigned char* out, uint32_t bytes, uint32_t way) {
    using T = typename Word<W>::Type;
    constexpr int EACH = Values<W>::EACH;
    T stored[EACH];
    if (way != DIFFERENCE) {
        for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * THREADS) {
            load<W>(units, at, stored);
#pragma unroll
            for (int n = 0; n < EACH; ++n) stored[n] = backward<W>(stored[n], way);
            store<W>(out, at, bytes, stored);
        }
        return;
    }
    // A warp sums up a segment.
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t segment = threadIdx.x / 32; segment < Values<W>::SEGMENTS; segment += WARPS) {
        T before = 0;
        for (uint32_t part = 0; part < SEGMENT * W / 512; ++part) {
            const uint32_t at = segment * SEGMENT * W + part * 512 + 16 * lane;
            load<W>(units, at, stored);
            T sum = 0;
#pragma unroll
            for (int n = 0; n < EACH; ++n) stored[n] = sum += backward<W>(stored[n], DIFFERENCE);
            T end = sum;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const T other = __shfl_up_sync(FULL_WARP, end, step);
                if (lane >= step) end += other;
            }
#pragma unroll
            for (int n = 0; n < EACH; ++n) stored[n] += before + end - sum;
            before += __shfl_sync(FULL_WARP, end, 31);
            store<W>(out, at, bytes, stored);
        }
    }
}

template <int W>
__device__ inline void decode(const Source& source, unsigned char* out, uint64_t raw_bytes,
                              uint32_t way, Report* report) {
    constexpr uint32_t SEGMENTS = Values<W>::SEGMENTS, HEADER = Values<W>::HEADER;
    constexpr uint32_t MOST = (HEADER + BLOCK_BYTES + UNIT - 1) / UNIT;
    __shared__ __align__(16) unsigned char units[BLOCK_BYTES];
    __shared__ __align__(16) uint4 staged[MOST];
    __shared__ unsigned char lists[WARPS][SEGMENT];
    __shared__ uint32_t starts[UNITS + 1];
    __shared__ uint32_t is_sound;

    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t block = blockIdx.x;
    if (block == 0 && threadIdx.x < raw_bytes % W)
        out[raw_bytes / W * W + threadIdx.x] = tail_byte(source, threadIdx.x);
    if (source.blocks == 0) return;
    const uint64_t from = uint64_t(block) * BLOCK_BYTES;
    const uint32_t bytes = uint32_t(min(uint64_t(BLOCK_BYTES), raw_bytes / W * W - from));
    out += from;

    const unsigned char* stored;
    uint64_t len;
    if (!find(source, block, &stored, &len) || (len > 0 && len < HEADER) || len > MOST * UNIT) {
        if (threadIdx.x == 0) report->outcome = CORRUPT;
        return;
    }
    if (len == 0) {
        const typename Word<W>::Type zeros[16 / W] = {};
        for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * THREADS) store<W>(out, at, bytes, zeros);
        return;
    }
    for (uint32_t n = threadIdx.x; n < len / UNIT; n += THREADS)
        staged[n] = reinterpret_cast<const uint4*>(stored)[n];
    if (threadIdx.x == 0) is_sound = 1;
    __syncthreads();

    const uint32_t* words = reinterpret_cast<const uint32_t*>(staged);
    const uint16_t* sizes = reinterpret_cast<const uint16_t*>(words);
    const uint32_t* masks = words + SIZES_BYTES / 4;
    const unsigned char* codes = reinterpret_cast<const unsigned char*>(masks + SEGMENTS);
    if (warp == 0) {
        const uint32_t most = lane < UNITS ? GROUP / 4 * __popc(masks[lane % SEGMENTS]) : 0;
        const uint32_t size = lane < UNITS ? sizes[lane] : 0;
        const uint32_t own = size == STORED_RAW ? most : size;
        uint32_t end = own;
        for (int step = 1; step < int(UNITS); step *= 2) {
            const uint32_t before = __shfl_up_sync(FULL_WARP, end, step);
            if (lane >= step) end += before;
        }
        if (lane < UNITS) starts[lane + 1] = end;
        if (lane == 0) starts[0] = 0;
        const bool is_long = __any_sync(FULL_WARP, own > most);
        const uint32_t all = __shfl_sync(FULL_WARP, end, UNITS - 1);
        if (lane == 0 && (is_long || HEADER + 4 * all > len || len - HEADER - 4 * all >= UNIT)) is_sound = 0;
    }
    __syncthreads();
    if (is_sound) {
        for (uint32_t unit = warp; unit < UNITS; unit += WARPS) {
            const bool sound = decode_unit(words + HEADER / 4 + starts[unit], sizes[unit],
                                           starts[unit + 1] - starts[unit], masks[unit % SEGMENTS],
                                           codes + CODE_BYTES * (unit / SEGMENTS), units + unit * SEGMENT,
                                           lists[warp], lane);
            if (!sound) {
                if (lane == 0) is_sound = 0;
                break;
            }
            __syncwarp();
        }
    }
    __syncthreads();
    if (!is_sound) {
        if (threadIdx.x == 0) report->outcome = CORRUPT;
        return;
    }
    join<W>(units, out, bytes, way);
}

#define DECODE(W)                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                     \
    codec_planes_decode_##W(const unsigned char* __restrict__ bytes, uint64_t stored_bytes, uint32_t blocks,  \
                            unsigned char* out, uint64_t raw_bytes, uint32_t way, Report* report) {           \
        decode<W>(Source{bytes, stored_bytes, blocks, 0}, out, raw_bytes, way, report);                       \
    }

DECODE(1)
DECODE(2)
DECODE(4)
DECODE(8)
