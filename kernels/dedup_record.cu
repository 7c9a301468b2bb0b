// The record of hashes: forgetting, and entering what it did not have. The twin of crates/dedup/src/record.rs.

#include "dedup_state.cuh"

#define THREADS 256u

// Takes out what is older than `kept_from`, if anything. Open addressing leaves no holes, so what stood behind a
// hole moves up; nothing moves past a slot that was free, so every stretch between free slots has a thread of its
// own. At 4/5 full the stretches are short.
extern "C" __global__ void __launch_bounds__(THREADS) dedup_forget(State *st) {
    u32 kept_from = st->kept_from;
    if (kept_from == 0 || st->full) return;
    u64 slots = st->slots, *owners = st->owners;
    Digest *keys = st->keys;
    for (u64 start = (u64)blockIdx.x * THREADS + threadIdx.x; start < slots; start += (u64)gridDim.x * THREADS) {
        // The slot before is nobody's to free but the thread's whose stretch it ends, and that one leaves the
        // first free slot behind its stretch as it is: so a slot that was free at the start stays free.
        u64 before = start ? start - 1 : slots - 1;
        if (!is_null(load(keys + before)) || is_null(load(keys + start))) continue;
        for (u64 at = start;;) {
            Digest key = load(keys + at);
            if (is_null(key)) break;
            u64 owner = owners[at];
            u64 to = at;
            bool lives = (u32)(owner >> 32) >= kept_from;
            if (lives) {
                to = home(st, key);
                while (to != at && owners[to] != EMPTY) to = to + 1 == slots ? 0 : to + 1;
            }
            if (!lives || to != at) {
                owners[at] = EMPTY;
                if (lives) {
                    store(keys + to, key);
                    owners[to] = owner;
                }
            }
            at = at + 1 == slots ? 0 : at + 1;
        }
    }
}

// Second half of forgetting: keys of slots that were freed. Until all stretches are done they are what tells the
// stretches apart.
extern "C" __global__ void __launch_bounds__(THREADS) dedup_sweep(State *st) {
    if (st->kept_from == 0 || st->full) return;
    Digest none = {0, 0};
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < st->slots; at += (u64)gridDim.x * THREADS) {
        if (st->owners[at] == EMPTY && !is_null(load(st->keys + at))) store(st->keys + at, none);
    }
}

// Enters a digest, or finds it entered by another chunk of this checkpoint; the lowest chunk owns it in the end,
// whoever comes first. Returns the slot.
__device__ inline u64 enter(State *st, Digest digest, u64 own, u32 ordinal, u64 *entered) {
    u64 slots = st->slots, at = home(st, digest);
    for (;;) {
        u64 *owner = st->owners + at;
        u64 seen = load_acquire(owner);
        if (seen == EMPTY) {
            seen = atomicCAS(owner, EMPTY, BUSY);
            if (seen == EMPTY) {
                store(st->keys + at, digest);
                store_release(owner, own);
                *entered += 1;
                return at;
            }
        }
        while (seen == BUSY) seen = load_acquire(owner);
        // What is older is not this digest, or it would have been found.
        if ((u32)(seen >> 32) == ordinal) {
            const volatile u64 *key = (const volatile u64 *)(st->keys + at);
            if (key[0] == digest.low && key[1] == digest.high) {
                atomicMin(owner, own);
                return at;
            }
        }
        if (++at == slots) at = 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) dedup_enter(State *st, u32 ordinal) {
    if (st->full) return;
    u64 entered = 0;
    u32 lane = lane_id(), words = st->words;
    u32 stride = gridDim.x * THREADS;
    for (u32 base = blockIdx.x * THREADS + threadIdx.x - lane; base < words; base += stride) {
        u32 word = base + lane < words ? st->changed[base + lane] : 0;
        each_bit(word, [&](bool active, u32 owner, u32 bit) {
            if (!active) return;
            u32 chunk = (base + owner) * WARP + bit;
            if (st->sources[chunk] != UNKNOWN) return;
            Digest digest = load(st->digests + chunk);
            u64 own = pack(ordinal, chunk);
            st->sources[chunk] = is_null(digest) ? own : SLOT | enter(st, digest, own, ordinal, &entered);
        });
    }
    add_to(&st->result.entered, entered);
}
