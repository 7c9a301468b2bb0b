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

// In `owners`: a free slot, and one that is being filled.
#define EMPTY 0xFFFFFFFFFFFFFFFFull
#define BUSY 0xFFFFFFFFFFFFFFFEull
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
    u64 changed, candidates, entered, live;
    u32 stored, first, shifted, evicted;
};

struct State {
    Secret secret;
    // Of the lineage.
    u64 len, slots, capacity;
    u32 count, shift, words, tiles, method, unused;
    Digest *digests;  // of each chunk of the checkpoint before
    u64 *sources;     // of each changed chunk, where its bytes are: ordinal << 32 | chunk
    Digest *keys;     // the record of hashes: open addressing, linear probing
    u64 *owners;      // where the chunk with that digest was stored
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

__device__ __forceinline__ u64 home(const State *st, Digest d) { return __umul64hi(d.low, st->slots); }

// Where the record has this digest, or UNKNOWN. Nobody writes to the record meanwhile.
__device__ __forceinline__ u64 find(const State *st, Digest d) {
    if (is_null(d)) return UNKNOWN;
    u64 slots = st->slots, at = home(st, d);
    const Digest *keys = st->keys;
    for (;;) {
        Digest key = load(keys + at);
        if (same(key, d)) return st->owners[at];
        if (is_null(key)) return UNKNOWN;
        if (++at == slots) at = 0;
    }
}

__device__ __forceinline__ u64 load_acquire(const u64 *p) {
    u64 x;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    return x;
}

__device__ __forceinline__ void store_release(u64 *p, u64 x) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}
