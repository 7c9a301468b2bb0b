// What the encoders of crates/codec share: places in a container, and its header. src/header.rs and
// src/container.rs are the reference.
#pragma once

#include <cstdint>

constexpr uint32_t HEADER_BYTES = 64, TAIL_AT = 40;
// Blocks start at multiples of so many bytes; tables and sizes count in these.
constexpr uint32_t UNIT = 16;
constexpr uint32_t FULL_WARP = 0xFFFFFFFFu;

// What an encoder keeps on the device while it encodes; all zero before. src/gpu/state.rs allocates it.
struct State {
    // The next block: blocks are taken in order, so that those before are done or under way.
    uint32_t ticket;
    uint32_t unused;
    // The bits of the largest finite magnitude.
    unsigned long long peak;
    uint64_t unused_too[6];
    // Per block: how many units it takes, or where it ends.
    unsigned long long ends[];
};

// What the host reads when the kernels are through.
struct Report {
    uint64_t stored_bytes;
    uint64_t bound;
    // 0 until an encoder is through; a decoder leaves it where nothing is wrong.
    uint32_t outcome;
    uint32_t unused;
};

constexpr uint32_t DONE = 1, FULL = 2, CORRUPT = 3;

// The container that is being written.
struct Container {
    unsigned char* out;
    // Bytes of `out`, which hold the header and the table at least.
    uint64_t capacity;
    // Bytes of the input, and the header's second word: format, codec, element, parameter, blocks.
    uint64_t raw_bytes;
    uint64_t kind;
    uint32_t blocks;
    uint32_t value_bytes;
};

__device__ inline uint64_t payload_at(uint32_t blocks) {
    return HEADER_BYTES + ((4ull * blocks + UNIT - 1) & ~uint64_t(UNIT - 1));
}

// Only one thread of the grid does this.
__device__ inline void write_header(const Container& container, const unsigned char* data, uint64_t end,
                                    double bound, Report* report) {
    const uint64_t stored_bytes = payload_at(container.blocks) + end * UNIT;
    const bool is_full = stored_bytes > container.capacity;
    if (!is_full) {
        uint64_t tail = 0;
        const uint32_t tail_bytes = container.raw_bytes % container.value_bytes;
        for (uint32_t n = 0; n < tail_bytes; ++n)
            tail |= uint64_t(data[container.raw_bytes - tail_bytes + n]) << (8 * n);
        const uint64_t words[7] = {
            0x00636564'6F636674ull, container.kind, container.raw_bytes, stored_bytes,
            uint64_t(__double_as_longlong(bound)), tail, 0};
        uint64_t sum = 0;
        for (int n = 0; n < 7; ++n) {
            uint64_t x = (sum ^ words[n]) + 0x9E3779B97F4A7C15ull;
            x ^= x >> 33;
            x *= 0xC2B2AE3D27D4EB4Full;
            sum = x ^ (x >> 29);
        }
        uint64_t* header = reinterpret_cast<uint64_t*>(container.out);
        for (int n = 0; n < 7; ++n) header[n] = words[n];
        header[7] = sum;
        // The table is padded with zeros.
        uint32_t* table = reinterpret_cast<uint32_t*>(container.out + HEADER_BYTES);
        for (uint32_t n = container.blocks; n % 4 != 0; ++n) table[n] = 0;
    }
    report->stored_bytes = stored_bytes;
    report->bound = uint64_t(__double_as_longlong(bound));
    report->outcome = is_full ? FULL : DONE;
}

constexpr unsigned long long SIZE_KNOWN = 1ull << 62, END_KNOWN = 2ull << 62, VALUE = (1ull << 62) - 1;

// Where a block of so many units starts, from the sizes of those before (Merrill and Garland 2016: decoupled
// look-back). All lanes of one warp.
__device__ inline uint64_t place(State* state, uint32_t block, uint32_t units, uint32_t lane) {
    volatile unsigned long long* ends = state->ends;
    if (lane == 0) ends[block] = (block == 0 ? END_KNOWN : SIZE_KNOWN) | units;
    if (block == 0) return 0;
    uint64_t start = 0;
    for (int64_t at = int64_t(block) - 1 - lane;; at -= 32) {
        unsigned long long seen = END_KNOWN;
        if (at >= 0)
            while ((seen = ends[at]) == 0) {
            }
        __syncwarp();
        const uint32_t known = __ballot_sync(FULL_WARP, (seen & END_KNOWN) != 0);
        const uint32_t last = known ? __ffs(known) - 1 : 31;
        uint64_t value = lane <= last ? seen & VALUE : 0;
        for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(FULL_WARP, value, step);
        start += value;
        if (known) break;
    }
    if (lane == 0) ends[block] = END_KNOWN | (start + units);
    return start;
}

// Whether a block that ends so fits; its entry in the table is written.
__device__ inline bool enter(const Container& container, uint32_t block, uint64_t end, bool writes) {
    if (writes) reinterpret_cast<uint32_t*>(container.out + HEADER_BYTES)[block] = uint32_t(end);
    return payload_at(container.blocks) + end * UNIT <= container.capacity;
}

// The container that is being read. Nothing in it is trusted but its length.
struct Source {
    const unsigned char* bytes;
    uint64_t stored_bytes;
    uint32_t blocks;
    uint32_t unused;
};

// Byte `n` of those behind the last whole value.
__device__ inline unsigned char tail_byte(const Source& source, uint32_t n) { return source.bytes[TAIL_AT + n]; }

// The bytes of a block; false if the table is wrong.
__device__ inline bool find(const Source& source, uint32_t block, const unsigned char** stored, uint64_t* len) {
    const uint32_t* table = reinterpret_cast<const uint32_t*>(source.bytes + HEADER_BYTES);
    const uint64_t start = block == 0 ? 0 : table[block - 1], end = table[block];
    const uint64_t units = (source.stored_bytes - payload_at(source.blocks)) / UNIT;
    *stored = source.bytes + payload_at(source.blocks) + start * UNIT;
    *len = (end - start) * UNIT;
    const bool is_last = block == source.blocks - 1;
    return start <= end && end <= units
        && (!is_last || payload_at(source.blocks) + end * UNIT == source.stored_bytes);
}
