// What the kernels of a lineage share, and the warp-level tools that they are made of. The structures are those of
// crates/dedup/src/gpu/state.rs, field by field.
#pragma once

#include "dedup_xxh3.cuh"

#define WARP 32u
#define ALL 0xFFFFFFFFu
#define TILE_WORDS 256u  // words of 32 chunks that a block of as many threads handles together

// Methods and forms, as the container numbers them.
#define FULL 0u
#define BASIC 1u
#define LIST 2u
#define TREE 3u
#define AUTO 4u

#define HEADER_BYTES 192ull
#define REPEATS 0x80000000u
#define GENERATIONS 4096u

// The record of hashes is a table of slots in buckets of four, as many as a 32-byte sector of memory has room for: open
// addressing, linear probing from the first slot of a bucket. A slot is a word that mostly says by itself that the digest
// is another: the number of the generation that entered it, 12 bits; 20 bits of the digest; the chunk, 32 bits. The
// whole digests are in `keys`, and looked at when all of that agrees.
#define BUCKET 4u
// In `owners`: a free slot, and one that `forget` has freed and `sweep` has not come to yet.
#define EMPTY 0xFFFFFFFFFFFFFFFFull
#define HOLE 0xFFFFFFFFFFFFFFFEull
// In `sources`: not known to the record, and where it was entered then.
#define UNKNOWN 0xFFFFFFFFFFFFFFFFull
#define SLOT 0x8000000000000000ull

struct Generation {
    u32 ordinal, chunks;
};

// What the host is told of one difference, in host memory.
struct Result {
    Digest content, parent, payload;
    u64 metadata;
    u64 payload_bytes;
    u64 changed, candidates, entered, live, collisions;
    u32 stored, first, shifted, evicted;
};

struct State {
    Secret secret;
    // Of the lineage.
    u64 len, slots, capacity;
    u32 count, shift, words, tiles, method, unused;
    Digest *digests;  // of each chunk of the checkpoint before
    u64 *sources;     // of each changed chunk, where its bytes are: ordinal << 32 | chunk
    Digest *keys;     // the record of hashes: the digest of each slot
    u64 *owners;      // and the slot: which chunk of which generation was stored with it
    // One bit for each chunk.
    u32 *changed;
    u32 *first;   // it is stored with this checkpoint
    u32 *behind;  // its source lies behind that of the chunk before
    u32 *again;   // its source is that of the chunk before
    u32 *heads;   // a region starts with it
    // How many bits are set before each word, in its tile.
    u64 *ranks;       // of first, behind and again, 16 bits each
    u32 *head_ranks;  // of heads of stored and of shifted regions
    // How many before each tile.
    u32 *tile_first, *tile_behind, *tile_again, *tile_heads_first, *tile_heads_shifted;
    Generation *generations;
    // To compare bytes with, if asked to: the checkpoint before, and the chunk of each slot.
    u8 *previous, *pool;
    // Changes with every checkpoint.
    Digest content, parent;
    u64 live;
    u32 oldest, generation_count;
    // Of this checkpoint.
    u64 sampled_new;
    u32 tickets[8];
    u32 full, kept_from;  // stored in full; the record forgets what is older
    Result result;
};

// What the blocks of one launch have in common beyond `State`.
__device__ __forceinline__ u32 lane_id() { return threadIdx.x % WARP; }
__device__ __forceinline__ u64 pack(u32 ordinal, u32 chunk) { return (u64)ordinal << 32 | chunk; }
__device__ __forceinline__ bool same(Digest a, Digest b) { return a.low == b.low && a.high == b.high; }
// Stands for a free slot, so a chunk with this digest is never recorded.
__device__ __forceinline__ bool is_null(Digest d) { return (d.low | d.high) == 0; }

__device__ __forceinline__ Digest load(const Digest *p) {
    ulonglong2 x = *(const ulonglong2 *)p;
    Digest d = {x.x, x.y};
    return d;
}

__device__ __forceinline__ void store(Digest *p, Digest d) {
    ulonglong2 x;
    x.x = d.low, x.y = d.high;
    *(ulonglong2 *)p = x;
}

__device__ __forceinline__ u32 chunk_bytes(const State *st, u32 chunk) {
    u64 start = (u64)chunk << st->shift, size = 1ull << st->shift;
    return (u32)(st->len - start < size ? st->len - start : size);
}

// Whether this is the last block of the launch to come here: then it sees all that the others wrote.
__device__ __forceinline__ bool is_last_block(u32 *ticket) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return last;
}

__device__ __forceinline__ u64 warp_sum(u64 x) {
    for (u32 step = WARP / 2; step; step /= 2) x += __shfl_xor_sync(ALL, x, step);
    return x;
}

// Adds up over the block and then to `total`. All threads of the block call it.
__device__ __forceinline__ void add_to(u64 *total, u64 x) {
    x = warp_sum(x);
    if (lane_id() == 0 && x) atomicAdd(total, x);
}

// The exclusive sum of `x` over the 256 threads of the block; `total` is that of all.
template <class T>
__device__ __forceinline__ T block_scan(T x, T *total) {
    __shared__ T sums[8];
    u32 lane = lane_id(), warp = threadIdx.x / WARP;
    T sum = x;
    for (u32 step = 1; step < WARP; step *= 2) {
        T left = __shfl_up_sync(ALL, sum, step);
        if (lane >= step) sum += left;
    }
    __syncthreads();
    if (lane == WARP - 1) sums[warp] = sum;
    __syncthreads();
    T before = 0, all = 0;
    for (u32 w = 0; w < 8; ++w) {
        if (w < warp) before += sums[w];
        all += sums[w];
    }
    *total = all;
    return before + sum - x;
}

// Makes counts the sums of those before; 256 threads, 8 counts each at a time, for one block does it alone while the
// device waits. Returns the sum of all.
__device__ inline u32 scan_tiles(u32 *counts, u32 tiles) {
    const u32 EACH = 8;
    u32 before = 0;
    for (u32 base = 0; base < tiles; base += EACH * TILE_WORDS) {
        u32 at = base + EACH * threadIdx.x, x[EACH], sum = 0, total;
#pragma unroll
        for (u32 k = 0; k < EACH; ++k) {
            x[k] = at + k < tiles ? __ldcg(counts + at + k) : 0;
            sum += x[k];
        }
        u32 next = before + block_scan(sum, &total);
#pragma unroll
        for (u32 k = 0; k < EACH; ++k) {
            if (at + k < tiles) counts[at + k] = next;
            next += x[k];
        }
        before += total;
    }
    return before;
}

// The place of the n-th bit that is set, from 0.
__device__ __forceinline__ u32 nth_bit(u32 word, u32 n) {
    u32 at = 0;
    for (u32 half = 16; half; half /= 2) {
        u32 low = __popc((word >> at) & ((1u << half) - 1));
        if (n >= low) n -= low, at += half;
    }
    return at;
}

// Calls f(active, owner, bit) for every bit that is set in the words of the warp's lanes, in order, spread over
// all lanes; `owner` is the lane that has the word. All lanes make every call.
template <class F>
__device__ __forceinline__ void each_bit(u32 word, F f) {
    u32 lane = lane_id(), sum = __popc(word);
    for (u32 step = 1; step < WARP; step *= 2) {
        u32 left = __shfl_up_sync(ALL, sum, step);
        if (lane >= step) sum += left;
    }
    u32 total = __shfl_sync(ALL, sum, WARP - 1), before = sum - __popc(word);
    for (u32 base = 0; base < total; base += WARP) {
        u32 n = base + lane, owner = 0;
        for (u32 step = WARP / 2; step; step /= 2) {
            u32 there = __shfl_sync(ALL, before, owner + step);
            if (there <= n) owner += step;
        }
        u32 found = __shfl_sync(ALL, word, owner), skip = __shfl_sync(ALL, before, owner);
        bool active = n < total;
        f(active, owner, active ? nth_bit(found, n - skip) : 0u);
    }
}

// Makes words of answers: f(active, owner, bit), for every bit that is set in the words of the warp's lanes, returns up
// to N flags, and answers[k] becomes this lane's word of flag k. Few bits are spread over the lanes, many are taken
// word by word. `shared` has N words for each lane of the warp. All lanes make every call.
template <u32 N, class F>
__device__ __forceinline__ void map_bits(u32 word, u32 (*shared)[N], u32 (&answers)[N], F f) {
    const u32 lane = lane_id();
    u32 total = __reduce_add_sync(ALL, __popc(word));
#pragma unroll
    for (u32 k = 0; k < N; ++k) answers[k] = 0;
    if (total == 0) return;
    if (total >= 8 * WARP) {
        for (u32 owner = 0; owner < WARP; ++owner) {
            u32 theirs = __shfl_sync(ALL, word, owner);
            if (theirs == 0) continue;
            u32 flags = f((theirs >> lane & 1) != 0, owner, lane);
#pragma unroll
            for (u32 k = 0; k < N; ++k) {
                u32 bits = __ballot_sync(ALL, (flags >> k & 1) != 0);
                if (owner == lane) answers[k] = bits;
            }
        }
        return;
    }
#pragma unroll
    for (u32 k = 0; k < N; ++k) shared[lane][k] = 0;
    __syncwarp();
    each_bit(word, [&](bool active, u32 owner, u32 bit) {
        u32 flags = f(active, owner, bit);
#pragma unroll
        for (u32 k = 0; k < N; ++k) {
            if (flags >> k & 1) atomicOr(&shared[owner][k], 1u << bit);
        }
    });
    __syncwarp();
#pragma unroll
    for (u32 k = 0; k < N; ++k) answers[k] = shared[lane][k];
    __syncwarp();
}

// The first slot to look at.
__device__ __forceinline__ u64 home(const State *st, Digest d) { return __umul64hi(d.low, st->slots / BUCKET) * BUCKET; }

// What a slot holds for a digest that a generation enters, but for the chunk.
__device__ __forceinline__ u64 slot_head(u32 generation, Digest d) {
    return (u64)generation << 52 | (d.high >> 44) << 32;
}
__device__ __forceinline__ u32 slot_tag(u64 slot) { return (u32)(slot >> 32) & 0xFFFFFu; }
__device__ __forceinline__ u32 slot_generation(u64 slot) { return (u32)(slot >> 52); }

// The four slots of a bucket, as they are in the L2 cache at least.
struct Bucket {
    u64 slot[BUCKET];
};

__device__ __forceinline__ Bucket load_bucket(const u64 *from) {
    ulonglong2 a = __ldcg((const ulonglong2 *)from), b = __ldcg((const ulonglong2 *)from + 1);
    Bucket bucket = {{a.x, a.y, b.x, b.y}};
    return bucket;
}

// The slot of this digest, or UNKNOWN. Nobody writes to the record meanwhile.
__device__ __forceinline__ u64 find_slot(const State *st, Digest d, u64 *word) {
    if (is_null(d)) return UNKNOWN;
    u64 slots = st->slots, at = home(st, d);
    u32 tag = (u32)(d.high >> 44);
    for (;;) {
        Bucket bucket = load_bucket(st->owners + at);
#pragma unroll
        for (u32 k = 0; k < BUCKET; ++k) {
            u64 slot = bucket.slot[k];
            if (slot == EMPTY) return UNKNOWN;
            if (slot_tag(slot) != tag || !same(load(st->keys + at + k), d)) continue;
            *word = slot;
            return at + k;
        }
        at += BUCKET;
        if (at == slots) at = 0;
    }
}

// Where the record has the bytes with this digest, or UNKNOWN.
__device__ __forceinline__ u64 find(const State *st, Digest d) {
    u64 slot = 0;
    if (find_slot(st, d, &slot) == UNKNOWN) return UNKNOWN;
    return pack(st->generations[slot_generation(slot)].ordinal, (u32)slot);
}
