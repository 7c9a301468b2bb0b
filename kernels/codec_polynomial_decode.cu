// Decodes blocks of differences from polynomials, as src/planes/polynomial of crates/codec does. Nothing in a
// container is trusted: every size is checked before what it leads to is read.
//
// Compiled to compute_80 PTX by `cargo xtask kernels`.

#include "codec_polynomial.cuh"

// Words behind a block that a lane of damaged bits may reach: each of its values takes at most 8 bits more than its
// type has.
constexpr uint32_t BEYOND = (LANE * 9 + 16) / 4;

// 64 bits from a bit on.
__device__ inline uint64_t window(const uint32_t* words, uint32_t at) {
    const uint32_t* from = words + at / 32;
    const uint32_t low = __funnelshift_r(from[0], from[1], at % 32);
    const uint32_t high = __funnelshift_r(from[1], from[2], at % 32);
    return uint64_t(high) << 32 | low;
}

template <int W>
__device__ inline void decode(const Source& source, unsigned char* out, uint64_t raw_bytes, Report* report) {
    using S = Shape<W>;
    using T = typename Real<W>::Bits;
    __shared__ T values[S::ROOM];
    __shared__ __align__(16) uint32_t packed[MOST_WORDS + BEYOND + 3];
    __shared__ uint16_t table[1 << LONGEST];
    __shared__ unsigned char lengths[CLASSES];

    const uint32_t lane = threadIdx.x;
    const uint32_t block = blockIdx.x;
    if (block == 0 && lane < raw_bytes % W) out[raw_bytes / W * W + lane] = tail_byte(source, lane);
    if (source.blocks == 0) return;
    const uint64_t from = uint64_t(block) * BLOCK_BYTES;
    const uint32_t bytes = uint32_t(min(uint64_t(BLOCK_BYTES), raw_bytes / W * W - from));
    T* to = reinterpret_cast<T*>(out + from);

    const unsigned char* stored;
    uint64_t len;
    bool is_sound = find(source, block, &stored, &len) && len <= MOST_UNITS * UNIT;
    if (is_sound && len == 0) {
        for (uint32_t n = lane; n < bytes / W; n += 32) to[n] = 0;
        return;
    }
    if (is_sound) {
        for (uint32_t n = lane; n < len / UNIT; n += 32)
            reinterpret_cast<uint4*>(packed)[n] = reinterpret_cast<const uint4*>(stored)[n];
        for (uint32_t n = len / 4 + lane; n < MOST_WORDS + BEYOND + 3; n += 32) packed[n] = 0;
    }
    for (uint32_t n = lane; n < 1 << LONGEST; n += 32) table[n] = 0;
    __syncwarp();
    const uint32_t order = is_sound ? packed[0] & 0xFF : 0;
    if (is_sound && order == 0) {
        is_sound = len >= ORDER_BYTES + bytes && len - ORDER_BYTES - bytes < UNIT;
        if (is_sound) {
            for (uint32_t n = lane; n < bytes / 4; n += 32)
                reinterpret_cast<uint32_t*>(to)[n] = packed[ORDER_BYTES / 4 + n];
            return;
        }
    }
    is_sound = is_sound && order <= ORDERS && len >= 4 * S::FRONT_WORDS;
    if (!is_sound) {
        if (lane == 0) report->outcome = CORRUPT;
        return;
    }

    // The codes.
    uint32_t room = 0;
    for (uint32_t n = lane; n < CLASSES; n += 32) {
        const bool is_there = n / 8 < S::LENGTH_WORDS;
        const uint32_t length = is_there ? packed[1 + S::MASK_WORDS + n / 8] >> (4 * (n % 8)) & 15 : 0;
        is_sound = is_sound && length <= LONGEST && (n <= 8 * W || length == 0);
        lengths[n] = length;
        if (length > 0) room += (1u << LONGEST) >> length;
    }
    is_sound = __all_sync(FULL_WARP, is_sound);
    is_sound = is_sound && sum_of_warp(room) <= 1 << LONGEST;
    __syncwarp();
    // The bits of the lanes.
    const uint32_t mask = lane < S::LANES ? packed[1 + lane / 8] >> (4 * (lane % 8)) & 15 : 0;
    const uint32_t used = __ballot_sync(FULL_WARP, mask != 0);
    const uint32_t header = 4 * (S::FRONT_WORDS + (__popc(used) + 1) / 2);
    uint32_t bits = 0;
    if (mask != 0) {
        const uint32_t place = __popc(used & lanes_below(lane));
        bits = packed[S::FRONT_WORDS + place / 2] >> (16 * (place % 2)) & 0xFFFF;
    }
    const uint32_t start = sum_before(bits, lane);
    const uint32_t end = header + (sum_of_warp(bits) + 7) / 8;
    if (!is_sound || end > len || len - end >= UNIT) {
        if (lane == 0) report->outcome = CORRUPT;
        return;
    }
    for (uint32_t n = lane; n < CLASSES; n += 32) {
        const uint32_t length = lengths[n];
        if (length == 0) continue;
        const uint32_t code = code_of(lengths, n);
        for (uint32_t next = code; next < code + ((1u << LONGEST) >> length); ++next)
            table[turned(next)] = uint16_t(length << 8 | n);
    }
    __syncwarp();

    if (lane < S::LANES) {
        T before[ORDERS] = {};
        T* own = values + lane * (LANE + 1);
        uint32_t at = 8 * header + start;
        for (uint32_t n = 0; n < LANE; ++n) {
            T stored_here = 0;
            if (mask >> (n / GROUP) & 1) {
                uint64_t ahead = window(packed, at);
                const uint32_t entry = table[ahead & 0xFF];
                const uint32_t length = entry >> 8, of = entry & 0xFF, below = of > 0 ? of - 1 : 0;
                ahead = W == 8 ? window(packed, at + length) : ahead >> length;
                if (of > 0) stored_here = T(uint64_t(1) << below | (ahead & ((uint64_t(1) << below) - 1)));
                at += length + below;
            }
            const T now = value<W>(stored_here, expected<W>(min(n, order), before));
            advance(before, now);
            own[n] = now;
        }
        is_sound = at == 8 * header + start + bits;
    }
    if (!__all_sync(FULL_WARP, is_sound)) {
        if (lane == 0) report->outcome = CORRUPT;
        return;
    }
    __syncwarp();
    for (uint32_t n = lane; n < bytes / W; n += 32) to[n] = values[S::place(n)];
}

#define DECODE(W)                                                                                              \
    extern "C" __global__ void __launch_bounds__(32)                                                           \
    codec_polynomial_decode_##W(const unsigned char* __restrict__ bytes, uint64_t stored_bytes,                \
                                uint32_t blocks, unsigned char* out, uint64_t raw_bytes, Report* report) {     \
        decode<W>(Source{bytes, stored_bytes, blocks, 0}, out, raw_bytes, report);                             \
    }

DECODE(4)
DECODE(8)
