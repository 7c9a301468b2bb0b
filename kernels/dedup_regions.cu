// From labelled chunks to the metadata of a difference. The twin of crates/dedup/src/regions.rs, which says why
// neighbours' sources suffice, and no inner node is hashed.
//
// A block takes a tile of 256 words of 32 chunks at a time, and leaves for each word and each tile how many bits are
// set before it; so how many there are in any region is known from four loads, whatever its size.

#include "dedup_state.cuh"

#define THREADS TILE_WORDS

// The source of a changed chunk; UNKNOWN if it is stored with this checkpoint.
__device__ __forceinline__ u64 source_of(const State *st, u32 chunk, u32 ordinal) {
    u64 source = st->sources[chunk];
    if (source == UNKNOWN) return UNKNOWN;
    if (source & SLOT) source = pack(ordinal, (u32)st->owners[source & ~SLOT]);
    return source == pack(ordinal, chunk) ? UNKNOWN : source;
}

__device__ __forceinline__ bool bit_at(const u32 *words, u32 chunk) { return words[chunk / 32] >> (chunk % 32) & 1; }

#define IS_FIRST 1u
#define IS_BEHIND 2u
#define IS_AGAIN 4u

// Marks what is stored here and what continues the chunk before. Sources stay as they are, for the neighbours' sake.
extern "C" __global__ void __launch_bounds__(THREADS, 6) dedup_resolve(State *st, u32 ordinal) {
    __shared__ u32 shared[THREADS][3];
    if (st->full) return;
    const u32 words = st->words, tiles = st->tiles, lane = lane_id(), t = threadIdx.x;
    const bool is_basic = st->method == BASIC;
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        u32 at = tile * TILE_WORDS + t, base = at - lane;
        u32 word = at < words ? st->changed[at] : 0;
        u32 flags[3] = {word, 0, 0};
        if (!is_basic) {
            map_bits(word, shared + (t - lane), flags, [&](bool active, u32 owner, u32 bit) {
                if (!active) return 0u;
                u32 chunk = (base + owner) * WARP + bit;
                u64 source = source_of(st, chunk, ordinal);
                bool is_first = source == UNKNOWN;
                bool has_left = chunk != 0 && bit_at(st->changed, chunk - 1);
                u64 left = has_left ? source_of(st, chunk - 1, ordinal) : 0;
                // Two that are stored here lie side by side; one that is and one that is not never do, and the chunk
                // before may be the very source, which is stored and not repeated.
                if (is_first) return IS_FIRST | (has_left && left == UNKNOWN ? IS_BEHIND : 0u);
                if (!has_left || left == UNKNOWN) return 0u;
                return source == left + 1 ? IS_BEHIND : source == left ? IS_AGAIN : 0u;
            });
        }
        u32 f = flags[0], b = flags[1], a = flags[2];
        u64 counts = (u64)__popc(f) << 32 | __popc(b) << 16 | __popc(a), total;
        u64 ranks = block_scan(counts, &total);
        if (at < words) {
            st->first[at] = f, st->behind[at] = b, st->again[at] = a;
            st->ranks[at] = ranks;
        }
        if (t == 0) {
            st->tile_first[tile] = (u32)(total >> 32);
            st->tile_behind[tile] = (u32)(total >> 16) & 0xFFFF;
            st->tile_again[tile] = (u32)total & 0xFFFF;
        }
    }
    if (!is_last_block(&st->tickets[2])) return;
    u32 stored = scan_tiles(st->tile_first, tiles);
    scan_tiles(st->tile_behind, tiles);
    scan_tiles(st->tile_again, tiles);
    if (t != 0) return;
    // Only the last chunk is short.
    u64 size = 1ull << st->shift, bytes = stored * size;
    u32 last = st->count - 1;
    if (bit_at(st->first, last)) bytes -= size - chunk_bytes(st, last);
    st->result.payload_bytes = bytes;
    u64 entered = atomicAdd(&st->result.entered, 0ull);
    if (entered) {
        Generation *newest = st->generations + (st->oldest + st->generation_count) % GENERATIONS;
        newest->ordinal = ordinal, newest->chunks = (u32)entered;
        st->generation_count += 1;
        st->live += entered;
    }
}

// Bits set up to and including a chunk's.
__device__ __forceinline__ u32 count_to(const u32 *tile_counts, const u32 *bits, const u64 *ranks, u32 rank_shift, u32 chunk) {
    u32 word = chunk / 32;
    u32 in_tile = (u32)(ranks[word] >> rank_shift) & 0xFFFF;
    return tile_counts[word / TILE_WORDS] + in_tile + __popc(bits[word] & (2u << (chunk % 32)) - 1);
}

#define NEITHER 0u
#define RUNS 1u
#define REPEATING 2u

// Whether the chunks from `start` are 2^level changed ones that all continue each other, and how.
__device__ __forceinline__ u32 uniformity(const State *st, u32 start, u32 level) {
    u32 last = start + (1u << level) - 1, links = (1u << level) - 1;
    if (count_to(st->tile_behind, st->behind, st->ranks, 16, last) - count_to(st->tile_behind, st->behind, st->ranks, 16, start) == links) return RUNS;
    if (count_to(st->tile_again, st->again, st->ranks, 0, last) - count_to(st->tile_again, st->again, st->ranks, 0, start) == links) return REPEATING;
    return NEITHER;
}

// The largest region that starts with a changed chunk: its level, how it continues, and whether a larger one, which
// starts further left, has it already.
struct Region {
    u32 level, kind;
    bool is_inner;
};

__device__ __forceinline__ Region region_at(const State *st, u32 chunk) {
    Region region = {0, RUNS, false};
    u64 count = st->count;
    for (;;) {
        u32 next = region.level + 1;
        bool is_left = (chunk >> region.level & 1) == 0;
        if (!is_left) {
            u32 left = chunk - (1u << region.level);
            region.is_inner = uniformity(st, left, next) != NEITHER;
            return region;
        }
        if (next > 31 || chunk + (1ull << next) > count) return region;
        u32 kind = uniformity(st, chunk, next);
        if (kind == NEITHER) return region;
        region.level = next, region.kind = kind;
    }
}

// The starts of the uniform nodes of a word's chunks, level by level, given which chunks continue the one before.
__device__ __forceinline__ u32 paired(u32 nodes, u32 links, u32 size) { return nodes & ((nodes & links) >> size); }

// The chunks of a word that no larger region within the word starts left of: what region_at says of is_inner for all but
// the first of them.
__device__ __forceinline__ u32 heads_in(u32 changed, u32 behind, u32 again) {
    const u32 LEFT[5] = {0x55555555u, 0x11111111u, 0x01010101u, 0x00010001u, 0x00000001u};
    u32 heads = changed, runs = changed, repeating = changed;
#pragma unroll
    for (u32 level = 0; level < 5; ++level) {
        u32 size = 1u << level;
        runs = paired(runs, behind, size) & LEFT[level];
        repeating = paired(repeating, again, size) & LEFT[level];
        heads &= ~((runs | repeating) << size);
    }
    return heads;
}

// Marks the chunks that regions start with, and decides on the form of the difference.
extern "C" __global__ void __launch_bounds__(THREADS, 6) dedup_heads(State *st) {
    if (st->full) return;
    const u32 words = st->words, tiles = st->tiles, t = threadIdx.x;
    const bool is_basic = st->method == BASIC, is_list = st->method == LIST;
    for (u32 tile = blockIdx.x; tile < tiles && !is_basic; tile += gridDim.x) {
        u32 at = tile * TILE_WORDS + t;
        u32 h = at < words ? st->changed[at] : 0, f = at < words ? st->first[at] : 0;
        if (!is_list && h) {
            h = heads_in(h, st->behind[at], st->again[at]);
            if (h & 1 && region_at(st, at * WARP).is_inner) h &= ~1u;
        }
        u32 total, ranks = block_scan((u32)(__popc(h & f) << 16 | __popc(h & ~f)), &total);
        if (at < words) st->heads[at] = h, st->head_ranks[at] = ranks;
        if (t == 0) st->tile_heads_first[tile] = total >> 16, st->tile_heads_shifted[tile] = total & 0xFFFF;
    }
    if (!is_last_block(&st->tickets[3])) return;
    u32 first = is_basic ? 0 : scan_tiles(st->tile_heads_first, tiles);
    u32 shifted = is_basic ? 0 : scan_tiles(st->tile_heads_shifted, tiles);
    if (t != 0) return;
    Result *result = &st->result;
    u64 metadata = is_basic ? st->words * 4ull : first * 4ull + shifted * 12ull;
    u64 payload_at = (HEADER_BYTES + metadata + 63) / 64 * 64;
    // full_is_smaller of container/write.rs.
    if (payload_at + result->payload_bytes >= HEADER_BYTES + st->len) {
        st->full = 1;
        result->stored = FULL, result->payload_bytes = st->len;
        return;
    }
    result->stored = is_basic ? BASIC : is_list ? LIST : TREE;
    result->first = first, result->shifted = shifted;
}

// Writes the metadata to where it stays, and sums up metadata and payload.
extern "C" __global__ void __launch_bounds__(THREADS) dedup_emit(State *st, u8 *out, u32 ordinal) {
    if (st->full) return;
    const u32 words = st->words, tiles = st->tiles, lane = lane_id(), t = threadIdx.x;
    const u32 firsts = st->result.first, shifts = st->result.shifted;
    const bool is_basic = st->method == BASIC, is_list = st->method == LIST;
    u32 *metadata = (u32 *)(out + HEADER_BYTES);
    u64 sum = 0;
    Digest payload = {0, 0};
    auto put = [&](u32 at, u32 word) {
        metadata[at] = word;
        sum += word_term(word, at);
    };
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        u32 at = tile * TILE_WORDS + t, base = tile * TILE_WORDS + t - lane;
        u32 stored = at < words ? st->first[at] : 0;
        if (is_basic && at < words) put(at, stored);
        u32 before = at < words ? st->tile_first[tile] + (u32)(st->ranks[at] >> 32) : 0;
        each_bit(stored, [&](bool active, u32 owner, u32 bit) {
            u32 theirs = __shfl_sync(ALL, stored, owner), rank = __shfl_sync(ALL, before, owner);
            if (!active) return;
            u32 chunk = (base + owner) * WARP + bit;
            rank += __popc(theirs & ((1u << bit) - 1));
            Digest added = term(load(st->digests + chunk), rank);
            payload.low += added.low, payload.high += added.high;
        });
        if (is_basic) continue;
        u32 heads = at < words ? st->heads[at] : 0;
        each_bit(heads, [&](bool active, u32 owner, u32 bit) {
            if (!active) return;
            u32 word = base + owner, chunk = word * WARP + bit, below = (1u << bit) - 1;
            u32 first = st->first[word], head = st->heads[word], ranks = st->head_ranks[word];
            Region region = {0, RUNS, false};
            if (!is_list) region = region_at(st, chunk);
            // The node's number in order; Node of layout.rs.
            u32 name = 2 * chunk + (1u << region.level);
            if (first >> bit & 1) {
                put(st->tile_heads_first[tile] + (ranks >> 16) + __popc(head & first & below), name);
                return;
            }
            u64 source = source_of(st, chunk, ordinal);
            u32 entry = st->tile_heads_shifted[tile] + (ranks & 0xFFFF) + __popc(head & ~first & below);
            put(firsts + entry, name);
            put(firsts + shifts + entry, (u32)(source >> 32) | (region.kind == REPEATING ? REPEATS : 0));
            put(firsts + 2 * shifts + entry, (u32)source);
        });
    }
    // What fills the metadata up to the payload.
    u64 length = is_basic ? words : firsts + 3ull * shifts;
    u64 end = ((HEADER_BYTES + length * 4 + 63) / 64 * 64 - HEADER_BYTES) / 4;
    if (blockIdx.x == 0 && length + t < end) metadata[length + t] = 0;
    add_to(&st->result.metadata, sum);
    add_to(&st->result.payload.low, payload.low);
    add_to(&st->result.payload.high, payload.high);
}
