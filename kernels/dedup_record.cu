// The record of hashes: looking up, forgetting, and entering what it did not have. The twin of
// crates/dedup/src/record.rs.

#include "dedup_state.cuh"

#define THREADS 256u

// Forgets the oldest checkpoints until the candidates fit; Record::make_room.
__device__ inline void make_room(State *st, u64 candidates) {
    u32 oldest = st->oldest, count = st->generation_count, kept_from = 0;
    u64 live = st->live;
    while (count && (live + candidates > st->capacity || count >= GENERATIONS)) {
        Generation gone = st->generations[oldest];
        live -= gone.chunks;
        kept_from = gone.ordinal + 1;
        oldest = (oldest + 1) % GENERATIONS;
        count -= 1;
    }
    st->oldest = oldest, st->generation_count = count, st->live = live;
    st->kept_from = kept_from;
}

// Looks up what changed: where its bytes are, or that nobody has them yet.
extern "C" __global__ void __launch_bounds__(THREADS, 6) dedup_find(State *st) {
    if (st->full) return;
    u64 candidates = 0;
    u32 lane = lane_id(), words = st->words, stride = gridDim.x * THREADS;
    bool has_entries = st->generation_count != 0;
    for (u32 base = blockIdx.x * THREADS + threadIdx.x - lane; base < words; base += stride) {
        u32 word = base + lane < words ? st->changed[base + lane] : 0;
        each_bit(word, [&](bool active, u32 owner, u32 bit) {
            if (!active) return;
            u32 chunk = (base + owner) * WARP + bit;
            u64 place = has_entries ? find(st, load(st->digests + chunk)) : UNKNOWN;
            st->sources[chunk] = place;
            candidates += place == UNKNOWN;
        });
    }
    add_to(&st->result.candidates, candidates);
    if (!is_last_block(&st->tickets[5]) || threadIdx.x != 0) return;
    make_room(st, atomicAdd(&st->result.candidates, 0ull));
}

__device__ __noinline__ void move_chunk(const State *st, u64 from, u64 to) {
    const ulonglong2 *bytes = (const ulonglong2 *)(st->pool + (from << st->shift));
    for (u32 n = 0; n < 1u << st->shift >> 4; ++n) ((ulonglong2 *)(st->pool + (to << st->shift)))[n] = bytes[n];
}

// Takes out what is no longer in a generation, if anything. Open addressing leaves no holes, so what stood behind a
// hole moves up; nothing moves past a slot that was free, so every stretch between free slots has a thread of its
// own. At 4/5 full the stretches are short.
extern "C" __global__ void __launch_bounds__(THREADS) dedup_forget(State *st) {
    if (st->kept_from == 0 || st->full) return;
    const u64 slots = st->slots, first = (u64)blockIdx.x * THREADS + threadIdx.x, stride = (u64)gridDim.x * THREADS;
    const u32 oldest = st->oldest, generations = st->generation_count;
    if (generations == 0) {
        ulonglong2 none = {EMPTY, EMPTY};
        for (u64 at = first; at < slots / 2; at += stride) ((ulonglong2 *)st->owners)[at] = none;
        return;
    }
    u64 *owners = st->owners;
    auto lives = [&](u64 slot) { return (slot_generation(slot) - oldest) % GENERATIONS < generations; };
    auto after = [&](u64 at) { return at + 1 == slots ? 0 : at + 1; };
    for (u64 start = first; start < slots; start += stride) {
        // The slot before is nobody's to free but the thread's whose stretch it ends, and that one leaves the
        // first free slot behind its stretch as it is: so a slot that was free at the start stays free.
        if (owners[start ? start - 1 : slots - 1] != EMPTY || owners[start] == EMPTY) continue;
        u64 at = start, slot = owners[at];
        while (slot != EMPTY && lives(slot)) at = after(at), slot = owners[at];
        // From the first hole on.
        for (; slot != EMPTY; at = after(at), slot = owners[at]) {
            if (!lives(slot)) {
                owners[at] = HOLE;
                continue;
            }
            Digest key = load(st->keys + at);
            u64 to = home(st, key);
            while (to != at && owners[to] != HOLE) to = after(to);
            if (to == at) continue;
            owners[at] = HOLE;
            store(st->keys + to, key);
            if (st->pool) move_chunk(st, at, to);
            owners[to] = slot;
        }
    }
}

// Second half of forgetting: until all stretches are done, what was freed must not look like the end of one.
extern "C" __global__ void __launch_bounds__(THREADS) dedup_sweep(State *st) {
    if (st->kept_from == 0 || st->full || st->generation_count == 0) return;
    ulonglong2 *pairs = (ulonglong2 *)st->owners;
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < st->slots / 2; at += (u64)gridDim.x * THREADS) {
        ulonglong2 pair = pairs[at];
        if (pair.x != HOLE && pair.y != HOLE) continue;
        if (pair.x == HOLE) pair.x = EMPTY;
        if (pair.y == HOLE) pair.y = EMPTY;
        pairs[at] = pair;
    }
}

// Enters a digest of `chunk`, or finds it entered by another chunk of this checkpoint; the lowest chunk owns it in the
// end, whoever comes first. The others learn the slot. A digest is compared with that of the chunk which the slot
// names, written by an earlier kernel, so nobody waits for anybody; the key is for later kernels.
__device__ __forceinline__ bool enter(State *st, Digest digest, u64 own) {
    u64 slots = st->slots, at = home(st, digest);
    for (;;) {
        Bucket bucket = load_bucket(st->owners + at);
#pragma unroll
        for (u32 k = 0; k < BUCKET; ++k) {
            u64 slot = bucket.slot[k];
            if (slot == EMPTY) {
                slot = atomicCAS(st->owners + at + k, EMPTY, own);
                if (slot == EMPTY) {
                    store(st->keys + at + k, digest);
                    return true;
                }
            }
            // What is older is not this digest, or it would have been found.
            if (slot >> 32 != own >> 32 || !same(load(st->digests + (u32)slot), digest)) continue;
            if (own < slot) slot = atomicMin(st->owners + at + k, own);
            st->sources[(u32)max(slot, own)] = SLOT | (at + k);
            return false;
        }
        at += BUCKET;
        if (at == slots) at = 0;
    }
}

// What stays UNKNOWN is stored with this checkpoint.
extern "C" __global__ void __launch_bounds__(THREADS, 6) dedup_enter(State *st) {
    if (st->full) return;
    u64 entered = 0;
    u32 lane = lane_id(), words = st->words, stride = gridDim.x * THREADS;
    u32 generation = (st->oldest + st->generation_count) % GENERATIONS;
    for (u32 base = blockIdx.x * THREADS + threadIdx.x - lane; base < words; base += stride) {
        u32 word = base + lane < words ? st->changed[base + lane] : 0;
        each_bit(word, [&](bool active, u32 owner, u32 bit) {
            if (!active) return;
            u32 chunk = (base + owner) * WARP + bit;
            if (st->sources[chunk] != UNKNOWN) return;
            Digest digest = load(st->digests + chunk);
            if (!is_null(digest)) entered += enter(st, digest, slot_head(generation, digest) | chunk);
        });
    }
    add_to(&st->result.entered, entered);
}
