// Encodes blocks of differences from polynomials: the same bytes as src/planes/polynomial of crates/codec.
//
// A warp encodes one block of values, in shared memory from the first step to the last. Its place is known from the
// blocks before, so that each byte is read once and written once.
//
// Compiled to compute_80 PTX by `cargo xtask kernels`.

#include "codec_polynomial.cuh"

// `prefix::lengths`.
__device__ __noinline__ void find_lengths(const uint32_t* counts, uint32_t* joint, unsigned char* parents,
                                          unsigned char* lengths, uint32_t lane) {
    constexpr uint32_t NONE = 0xFFFFFFFFu;
    uint32_t own[CLASSES_EACH], leaves = 0;
#pragma unroll
    for (uint32_t n = 0; n < CLASSES_EACH; ++n) {
        const uint32_t at = 32 * n + lane;
        own[n] = at < CLASSES ? counts[at] : 0;
        leaves += own[n] > 0;
        if (at < CLASSES) lengths[at] = own[n] > 0;
    }
    leaves = sum_of_warp(leaves);
    __syncwarp();
    if (leaves < 2) return;
    for (;;) {
        // How often, and then the lower class first.
        uint32_t keys[CLASSES_EACH];
#pragma unroll
        for (uint32_t n = 0; n < CLASSES_EACH; ++n) keys[n] = own[n] > 0 ? own[n] << 8 | (32 * n + lane) : NONE;
        uint32_t head = 0;
        for (uint32_t made = 0; made + 1 < leaves; ++made) {
            uint32_t sum = 0;
            for (uint32_t child = 0; child < 2; ++child) {
                uint32_t least = NONE;
#pragma unroll
                for (uint32_t n = 0; n < CLASSES_EACH; ++n) least = min(least, keys[n]);
                least = __reduce_min_sync(FULL_WARP, least);
                uint32_t node;
                if (least != NONE && (head == made || least >> 8 <= joint[head])) {
                    sum += least >> 8;
                    node = least & 0xFF;
#pragma unroll
                    for (uint32_t n = 0; n < CLASSES_EACH; ++n)
                        if (keys[n] == least) keys[n] = NONE;
                } else {
                    sum += joint[head];
                    node = CLASSES + head++;
                }
                if (lane == 0) parents[node] = CLASSES + made;
            }
            if (lane == 0) joint[made] = sum;
            __syncwarp();
        }
        const uint32_t root = CLASSES + leaves - 2;
        uint32_t longest = 0;
#pragma unroll
        for (uint32_t n = 0; n < CLASSES_EACH; ++n) {
            if (own[n] == 0) continue;
            uint32_t depth = 0;
            for (uint32_t node = 32 * n + lane; node != root; node = parents[node]) ++depth;
            lengths[32 * n + lane] = depth;
            longest = max(longest, depth);
        }
        __syncwarp();
        if (__reduce_max_sync(FULL_WARP, longest) <= LONGEST) return;
#pragma unroll
        for (uint32_t n = 0; n < CLASSES_EACH; ++n) own[n] = (own[n] + 1) / 2;
    }
}

// Puts bits, the lowest first, to words that other threads write, too.
struct Writer {
    uint32_t* word;
    uint64_t bits;
    uint32_t count;

    // At most 32 bits, with zeros above them.
    __device__ inline void push(uint32_t value, uint32_t length) {
        bits |= uint64_t(value) << count;
        count += length;
        if (count >= 32) {
            atomicOr(word++, uint32_t(bits));
            bits >>= 32;
            count -= 32;
        }
    }
};

template <int W>
__device__ inline void encode(const unsigned char* data, State* state, const Container& container, Report* report) {
    using R = Real<W>;
    using S = Shape<W>;
    using T = typename R::Bits;
    __shared__ T values[S::ROOM];
    __shared__ __align__(16) uint32_t packed[MOST_WORDS];
    __shared__ uint32_t counts[CLASSES];
    __shared__ uint32_t joint[CLASSES];
    __shared__ unsigned char parents[2 * CLASSES];
    __shared__ unsigned char lengths[CLASSES];
    __shared__ unsigned char codes[CLASSES];

    const uint32_t lane = threadIdx.x;
    if (container.blocks == 0) {
        if (lane == 0) write_header(container, data, 0, 0.0, report);
        return;
    }
    uint32_t block = 0;
    if (lane == 0) block = atomicAdd(&state->ticket, 1);
    block = __shfl_sync(FULL_WARP, block, 0);
    const uint64_t from = uint64_t(block) * BLOCK_BYTES;
    const uint32_t bytes = uint32_t(min(uint64_t(BLOCK_BYTES), container.raw_bytes / W * W - from));
    const uint32_t count = bytes / W;
    const T* source = reinterpret_cast<const T*>(data + from);

    for (uint32_t n = lane; n < MOST_WORDS; n += 32) packed[n] = 0;
    for (uint32_t n = lane; n < CLASSES; n += 32) counts[n] = 0;
    T any = 0;
    for (uint32_t n = lane; n < S::VALUES; n += 32) {
        const T value = n < count ? source[n] : 0;
        values[S::place(n)] = value;
        any |= value;
    }
    __syncwarp();

    uint32_t needs = 0, order = 0;
    if (__any_sync(FULL_WARP, any != 0)) {
        T* own = values + lane * (LANE + 1);
        const bool has_lane = lane < S::LANES;
        T before[ORDERS] = {};

        // The order that makes a group of every second lane shortest.
        uint32_t below[ORDERS] = {};
        if (has_lane && lane % 2 == 0) {
            const uint32_t start = lane / 2 % GROUPS * GROUP;
            for (uint32_t at = start < ORDERS ? 0 : start - ORDERS; at < start; ++at) advance(before, own[at]);
            for (uint32_t at = start; at < start + GROUP; ++at) {
                const T value = own[at];
#pragma unroll
                for (uint32_t n = 0; n < ORDERS; ++n)
                    below[n] += R::length(difference<W>(value, expected<W>(min(at, n + 1), before)) >> 1);
                advance(before, value);
            }
        }
        uint32_t fewest = 0xFFFFFFFFu;
#pragma unroll
        for (uint32_t n = 0; n < ORDERS; ++n) {
            const uint32_t all = sum_of_warp(below[n]);
            if (all < fewest) {
                fewest = all;
                order = n + 1;
            }
        }

        // Differences in the place of the values.
        uint32_t mask = 0;
        if (has_lane) {
            for (uint32_t group = 0; group < GROUPS; ++group) {
                T all = 0;
                for (uint32_t at = group * GROUP; at < (group + 1) * GROUP; ++at) {
                    const T value = own[at];
                    T stored = difference<W>(value, expected<W>(min(at, order), before));
                    // Values that are not there are as expected.
                    if (lane * LANE + at >= count) stored = 0;
                    advance(before, value);
                    own[at] = stored;
                    all |= stored;
                }
                if (all == 0) continue;
                mask |= 1u << group;
                for (uint32_t at = group * GROUP; at < (group + 1) * GROUP; ++at)
                    atomicAdd(&counts[R::length(own[at])], 1);
            }
        }
        __syncwarp();
        find_lengths(counts, joint, parents, lengths, lane);
        for (uint32_t n = lane; n < CLASSES; n += 32)
            if (lengths[n] > 0) codes[n] = turned(code_of(lengths, n));
        uint32_t bits = 0;
        for (uint32_t group = 0; group < GROUPS; ++group) {
            if (!(mask >> group & 1)) continue;
            for (uint32_t at = group * GROUP; at < (group + 1) * GROUP; ++at)
                bits += lengths[R::length(own[at])] + R::length(own[at] >> 1);
        }
        const uint32_t used = __ballot_sync(FULL_WARP, mask != 0);
        const uint32_t header = 4 * (S::FRONT_WORDS + (__popc(used) + 1) / 2);
        const uint32_t start = sum_before(bits, lane);
        const uint32_t stored = header + (sum_of_warp(bits) + 7) / 8;
        if (stored >= ORDER_BYTES + bytes) {
            order = 0;
            needs = (ORDER_BYTES + bytes + UNIT - 1) / UNIT;
        } else {
            needs = (stored + UNIT - 1) / UNIT;
            if (lane == 0) packed[0] = order;
            if (mask != 0) {
                const uint32_t place = __popc(used & lanes_below(lane));
                atomicOr(&packed[1 + lane / 8], mask << (4 * (lane % 8)));
                atomicOr(&packed[S::FRONT_WORDS + place / 2], bits << (16 * (place % 2)));
            }
            for (uint32_t n = lane; n <= 8 * W; n += 32)
                atomicOr(&packed[1 + S::MASK_WORDS + n / 8], uint32_t(lengths[n]) << (4 * (n % 8)));
            __syncwarp();
            Writer writer{packed + header / 4 + start / 32, 0, start % 32};
            for (uint32_t group = 0; group < GROUPS; ++group) {
                if (!(mask >> group & 1)) continue;
                for (uint32_t at = group * GROUP; at < (group + 1) * GROUP; ++at) {
                    const T difference = own[at];
                    const uint32_t own_class = R::length(difference), low_bits = R::length(difference >> 1);
                    const T low = low_bits == 0 ? 0 : difference & ((T(1) << low_bits) - 1);
                    writer.push(codes[own_class], lengths[own_class]);
                    writer.push(uint32_t(low), min(low_bits, 32u));
                    if constexpr (W == 8)
                        if (low_bits > 32) writer.push(uint32_t(low >> 32), low_bits - 32);
                }
            }
            if (writer.count > 0) atomicOr(writer.word, uint32_t(writer.bits));
        }
        __syncwarp();
    }

    const uint64_t found = place(state, block, needs, lane);
    bool fits = false;
    if (lane == 0) {
        fits = enter(container, block, found + needs, true);
        if (block == container.blocks - 1) write_header(container, data, found + needs, 0.0, report);
    }
    if (!__shfl_sync(FULL_WARP, fits, 0)) return;
    // The place of a block is known to all lanes.
    uint4* out = reinterpret_cast<uint4*>(container.out + payload_at(container.blocks) + found * UNIT);
    if (needs > 0 && order == 0) {
        const uint32_t* raw = reinterpret_cast<const uint32_t*>(source);
        for (uint32_t n = lane; n < bytes / 4; n += 32) packed[ORDER_BYTES / 4 + n] = raw[n];
        __syncwarp();
    }
    for (uint32_t n = lane; n < needs; n += 32) out[n] = reinterpret_cast<const uint4*>(packed)[n];
}

#define ENCODE(W)                                                                                            \
    extern "C" __global__ void __launch_bounds__(32)                                                         \
    codec_polynomial_encode_##W(const unsigned char* __restrict__ data, State* state, unsigned char* out,    \
                                uint64_t capacity, uint64_t raw_bytes, uint64_t kind, uint32_t blocks,       \
                                Report* report) {                                                            \
        encode<W>(data, state, Container{out, capacity, raw_bytes, kind, blocks, W}, report);                \
    }

ENCODE(4)
ENCODE(8)
